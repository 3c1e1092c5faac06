from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibration import (
    FFCStatistics,
    NonFinite,
    ShapeMismatch,
    SolutionCheckFailed,
    check_solution,
    solve_ffc,
)


@pytest.fixture
def claim(clouds: Callable[..., Any]) -> tuple[Any, ...]:
    rows, labels = clouds(300, 20, 6, relu=True)
    statistics = FFCStatistics(20, 6, bias=True)
    statistics.update(rows, labels)
    solution = solve_ffc(statistics)
    return statistics.V, statistics.U, solution.ridge, solution.raw_weights


@pytest.mark.parametrize("seed", range(10))
def test_true_weights_pass_and_any_changed_weight_fails(claim: tuple[Any, ...], seed: int) -> None:
    V, U, ridge, W = claim
    rng = np.random.default_rng(seed)
    check_solution(V, U, ridge, W, rng)
    changed = W.copy()
    changed[rng.integers(0, len(W)), rng.integers(0, W.shape[1])] += 1e-6
    with pytest.raises(SolutionCheckFailed, match="do not use them"):
        check_solution(V, U, ridge, changed, rng, rounds=1)


def test_errors_that_cancel_between_columns_are_seen(claim: tuple[Any, ...]) -> None:
    V, U, ridge, W = claim
    changed = W.copy()
    changed[0, 0] += 1e-3
    changed[0, 1] -= 1e-3
    for seed in range(20):
        with pytest.raises(SolutionCheckFailed):
            check_solution(V, U, ridge, changed, np.random.default_rng(seed), rounds=1)


@pytest.mark.parametrize("factor", [1.001, 0.0])
def test_another_ridge_is_another_solution(claim: tuple[Any, ...], factor: float) -> None:
    V, U, ridge, W = claim
    with pytest.raises(SolutionCheckFailed):
        check_solution(V, U, factor * ridge, W, np.random.default_rng(0))


def test_a_solution_of_nothing_is_zero() -> None:
    zeros = np.zeros((2, 1))
    check_solution(np.zeros((2, 2)), zeros, 1.0, zeros, np.random.default_rng(0))
    with pytest.raises(SolutionCheckFailed):
        check_solution(np.zeros((2, 2)), zeros, 1.0, zeros + 1, np.random.default_rng(0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", range(4))
def test_nan_is_no_proof(claim: tuple[Any, ...], bad: float, where: int) -> None:
    arguments = [np.array(part) for part in claim]
    arguments[where][...] = bad
    V, U, ridge, W = arguments
    with pytest.raises(NonFinite), np.errstate(all="ignore"):
        check_solution(V, U, float(ridge), W, np.random.default_rng(0))


def test_shapes_belong_together(claim: tuple[Any, ...]) -> None:
    V, U, ridge, W = claim
    rng = np.random.default_rng(0)
    for other in [(V[:-1], U, W), (V, U[:-1], W[:-1]), (V, U, W[:, :-1]), (V, U[:, 0], W[:, 0])]:
        with pytest.raises(ShapeMismatch, match=r"pass \(l, l\)"):
            check_solution(other[0], other[1], ridge, other[2], rng)
    with pytest.raises(ShapeMismatch, match="0 rounds"):
        check_solution(V, U, ridge, W, rng, rounds=0)
