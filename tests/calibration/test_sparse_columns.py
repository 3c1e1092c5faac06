"""Which features are cleared from a vector's rows, and whether enough is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.calibration.rows import unit_rows
from veilsum.calibration.sparse_columns import SparseColumns, entries_suffice


def counted(rows: Any, labels: Any = None, classes: int | None = None) -> SparseColumns:
    matrix = np.asarray(rows, np.float64)
    columns = SparseColumns(matrix.shape[1], classes)
    columns.count(matrix, np.zeros(len(matrix), int) if labels is None else np.asarray(labels))
    return columns


def half_of_a_column(last: Any) -> Any:
    """Four rows of length 1 that share four features evenly, and one that has the first feature alone or mostly."""
    return unit_rows(np.array([[1.0, 1, 1, 1]] * 4 + [last]))[0]


@pytest.mark.parametrize(("holders", "sparse"), [(0, True), (1, True), (4, True), (5, False), (9, False)])
def test_a_feature_of_fewer_than_five_rows_is_sparse(*, holders: int, sparse: bool) -> None:
    rows = np.zeros((9, 2))
    rows[:, 0], rows[:holders, 1] = 0.6, 0.8
    assert counted(rows).sparse.tolist() == [[False, sparse]]


@pytest.mark.parametrize(
    ("last", "sparse"), [([1.0, 0, 0, 0], False), ([1.0, 0, 0, 1e-9], False), ([-1.0, 0, 0, 0], False)]
)
def test_a_row_with_exactly_half_of_a_feature_s_squares_leaves_it(*, last: Any, sparse: bool) -> None:
    assert counted(half_of_a_column(last)).sparse[0, 0] == sparse


def test_a_row_with_more_than_half_of_a_feature_s_squares_clears_it() -> None:
    rows = half_of_a_column([1.0, 0, 0, 0])
    rows[0, 0] = 0.5 - 1e-9
    assert counted(rows).sparse.tolist() == [[True] * 4]
    # However many rows have it: GELU leaves next to nothing of a feature in most rows.
    gelu = np.full((200, 2), 1e-3)
    gelu[:, 0] = 0.9
    gelu[17, 1] = 0.5
    assert counted(gelu).sparse.tolist() == [[False, True]]


def test_sparse_features_are_cleared_once_and_rows_keep_their_lengths() -> None:
    rows = unit_rows(np.random.default_rng(0).random((12, 3)) + 0.1)[0]
    rows[4:, 2] = 0
    before = rows.copy()
    columns = counted(rows)
    columns.clear(rows, np.zeros(12, int))
    np.testing.assert_array_equal(rows[:, :2], before[:, :2])
    assert not rows[:, 2].any()
    assert columns.entries.tolist() == [24]


def test_classes_are_decided_apart() -> None:
    labels = np.array([0] * 9 + [2] * 5)
    rows = np.zeros((14, 2))
    rows[:, 0], rows[6:, 1] = 0.6, 0.8  # the second feature: three rows of class 0, all five of class 2
    assert counted(rows).sparse.tolist() == [[False, False]]
    columns = counted(rows, labels, 3)
    assert columns.sparse.tolist() == [[False, True], [True, True], [False, False]]
    columns.clear(rows, labels)
    assert not rows[:9, 1].any()
    assert (rows[9:, 1] == 0.8).all()
    assert (rows[:, 0] == 0.6).all()
    assert columns.entries.tolist() == [9, 0, 10]


@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 40), max_size=4), by_class=st.booleans())
def test_blocks_change_nothing_to_the_last_bit(*, seed: int, cuts: list[int], by_class: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((40, 3)) * 10.0 ** rng.integers(-9, 1, (40, 3)) * (rng.random((40, 3)) < 0.3)
    labels = rng.integers(0, 2, 40)
    whole, parts = (SparseColumns(3, 2 if by_class else None) for _ in range(2))
    whole.count(rows, labels)
    for block, named in zip(np.split(rows, sorted(cuts)), np.split(labels, sorted(cuts)), strict=True):
        parts.count(block, named)
    for one, other in zip(vars(whole).values(), vars(parts).values(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("rows", "entries", "numbers", "honest", "enough"),
    [
        (100, 300, 600, 6, True),  # 100 · (3 − 1) · 6 = 2 · 600
        (100, 299, 600, 6, False),
        (100, 300, 601, 6, False),
        (100, 300, 600, 5, False),
        (100, 100, 1, 10_000, False),  # rows of one feature each tell nothing apart
        (0, 0, 1, 10, False),
        (2**31, 2**42, 2**44, 10, True),
    ],
)
def test_rows_suffice_by_their_own_entries(
    *, rows: int, entries: int, numbers: int, honest: int, enough: bool
) -> None:
    assert entries_suffice(rows, entries, numbers, honest_members=honest) == enough


def test_only_what_is_left_counts_towards_enough() -> None:
    rows = np.zeros((10, 4))
    rows[:, :2] = 0.7
    rows[:4, 2:] = 0.1
    columns = counted(rows)
    assert columns.rows_suffice(15, 3)  # 10 · (2 − 1) · 3 = 2 · 15
    assert not columns.rows_suffice(16, 3)
    labels = np.array([0] * 7 + [1] * 3)
    by_class = counted(rows, labels, 3)
    assert by_class.rows_suffice(6, 3)  # class 1 has nothing left: (14 − 10) · 3 = 2 · 6
    assert not by_class.rows_suffice(7, 3)
    assert by_class.classes_suffice(10, 3).tolist() == [True, False, False]  # (14 − 7) · 3 = 21
    assert by_class.classes_suffice(11, 3).tolist() == [False, False, False]
