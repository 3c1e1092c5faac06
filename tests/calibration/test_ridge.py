from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge, RidgeClassifier

from calibration import (
    CalibrationError,
    FFCStatistics,
    NoRecords,
    SingularSystem,
    SumsLattice,
    default_grid,
    ffc_layout,
    solve_ffc,
)


def statistics_of(rows: Any, labels: Any, classes: int, **settings: Any) -> FFCStatistics:
    statistics = FFCStatistics(rows.shape[1], classes, **settings)
    statistics.update(rows, labels)
    return statistics


@pytest.mark.parametrize("ridge", [1e-3, 0.3, 20.0])
def test_ffc_is_ridge_regression_on_one_hot_labels(clouds: Callable[..., Any], ridge: float) -> None:
    rows, labels = clouds(500, 24, 7)
    solution = solve_ffc(statistics_of(rows, labels, 7), ridge)
    theirs = Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(rows, np.eye(7)[labels])
    np.testing.assert_allclose(solution.weights, theirs.coef_.T, atol=1e-11)
    np.testing.assert_allclose(solution.scores(rows), theirs.predict(rows), atol=1e-11)
    assert solution.bias is None
    assert solution.weights is solution.raw_weights
    assert solution.residual < 1e-13


def test_a_bias_is_ridge_regression_with_a_constant_feature(clouds: Callable[..., Any]) -> None:
    rows, labels = clouds(500, 24, 7)
    solution = solve_ffc(statistics_of(rows, labels, 7, bias=True), 0.3)
    augmented = np.column_stack([rows, np.ones(500)]) / np.sqrt(2)
    theirs = Ridge(alpha=0.3, fit_intercept=False, solver="svd").fit(augmented, np.eye(7)[labels])
    np.testing.assert_allclose(solution.scores(rows), theirs.predict(augmented), atol=1e-11)
    assert solution.bias is not None
    np.testing.assert_allclose(rows @ solution.weights + solution.bias, solution.scores(rows), atol=1e-12)
    assert solution.weights.shape == (24, 7)
    assert solution.raw_weights.shape == (25, 7)


def test_real_digits_reach_what_scikit_learn_reaches() -> None:
    digits = load_digits()
    rows = digits.data / np.linalg.norm(digits.data, axis=1, keepdims=True)
    train, test = slice(0, 1200), slice(1200, None)
    solution = solve_ffc(statistics_of(rows[train], digits.target[train], 10, bias=True))
    ours = (solution.predict(rows[test]) == digits.target[test]).mean()
    theirs = RidgeClassifier(alpha=solution.ridge).fit(rows[train], digits.target[train])
    assert ours >= theirs.score(rows[test], digits.target[test]) - 0.01
    assert ours > 0.88


@pytest.mark.parametrize(("n", "relu"), [(300, False), (300, True), (20, False)])
def test_the_gcv_curve_is_that_of_the_hat_matrix(*, clouds: Callable[..., Any], n: int, relu: bool) -> None:
    rows, labels = clouds(n, 24, 5, relu=relu)
    grid = np.array([1e-2, 0.1, 1.0, 10.0])
    solution = solve_ffc(statistics_of(rows, labels, 5), grid)
    Y = np.eye(5)[labels]
    for index, ridge in enumerate(grid):
        hat = rows @ np.linalg.solve(rows.T @ rows + ridge * np.eye(24), rows.T)
        rss = ((Y - hat @ Y) ** 2).sum()
        assert solution.dofs[index] == pytest.approx(np.trace(hat), rel=1e-9)
        assert solution.gcv[index] == pytest.approx(n * rss / (n - np.trace(hat)) ** 2, rel=1e-8)
        alone = solve_ffc(statistics_of(rows, labels, 5), ridge)
        assert alone.rss == pytest.approx(rss, rel=1e-8)
        assert alone.gcv == pytest.approx(solution.gcv[index])
    best = int(np.argmin(solution.gcv))
    assert solution.ridge == grid[best]
    assert solution.dof == solution.dofs[best]


def test_diagnostics_are_those_of_the_matrix(clouds: Callable[..., Any]) -> None:
    rows, labels = clouds(300, 24, 5, relu=True)
    statistics = statistics_of(rows, labels, 5)
    solution = solve_ffc(statistics, 0.2)
    shifted = statistics.V + 0.2 * np.eye(24)
    assert solution.condition == pytest.approx(np.linalg.cond(shifted), rel=1e-6)
    assert solution.conditions.tolist() == [solution.condition]
    assert solution.rank == np.linalg.matrix_rank(rows) == 20
    assert solution.records == 300
    assert abs(solution.smallest_eigenvalue) < 1e-12
    expected = np.linalg.norm(shifted @ solution.raw_weights - statistics.U) / np.linalg.norm(statistics.U)
    assert solution.residual == pytest.approx(expected)


PROBLEMS = [
    {"n": n, "dim": 24, "classes": 5, "seed": seed, "relu": relu, "noise": noise}
    for seed in range(6)
    for n in (10, 23, 100, 2000)
    for relu in (False, True)
    for noise in (0.05, 2.0)
]


def test_masked_sums_choose_the_same_ridge_as_plain_ones(clouds: Callable[..., Any], pool: Any) -> None:
    lattice = SumsLattice(31)
    for problem in PROBLEMS:
        rows, labels = clouds(**problem)
        members = [statistics_of(rows[i::10], labels[i::10], 5) for i in range(10)]
        plain = sum(members[1:], members[0])
        pooled = FFCStatistics.from_sums(
            plain.layout, lattice, pool(members, lattice), bias=False, members=10
        )
        rounded, exact = solve_ffc(pooled), solve_ffc(plain)
        assert rounded.ridge == exact.ridge, problem
        scale = np.abs(exact.weights).max()
        assert np.abs(rounded.weights - exact.weights).max() < 1e-5 * scale, problem


