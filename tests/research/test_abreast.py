"""Runs side by side, compared with `train`."""

from typing import Any

import numpy as np
import pytest
import torch

from research.abreast import train_abreast
from research.papers import paper_experiment
from training.data.dataset import Dataset, Split
from training.experiments.config import Experiment
from training.experiments.running import PreparedData
from training.federated import DivergedError, Trained, train
from training.hardware import Hardware
from training.partition import Partition, shard_partition

METHODS = (
    "fedavg", "fedmmd", "scaffold", "fedprox", "fedaws", "fednova", "fedopt", "moon", "fedrs", "scaffold-fedrs", "feddyn", "etf-gmv",
)  # fmt: skip
_DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def scene() -> PreparedData:
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.integers(0, 256, (88, 3, 8, 8), dtype=np.uint8))
    y = torch.arange(88) % 4
    whole = Dataset(x, y, 4, "noise", mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
    train_records, test_records = whole.subset(torch.arange(64)), whole.subset(torch.arange(64, 88))
    return PreparedData(Split(train_records, test_records), shard_partition(y[:64].numpy(), 8, 2, rng))


def shortened(method: str, *, augment: bool, lr: float = 0.02) -> Experiment:
    changes: dict[str, dict[str, Any]] = {
        "deal": {"name": "shards", "members": 8, "classes": 2},
        "model": {"architecture": "cnn", "options": {"width": 4, "dim": 8}},
        "training": {"rounds": 4, "batch_size": 5, "lr": lr, "participation": 0.375, "augment": augment},
    }
    if method == "etf-gmv":
        changes["training"]["algorithm"] = {"name": "gmv", "alpha": 1.0, "warmup": 3, "over": "participants"}
    return paper_experiment(f"fedetf-{method}", changes=changes)


@pytest.mark.parametrize("device", _DEVICES)
@pytest.mark.parametrize(("methods", "augment"), [(("fedavg", "scaffold"), False), (METHODS, True)])
def test_runs_side_by_side_equal_runs_one_by_one(
    device: str, monkeypatch: pytest.MonkeyPatch, methods: tuple[str, ...], *, augment: bool
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    data = scene()
    experiments = [shortened(method, augment=augment) for method in methods]
    runs = train_abreast(experiments, 1, data, Hardware(device), slots=2, watched=lambda t: t != 2)
    for experiment, found in zip(experiments, runs, strict=True):
        recipe = experiment.make_recipe(data.data.train, 1)
        alone = train(recipe, data.data, data.partition)
        assert isinstance(found, Trained)
        begun = recipe.build(4).shared_weights()
        moved = 0.0
        for name, tensor in alone.classifier.shared_weights().items():
            ours = found.classifier.shared_weights()[name]
            torch.testing.assert_close(ours, tensor, rtol=1e-3, atol=2e-4)
            moved = max(moved, float((tensor - begun[name]).abs().max()))
        assert moved > 1e-3
        for line, other in zip(found.history, alone.history, strict=True):
            assert line.local_loss == pytest.approx(other.local_loss, rel=1e-3)
            assert line.upload_bytes == other.upload_bytes
            if line.round == 2:
                assert np.isnan(line.accuracy)
                continue
            assert line.test_loss == pytest.approx(other.test_loss, rel=1e-3)
            assert line.accuracy == pytest.approx(other.accuracy)


def test_a_run_that_diverges_leaves_the_others_alone() -> None:
    data = scene()
    experiments = [shortened("fedavg", augment=False), shortened("fedprox", augment=False)]
    wild = experiments[1].training.model_copy(update={"algorithm": {"name": "fedprox", "mu": 1e9}})
    experiments[1] = experiments[1].model_copy(update={"training": wild})
    kept, lost = train_abreast(experiments, 1, data, Hardware())
    assert isinstance(kept, Trained)
    assert isinstance(lost, DivergedError)
    assert lost.round <= 2


def test_unequal_members_and_falling_rates_are_refused() -> None:
    data = scene()
    members = [np.concatenate(data.partition.members[:2]), *data.partition.members[2:]]
    uneven = PreparedData(data.data, Partition.of(members, data.data.train.y.numpy()))
    experiment = shortened("fedavg", augment=False)
    with pytest.raises(ValueError, match="equally many records"):
        train_abreast([experiment], 1, uneven, Hardware())
    cosine = experiment.training.model_copy(update={"schedule": "cosine"})
    with pytest.raises(ValueError, match="constant"):
        train_abreast([experiment.model_copy(update={"training": cosine})], 1, data, Hardware())
