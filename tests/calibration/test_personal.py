from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from calibration import (
    CalibrationError,
    ConfigMismatch,
    FFCStatistics,
    Head,
    NoRecords,
    personalise,
    solve_ffc,
)


def statistics_of(rows: Any, labels: Any, classes: int, **settings: Any) -> FFCStatistics:
    statistics = FFCStatistics(rows.shape[1], classes, **settings)
    statistics.update(rows, labels)
    return statistics


@pytest.mark.parametrize("bias", [False, True])
def test_a_personal_head_is_ridge_with_one_s_own_records_repeated(*, clouds: Any, bias: bool) -> None:
    rows, labels = clouds(300, 6, 4, noise=2.0)
    mine, pooled = slice(0, 60), statistics_of(rows, labels, 4, bias=bias)
    own = statistics_of(rows[mine], labels[mine], 4, bias=bias)
    kept, answers = clouds(50, 6, 4, seed=1, noise=2.0)
    personal = personalise(pooled, own, kept, answers, ridge=0.3, weights=[2, 0])
    wanted = np.eye(4)[answers]
    repeated = [rows, rows[mine], rows[mine]], [labels, labels[mine], labels[mine]]
    for index, parts in enumerate((([rows], [labels]), repeated)):
        direct = solve_ffc(statistics_of(np.vstack(parts[0]), np.hstack(parts[1]), 4, bias=bias), 0.3)
        error = ((direct.scores(kept) - wanted) ** 2).sum(axis=1).mean()
        assert personal.errors[index] == pytest.approx(error)
        if personal.weight == 2 * index:
            np.testing.assert_allclose(personal.scores(kept), direct.scores(kept), atol=1e-10)
    assert personal.weight == [0, 2][int(personal.errors.argmin())]
    assert personal.weights_tried.tolist() == [0, 2]


def test_a_member_that_meets_few_classes_gains() -> None:
    digits = load_digits()
    rows, labels = digits.data / np.linalg.norm(digits.data, axis=1, keepdims=True), digits.target
    mine, others = np.isin(labels, [1, 8, 9]), slice(0, 1200)  # this member meets three classes alone
    kept, held_out, test = (
        np.flatnonzero(mine)[part] for part in (slice(150), slice(150, 250), slice(250, None))
    )
    own = statistics_of(rows[kept], labels[kept], 10, bias=True)
    pooled = statistics_of(rows[others][~mine[others]], labels[others][~mine[others]], 10, bias=True)
    pooled.merge(own)
    personal = personalise(pooled, own, rows[held_out], labels[held_out], ridge=0.1)
    everybody = solve_ffc(pooled, 0.1)
    assert personal.weight > 0
    right = [(head.predict(rows[test]) == labels[test]).mean() for head in (personal, everybody)]
    assert right[0] > right[1] + 0.03
    assert type(personal.with_unit_columns()) is Head


def test_what_can_not_be_made_personal(clouds: Any) -> None:
    rows, labels = clouds(60, 4, 3)
    pooled, own = statistics_of(rows, labels, 4), statistics_of(rows[:9], labels[:9], 4)
    with pytest.raises(ConfigMismatch, match="bias differs"):
        personalise(pooled, statistics_of(rows, labels, 4, bias=True), rows, labels, ridge=1.0)
    for ridge, weights in ((0.0, [1.0]), (np.inf, [1.0]), (1.0, []), (1.0, [-1.0]), (1.0, [np.nan])):
        with pytest.raises(CalibrationError, match="λ is above 0"):
            personalise(pooled, own, rows, labels, ridge=ridge, weights=weights)
    for pool, kept in ((pooled, slice(0)), (FFCStatistics(4, 4), slice(9))):
        with pytest.raises(NoRecords, match="held out"):
            personalise(pool, own, rows[kept], labels[kept], ridge=1.0)
    assert personalise(pooled, own, 2 * rows, labels, ridge=1.0, normalise=True).empty_classes == (3,)
