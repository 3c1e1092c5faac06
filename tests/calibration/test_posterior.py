from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from calibration import (
    ConfigMismatch,
    FFCStatistics,
    NoRecords,
    SingularSystem,
    ridge_posterior,
    solve_ffc,
)


def statistics_of(rows: Any, labels: Any, classes: int, **settings: Any) -> FFCStatistics:
    statistics = FFCStatistics(rows.shape[1], classes, **settings)
    statistics.update(rows, labels)
    return statistics


@pytest.mark.parametrize("bias", [False, True])
def test_variances_are_those_of_bayesian_regression(*, clouds: Any, bias: bool) -> None:
    rows, labels = clouds(300, 10, 4)
    new, _ = clouds(20, 10, 4, seed=1)
    statistics = statistics_of(rows, labels, 4, bias=bias)
    solution = solve_ffc(statistics, 0.3)
    posterior = ridge_posterior(statistics, solution)
    X, x = rows, new
    if bias:
        X, x = (np.column_stack([z, np.ones(len(z))]) / np.sqrt(2) for z in (rows, new))
    covariance = np.linalg.inv(X.T @ X + 0.3 * np.eye(X.shape[1]))
    hat = X @ covariance @ X.T
    rss = ((np.eye(4)[labels] - hat @ np.eye(4)[labels]) ** 2).sum(axis=0)
    noise = rss / (300 - np.trace(hat))
    leverage = np.einsum("ni,ij,nj->n", x, covariance, x)
    np.testing.assert_allclose(posterior.leverage(new), leverage, rtol=1e-10)
    np.testing.assert_allclose(posterior.variances, noise, rtol=1e-10)
    np.testing.assert_allclose(posterior.variance(new), noise * (1 + leverage[:, None]), rtol=1e-10)
    assert posterior.variances.sum() == pytest.approx(solution.rss / (300 - solution.dof))
    np.testing.assert_allclose(posterior.leverage(9 * new, normalise=True), leverage, rtol=1e-10)


def test_a_direction_nobody_holds_has_the_largest_leverage(clouds: Any) -> None:
    rows, labels = clouds(500, 16, 4, relu=True)
    statistics = statistics_of(rows, labels, 4)
    posterior = ridge_posterior(statistics, solve_ffc(statistics, 0.1))
    unseen = posterior.leverage(np.eye(16)[:1])  # feature 0 is dead
    assert unseen[0] == pytest.approx(1 / 0.1)
    assert posterior.leverage(rows).max() < 1


def test_leverage_tells_real_digits_from_their_shuffled_pixels() -> None:
    digits = load_digits()
    rows, labels = digits.data / np.linalg.norm(digits.data, axis=1, keepdims=True), digits.target
    statistics = statistics_of(rows[:1200], labels[:1200], 10, bias=True)
    posterior = ridge_posterior(statistics, solve_ffc(statistics))
    shuffled = np.random.default_rng(0).permuted(rows[1200:], axis=1)
    scores = np.concatenate([posterior.leverage(rows[1200:]), posterior.leverage(shuffled)])
    assert roc_auc_score(np.repeat([0, 1], len(shuffled)), scores) > 0.99


def test_what_has_no_posterior(clouds: Any) -> None:
    rows, labels = clouds(300, 8, 3, relu=True)
    statistics = statistics_of(rows, labels, 3)
    solution = solve_ffc(statistics, 0.3)
    for others in (statistics_of(rows, labels, 4), statistics_of(rows[1:], labels[1:], 3)):
        with pytest.raises(ConfigMismatch, match="pass the statistics that were solved"):
            ridge_posterior(others, solution)
    few = statistics_of(np.eye(2), np.arange(2), 2)
    with pytest.raises(NoRecords, match="leave no variance"):
        ridge_posterior(few, solve_ffc(few, 0))
    indefinite = statistics_of(rows, labels, 3)
    indefinite._V[0, 0] = -1.0
    with pytest.raises(SingularSystem, match="take a larger ridge"):
        ridge_posterior(indefinite, solution)
