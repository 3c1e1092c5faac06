import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.calibration.records import ccvr, hits, total_of
from veilsum.calibration import CalibrationError, CCVRStatistics, solve_ccvr
from veilsum.calibration.ccvr_head import (
    TukeyHead,
    fit_logistic,
    fit_logistic_sgd,
    positive_definite,
    tukey_transform,
    virtual_features,
)
from veilsum.calibration.errors import NonFinite, NoRecords
from veilsum.calibration.lattice import SumsLattice


def test_virtual_features_have_the_moments_of_their_class() -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.uniform(0, 1, (400, 5)) @ rng.uniform(0, 1, (5, 5)), np.arange(400) % 2
    labels[-1] = 3
    statistics = ccvr(rows, labels, 4, bound=8.0)
    features, drawn = virtual_features(statistics, 40_000, rng)
    assert np.bincount(drawn).tolist() == [40_000, 40_000, 0, 40_000]
    for label in (0, 1, 3):  # a class of one record takes the shared covariance
        own = features[drawn == label]
        expected = statistics.shared_covariance() if label == 3 else statistics.covariance(label)
        np.testing.assert_allclose(own.mean(axis=0), statistics.mean(label), atol=0.02)
        np.testing.assert_allclose(np.cov(own.T), expected, atol=0.02)
    once, again = (virtual_features(statistics, 1, np.random.default_rng(5))[0] for _ in range(2))
    assert (once == again).all()


def test_a_covariance_is_made_definite_by_the_nearest_change() -> None:
    rows = np.random.default_rng(0).standard_normal((4, 10))  # fewer records than features
    covariance = np.cov(rows.T)
    values, vectors = positive_definite(covariance, 1e-2)
    floor = 1e-2 * np.trace(covariance) / 10
    assert values.min() == pytest.approx(floor)
    assert (values > floor * 1.001).sum() == 3
    change = vectors @ np.diag(values) @ vectors.T - covariance
    assert np.linalg.norm(change) == pytest.approx(floor * np.sqrt(7))
    assert positive_definite(np.zeros((2, 2)))[0].tolist() == [0, 0]


def test_real_digits_by_virtual_features_alone() -> None:
    loaded = load_digits()
    rows, labels = loaded.data / 16, loaded.target
    lattice, found = SumsLattice(31), CCVRStatistics(64, 10, norm_bound=8.0)
    members = [ccvr(rows[i:1200:3], labels[i:1200:3], 10, bound=8.0) for i in range(3)]
    found.add_sums(lattice, total_of(members, lattice))
    test = rows[1200:], labels[1200:]
    for power in (None, 0.5):
        head = solve_ccvr(found, np.random.default_rng(0), power=power, penalty=1e-3)
        assert hits(head, test) > 0.87
    features, drawn = virtual_features(found, 300, np.random.default_rng(0))
    parameters = fit_logistic_sgd(tukey_transform(features, 0.5), drawn, 10, np.random.default_rng(1))
    assert hits(TukeyHead(parameters[:-1], parameters[-1], (), 0.5), test) > 0.87


def test_sums_a_rounding_apart_draw_alike() -> None:
    rows = np.vstack([np.eye(4), -np.eye(4)])  # every direction is an eigenvector
    turned = rows + 1e-10 * np.random.default_rng(0).standard_normal(rows.shape)
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    drawn, again = (
        virtual_features(ccvr(each, [0] * 8, 1), 100, np.random.default_rng(1))[0] for each in (rows, turned)
    )
    np.testing.assert_allclose(again, drawn, atol=1e-8)


def test_the_defaults_are_the_paper_s_hundred_features_a_class_and_a_root() -> None:
    rows, labels = np.random.default_rng(0).uniform(0, 1, (60, 4)), np.arange(60) % 3
    statistics = ccvr(rows, labels, 4)
    head = solve_ccvr(statistics, np.random.default_rng(1))
    features, drawn = virtual_features(statistics, 100, np.random.default_rng(1))
    expected = fit_logistic(tukey_transform(features, 0.5), drawn, 4, penalty=1e-4)
    np.testing.assert_allclose(head.weights, expected[:-1])
    np.testing.assert_allclose(np.asarray(head.bias), expected[-1])
    assert (head.power, head.unit, head.empty_classes) == (0.5, False, (3,))


def test_a_head_maps_features_as_the_virtual_ones_were() -> None:
    head = TukeyHead(np.eye(2), np.zeros(2), (), 0.5)
    rows = np.array([[4.0, -1.0], [0.0, 9.0]])
    assert head.scores(rows).tolist() == [[2.0, 0.0], [0.0, 3.0]]
    np.testing.assert_allclose(head.scores(rows, normalise=True)[1], [0.0, 1.0])
    assert TukeyHead(np.eye(2), None, (), None).scores(rows).tolist() == rows.tolist()
    with pytest.raises(NonFinite):
        head.scores(np.full((1, 2), np.nan))


def test_what_can_not_be_drawn_is_refused() -> None:
    rng, statistics = np.random.default_rng(0), ccvr(np.eye(3), [0, 0, 1], 2)
    with pytest.raises(NoRecords):
        virtual_features(CCVRStatistics(3, 2), 1, rng)
    with pytest.raises(CalibrationError, match="at least one"):
        virtual_features(statistics, 0, rng)
    for power in (0.0, 1.5, np.nan):
        with pytest.raises(CalibrationError, match="power"):
            solve_ccvr(statistics, rng, power=power)
