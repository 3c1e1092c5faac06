from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from research.results import AnalysedResult, Analyses, Sweep
from training.heads import FixedHead, Tammes
from training.results import Calibration, Data, Deal, Line, Machine, RunCost

Make = Callable[..., AnalysedResult]


@pytest.fixture(autouse=True)
def spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace class vectors that take a second to compute: no test here depends on the head's content."""
    monkeypatch.setattr(Tammes, "__call__", lambda _, dim, classes: FixedHead(torch.zeros(classes, dim)))


@pytest.fixture
def make() -> Make:
    """Make a result of CCVR's FedAvg with the paper's settings; `changes` are fields of `AnalysedResult`."""

    def run(*, seed: int = 0, accuracy: float = 0.58, ccvr: float = 0.62, **changes: Any) -> AnalysedResult:
        rng = np.random.default_rng(seed)
        fields: dict[str, Any] = {
            "experiment": "ccvr-fedavg",
            "method": "FedAvg",
            "seed": seed,
            "recipe": {},
            "data": Data(
                name="CIFAR-10", classes=3, train_records=50_000, test_records=900, shape=(3, 32, 32)
            ),
            "deal": Deal(
                kind="dirichlet",
                options={"alpha": 0.1},
                digest=f"{seed:064x}",
                label_counts=((3, 0, 5), (0, 9, 2)),
                moved=seed,
            ),
            "history": tuple(
                Line(round=i + 1, lr=0.1, local_loss=1, test_loss=1, accuracy=accuracy * i / 3, seconds=1)
                for i in range(4)
            ),
            "accuracy": accuracy,
            "per_class": (0.2, None, 0.9),
            "calibrations": (
                Calibration(kind="ccvr", accuracy=ccvr, per_class=(0.5, None, 0.8), upload_bytes=2_500_000),
                Calibration(kind="ffc", accuracy=ccvr + 0.01, per_class=(0.6, None, 0.8), upload_bytes=2_400),
            ),
            "sweeps": (Sweep(kind="ffc", parameter="ridge", values=(0.1, 1.0), accuracies=(0.6, 0.5)),),
            "analyses": Analyses(
                cka={"layer 1": ((1, 0.9), (0.9, 1)), "head": ((1, 0.5), (0.5, 1))},
                head_norms=((1.0, 0.5, 0.7), (0.4, 1.2, 0.8)),
                consistency={"direction": 0.5},
                singular_values=(2.0, 1.0, 0.5),
                separability=1.5 + seed,
                embedding=tuple(map(tuple, rng.random((12, 2)).tolist())),
                labels=tuple(i % 3 for i in range(12)),
                predicted={"trained": (0,) * 12},
            ),
            "cost": RunCost(wall_s=120.0, cpu_s=100.0, upload_bytes=360_000),
            "environment": Machine(python="3.11", torch="2", numpy="2", processor="a <fast> one", threads=1),
        }
        return AnalysedResult(**(fields | changes))

    return run