def test_a_flat_curve_takes_the_largest_of_the_ties() -> None:
    # Orthonormal classes are fitted at any small ridge: the curve is flat to rounding.
    rows = np.eye(4)[np.arange(4000) % 4]
    solution = solve_ffc(statistics_of(rows, np.arange(4000) % 4, 4), [1e-9, 1e-8, 1e-7, 1e-2, 1e3])
    assert solution.ridge == 1e-2
    # Pure noise: the curve only falls, and the end of the grid is taken.
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((200, 30))
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    assert solve_ffc(statistics_of(noise, rng.integers(0, 2, 200), 2), [1e-3, 1.0, 1e6]).ridge == 1e6


def test_the_order_of_the_grid_does_not_matter(clouds: Callable[..., Any]) -> None:
    rows, labels = clouds(100, 8, 3)
    statistics = statistics_of(rows, labels, 3)
    grid = default_grid(100, 8)
    forth, back = solve_ffc(statistics, grid), solve_ffc(statistics, [*grid[::-1], grid[3]])
    assert forth.ridge == back.ridge
    assert (forth.grid == back.grid).all()
    assert (forth.weights == back.weights).all()
    assert (solve_ffc(statistics).grid == grid).all()


def test_fewer_records_than_degrees_of_freedom() -> None:
    statistics = statistics_of(np.eye(5)[:2], np.array([0, 1]), 2)
    solution = solve_ffc(statistics, [1e-9, 1e-7])
    assert np.isinf(solution.gcv).all()
    assert solution.ridge == 1e-7
    assert np.isfinite(solve_ffc(statistics).weights).all()


def test_one_record_one_class_one_dimension() -> None:
    solution = solve_ffc(statistics_of(np.array([[-1.0]]), np.array([0]), 1), 1.0)
    assert solution.weights.tolist() == [[-0.5]]
    assert solution.dof == 0.5
    assert solution.rss == 0.25
    assert solution.predict(np.array([[1.0]])).tolist() == [0]


def test_no_ridge_needs_a_regular_matrix(clouds: Callable[..., Any], pool: Any) -> None:
    rows, labels = clouds(300, 24, 5)
    exact = solve_ffc(statistics_of(rows, labels, 5), 0)
    np.testing.assert_allclose(exact.weights, np.linalg.lstsq(rows, np.eye(5)[labels])[0], atol=1e-10)
    rows, labels = clouds(300, 24, 5, relu=True)
    singular = statistics_of(rows, labels, 5)
    for ridge in (0, 0.0, 1e-16, [0, 1.0]):
        with pytest.raises(SingularSystem, match="pass a larger ridge, or None"):
            solve_ffc(singular, ridge)
    # Rounded sums are singular in truth even where their eigenvalues are not exactly zero.
    lattice = SumsLattice(31)
    members = [statistics_of(rows[i::10], labels[i::10], 5) for i in range(10)]
    pooled = FFCStatistics.from_sums(
        ffc_layout(24, 5), lattice, pool(members, lattice), bias=False, members=10
    )
    with pytest.raises(SingularSystem):
        solve_ffc(pooled, 0)


def test_eigenvalues_below_zero_are_rounding() -> None:
    statistics = statistics_of(np.eye(3)[[0, 0, 1]], np.array([0, 1, 1]), 2)
    statistics._V[2, 2] = -1e-10
    solution = solve_ffc(statistics, 1e-3)
    assert solution.smallest_eigenvalue == -1e-10
    assert solution.condition == pytest.approx((2 + 1e-3) / 1e-3)
    assert solution.rank == 2


def test_what_rounding_made_negative_is_not_blown_up() -> None:
    """Along an eigenvector whose eigenvalue was clipped to 0, W is U/λ, whatever V says there."""
    V, U = np.diag([4.0, 2.0, -1e-3]), np.array([[1.0], [1.0], [1e-6]])
    solution = solve_ffc(FFCStatistics.from_blocks(V, U, np.array([6]), bias=False), 1e-6)
    np.testing.assert_allclose(solution.weights[:, 0], [1 / 4, 1 / 2, 1], rtol=1e-5)


def test_sums_that_cancel_leave_zero_weights() -> None:
    statistics = statistics_of(np.array([[1.0], [-1.0]]), np.array([0, 0]), 1)
    solution = solve_ffc(statistics)
    assert solution.weights.tolist() == [[0.0]]
    assert solution.residual == 0


def test_nothing_can_not_be_solved() -> None:
    with pytest.raises(NoRecords, match="update or merge"):
        solve_ffc(FFCStatistics(2, 2))


@pytest.mark.parametrize("ridge", [-1.0, np.nan, np.inf, [], [1.0, -1.0], [[1.0]], "gcv", [1.0, None], [1j]])
def test_ridges_that_are_none(clouds: Callable[..., Any], ridge: Any) -> None:
    rows, labels = clouds(10, 3, 2)
    with pytest.raises(CalibrationError, match="ridge"):
        solve_ffc(statistics_of(rows, labels, 2), ridge)


@pytest.mark.parametrize(
    "ridge", [1e-12, 5, True, np.float32(0.25), np.array(2.0), (1, 2), range(1, 4), 1e300]
)
def test_any_number_is_a_ridge(clouds: Callable[..., Any], ridge: Any) -> None:
    rows, labels = clouds(100, 3, 2)
    solution = solve_ffc(statistics_of(rows, labels, 2), ridge)
    assert solution.ridge in np.atleast_1d(ridge)
    assert np.isfinite(solution.weights).all()
    assert solution.residual < 1e-10
