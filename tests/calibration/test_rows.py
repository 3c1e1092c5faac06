from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from calibration import (
    LabelOutOfRange,
    NonFinite,
    NotUnitNorm,
    ShapeMismatch,
    WrongDtype,
    ZeroRow,
)
from calibration.rows import (
    BLOCK_ELEMENTS,
    as_array,
    as_features,
    as_labels,
    check_rows,
    row_blocks,
    unit_rows,
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_tensors_arrive_without_their_graph(dtype: torch.dtype) -> None:
    tensor = torch.ones((2, 3), dtype=dtype, requires_grad=True)
    matrix = as_features(tensor, 3)
    assert matrix.dtype == str(dtype).removeprefix("torch.")
    assert (matrix == 1).all()


def test_bfloat16_says_how_to_convert() -> None:
    with pytest.raises(WrongDtype, match=r"tensor\.float\(\)"):
        as_array(torch.ones((2, 3), dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("features", "error", "hint"),
    [
        (np.ones((2, 3), np.int64), WrongDtype, "float32 or float64"),
        (np.ones((2, 3), np.longdouble), WrongDtype, "float32 or float64"),
        (np.ones((2, 3), np.complex128), WrongDtype, "float32 or float64"),
        (np.array([["a", "b", "c"]]), WrongDtype, "float32 or float64"),
        (None, WrongDtype, "float32 or float64"),
        (np.ma.masked_invalid(np.ones((2, 3))), WrongDtype, "mask would be lost"),
        ([[1.0, 2.0, 3.0], [1.0]], ShapeMismatch, "one length"),
        (np.ones(3), ShapeMismatch, r"pass \(n, 3\)"),
        (np.ones((3, 2)), ShapeMismatch, r"pass \(n, 3\)"),
        (np.ones((1, 2, 3)), ShapeMismatch, r"pass \(n, 3\)"),
    ],
)
def test_features_of_another_kind(features: Any, error: type[Exception], hint: str) -> None:
    with pytest.raises(error, match=hint):
        as_features(features, 3)


@pytest.mark.parametrize(
    ("labels", "error", "hint"),
    [
        ([0.0, 1.0], WrongDtype, r"labels\.astype\(int\)"),
        ([True, False], WrongDtype, "class indices"),
        ([[0], [1]], ShapeMismatch, r"labels\.ravel\(\)"),
        ([0, 1, 2], ShapeMismatch, r"\(3,\) for 2 records, not \(2,\)$"),
        ([0, 3], LabelOutOfRange, "1 of 2 labels lie outside 0…2: 3 in row 1"),
        ([-1, -7], LabelOutOfRange, "-1 in row 0, -7 in row 1"),
        (np.array([0, 2**64 - 1], np.uint64), LabelOutOfRange, "18446744073709551615 in row 1"),
    ],
)
def test_labels_of_another_kind(labels: Any, error: type[Exception], hint: str) -> None:
    with pytest.raises(error, match=hint):
        as_labels(labels, 2, 3)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.uint64])
def test_labels_of_any_integer_type(dtype: type[np.integer]) -> None:
    labels = as_labels(np.array([2, 0], dtype), 2, 3)
    assert labels.dtype == np.int64
    assert labels.tolist() == [2, 0]


def test_blocks_cover_every_row_once_and_stay_small() -> None:
    blocks = list(row_blocks(10_000, 1280))
    assert [row for block in blocks for row in range(block.start, block.stop)] == list(range(10_000))
    assert all((block.stop - block.start) * 1280 <= BLOCK_ELEMENTS for block in blocks)
    assert list(row_blocks(0, 7)) == []
    assert list(row_blocks(2, 10 * BLOCK_ELEMENTS)) == [slice(0, 1), slice(1, 2)]


def test_rows_whose_squares_leave_float64_are_still_normalised() -> None:
    rows, norms = unit_rows(np.array([[3e200, 4e200], [3e-200, 4e-200], [3.0, 4.0], [1.7e308, 1.7e308]]))
    np.testing.assert_allclose(rows[:3], [[0.6, 0.8]] * 3, rtol=1e-15)
    np.testing.assert_allclose(norms[:3], [5e200, 5e-200, 5.0])
    np.testing.assert_allclose(rows[3], [0.5**0.5] * 2)
    assert norms[3] == np.inf
    smallest, _ = unit_rows(np.array([[5e-324, 0.0]]))
    assert smallest.tolist() == [[1.0, 0.0]]


@given(
    hnp.arrays(
        np.float64, st.tuples(st.integers(1, 6), st.integers(1, 40)), elements=st.floats(-1e300, 1e300)
    ),
    st.integers(0, 5),
    st.sampled_from(["C", "F"]),
)
@settings(deadline=None, max_examples=60)
def test_a_row_is_scaled_alike_whatever_stands_around_it(
    features: NDArray[np.float64], row: int, order: Any
) -> None:
    assume(np.abs(features).max(axis=1).min() > 0)
    row %= len(features)
    together, _ = unit_rows(np.array(features, order=order))
    alone, _ = unit_rows(features[row : row + 1])
    assert together[row].tobytes() == alone[0].tobytes()
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_rows_are_named(bad: float) -> None:
    features = np.eye(8)
    features[[2, 5], 3] = bad
    with pytest.raises(NonFinite, match="rows 2, 5 hold NaN or infinity") as caught:
        check_rows(features, normalise=True)
    assert caught.value.rows == (2, 5)


def test_many_bad_rows_are_counted_and_not_listed() -> None:
    with pytest.raises(ZeroRow, match="rows 0, 1, 2, 3, 4 and 3 more are zero") as caught:
        check_rows(np.zeros((8, 2)), normalise=True)
    assert caught.value.rows == (0, 1, 2, 3, 4)


def test_rows_are_named_by_their_index_in_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.rows.BLOCK_ELEMENTS", 6)
    features = np.eye(3)[[0, 1, 2, 0, 1]].copy()
    features[4] *= 2
    with pytest.raises(NotUnitNorm, match=r"rows 4 have norm 2, not 1 .* pass normalise=True") as caught:
        check_rows(features, normalise=False)
    assert caught.value.rows == (4,)
    features[3] = 0
    with pytest.raises(ZeroRow, match="rows 3 are zero"):
        check_rows(features, normalise=True)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_normalised_in_their_own_type_pass(dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((50, 512)).astype(dtype)
    features /= np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True).astype(dtype)
    check_rows(features, normalise=False)
    with pytest.raises(NotUnitNorm):
        check_rows(features * dtype(1.01), normalise=False)
