from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

from calibration import (
    CalibrationError,
    ConfigMismatch,
    FeaturesLattice,
    FFCStatistics,
    FoldedStatistics,
    LayoutMismatch,
    NoRecords,
    NotUnitNorm,
    SingularSystem,
    SumsLattice,
    ffc_layout,
    fold_curve,
    fold_layout,
    solve_ffc,
)
from calibration.digest import digests_of
from calibration.rows import unit_rows


def folded(rows: Any, labels: Any, classes: int, folds: int = 5, **settings: Any) -> FoldedStatistics:
    statistics = FoldedStatistics(rows.shape[1], classes, folds, **settings)
    statistics.update(rows, labels)
    return statistics


def fold_numbers(rows: Any, labels: Any, folds: int) -> Any:
    unit, _ = unit_rows(rows)
    return np.array([int.from_bytes(d[-8:], "little") % folds for d in digests_of(unit, labels)])


@pytest.mark.parametrize("relu", [False, True])
def test_fold_errors_are_those_of_fits_without_the_fold(*, clouds: Any, relu: bool) -> None:
    rows, labels = clouds(300, 10, 4, relu=relu)
    grid = [1e-2, 0.3, 5.0]
    curve = fold_curve(folded(rows, labels, 4), grid)
    numbers, wanted = fold_numbers(rows, labels, 5), np.eye(4)[labels]
    for fold in range(5):
        inside = numbers == fold
        assert curve.records[fold] == inside.sum()
        for index, ridge in enumerate(grid):
            fit = Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(rows[~inside], wanted[~inside])
            expected = ((fit.predict(rows[inside]) - wanted[inside]) ** 2).sum()
            assert curve.errors[fold, index] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(curve.mean, curve.errors.sum(axis=0) / 300)
    assert curve.ridge == grid[int(curve.mean.argmin())]


@pytest.mark.parametrize("lattice", [SumsLattice(31), FeaturesLattice(12)])
def test_summed_folds_are_the_folds_of_all_records(*, clouds: Any, pool: Any, lattice: Any) -> None:
    rows, labels = clouds(400, 6, 3)
    own = lattice if isinstance(lattice, FeaturesLattice) else None
    members = [folded(rows[i::4], labels[i::4], 3, 3, bias=True, lattice=own) for i in range(4)]
    plain = folded(rows, labels, 3, 3, bias=True, lattice=own)
    layout = fold_layout(6, 3, 3, bias=True)
    assert plain.layout == layout
    assert layout.elements == 3 * ffc_layout(6, 3, bias=True).elements
    pooled = FoldedStatistics.from_sums(layout, lattice, pool(members, lattice), bias=True, members=4)
    atol = 0 if own else 4 / 2 * 2.0**-31
    for ours, theirs in zip(pooled.folds, plain.folds, strict=True):
        np.testing.assert_allclose(ours.V, theirs.V, rtol=0, atol=atol)
        np.testing.assert_allclose(ours.U, theirs.U, rtol=0, atol=atol)
        assert (ours.counts == theirs.counts).all()
    assert fold_curve(pooled).ridge == fold_curve(plain).ridge
    members[0].merge(members[1])
    assert members[0].total.records == 200


def test_copies_of_a_record_lie_in_one_fold(clouds: Any) -> None:
    rows, labels = clouds(50, 6, 3)
    mine, yours = folded(rows, labels, 3, 4), folded(rows[::-1], labels[::-1], 3, 4)
    assert [f.records_digest for f in mine.folds] == [f.records_digest for f in yours.folds]
    assert sum(f.records > 0 for f in mine.folds) == 4
    whole = FFCStatistics(6, 3)
    whole.update(rows, labels)
    assert mine.total.records_digest == whole.records_digest


def test_the_ridge_of_folds_is_near_that_of_gcv_on_real_digits() -> None:
    digits = load_digits()
    rows = digits.data / np.linalg.norm(digits.data, axis=1, keepdims=True)
    statistics = folded(rows[:1200], digits.target[:1200], 10)
    curve, total = fold_curve(statistics), statistics.total
    assert 0.25 < curve.ridge / solve_ffc(total).ridge < 4
    best = solve_ffc(total, curve.ridge)
    assert (best.predict(rows[1200:]) == digits.target[1200:]).mean() > 0.87


def test_what_can_not_be_cut_into_folds(clouds: Any) -> None:
    rows, labels = clouds(40, 4, 2)
    with pytest.raises(LayoutMismatch, match="at least 2 folds"):
        FoldedStatistics(4, 2, 1)
    with pytest.raises(ConfigMismatch, match="2 folds here and 3 there"):
        folded(rows, labels, 2, 2).merge(folded(rows, labels, 2, 3))
    with pytest.raises(NotUnitNorm):
        folded(2 * rows, labels, 2)
    with pytest.raises(NoRecords, match="all records lie in one fold"):
        fold_curve(folded(rows[:1], labels[:1], 2))
    with pytest.raises(SingularSystem):
        fold_curve(folded(np.eye(4)[[0, 1, 2, 0, 1, 2]], np.arange(6) % 2, 2), [0.0])
    with pytest.raises(CalibrationError, match="weighted classes"):
        fold_curve(folded(rows, labels, 2, class_weights=[1, 0.5]))
    vector = np.zeros(fold_layout(4, 2, 2).elements, np.int64)
    for layout, bias in ((ffc_layout(4, 2), False), (fold_layout(1, 2, 2), True)):
        with pytest.raises(LayoutMismatch):
            FoldedStatistics.from_sums(layout, SumsLattice(8), vector[: layout.elements], bias=bias)
    with pytest.raises(LayoutMismatch, match="this layout needs"):
        FoldedStatistics.from_sums(fold_layout(4, 2, 2), SumsLattice(8), vector[1:], bias=False)
