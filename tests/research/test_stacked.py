"""Stacked runs, compared with `train`."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from shutil import which

import numpy as np
import pytest
import torch

from research.results import read_results
from research.stacked import __main__ as stacked
from research.stacked.runs import Stack
from training.algorithms.named import ALGORITHMS
from training.data.dataset import Dataset, Split
from training.experiments.config import Experiment
from training.experiments.running import PreparedData, prepare_data
from training.federated import train
from training.models.config import ExtractorConfig
from training.partition import Partition
from training.recipe import Constant, fedavg_recipe
from training.resume import RoundRecord

_DEVICES = ["cpu"] if which("g++") else []
_DEVICES += ["cuda"] if torch.cuda.is_available() else []
METHODS: dict[str, dict[str, float]] = {
    "fedavg": {},
    "fedprox": {"mu": 0.5},
    "fedavgm": {"momentum": 0.1},
    "moon": {"mu": 1.0, "temperature": 0.5},
}


def scene(seed: int) -> PreparedData:
    rng = np.random.default_rng(seed)
    pixels = np.random.default_rng(7)  # scenes share their images
    x = torch.from_numpy(pixels.integers(0, 256, (30, 3, 32, 32), dtype=np.uint8))
    y = torch.from_numpy(pixels.integers(0, 4, 30))
    whole = Dataset(x, y, 4, "noise", mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
    train_records, test_records = whole.subset(torch.arange(24)), whole.subset(torch.arange(24, 30))
    order = rng.permutation(24)
    rows = [order[:13], order[13:20], order[20:]]  # 13 = 3 · 4 + 1: the last batch has five records
    return PreparedData(Split(train_records, test_records), Partition.of(rows, y[:24].numpy()))


@pytest.mark.parametrize("device", _DEVICES)
@pytest.mark.parametrize(("scenes_count", "methods", "augment"), [(1, ["fedavg"], False), (2, METHODS, True)])
def test_stacked_runs_equal_runs_one_by_one(
    device: str, scenes_count: int, methods: Iterable[str], *, augment: bool
) -> None:
    scenes = [scene(seed) for seed in range(scenes_count)]
    recipes = [
        [
            replace(
                fedavg_recipe(ExtractorConfig.of("moon_cnn", scenes[seed].data.train)),
                algorithm=ALGORITHMS[name](**METHODS[name]),
                rounds=2,
                local_epochs=1,
                batch_size=4,
                lr=0.05,
                schedule=Constant(),
                augment=augment,
                seed=seed,
            )
            for name in methods
        ]
        for seed in range(scenes_count)
    ]
    stack = Stack(scenes, recipes, torch.device(device))
    stack.train(2)
    moved = 0.0
    for s, q, found in stack.trained():
        alone = train(recipes[s][q], scenes[s].data, scenes[s].partition)
        begun = recipes[s][q].build(4).shared_weights()
        for name, tensor in alone.classifier.shared_weights().items():
            torch.testing.assert_close(found.classifier.shared_weights()[name], tensor, rtol=1e-3, atol=2e-5)
            moved = max(moved, float((tensor - begun[name]).abs().max()))
        for ours, theirs in zip(found.history, alone.history, strict=True):
            assert ours.local_loss == pytest.approx(theirs.local_loss, rel=1e-4)
            assert ours.test_loss == pytest.approx(theirs.test_loss, rel=1e-4)
            assert ours.accuracy == pytest.approx(theirs.accuracy)
            assert ours.upload_bytes == theirs.upload_bytes
    assert moved > 1e-2


def test_what_a_gpu_trained_is_calibrated_and_written_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Experiment.model_validate(
        {
            "name": "small/stacked",
            "method": "FedAvg",
            "data": {"side": 16},
            "model": "moon_cnn",
            "calibrate": {"ncm": {}},
        }
    )
    monkeypatch.setattr(stacked, "experiments", lambda _: [small])
    weights = small.make_recipe(prepare_data(small, 3).data.train, 3).build(10).shared_weights()
    line = RoundRecord(1, 1, 0.01, 2.3, 2.3, 0.1, 1.0)
    run = {
        "alpha": "0.1",
        "seed": 3,
        "method": 0,
        "place": "a GPU",
        "weights": weights,
        "history": [asdict(line)],
    }
    torch.save([run], tmp_path / "trained-0.1.pt")
    stacked.finish(tmp_path, None)
    [result] = read_results([tmp_path])
    assert (result.experiment, result.seed, result.environment.device) == ("small/stacked", 3, "a GPU")
    assert [each.kind for each in result.calibrations] == ["ncm"]
