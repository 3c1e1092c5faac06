from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from veilsum.calibration.errors import (
    LabelOutOfRange,
    NonFinite,
    NormExceeded,
    NotUnitNorm,
    ShapeMismatch,
    WrongDtype,
    ZeroRow,
)
from veilsum.calibration.rows import (
    any_labels,
    as_array,
    as_features,
    as_labels,
    bounded_rows,
    check_rows,
    finite_rows,
    row_blocks,
    unit_directions,
    unit_rows,
    usable_rows,
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_tensors_arrive_without_their_graph(dtype: torch.dtype) -> None:
    matrix = as_features(torch.ones((2, 3), dtype=dtype, requires_grad=True), 3)
    assert matrix.dtype == str(dtype).removeprefix("torch.")
    assert (matrix == 1).all()
    with pytest.raises(WrongDtype):
        as_array(torch.ones((2, 3), dtype=torch.bfloat16))


@pytest.mark.parametrize("features", [np.ones((2, 3), np.uint8), [[True] * 3] * 2, torch.ones(2, 3).int()])
def test_integers_are_features_as_float64(features: Any) -> None:
    matrix = as_features(features, 3)
    assert matrix.dtype == np.float64
    assert (matrix == 1).all()


@pytest.mark.parametrize(
    ("features", "error"),
    [
        *((np.ones((2, 3), dtype), WrongDtype) for dtype in (np.longdouble, np.complex128)),
        (np.array([["a", "b", "c"]]), WrongDtype),
        (None, WrongDtype),
        (np.ma.masked_invalid(np.ones((2, 3))), WrongDtype),
        ([[1.0, 2.0, 3.0], [1.0]], ShapeMismatch),
        *((np.ones(shape), ShapeMismatch) for shape in (3, (3, 2), (1, 2, 3))),
    ],
)
def test_features_of_another_kind_are_refused(features: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        as_features(features, 3)


@pytest.mark.parametrize(
    ("labels", "error", "match"),
    [
        ([0.0, 1.0], WrongDtype, "float64"),
        ([True, False], WrongDtype, "bool"),
        ([[0.0, 1.0], [1.0, 0.0]], ShapeMismatch, "argmax"),
        ([[0], [1]], ShapeMismatch, r"labels\.ravel\(\)"),
        ([0, 1, 2], ShapeMismatch, r"expected \(2,\)$"),
        ([0, 3], LabelOutOfRange, "1 of 2 .* in rows 1 "),
        ([-1, -7], LabelOutOfRange, "in rows 0, 1 "),
        (np.array([0, 2**64 - 1], np.uint64), LabelOutOfRange, "1 of 2"),
    ],
)
def test_labels_of_another_kind_are_refused(labels: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        as_labels(labels, 2, 3)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.float32])
def test_missing_labels_are_below_0_and_huge_ones_too(dtype: type[Any]) -> None:
    labels = np.array([0, 1, -1, -7, 2**53, 2**60], dtype)
    assert any_labels(labels, 6, missing=True).tolist() == [0, 1, -1, -1, -1, -1]
    if dtype == np.float64:
        largest = np.array([2.0**53 - 1, np.nan])
        assert any_labels(largest, 2, missing=True).tolist() == [2**53 - 1, -1]
    for broken in ([1.0, 0.5], [1.0, np.inf], [1.0, -np.inf]):
        with pytest.raises(WrongDtype, match="row 1 "):
            any_labels(broken, 2, missing=True)
    for missing in (False, True):
        assert any_labels([], 0, missing=missing).dtype == np.int64
        with pytest.raises(WrongDtype):
            any_labels(["1", "2"], 2, missing=missing)
        with pytest.raises(ShapeMismatch):
            any_labels([1, 2], 3, missing=missing)
    assert any_labels([1, -7], 2).tolist() == [1, -7]
    with pytest.raises(WrongDtype):
        any_labels([1.0, np.nan], 2)


def test_rows_whose_squares_leave_float64_are_still_normalised() -> None:
    rows, norms = unit_rows(np.array([[3e200, 4e200], [3e-200, 4e-200], [3.0, 4.0], [1.7e308, 1.7e308]]))
    np.testing.assert_allclose(rows, [*[[0.6, 0.8]] * 3, [0.5**0.5] * 2], rtol=1e-15)
    np.testing.assert_allclose(norms, [5e200, 5e-200, 5.0, np.inf])
    assert unit_rows(np.array([[5e-324, 0.0]]))[0].tolist() == [[1.0, 0.0]]
    assert unit_rows(np.zeros((1, 2)), total=True)[0].tolist() == [[1.0, 0.0]]


@given(
    hnp.arrays(
        np.float64, st.tuples(st.integers(1, 6), st.integers(1, 40)), elements=st.floats(-1e300, 1e300)
    ),
    st.integers(0, 5),
    st.sampled_from(["C", "F"]),
)
@settings(deadline=None, max_examples=60)
def test_a_row_is_scaled_alike_whatever_stands_around_it(features: Any, row: int, order: Any) -> None:
    assume(np.abs(features).max(axis=1).min() > 0)
    row %= len(features)
    together, _ = unit_rows(np.array(features, order=order))
    alone, _ = unit_rows(features[row : row + 1])
    assert together[row].tobytes() == alone[0].tobytes()
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_unusable_rows_are_named_by_their_index_in_the_batch(
    bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = np.eye(8)
    features[[2, 5], 3] = bad
    with pytest.raises(NonFinite, match="rows 2, 5"):
        check_rows(features, normalise=True)
    with pytest.raises(ZeroRow, match=r"rows 0, 1, 2, 3, 4 .*\b3 "):
        check_rows(np.zeros((8, 2)), normalise=True)
    monkeypatch.setattr("veilsum.calibration.rows.ROW_BLOCK_ELEMENTS", 6)
    longer = np.eye(3)[[0, 1, 2, 0, 1]] * [[1], [1], [1], [1], [2]]
    with pytest.raises(NotUnitNorm, match=r"rows 4 .*\b2"):
        check_rows(longer, normalise=False)
    longer[3] = 0
    with pytest.raises(ZeroRow, match="rows 3 "):
        check_rows(longer, normalise=True)
    with pytest.raises(NormExceeded, match=r"rows 11 .*\b2"):
        bounded_rows(longer, 1.5, first=7)
    longer[3] = bad
    for each in (finite_rows, unit_rows):
        with pytest.raises(NonFinite, match="rows 10 "):
            each(longer, first=7)


def test_rows_are_named_from_0_and_five_of_them_at_most() -> None:
    for each, row in ((unit_rows, np.nan), (unit_rows, 0.0), (finite_rows, np.nan)):
        with pytest.raises((NonFinite, ZeroRow), match="rows 0 "):
            each(np.full((1, 2), row))
    with pytest.raises(NormExceeded, match="rows 0 "):
        bounded_rows(np.full((1, 2), 9.0), 1.0)
    for wrong, shown in ((5, "rows 0, 1, 2, 3, 4 "), (6, "rows 0, 1, 2, 3, 4, … ")):
        with pytest.raises(LabelOutOfRange, match=shown):
            as_labels([3] * wrong, wrong, 3)
    for wrong, shown in ((5, r"rows 0, 1, 2, 3, 4\D*$"), (6, r"rows 0, 1, 2, 3, 4\D*1\D*$")):
        with pytest.raises(ZeroRow, match=shown):
            check_rows(np.zeros((wrong, 2)), normalise=True)


def test_blocks_have_so_many_rows_and_numbers_at_most() -> None:
    assert [*row_blocks(10, 3, 4)] == [slice(0, 4), slice(4, 8), slice(8, 10)]
    assert [*row_blocks(5, 2**20)] == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert [*row_blocks(2, 2**22)] == [slice(0, 1), slice(1, 2)]


def test_a_row_at_the_centre_has_no_direction_or_the_first() -> None:
    rows, centre = np.array([[0.0, 2.0], [3.0, 4.0]]), np.array([0.0, 1.0])
    with pytest.raises(ZeroRow):
        unit_directions(rows, centre)
    away = np.array([0.6, -0.2]) / np.sqrt(0.4)
    np.testing.assert_allclose(unit_directions(rows, centre, total=True), [[1.0, 0.0], away])
    np.testing.assert_allclose(unit_directions(rows), [[0.0, 1.0], [0.6, 0.8]])
    with pytest.raises(ZeroRow):
        unit_directions(np.zeros((1, 2)), centre, total=True)


def test_usable_rows_are_finite_not_zero_and_of_a_class() -> None:
    rows = np.array([[1.0, 0], [0, 0], [np.nan, 1], [1, np.inf], [1, 1], [1, 1]])
    assert usable_rows(rows, np.array([0, 0, 0, 0, -1, 3]), 3).tolist() == [True] + [False] * 5


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_normalised_in_their_own_type_pass(dtype: type[np.floating]) -> None:
    features = np.random.default_rng(0).standard_normal((50, 512)).astype(dtype)
    features /= np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True).astype(dtype)
    check_rows(features, normalise=False)
    with pytest.raises(NotUnitNorm):
        check_rows(features * dtype(1.01), normalise=False)
