"""Ridge heads: the pooled one, its posterior, and a member's personal one."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import roc_auc_score

from tests.calibration.records import clouds, digits, ffc, hits, members_of, pooled
from veilsum.calibration import CalibrationError, FFCStatistics, ridge_posterior, solve_ffc
from veilsum.calibration.errors import ConfigMismatch, NoRecords, NotUnitNorm, SingularSystem
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.ridge import default_grid


def solved_rows(rows: Any, *, constant: bool) -> Any:
    return np.column_stack([3 * rows, np.ones(len(rows))]) / np.sqrt(10) if constant else rows


@pytest.mark.parametrize("ridge", [1e-3, 0.3, 20.0])
@pytest.mark.parametrize("constant", [False, True])
def test_ffc_is_ridge_regression_on_one_hot_labels(*, ridge: float, constant: bool) -> None:
    rows, labels = clouds(500, 24, 7)
    solution = solve_ffc(ffc(rows, labels, 7, constant=constant), ridge)
    augmented = solved_rows(rows, constant=constant)
    theirs = Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(augmented, np.eye(7)[labels])
    np.testing.assert_allclose(solution.raw_weights, theirs.coef_.T, atol=1e-11)
    np.testing.assert_allclose(solution.scores(rows), theirs.predict(augmented), atol=1e-11)
    assert (solution.bias is None) is not constant
    assert solution.weights.shape == (24, 7)
    assert solution.residual < 1e-13


def test_real_digits_reach_what_scikit_learn_reaches() -> None:
    train, test = digits()
    solution = solve_ffc(ffc(*train, 10, constant=True))
    theirs = RidgeClassifier(alpha=solution.ridge).fit(*train)
    assert hits(solution, test) >= theirs.score(*test) - 0.01
    assert hits(solution, test) > 0.88


@pytest.mark.parametrize(("n", "relu"), [(300, False), (300, True), (20, False)])
def test_the_gcv_curve_is_that_of_the_hat_matrix(*, n: int, relu: bool) -> None:
    rows, labels = clouds(n, 24, 5, relu=relu)
    grid = np.array([1e-2, 0.1, 1.0, 10.0])
    statistics = ffc(rows, labels, 5)
    solution = solve_ffc(statistics, grid)
    Y = np.eye(5)[labels]
    for index, ridge in enumerate(grid):
        hat = rows @ np.linalg.solve(rows.T @ rows + ridge * np.eye(24), rows.T)
        rss = ((Y - hat @ Y) ** 2).sum()
        assert solution.gcv[index] == pytest.approx(n * rss / (n - np.trace(hat)) ** 2, rel=1e-8)
        alone = solve_ffc(statistics, ridge)
        assert alone.dof == pytest.approx(np.trace(hat), rel=1e-9)
        assert alone.gcv == pytest.approx(solution.gcv[index])
    assert solution.ridge == grid[int(np.argmin(solution.gcv))]


def test_diagnostics_are_those_of_the_matrix() -> None:
    rows, labels = clouds(300, 24, 5, relu=True)
    statistics = ffc(rows, labels, 5)
    solution = solve_ffc(statistics, 0.2)
    shifted = statistics.V + 0.2 * np.eye(24)
    assert solution.condition == pytest.approx(np.linalg.cond(shifted), rel=1e-6)
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


def test_masked_sums_choose_the_same_ridge_as_plain_ones() -> None:
    for problem in PROBLEMS:
        rows, labels = clouds(**problem)  # type: ignore[arg-type] # numbers and truth values
        rounded = solve_ffc(pooled(members_of(rows, labels, 5, 10), SumsLattice(31)))
        exact = solve_ffc(ffc(rows, labels, 5))
        assert rounded.ridge == exact.ridge, problem
        scale = np.abs(exact.weights).max()
        assert np.abs(rounded.weights - exact.weights).max() < 1e-5 * scale, problem


def test_a_flat_curve_takes_the_largest_of_the_ties() -> None:
    # Orthonormal classes are fitted at any small ridge: the curve is flat to rounding.
    rows = np.eye(4)[np.arange(4000) % 4]
    solution = solve_ffc(ffc(rows, np.arange(4000) % 4, 4), [1e-9, 1e-8, 1e-7, 1e-2, 1e3])
    assert solution.ridge == 1e-2
    # Pure noise: the curve only falls, and the end of the grid is taken.
    rng = np.random.default_rng(0)
    noise = ffc(rng.standard_normal((200, 30)), rng.integers(0, 2, 200), 2, normalise=True)
    assert solve_ffc(noise, [1e-3, 1.0, 1e6]).ridge == 1e6


def test_what_rounding_would_hide_does_not_steer_the_ridge() -> None:
    # The labels follow a feature that a sum on the lattice hardly shows: 10⁻¹⁰ of V.
    rng = np.random.default_rng(0)
    rows, labels = np.ones((400, 3)), rng.integers(0, 2, 400)
    rows[:, 1] = rng.standard_normal(400) / 10
    rows[:, 2] = (2 * labels - 1) * 1e-5
    assert solve_ffc(ffc(rows, labels, 2, normalise=True), [1e-9, 1.0]).ridge == 1.0


def test_the_order_of_the_grid_does_not_matter() -> None:
    statistics = ffc(*clouds(100, 8, 3), 3)
    grid = default_grid(100, 8)
    forth, back = solve_ffc(statistics, grid), solve_ffc(statistics, [*grid[::-1], grid[3]])
    assert forth.ridge == back.ridge
    assert (forth.grid == back.grid).all()
    assert (forth.weights == back.weights).all()
    assert (solve_ffc(statistics).grid == grid).all()
    np.testing.assert_allclose(grid, 100 / 8 * 10 ** (-4 + np.arange(49) / 8))


def test_very_few_records() -> None:
    few = ffc(np.eye(5)[:2], np.array([0, 1]), 2)
    solution = solve_ffc(few, [1e-9, 1e-7])
    assert np.isinf(solution.gcv).all()
    assert solution.ridge == 1e-7
    assert np.isfinite(solve_ffc(few).weights).all()
    one = solve_ffc(ffc([[-1.0]], [0], 1), 1.0)
    assert (one.weights.tolist(), one.dof) == ([[-0.5]], 0.5)
    cancelled = solve_ffc(ffc([[1.0], [-1.0]], [0, 0], 1))
    assert (cancelled.weights.tolist(), cancelled.residual) == ([[0.0]], 0)
    with pytest.raises(NoRecords):
        solve_ffc(FFCStatistics(2, 2))


def test_no_ridge_needs_a_regular_matrix() -> None:
    rows, labels = clouds(300, 24, 5)
    exact = solve_ffc(ffc(rows, labels, 5), 0)
    np.testing.assert_allclose(exact.weights, np.linalg.lstsq(rows, np.eye(5)[labels])[0], atol=1e-10)
    records = clouds(300, 24, 5, relu=True)
    ridges: tuple[Any, ...] = (0, 0.0, 1e-16, [0, 1.0])
    for ridge in ridges:
        with pytest.raises(SingularSystem):
            solve_ffc(ffc(*records, 5), ridge)
    # Rounded sums are singular even where their eigenvalues are not exactly zero.
    with pytest.raises(SingularSystem):
        solve_ffc(pooled(members_of(*records, 5, 10), SumsLattice(31)), 0)


def test_eigenvalues_below_zero_are_rounding() -> None:
    sums = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    statistics = FFCStatistics.from_blocks(
        np.diag([2.0, 1.0, -1e-10]), sums, np.array([1, 2]), constant=False
    )
    solution = solve_ffc(statistics, 1e-3)
    assert solution.smallest_eigenvalue == -1e-10
    assert solution.condition == pytest.approx((2 + 1e-3) / 1e-3)
    assert solution.rank == 2
    # Along an eigenvector whose eigenvalue was clipped to 0, W is U/λ, whatever V says there.
    V, U = np.diag([4.0, 2.0, -1e-3]), np.array([[1.0], [1.0], [1e-6]])
    clipped = solve_ffc(FFCStatistics.from_blocks(V, U, np.array([6]), constant=False), 1e-6)
    np.testing.assert_allclose(clipped.weights[:, 0], [1 / 4, 1 / 2, 1], rtol=1e-5)


def test_weights_solve_the_equations_of_rounded_sums_where_the_ridge_outweighs_the_rounding() -> None:
    rows, labels = clouds(20, 24, 5)  # fewer than features: V is singular
    solution = solve_ffc(pooled(members_of(rows, labels, 5, 10), SumsLattice(10)), 0.1)
    assert -0.05 < solution.smallest_eigenvalue < -1e-3
    assert solution.residual < 1e-13


def test_vectors_that_are_orthogonal_to_fewer_digits_are_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a large V: the weights solve the equations nevertheless."""
    statistics = ffc(*clouds(300, 40, 5), 5)
    true = statistics.spectrum()
    blur = 1e-8 * np.random.default_rng(0).standard_normal(true.vectors.shape)
    blurred = replace(true, vectors=true.vectors + blur)
    monkeypatch.setattr(FFCStatistics, "spectrum", lambda *_, **__: blurred)
    assert solve_ffc(statistics, 1e-3).residual < 1e-12


