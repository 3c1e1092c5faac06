"""Whoever can list every possible input solves an exact sum for how often each stands in it."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import nnls  # type: ignore[import-untyped]

from veilsum.calibration.rows import Floats, Integers, unit_rows

_ADDED = 60
_ROUNDS = 120


def list_table(levels: tuple[int, ...], dim: int) -> Floats:
    """Return z of every row of a table with so many categories a column, through a public random layer."""
    cells = np.array(list(itertools.product(*map(range, levels))))
    onehot = np.concatenate([np.eye(count)[cells[:, at]] for at, count in enumerate(levels)], axis=1)
    layer = np.random.default_rng(11).standard_normal((onehot.shape[1], dim))
    return unit_rows(np.maximum(onehot @ layer, 0) + 1e-3)[0]


def solve_counts(listed: Floats, V: Floats, U: Floats, n: Integers) -> dict[tuple[int, int], float]:
    """Return how often each listed input stands in the sum with each label, by non-negative least squares with column generation.

    Each round adds the inputs whose zzᵀ and z explain most of what is missing, and solves again for the counts of all that were added.
    """
    dim, classes = U.shape
    # Inputs are much alike: apart from what they all share, few of them explain the sums.
    values, vectors = np.linalg.eigh(listed.T @ listed / len(listed))
    white = vectors / np.sqrt(np.maximum(values, 1e-9)) @ vectors.T
    listed, V, U = listed @ white, white @ V @ white, white @ U
    upper = np.triu_indices(dim)
    twice = np.where(upper[0] == upper[1], 1.0, np.sqrt(2))
    wanted = np.concatenate([V[upper] * twice, U.ravel(), n])
    active: list[tuple[int, int]] = []
    counts, missing = np.zeros(0), wanted
    for _ in range(_ROUNDS):
        rest_V = np.zeros((dim, dim))
        rest_V[upper] = missing[: len(twice)] / twice
        rest_V = rest_V + np.triu(rest_V, 1).T
        rest_U = missing[len(twice) : -classes].reshape(dim, classes)
        gain = np.einsum("ij,ij->i", listed @ rest_V, listed)[:, None] + listed @ rest_U + missing[-classes:]
        chosen = np.argsort(gain, axis=None)[::-1][:_ADDED]
        fresh = [(int(at // classes), int(at % classes)) for at in chosen if gain.flat[at] > 1e-9]
        added = [each for each in fresh if each not in set(active)]
        if not added:
            break
        active += added
        columns = np.column_stack(
            [_numbers_of(listed[at], label, classes, upper, twice) for at, label in active]
        )
        counts, _ = nnls(columns, wanted, maxiter=30 * columns.shape[1])
        active = [each for each, count in zip(active, counts, strict=True) if count > 1e-6]
        columns, counts = columns[:, counts > 1e-6], counts[counts > 1e-6]
        missing = wanted - columns @ counts
        if np.linalg.norm(missing) < 1e-9 * np.linalg.norm(wanted):
            break
    return dict(zip(active, counts.tolist(), strict=True))


def _numbers_of(z: Floats, label: int, classes: int, upper: tuple[Integers, ...], twice: Floats) -> Floats:
    return np.concatenate(
        [np.outer(z, z)[upper] * twice, np.outer(z, np.eye(classes)[label]).ravel(), np.eye(classes)[label]]
    )


def count_found(solved: dict[tuple[int, int], float], chosen: Integers, labels: Integers) -> int:
    """Return how many of the summed rows the solution names, with their labels and as often as they stand in the sum."""
    found = 0
    for at, label in {*zip(chosen.tolist(), labels.tolist(), strict=True)}:
        often = int(((chosen == at) & (labels == label)).sum())
        found += often * (round(solved.get((at, label), 0.0)) == often)
    return found
