"""What a run's pictures show: its analyses, and sweeps over its calibrations' hyper-parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from training.analysis import analyse, member_models, sweep
from training.calibrating import VIRTUAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import numpy.typing as npt

    from training.calibrating import Held
    from training.data import Split
    from training.experiments.config import Experiment
    from training.federated import Trained
    from training.hardware import Hardware
    from training.partition import Partition
    from training.results import Analyses, Sweep

    Answers = npt.NDArray[np.int64]

_RIDGES = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0)
_VIRTUAL = (10, 50, 100, 500, 1000, 2000)  # from 50 on CCVR's own (Luo et al. 2021, §5.5)


def analysed(
    experiment: Experiment,
    trained: Trained,
    data: Split,
    partition: Partition,
    predicted: Mapping[str, Answers],
    held: Held | None,
    z: npt.NDArray[np.float32],
    *,
    workers: int,
    hardware: Hardware,
) -> tuple[Analyses, tuple[Sweep, ...]]:
    """What `training.analysis` finds of a run, and the sweeps of those of its calibrations that have one.

    Args:
        experiment: its choices.
        trained: what it left.
        data: its records.
        partition: who trained on which.
        predicted: by calibration, and "none" before any, what the test records are taken for, (n,).
        held: its members' features, where it calibrates.
        z: the test records' features, (n, l).
        workers: processes that train every member once more.
        hardware: where they do.
    """
    classifier, labels = trained.classifier, data.test.y.numpy()
    calibrated = [kind for kind in predicted if kind != "none"]
    best = max(calibrated, key=lambda kind: int((predicted[kind] == labels).sum()), default="none")
    shown = {kind: predicted[kind] for kind in ("none", best)}
    members = member_models(trained, data.train, partition, workers=workers, hardware=hardware)
    found = analyse(classifier, members, data.test, predicted=shown, seed=trained.recipe.seed)
    return found, () if held is None else tuple(_sweeps(experiment.calibrate, held, z, labels))


def _sweeps(
    wanted: Mapping[str, Mapping[str, Any]], held: Held, z: npt.NDArray[np.float32], labels: Answers
) -> Iterator[Sweep]:
    if "ffc" in wanted:
        yield sweep("ffc", held, z, labels, "ridge", _RIDGES, **wanted["ffc"])
    if "ccvr" in wanted:
        own = wanted["ccvr"].get("per_class", VIRTUAL)
        counts = [count for count in _VIRTUAL if count < own]  # no more work and memory than the run has had
        yield sweep("ccvr", held, z, labels, "per_class", [*counts, own], **wanted["ccvr"])