@pytest.mark.parametrize("ridge", [-1.0, np.nan, np.inf, [], [1.0, -1.0], [[1.0]], "gcv", [1.0, None], [1j]])
def test_invalid_ridges_are_refused(ridge: Any) -> None:
    with pytest.raises(CalibrationError, match="ridge"):
        solve_ffc(ffc(*clouds(10, 3, 2), 2), ridge)


@pytest.mark.parametrize(
    "ridge", [1e-12, 5, True, np.float32(0.25), np.array(2.0), (1, 2), range(1, 4), 1e300]
)
def test_any_number_is_a_ridge(ridge: Any) -> None:
    solution = solve_ffc(ffc(*clouds(100, 3, 2), 2), ridge)
    assert solution.ridge in np.atleast_1d(ridge)
    assert np.isfinite(solution.weights).all()
    assert solution.residual < 1e-10


@pytest.mark.parametrize("constant", [False, True])
def test_variances_are_those_of_bayesian_regression(*, constant: bool) -> None:
    rows, labels = clouds(300, 10, 4)
    new, _ = clouds(20, 10, 4, seed=1)
    statistics = ffc(rows, labels, 4, constant=constant)
    posterior = ridge_posterior(statistics, solve_ffc(statistics, 0.3))
    X, x = solved_rows(rows, constant=constant), solved_rows(new, constant=constant)
    covariance = np.linalg.inv(X.T @ X + 0.3 * np.eye(X.shape[1]))
    hat = X @ covariance @ X.T
    rss = ((np.eye(4)[labels] - hat @ np.eye(4)[labels]) ** 2).sum(axis=0)
    noise = rss / (300 - np.trace(hat))
    leverage = np.einsum("ni,ij,nj->n", x, covariance, x)
    np.testing.assert_allclose(posterior.leverage(new), leverage, rtol=1e-10)
    np.testing.assert_allclose(posterior.variances, noise, rtol=1e-10)
    np.testing.assert_allclose(posterior.variance(new), noise * (1 + leverage[:, None]), rtol=1e-10)
    np.testing.assert_allclose(posterior.leverage(9 * new, normalise=True), leverage, rtol=1e-10)
    np.testing.assert_allclose(
        posterior.variance(9 * new, normalise=True), posterior.variance(new), rtol=1e-10
    )
    for each in (posterior.leverage, posterior.variance):
        with pytest.raises(NotUnitNorm):
            each(9 * new)


