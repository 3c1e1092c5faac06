"""How far apart classes' features lie: CCVR's forecast of what a calibration can gain (Luo et al. 2021, §5.4)."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


def sliced_wasserstein(x: Floats, y: Floats, directions: Floats) -> float:
    """The root mean square, over directions, of the 1-D 2-Wasserstein distances of the projected samples.

    Args:
        x: (n, l).
        y: (m, l).
        directions: unit vectors (P, l).
    """
    a, b = np.sort(x @ directions.T, axis=0), np.sort(y @ directions.T, axis=0)
    # Both quantile functions are steps; between two neighbouring levels of either, both are constant.
    levels = np.unique(np.concatenate([np.arange(len(a) + 1) / len(a), np.arange(len(b) + 1) / len(b)]))
    middle, width = (levels[1:] + levels[:-1]) / 2, np.diff(levels)
    apart = a[(middle * len(a)).astype(int)] - b[(middle * len(b)).astype(int)]
    return float(np.sqrt((width[:, None] * apart**2).sum(axis=0).mean()))


def separability(
    z: Floats, labels: npt.NDArray[np.int64], rng: np.random.Generator, *, directions: int = 64
) -> float:
    """The mean sliced Wasserstein distance over pairs of classes.

    Args:
        z: features (n, l); or draws from each class's Gaussian, as CCVR has it.
        labels: (n,).
        rng: draws the directions.
        directions: how many.

    Raises:
        ValueError: if there is one class alone.
    """
    classes = [z[labels == label] for label in np.unique(labels)]
    if len(classes) < 2:
        raise ValueError("separability is between classes: it takes two or more")
    drawn = rng.standard_normal((directions, z.shape[1]))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return float(np.mean([sliced_wasserstein(x, y, drawn) for x, y in combinations(classes, 2)]))
