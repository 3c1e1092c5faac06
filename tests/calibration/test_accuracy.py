from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibration import (
    FFCStatistics,
    SumsLattice,
    smallest_ridge,
    solve_ffc,
    weights_error_bound,
)


def pooled_and_plain(
    rows: Any, labels: Any, members: int, lattice: SumsLattice, *, bias: bool = False
) -> Any:
    dim, classes = rows.shape[1], int(labels.max()) + 1
    parts = [FFCStatistics(dim, classes, bias=bias) for _ in range(members)]
    for index, part in enumerate(parts):
        part.update(rows[index::members], labels[index::members])
    total = np.sum([part.vector(lattice) for part in parts], axis=0)
    pooled = FFCStatistics.from_sums(parts[0].layout, lattice, total, bias=bias, members=members)
    return pooled, sum(parts[1:], parts[0])


def test_the_protocols_figure() -> None:
    assert smallest_ridge(1280, 10, 31) == pytest.approx(0.0304, abs=1e-4)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_48_bits_keep_the_promise_at_the_smallest_ridge(
    *, clouds: Callable[..., Any], bias: bool, relu: bool
) -> None:
    rows, labels = clouds(400, 64, 10, relu=relu)
    pooled, plain = pooled_and_plain(rows, labels, 10, SumsLattice(31), bias=bias)
    ridge = smallest_ridge(64 + bias, 10, 31)
    rounded, exact = solve_ffc(pooled, ridge), solve_ffc(plain, ridge)
    change = np.abs(rounded.weights - exact.weights).max() / np.abs(exact.weights).max()
    assert 0 < change < 1e-6


def test_the_size_of_the_papers_main_table(clouds: Callable[..., Any]) -> None:
    rows, labels = clouds(3000, 1280, 100, relu=True, noise=3.0)
    pooled, plain = pooled_and_plain(rows, labels, 10, SumsLattice(31))
    rounded, exact = solve_ffc(pooled), solve_ffc(plain)
    assert rounded.ridge == exact.ridge
    assert np.abs(rounded.weights - exact.weights).max() <= 1e-6 * np.abs(exact.weights).max()
    coarse, _ = pooled_and_plain(rows, labels, 10, SumsLattice(15))
    same = solve_ffc(coarse, exact.ridge).predict(rows) == exact.predict(rows)
    assert same.mean() >= 0.999


@pytest.mark.parametrize("ridge", [0.01, 1.0, 30.0])
def test_32_bits_give_the_same_predictions_within_the_stated_bound(
    clouds: Callable[..., Any], ridge: float
) -> None:
    rows, labels = clouds(4000, 64, 10, noise=2.0)
    lattice = SumsLattice(15)
    pooled, plain = pooled_and_plain(rows, labels, 10, lattice)
    rounded, exact = solve_ffc(pooled, ridge), solve_ffc(plain, ridge)
    bound = weights_error_bound(
        rounded.raw_weights,
        ridge,
        members=10,
        scale_bits=lattice.bits,
        smallest_eigenvalue=rounded.smallest_eigenvalue,
    )
    change = np.abs(rounded.weights - exact.weights).max()
    assert change <= bound < np.abs(exact.weights).max()
    assert (rounded.predict(rows) == exact.predict(rows)).mean() >= 0.999


def test_the_bound_holds_for_the_worst_rounding_and_is_near_it() -> None:
    # One feature, one class: V̂ = V − η and Û = U + η are the worst that rounding can do.
    V, U, ridge, members, bits = 5.0, 3.0, 0.5, 8, 6
    error = members / 2 * 2.0**-bits
    exact, rounded = U / (V + ridge), (U + error) / (V - error + ridge)
    bound = weights_error_bound(
        np.array([[rounded]]), ridge, members=members, scale_bits=bits, smallest_eigenvalue=V - error
    )
    assert abs(rounded - exact) <= bound <= 1.05 * abs(rounded - exact)
    assert weights_error_bound(np.ones((4, 1)), 0.0, members=3, scale_bits=15) == math.inf
