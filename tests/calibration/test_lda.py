from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal  # type: ignore[import-untyped]
from sklearn.covariance import oas
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestCentroid

from calibration import (
    CalibrationError,
    FFCStatistics,
    Head,
    NoRecords,
    SingularSystem,
    nearest_class_mean,
    oracle_shrinkage,
    solve_ffc,
    solve_lda,
)


def statistics_of(rows: Any, labels: Any, classes: int, **settings: Any) -> FFCStatistics:
    statistics = FFCStatistics(rows.shape[1], classes, **settings)
    statistics.update(rows, labels)
    return statistics


def within_of(rows: Any, labels: Any) -> Any:
    centred = rows - np.array([rows[labels == c].mean(axis=0) for c in range(labels.max() + 1)])[labels]
    return centred.T @ centred / (len(rows) - labels.max() - 1)


@pytest.mark.parametrize("bias", [False, True])
def test_lda_from_sums_is_lda_on_the_records(*, clouds: Any, bias: bool) -> None:
    rows, labels = clouds(500, 12, 5, noise=2.0)
    ours = solve_lda(statistics_of(rows, labels, 5, bias=bias), shrinkage=0)
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(rows, labels)
    np.testing.assert_allclose(ours.covariance, within_of(rows, labels), atol=1e-13)
    np.testing.assert_allclose(ours.means, theirs.means_, atol=1e-13)
    # Theirs divides by n where the unbiased covariance has n − C.
    np.testing.assert_allclose(ours.covariance * 495 / 500, theirs.covariance_, atol=1e-13)
    np.testing.assert_allclose(ours.weights.T * 500 / 495, theirs.coef_, atol=1e-9)
    densities = np.array(
        [multivariate_normal(mean, within_of(rows, labels)).pdf(rows) for mean in theirs.means_]
    )
    posteriors = densities * theirs.priors_[:, None]
    np.testing.assert_allclose(ours.probabilities(rows), (posteriors / posteriors.sum(axis=0)).T, atol=1e-9)


def test_any_prior_can_be_asked_for(clouds: Any) -> None:
    rows, labels = clouds(400, 6, 3, noise=2.0)
    statistics = statistics_of(rows, labels, 4)
    prior = [5.0, 2.0, 3.0, 7.0]
    ours = solve_lda(statistics, shrinkage=0, prior=prior)
    densities = [multivariate_normal(mean, within_of(rows, labels)).pdf(rows) for mean in ours.means[:3]]
    posteriors = np.array(densities) * np.array([[0.5], [0.2], [0.3]])
    np.testing.assert_allclose(
        ours.probabilities(rows)[:, :3], (posteriors / posteriors.sum(axis=0)).T, atol=1e-9
    )
    later = solve_lda(statistics, shrinkage=0).with_prior(statistics.counts, prior)
    assert type(later) is Head
    np.testing.assert_allclose(later.probabilities(rows), ours.probabilities(rows), atol=1e-12)
    assert ours.empty_classes == (3,)
    assert ours.prior.tolist() == [0.5, 0.2, 0.3, 0.0]


def test_shrinkage_makes_singular_features_solvable(clouds: Any) -> None:
    rows, labels = clouds(300, 16, 4, relu=True)
    statistics = statistics_of(rows, labels, 4)
    with pytest.raises(SingularSystem):
        solve_lda(statistics, shrinkage=0)
    ours = solve_lda(statistics, shrinkage=0.1)
    within = within_of(rows, labels)
    shrunk = 0.9 * within + 0.1 * np.trace(within) / 16 * np.eye(16)
    np.testing.assert_allclose(ours.weights, np.linalg.solve(shrunk, ours.means.T), atol=1e-9)
    assert 0 < solve_lda(statistics).shrinkage < 1


def test_the_oracle_s_shrinkage_is_that_of_its_paper(clouds: Any) -> None:
    rows, _ = clouds(200, 10, 1, noise=2.0)
    rows = rows * np.arange(10)
    centred = rows - rows.mean(axis=0)
    S = centred.T @ centred / 200
    square, trace = np.trace(S @ S), np.trace(S)
    expected = ((1 - 2 / 10) * square + trace**2) / ((200 + 1 - 2 / 10) * (square - trace**2 / 10))
    assert oracle_shrinkage(S, 200) == pytest.approx(expected)
    assert oracle_shrinkage(S, 200) == pytest.approx(oas(rows)[1], abs=0.01)  # theirs leaves out the 2/l
    assert oracle_shrinkage(np.eye(3), 10) == 1
    assert oracle_shrinkage(np.diag([1.0, 1.1]), 2) == 1


def test_the_nearest_mean_is_the_nearest_mean(clouds: Any) -> None:
    rows, labels = clouds(400, 6, 3, noise=2.0)
    statistics = statistics_of(rows, labels, 4)
    theirs = NearestCentroid().fit(rows, labels)
    assert (nearest_class_mean(statistics).predict(rows) == theirs.predict(rows)).all()
    means = theirs.centroids_ / np.linalg.norm(theirs.centroids_, axis=1, keepdims=True)
    cosine = nearest_class_mean(statistics, cosine=True)
    assert cosine.bias is None
    np.testing.assert_allclose(cosine.weights[:, :3].T, means, atol=1e-12)
    assert cosine.empty_classes == (3,)


def test_real_digits_by_their_means() -> None:
    digits = load_digits()
    rows, labels = digits.data / np.linalg.norm(digits.data, axis=1, keepdims=True), digits.target
    statistics = statistics_of(rows[:1200], labels[:1200], 10, bias=True)
    lda, means = solve_lda(statistics), nearest_class_mean(statistics)
    assert (lda.predict(rows[1200:]) == labels[1200:]).mean() > 0.9
    assert (means.predict(rows[1200:]) == labels[1200:]).mean() > 0.86


def test_the_right_prior_helps_where_classes_are_shared_out_otherwise() -> None:
    digits = load_digits()
    rows, labels = digits.data / np.linalg.norm(digits.data, axis=1, keepdims=True), digits.target
    statistics = statistics_of(rows[:1200], labels[:1200], 10, bias=True)
    even_are_rare = np.flatnonzero((labels % 2 == 1) | (np.arange(len(labels)) % 20 == 0))
    test = even_are_rare[even_are_rare >= 1200]
    prior = np.bincount(labels[test], minlength=10)
    for head, temperature in ((solve_lda(statistics), 1.0), (solve_ffc(statistics), 0.07)):
        adapted = head.with_prior(statistics.counts, prior, temperature=temperature)
        right = [(h.predict(rows[test]) == labels[test]).mean() for h in (head, adapted)]
        assert right[1] > right[0] + 0.02


def test_what_has_no_covariance() -> None:
    with pytest.raises(NoRecords, match="leave no covariance"):
        solve_lda(statistics_of(np.eye(3), np.arange(3), 3))
    with pytest.raises(NoRecords, match="before asking for means"):
        nearest_class_mean(FFCStatistics(2, 2))
    for shrinkage in (-0.1, 1.1, np.nan):
        with pytest.raises(CalibrationError, match="from 0 to 1"):
            solve_lda(statistics_of(np.eye(3)[[0, 1, 2, 0]], np.arange(4) % 2, 2), shrinkage=shrinkage)
