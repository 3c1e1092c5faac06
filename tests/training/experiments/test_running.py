from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from training.data.folder import DataError
from training.evaluate import accuracy, per_class_accuracy
from training.experiments.choices import DEALS, ConfigError
from training.experiments.config import Experiment, load_experiment
from training.experiments.running import FinishedRun, prepare_data, run_experiment
from training.hardware import Hardware
from training.heads import Classifier
from training.results import RunResult, write_result

QUICK = {
    "training": {"rounds": 2, "local_epochs": 1},
    "model": {"architecture": "mlp"},
    "calibrate": {"ccvr": False},
}


def digits(**changes: Any) -> Experiment:
    return load_experiment("digits-fedavg", None, {**QUICK, **changes})


@pytest.fixture(scope="module")
def finished() -> FinishedRun:
    return run_experiment(digits(calibrate={"ccvr": {"per_class": 20}}), 3)


def test_a_run_leaves_everything_that_its_numbers_depend_on(finished: FinishedRun, tmp_path: Path) -> None:
    result = finished.result
    assert (result.experiment, result.method, result.seed) == ("digits-fedavg", "FedAvg", 3)
    assert result.deal.digest == finished.prepared.partition.digest
    assert (result.deal.kind, result.deal.options) == ("dirichlet", {"members": 12, "alpha": 0.1})
    assert result.recipe["seed"] == 3
    assert [line.round for line in result.history] == [1, 2]
    assert {each.kind for each in result.calibrations} == {"ffc", "rff", "lda", "ccvr"}
    assert min(each.accuracy for each in result.calibrations) > result.accuracy
    assert result.data.train_records == 1347
    assert result.validation is None
    assert result.cost.parameters is not None
    assert result.cost.upload_bytes == 4 * result.cost.parameters
    assert result.cost.parameters == sum(p.numel() for p in finished.trained.classifier.parameters())
    write_result(result, tmp_path / "result.json")
    assert RunResult.model_validate_json((tmp_path / "result.json").read_text()) == result


def test_the_same_seed_is_the_same_run_and_another_another(finished: FinishedRun) -> None:
    one, same = finished.result, run_experiment(digits(), 3).result
    assert (one.accuracy, one.deal) == (same.accuracy, same.deal)
    assert [line.local_loss for line in one.history] == [line.local_loss for line in same.history]
    assert prepare_data(digits(), 2).partition.digest != one.deal.digest


def test_traffic_is_that_of_a_round_without_a_calibration() -> None:
    changes = {
        "training": {"rounds": 2, "local_epochs": 1, "calibrate_every": 2},
        "model": {"architecture": "mlp"},
        "calibrate": {"rff": False},
    }
    finished = run_experiment(load_experiment("digits-spherefed", None, changes), 0)
    cost, (plain, with_sums) = finished.result.cost, finished.trained.history
    assert cost.parameters is not None
    assert cost.upload_bytes == plain.upload_bytes == 4 * cost.parameters < with_sums.upload_bytes


@pytest.mark.slow
def test_fewer_records_are_the_same_for_every_seed() -> None:
    """Of a split that no seed changes."""
    own = {"name": "tests.training.own:load", "train_records": 100, "watched": 20}
    few = digits(data=own, deal={"name": "iid", "members": 3})
    one, other = prepare_data(few, 0), prepare_data(few, 1)
    assert torch.equal(one.data.train.x, other.data.train.x)
    assert len(one.data.train) == one.partition.sizes.sum() == 100
    assert len(one.data.test) == 50
    accuracies = [line.accuracy or 0.0 for line in run_experiment(few, 0).result.history]
    np.testing.assert_allclose(np.multiply(accuracies, 20) % 1, 0, atol=1e-9)


@pytest.mark.slow
def test_members_are_evaluated_on_what_they_kept_back() -> None:
    personal = {"keep_back": 0.3, "methods": {"ffc": {}, "sgd": {"epochs": 1}}}
    finished = run_experiment(digits(personal=personal, data={"pooled": True}), 0)
    prepared, result = finished.prepared, finished.result
    assert prepared.kept_back is not None
    assert len(prepared.data.train) == result.data.available == 1797
    assert result.data.train_records == prepared.partition.sizes.sum() == 1797 - result.data.test_records
    # the publisher's test records are among those trained on: what members kept back is the test
    kept_back = np.concatenate(prepared.kept_back.test.members)
    assert torch.equal(prepared.data.test.y, prepared.data.train.y[torch.from_numpy(kept_back)])
    for used, kept in zip(prepared.partition.members, prepared.kept_back.test.members, strict=True):
        assert not set(used) & set(kept)
        assert len(kept) == round(0.3 * (len(used) + len(kept)))
    assert {name: len(values) for name, values in result.personal.items()} == {"ffc": 12, "sgd": 12}


