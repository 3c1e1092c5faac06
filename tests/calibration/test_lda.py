from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal  # type: ignore[import-untyped]
from sklearn.covariance import oas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestCentroid

from tests.calibration.records import clouds, digits, ffc, hits
from veilsum.calibration import (
    CalibrationError,
    FFCStatistics,
    Head,
    nearest_class_mean,
    solve_ffc,
    solve_lda,
)
from veilsum.calibration.errors import NoRecords, SingularSystem
from veilsum.calibration.lda import class_moments, oracle_shrinkage


def within_of(rows: Any, labels: Any) -> Any:
    centred = rows - np.array([rows[labels == c].mean(axis=0) for c in range(labels.max() + 1)])[labels]
    return centred.T @ centred / (len(rows) - labels.max() - 1)


def posteriors(rows: Any, labels: Any, means: Any, prior: Any) -> Any:
    densities = [multivariate_normal(mean, within_of(rows, labels)).pdf(rows) for mean in means]
    joint = np.array(densities) * np.array(prior)[:, None]
    return (joint / joint.sum(axis=0)).T


@pytest.mark.parametrize("constant", [False, True])
def test_lda_from_sums_is_lda_on_the_records(*, constant: bool) -> None:
    rows, labels = clouds(500, 12, 5, noise=2.0)
    ours = solve_lda(ffc(rows, labels, 5, constant=constant), shrinkage=0)
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(rows, labels)
    np.testing.assert_allclose(ours.covariance, within_of(rows, labels), atol=1e-13)
    np.testing.assert_allclose(ours.means, theirs.means_, atol=1e-13)
    # Theirs divides by n; the unbiased covariance, by n − C.
    np.testing.assert_allclose(ours.weights.T * 500 / 495, theirs.coef_, atol=1e-9)
    expected = posteriors(rows, labels, theirs.means_, theirs.priors_)
    np.testing.assert_allclose(ours.probabilities(rows), expected, atol=1e-9)


def test_any_prior_can_be_given() -> None:
    rows, labels = clouds(400, 6, 3, noise=2.0)
    statistics, prior = ffc(rows, labels, 4), [5.0, 2.0, 3.0, 7.0]
    ours = solve_lda(statistics, shrinkage=0)
    later = ours.with_prior(statistics.counts, prior)
    expected = posteriors(rows, labels, ours.means[:3], [0.5, 0.2, 0.3])
    np.testing.assert_allclose(later.probabilities(rows)[:, :3], expected, atol=1e-9)
    assert (type(later), later.empty_classes) == (Head, (3,))


@pytest.mark.parametrize("constant", [False, True])
def test_records_that_are_alike_within_their_class_leave_no_covariance(*, constant: bool) -> None:
    labels = np.arange(60) % 3
    for seed in range(40):
        rows = np.random.default_rng(seed).standard_normal((3, 2 + seed % 4))[labels]
        with pytest.raises(SingularSystem):
            solve_lda(ffc(rows, labels, 3, constant=constant, normalise=True))


def test_shrinkage_makes_singular_features_solvable() -> None:
    rows, labels = clouds(300, 16, 4, relu=True)
    statistics = ffc(rows, labels, 4)
    with pytest.raises(SingularSystem, match="shrinkage"):
        solve_lda(statistics, shrinkage=0)
    ours, within = solve_lda(statistics, shrinkage=0.1), within_of(rows, labels)
    shrunk = 0.9 * within + 0.1 * np.trace(within) / 16 * np.eye(16)
    np.testing.assert_allclose(ours.weights, np.linalg.solve(shrunk, ours.means.T), atol=1e-9)
    assert 0 < solve_lda(statistics).shrinkage < 1


def test_the_oracle_s_shrinkage_is_that_of_its_paper() -> None:
    rows = clouds(200, 10, 1, noise=2.0)[0] * np.arange(10)
    centred = rows - rows.mean(axis=0)
    S = centred.T @ centred / 200
    square, trace = np.trace(S @ S), np.trace(S)
    expected = ((1 - 2 / 10) * square + trace**2) / ((200 + 1 - 2 / 10) * (square - trace**2 / 10))
    assert oracle_shrinkage(S, 200) == pytest.approx(expected)
    assert oracle_shrinkage(S, 200) == pytest.approx(oas(rows)[1], abs=0.01)  # theirs leaves out the 2/l
    assert oracle_shrinkage(np.eye(3), 10) == oracle_shrinkage(np.diag([1.0, 1.1]), 2) == 1


def test_the_nearest_mean_is_the_nearest_mean() -> None:
    rows, labels = clouds(400, 6, 3, noise=2.0)
    statistics, theirs = ffc(rows, labels, 4), NearestCentroid().fit(rows, labels)
    assert (nearest_class_mean(statistics).predict(rows) == theirs.predict(rows)).all()


def test_a_class_of_one_record_has_it_as_its_mean() -> None:
    rows, labels = clouds(50, 6, 1)[0], np.arange(50) // 49
    statistics = ffc(rows, labels, 2)
    for means in (solve_lda(statistics).means, nearest_class_mean(statistics).weights.T):
        np.testing.assert_allclose(means, [rows[:49].mean(axis=0), rows[49]], atol=1e-13)


def test_real_digits_and_the_prior_of_the_test_set() -> None:
    train, test = digits()
    statistics = ffc(*train, 10, constant=True)
    lda = solve_lda(statistics)
    assert hits(lda, test) > 0.9
    assert hits(nearest_class_mean(statistics), test) > 0.86
    even_are_rare = (test[1] % 2 == 1) | (np.arange(1200, 1797) % 20 == 0)
    skewed = test[0][even_are_rare], test[1][even_are_rare]
    prior = np.bincount(skewed[1], minlength=10)
    for head, temperature in ((lda, 1.0), (solve_ffc(statistics), 0.07)):
        adapted = head.with_prior(statistics.counts, prior, temperature=temperature)
        assert hits(adapted, skewed) > hits(head, skewed) + 0.02


def test_one_degree_of_freedom_gives_a_covariance() -> None:
    """Two records of one class and one of another: the covariance is that of the two."""
    statistics = ffc(np.eye(3), np.array([0, 0, 1]), 2)
    _, covariance, counts = class_moments(statistics)
    apart = np.array([1.0, -1.0, 0.0])
    assert np.allclose(covariance, np.outer(apart, apart) / 2, atol=1e-6)
    assert counts.tolist() == [2, 1]


def test_what_has_no_covariance_is_refused() -> None:
    with pytest.raises(NoRecords):
        solve_lda(ffc(np.eye(3), np.arange(3), 3))
    with pytest.raises(NoRecords):
        nearest_class_mean(FFCStatistics(2, 2))
    for shrinkage in (-0.1, 1.1, np.nan):
        with pytest.raises(CalibrationError, match="from 0 to 1"):
            solve_lda(ffc(np.eye(3)[[0, 1, 2, 0]], np.arange(4) % 2, 2), shrinkage=shrinkage)