def test_leverage_is_largest_where_there_are_no_records() -> None:
    records = clouds(500, 16, 4, relu=True)
    statistics = ffc(*records, 4)
    posterior = ridge_posterior(statistics, solve_ffc(statistics, 0.1))
    assert posterior.leverage(np.eye(16)[:1]) == pytest.approx(1 / 0.1)  # feature 0 is dead
    assert posterior.leverage(records[0]).max() < 1
    train, (test, _) = digits()
    statistics = ffc(*train, 10, constant=True)
    posterior = ridge_posterior(statistics, solve_ffc(statistics))
    shuffled = np.random.default_rng(0).permuted(test, axis=1)
    scores = np.concatenate([posterior.leverage(test), posterior.leverage(shuffled)])
    assert roc_auc_score(np.repeat([0, 1], len(shuffled)), scores) > 0.99


def test_what_has_no_posterior_is_refused() -> None:
    rows, labels = clouds(300, 8, 3, relu=True)
    whole = ffc(rows, labels, 3)
    solution = solve_ffc(whole, 0.3)
    for others in (ffc(rows, labels, 4), ffc(rows[1:], labels[1:], 3)):
        with pytest.raises(ConfigMismatch):
            ridge_posterior(others, solution)
    few = ffc(np.eye(2), np.arange(2), 2)
    with pytest.raises(NoRecords):
        ridge_posterior(few, solve_ffc(few, 0))
    V = whole.V.copy()
    V[0, 0] = -1.0
    indefinite = FFCStatistics.from_blocks(V, whole.U, whole.counts, constant=False)
    with pytest.raises(SingularSystem):
        ridge_posterior(indefinite, solution)
