from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from calibration import (
    CalibrationError,
    ConfigMismatch,
    FeaturesLattice,
    FFCStatistics,
    LeaveOneOutStatistics,
    NoRecords,
    SumCheckFailed,
    SumsLattice,
    ridge_path,
)
from calibration.loo import SQUARE_MAX

GRID = [0.05, 0.5, 5.0]


def statistics_of(rows: Any, labels: Any, classes: int, **settings: Any) -> FFCStatistics:
    statistics = FFCStatistics(rows.shape[1], classes, track_records=False, **settings)
    statistics.update(rows, labels)
    return statistics


def left_out(path: Any, rows: Any, labels: Any) -> LeaveOneOutStatistics:
    statistics = LeaveOneOutStatistics(path)
    statistics.update(rows, labels)
    return statistics


@pytest.mark.parametrize(("bias", "relu"), [(False, False), (True, False), (False, True)])
def test_errors_are_those_of_as_many_fits_as_records(*, clouds: Any, bias: bool, relu: bool) -> None:
    rows, labels = clouds(40, 6, 3, relu=relu, noise=2.0)
    path = ridge_path(statistics_of(rows, labels, 4, bias=bias), GRID)
    ours = left_out(path, rows, labels)
    X = np.column_stack([rows, np.ones(40)]) / np.sqrt(2) if bias else rows
    wanted = np.eye(4)[labels]
    for index, ridge in enumerate(GRID):
        scores = np.array(
            [
                Ridge(alpha=ridge, fit_intercept=False, solver="svd")
                .fit(np.delete(X, i, 0), np.delete(wanted, i, 0))
                .predict(X[i : i + 1])[0]
                for i in range(40)
            ]
        )
        assert ours.errors[index] == pytest.approx(((scores - wanted) ** 2).sum(axis=1).mean(), rel=1e-9)
        assert ours.accuracies[index] == pytest.approx((scores[:, :3].argmax(axis=1) == labels).mean())
    assert not ours.clipped.any()
    assert ours.ridge == GRID[int(ours.errors.argmin())]
    ours.check_same_records()


def test_two_rounds_over_one_set_of_survivors_agree(clouds: Any, pool: Any) -> None:
    rows, labels = clouds(300, 8, 4)
    lattice = SumsLattice(31)
    first = [statistics_of(rows[i::5], labels[i::5], 4) for i in range(5)]
    pooled = FFCStatistics.from_sums(first[0].layout, lattice, pool(first, lattice), bias=False, members=5)
    path = ridge_path(pooled)
    second = [left_out(path, rows[i::5], labels[i::5]) for i in range(5)]
    total = LeaveOneOutStatistics(path)
    total.add_sums(lattice, pool(second, lattice), members=5)
    total.check_same_records()
    plain = sum(second[1:], second[0])
    np.testing.assert_allclose(total.errors, plain.errors, atol=5 / 2 * 2.0**-31 * SQUARE_MAX / 300)
    assert (total.accuracies == plain.accuracies).all()
    assert total.records == plain.records == 300
    assert total.ridge == plain.ridge
    assert total.layout.elements == 4 * 49 + 1


def test_other_survivors_are_noticed(clouds: Any) -> None:
    rows, labels = clouds(300, 8, 4)
    path = ridge_path(statistics_of(rows[1:], labels[1:], 4), GRID)
    with pytest.raises(SumCheckFailed, match="the first round summed 299") as fewer:
        left_out(path, rows[2:], labels[2:]).check_same_records()
    assert fewer.value.identity == "records"
    with pytest.raises(SumCheckFailed, match="other records answered") as others:
        left_out(path, rows[:-1], labels[:-1]).check_same_records()
    assert others.value.identity == "leverage"


def test_a_record_moves_no_sum_by_more_than_one(clouds: Any) -> None:
    rows, labels = clouds(20, 4, 3)
    path = ridge_path(statistics_of(rows, labels, 3), [1e-9, 1.0])
    # Opposed to its own class and alone in a direction that nothing of the first round lies in.
    alone = ridge_path(statistics_of(np.eye(4)[[0, 0]], np.array([0, 1]), 3), [1e-9])
    for terms, row, label in ((path, -rows[:1], labels[:1]), (alone, np.eye(4)[:1], np.array([2]))):
        vector = left_out(terms, row, label).vector(SumsLattice(20))
        assert np.abs(vector).max() <= 2**20
    clipped = left_out(alone, np.eye(4)[:1], np.array([1]))
    assert clipped.clipped.tolist() == [0]
    far = left_out(ridge_path(statistics_of(np.eye(1), np.array([0]), 1), [1e-3]), -np.eye(1), np.array([0]))
    assert far.clipped.tolist() == [1]
    assert far.errors.tolist() == [SQUARE_MAX]


def test_what_can_not_be_left_out(clouds: Any) -> None:
    rows, labels = clouds(40, 6, 3)
    statistics = statistics_of(rows, labels, 3)
    with pytest.raises(NoRecords, match="sum a first round"):
        ridge_path(FFCStatistics(6, 3))
    with pytest.raises(CalibrationError, match="pass ridges above 0"):
        ridge_path(statistics, [0.0, 1.0])
    for settings in ({"class_weights": [1, 1, 0.5]}, {"lattice": FeaturesLattice(12)}):
        with pytest.raises(CalibrationError, match="without weights or a lattice"):
            ridge_path(statistics_of(rows, labels, 3, **settings))
    path = ridge_path(statistics, GRID)
    with pytest.raises(NoRecords, match="no record was left out"):
        _ = LeaveOneOutStatistics(path).ridge
    for other in (ridge_path(statistics, [1.0]), ridge_path(statistics_of(rows[1:], labels[1:], 3), GRID)):
        with pytest.raises(ConfigMismatch, match="another head or grid"):
            left_out(path, rows, labels).merge(left_out(other, rows, labels))
