from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from calibration import (
    CalibrationError,
    CCVRStatistics,
    NonFinite,
    NoRecords,
    SumsLattice,
    TukeyHead,
    fit_logistic_sgd,
    positive_definite,
    solve_ccvr,
    tukey,
    virtual_features,
)

DIGITS = load_digits()
ROWS, LABELS = DIGITS.data / 16, DIGITS.target


def statistics_of(rows: Any, labels: Any, classes: int, bound: float = 8.0) -> CCVRStatistics:
    statistics = CCVRStatistics(rows.shape[1], classes, norm_bound=bound)
    statistics.update(rows, labels)
    return statistics


def right(head: TukeyHead) -> float:
    return float((head.predict(ROWS[1200:]) == LABELS[1200:]).mean())


def test_virtual_features_have_the_moments_of_their_class() -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.uniform(0, 1, (400, 5)) @ rng.uniform(0, 1, (5, 5)), np.arange(400) % 2
    statistics = statistics_of(rows, labels, 3)
    features, drawn = virtual_features(statistics, 40_000, rng)
    assert np.bincount(drawn, minlength=3).tolist() == [40_000, 40_000, 0]
    for label in range(2):
        own = features[drawn == label]
        np.testing.assert_allclose(own.mean(axis=0), statistics.mean(label), atol=0.02)
        np.testing.assert_allclose(np.cov(own.T), statistics.covariance(label), atol=0.02)
    again, _ = virtual_features(statistics, 3, np.random.default_rng(5))
    assert (again == virtual_features(statistics, 3, np.random.default_rng(5))[0]).all()


def test_proportional_draws_follow_the_counts_and_leave_out_none() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 3], [60, 39, 1])
    statistics = statistics_of(rng.uniform(0, 1, (100, 3)), labels, 4)
    _, drawn = virtual_features(statistics, 10, rng, proportional=True)
    assert np.bincount(drawn).tolist() == [18, 12, 0, 1]


def test_a_class_of_one_record_takes_the_shared_covariance() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 1, (101, 3))
    statistics = statistics_of(rows, np.repeat([0, 1], [100, 1]), 2)
    features, drawn = virtual_features(statistics, 40_000, rng)
    lone = features[drawn == 1]
    np.testing.assert_allclose(lone.mean(axis=0), rows[100], atol=0.01)
    np.testing.assert_allclose(np.cov(lone.T), statistics.shared_covariance(), atol=0.01)


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
    lattice, pooled = SumsLattice(31), CCVRStatistics(64, 10, norm_bound=8.0)
    members = [statistics_of(ROWS[i:1200:3], LABELS[i:1200:3], 10) for i in range(3)]
    pooled.add_sums(lattice, np.sum([member.vector(lattice) for member in members], axis=0))
    for power in (None, 0.5):
        assert right(solve_ccvr(pooled, np.random.default_rng(0), power=power, penalty=1e-3)) > 0.87
    features, labels = virtual_features(pooled, 300, np.random.default_rng(0))
    parameters = fit_logistic_sgd(tukey(features, 0.5), labels, 10, np.random.default_rng(1))
    assert right(TukeyHead(parameters[:-1], parameters[-1], (), 0.5)) > 0.87


def test_sums_a_rounding_apart_draw_alike() -> None:
    rows = np.vstack([np.eye(4), -np.eye(4)])  # no direction of theirs is an eigenvector more than another
    turned = rows + 1e-10 * np.random.default_rng(0).standard_normal(rows.shape)
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    drawn, again = (
        virtual_features(statistics_of(each, [0] * 8, 1), 100, np.random.default_rng(1))[0]
        for each in (rows, turned)
    )
    np.testing.assert_allclose(again, drawn, atol=1e-8)


def test_a_head_maps_features_as_the_virtual_ones_were() -> None:
    head = TukeyHead(np.eye(2), np.zeros(2), (), 0.5)
    rows = np.array([[4.0, -1.0], [0.0, 9.0]])
    assert head.scores(rows).tolist() == [[2.0, 0.0], [0.0, 3.0]]
    np.testing.assert_allclose(head.scores(rows, normalise=True)[1], [0.0, 1.0])
    assert TukeyHead(np.eye(2), None, (), None).scores(rows).tolist() == rows.tolist()
    assert type(head.with_unit_columns()) is TukeyHead
    with pytest.raises(NonFinite):
        head.scores(np.full((1, 2), np.nan))


def test_what_can_not_be_drawn() -> None:
    rng, empty = np.random.default_rng(0), CCVRStatistics(3, 2)
    statistics = statistics_of(np.eye(3), [0, 0, 1], 2)
    with pytest.raises(NoRecords, match="before drawing"):
        virtual_features(empty, 1, rng)
    with pytest.raises(CalibrationError, match="draw at least one"):
        virtual_features(statistics, 0, rng)
    for power in (0.0, 1.5, np.nan):
        with pytest.raises(CalibrationError, match="above 0 and up to 1"):
            solve_ccvr(statistics, rng, power=power)