def test_what_follows_the_last_round_runs_where_members_train_and_looks_once_at_the_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lent, features = Hardware.on_device, Classifier.features
    within, looks = [], list[int]()

    @contextmanager
    def watched(self: Hardware, model: Classifier) -> Iterator[None]:
        with lent(self, model):
            within.append(model)
            monkeypatch.setattr(Classifier, "features", look)
            yield
            monkeypatch.setattr(Classifier, "features", features)

    def look(self: Classifier, x: torch.Tensor) -> torch.Tensor:
        looks.append(len(x))
        return features(self, x)

    monkeypatch.setattr(Hardware, "on_device", watched)
    finished = run_experiment(digits(calibrate={"ccvr": False, "ncm": {}}), 0)
    assert within == [finished.trained.classifier]
    assert looks == [1024, 1347 - 1024, 450]
    result, test = finished.result, finished.prepared.data.test
    assert result.accuracy == accuracy(finished.trained.classifier, test)
    np.testing.assert_array_equal(result.per_class, per_class_accuracy(finished.trained.classifier, test))


def test_test_records_without_features_name_the_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = torch.zeros(450, 64)
    monkeypatch.setattr("training.experiments.running.extract_features", lambda *_: dead)
    with pytest.raises(ConfigError, match=r"calibrate\.ffc: "):
        run_experiment(digits(training={"rounds": 1, "local_epochs": 1}), 0)


@pytest.mark.parametrize(
    ("method", "options"), [("ffc", {"ridge": 0}), ("sgd", {"lr": 1e30}), ("fine-tuned", {"lr": 1e30})]
)
def test_a_head_of_ones_own_that_cannot_be_fitted_names_its_method(
    method: str, options: dict[str, float]
) -> None:
    quick = {"rounds": 1, "local_epochs": 1, "loss": "mean-squared-error"}
    experiment = digits(training=quick, personal={"methods": {method: options}})
    with pytest.raises(ConfigError, match=rf"personal\.methods\.{method}: "):
        run_experiment(experiment, 0)


def test_what_cannot_be_dealt_or_read() -> None:
    for changes in (
        {"deal": {"name": "iid", "members": 2000}},
        {"deal": {"name": "dirichlet", "members": 600, "alpha": 0.001, "min_size": 0}},
        {"deal": {"name": "iid", "members": 1347}, "personal": {"methods": {"ffc": {}}}},
        {"deal": "natural"},
    ):
        with pytest.raises(ConfigError, match="deal: "):
            prepare_data(digits(**changes), 0)
    with pytest.raises(DataError, match="'x'"):
        prepare_data(digits(data={"name": "x"}), 0)


def test_every_deal_deals_the_records_there_are() -> None:
    deals: list[dict[str, Any]] = [
        {"name": "iid", "members": 4},
        {"name": "shards", "members": 10, "classes": 2},
        {"name": "quantity", "members": 4, "beta": 0.5},
    ]
    for deal in deals:
        partition = prepare_data(digits(deal=deal), 0).partition
        assert len(partition) == deal["members"]
        assert ((partition.label_counts > 0).sum(axis=1) == 2).all() == (deal["name"] == "shards")
    data = prepare_data(digits(), 0).data.train
    spoken = replace(data, groups=torch.arange(len(data)) % 3)
    partition = DEALS["natural"]()(spoken, np.random.default_rng(0))
    assert partition.sizes.tolist() == [449] * 3
    spoken = replace(data, groups=torch.arange(len(data)) % 20)
    whole, some = (DEALS["natural"](members=k)(spoken, np.random.default_rng(3)) for k in (None, 5))
    drawn = [
        k for k, own in enumerate(whole.members) if any(np.array_equal(own, other) for other in some.members)
    ]
    assert len(drawn) == len(some) == 5
    assert drawn != [*range(5)]
    with pytest.raises(ValueError, match=r"\b20 .*\b21\b"):
        DEALS["natural"](members=21)(spoken, np.random.default_rng(0))
