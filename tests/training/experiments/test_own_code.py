from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.own import load
from training.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from training.data.catalogue import load_dataset
from training.data.dataset import Dataset
from training.data.folder import DataError
from training.evaluate import predict_logits
from training.experiments.choices import ConfigError
from training.experiments.config import Experiment, load_experiment
from training.experiments.running import prepare_data, run_experiment

OWN = "tests.training.own"
FILE = f"""
method = "Ours"
model = "{OWN}:Net"
deal = {{ name = "{OWN}:deal", sizes = [40, 50, 60] }}
calibrate = {{ ffc = {{}} }}

[data]
name = "{OWN}:load"

[training]
algorithm = {{ name = "{OWN}:algorithm", mu = 0.5 }}
loss = "{OWN}:loss"
head = "{OWN}:head"
rounds = 3
local_epochs = 1
batch_size = 16
"""


def own(folder: Path, **changes: Any) -> Experiment:
    (folder / "own.toml").write_text(FILE)
    return load_experiment(folder / "own.toml", None, changes)


def test_models_data_algorithms_and_losses_of_ones_own_are_named_by_their_import_paths(
    tmp_path: Path,
) -> None:
    finished = run_experiment(own(tmp_path), 0)
    result = finished.result
    assert result.accuracy > 0.8
    assert (result.data.name, result.data.shape) == ("clouds", (6,))
    assert result.deal.options == {"sizes": [40, 50, 60]}
    assert result.recipe["head"] == f"{OWN}:zero_head"
    assert result.recipe["loss"] == f"{OWN}:loss"
    assert result.recipe["model"]["architecture"] == f"{OWN}:Net"
    assert result.recipe["algorithm"]["terms"] == [{"kind": "Proximal", "mu": 0.5, "over": "all"}]
    path, classifier = tmp_path / "model.safetensors", finished.trained.classifier
    save_checkpoint(classifier, path, preprocessing="")
    with pytest.raises(CheckpointError, match=r"tests\.training\.own:Net"):
        load_checkpoint(path)
    x = finished.prepared.data.test.x
    again = load_checkpoint(path, own_code=True).classifier
    assert torch.equal(predict_logits(again, x), predict_logits(classifier, x))


def test_vectors_train_by_an_mlp_and_not_by_convolutions(tmp_path: Path) -> None:
    training = {"rounds": 1, "algorithm": "fedavg", "loss": "cross-entropy", "head": "learned"}
    assert run_experiment(own(tmp_path, model="mlp", training=training), 0).result.accuracy > 0.8
    for changes in ({"model": "cnn"}, {"model": "mlp", "training": {"augment": True}}):
        experiment = own(tmp_path, **changes)
        with pytest.raises(ConfigError, match="images"):
            experiment.make_recipe(prepare_data(experiment, 0).data.train, 0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"training": {"algorithm": f"{OWN}:missing"}}, "'missing'"),
        ({"training": {"algorithm": "no.such:module"}}, "'no'"),
        ({"training": {"algorithm": f"{OWN}:Net"}}, "'shape'"),
        ({"training": {"algorithm": f"{OWN}:head"}}, r"training\.algorithms\.Algorithm"),
        ({"training": {"also": [f"{OWN}:head"]}}, r"training\.algorithms\.Algorithm"),
        ({"training": {"algorithm": {"name": f"{OWN}:algorithm", "nu": 1}}}, "'nu'"),
        ({"model": f"{OWN}:missing"}, "'missing'"),
        *(
            ({"training": {name: f"{OWN}:MARGIN"}}, rf"training\.{name}: .*0\.5")
            for name in ("algorithm", "head", "loss", "schedule")
        ),
        ({"model": f"{OWN}:MARGIN"}, r"model\.architecture: .*0\.5"),
        ({"deal": f"{OWN}:MARGIN"}, r"deal: .*0\.5"),
    ],
)
def test_a_path_that_names_nothing_is_refused(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        own(tmp_path, **changes)


def test_a_choice_that_results_cannot_name_is_refused_before_training(tmp_path: Path) -> None:
    experiment = own(tmp_path, training={"loss": f"{OWN}:partial_loss"})
    with pytest.raises(ConfigError, match="name"):
        experiment.make_recipe(prepare_data(experiment, 0).data.train, 0)


def test_data_that_cannot_be_imported_are_refused() -> None:
    with pytest.raises(DataError, match="missing"):
        load_dataset(f"{OWN}:missing")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: replace(data, x=data.x * torch.nan), "finite"),
        (lambda data: data.subset(torch.arange(0)), "no records"),
        (lambda _: 3, "3"),
    ],
)
@pytest.mark.parametrize("part", [0, 1])
def test_records_that_nothing_learns_from_are_refused(
    monkeypatch: pytest.MonkeyPatch, part: int, change: Callable[[Dataset], Any], told: str
) -> None:
    parts: list[Any] = list(load(None))
    parts[part] = change(parts[part])
    monkeypatch.setattr(f"{OWN}.load", lambda _: parts)
    with pytest.raises(DataError, match=told):
        load_dataset(f"{OWN}:load")


def test_a_validation_split_is_held_out_of_training_with_the_classes_shares() -> None:
    quick = {"training": {"rounds": 1, "local_epochs": 1}, "model": "mlp", "calibrate": {"ccvr": False}}
    whole = load_experiment("digits-fedavg", None, quick)
    held_out = load_experiment("digits-fedavg", None, {**quick, "data": {"validation": 0.2}})
    before, after = prepare_data(whole, 0), prepare_data(held_out, 0)
    assert before.validation is None
    assert after.validation is not None
    assert len(after.validation) == round(0.2 * len(before.data.train))
    assert len(after.validation) + len(after.data.train) == len(before.data.train)
    together = torch.cat([after.validation.x, after.data.train.x]).flatten(1)
    assert torch.equal(*(torch.unique(x, dim=0) for x in (together, before.data.train.x.flatten(1))))
    shares = [torch.bincount(y) / len(y) for y in (after.validation.y, before.data.train.y)]
    torch.testing.assert_close(*shares, atol=0.01, rtol=0)
    assert torch.equal(before.data.test.x, after.data.test.x)
    result = run_experiment(held_out, 0).result
    assert result.validation is not None
