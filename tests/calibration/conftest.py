from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Records = tuple[NDArray[np.float64], NDArray[np.int64]]


def _clouds(
    n: int, dim: int, classes: int, *, seed: int = 0, relu: bool = False, noise: float = 1.0
) -> Records:
    """Unit rows around class centres; with ReLU some columns are dead, so V is singular."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    rows = rng.standard_normal((classes, dim))[labels] + noise * rng.standard_normal((n, dim))
    if relu:
        rows = np.maximum(rows, 0)
        rows[:, :: max(2, dim // 4)] = 0
        rows[:, 1] += 1e-3
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


@pytest.fixture
def clouds() -> Callable[..., Records]:
    return _clouds


def _pool(members: list[Any], lattice: Any = None) -> NDArray[np.int64]:
    """What a secure sum without faults returns: the integer sum of the members' vectors."""
    total: NDArray[np.int64] = np.sum([member.vector(lattice) for member in members], axis=0)
    return total


@pytest.fixture
def pool() -> Callable[..., NDArray[np.int64]]:
    return _pool
