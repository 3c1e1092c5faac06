"""Records, statistics and random bytes shared by the tests of calibration."""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from veilsum.calibration import CCVRStatistics, FFCStatistics
from veilsum.calibration.lattice import SumsLattice

Records = tuple[Any, Any]


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def clouds(
    n: int, dim: int, classes: int, *, seed: int = 0, relu: bool = False, noise: float = 1.0
) -> Records:
    """Return unit rows around class centres; with ReLU some columns are dead, so V is singular."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    rows = rng.standard_normal((classes, dim))[labels] + noise * rng.standard_normal((n, dim))
    if relu:
        rows = np.maximum(rows, 0)
        rows[:, :: max(2, dim // 4)] = 0
        rows[:, 1] += 1e-3
    return unit(rows), labels


def digits() -> tuple[Records, Records]:
    """Return real digits as unit rows: 1,200 to fit, 597 to test."""
    loaded = load_digits()
    rows, labels = unit(loaded.data), loaded.target.astype(np.int64)
    return (rows[:1200], labels[:1200]), (rows[1200:], labels[1200:])


def ffc(rows: Any, labels: Any, classes: int, **settings: Any) -> FFCStatistics:
    statistics = FFCStatistics(np.shape(rows)[1], classes, **settings)
    statistics.update(rows, labels)
    return statistics


def ccvr(rows: Any, labels: Any, classes: int, bound: float = 4.0) -> CCVRStatistics:
    statistics = CCVRStatistics(rows.shape[1], classes, norm_bound=bound)
    statistics.update(rows, labels)
    return statistics


def members_of(rows: Any, labels: Any, classes: int, members: int, **settings: Any) -> list[FFCStatistics]:
    return [ffc(rows[i::members], labels[i::members], classes, **settings) for i in range(members)]


def total_of(members: Any, lattice: SumsLattice) -> Any:
    """Return what a secure sum without faults returns."""
    return np.sum([member.vector(lattice) for member in members], axis=0)


def pooled(members: list[FFCStatistics], lattice: SumsLattice) -> FFCStatistics:
    return members[0].from_sums(lattice, total_of(members, lattice), members=len(members))


def hits(head: Any, records: Records) -> float:
    """Return the accuracy of a head."""
    return float((head.predict(records[0]) == records[1]).mean())
