"""Feature matrices and labels: what callers may pass, and the float64 rows that statistics are made of."""

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilsum.calibration.errors import (
    CalibrationError,
    LabelOutOfRange,
    NonFinite,
    NormExceeded,
    NotUnitNorm,
    ShapeMismatch,
    WrongDtype,
    ZeroRow,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Array: TypeAlias = ArrayLike
"""numpy, nested lists, or a torch tensor on any device, with or without gradient."""

UNIT_TOLERANCE = {2: 2e-3, 4: 1e-5, 8: 1e-5}
"""How far a norm may lie from 1, by bytes per number: the error of normalising in that type. float64 features often were float32 once."""
ROW_BLOCK_ELEMENTS = 2**21
"""Numbers in a block of rows, 16 MiB of float64: large enough for BLAS, small enough to bound memory."""
SQRT_HALF = math.sqrt(0.5)
FEATURES_FACTOR, CONSTANT_ENTRY = math.sqrt(0.9), math.sqrt(0.1)
"""With a constant, a row is (√.9·z, √.1): the constant has a tenth of the squared length."""
_ROWS_SHOWN_MAX = 5


def as_array(values: Array) -> NDArray[Any]:
    """Convert to numpy. Raises WrongDtype for types that numpy lacks and for masked arrays, ShapeMismatch for ragged lists."""
    if np.ma.isMaskedArray(values):
        raise WrongDtype("a masked array would lose its mask: drop the masked records, then pass .data")
    if hasattr(values, "detach"):  # a torch tensor
        try:
            return np.asarray(values.detach().cpu().numpy())
        except TypeError as error:
            raise WrongDtype(f"numpy can't hold this tensor ({error}): pass tensor.float()") from error
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ShapeMismatch(f"rows differ in length ({error}): pass one (n, dim) array") from error


def as_features(features: Array, dim: int) -> NDArray[Any]:
    """(n, dim) float16, float32 or float64 features without a copy; integers become float64. Raises WrongDtype or ShapeMismatch."""
    matrix = as_array(features)
    if matrix.dtype.kind in "biu":
        matrix = matrix.astype(np.float64)
    if matrix.dtype.kind != "f" or matrix.dtype.itemsize not in UNIT_TOLERANCE:
        raise WrongDtype(f"features are {matrix.dtype}: pass float16, float32 or float64")
    if matrix.ndim != 2 or matrix.shape[1] != dim:
        raise ShapeMismatch(f"features have shape {matrix.shape}: pass (n, {dim}), one row per record")
    return matrix


def as_labels(labels: Array, records: int, classes: int) -> Integers:
    """Labels as (n,) int64 class indices. Raises as `any_labels`, and LabelOutOfRange for a label outside 0…classes − 1."""
    indices = any_labels(labels, records)
    wrong = np.flatnonzero((indices < 0) | (indices >= classes))
    if wrong.size:
        shown = ", ".join(map(str, wrong[:_ROWS_SHOWN_MAX])) + (", …" if wrong.size > _ROWS_SHOWN_MAX else "")
        raise LabelOutOfRange(
            f"{wrong.size} of {records} labels lie outside 0…{classes - 1}, in rows {shown} (counted from 0): pass class indices from 0, "
            "or more classes"
        )
    return indices.astype(np.int64, copy=False)


def any_labels(labels: Array, records: int, *, missing: bool = False) -> NDArray[Any]:
    """Labels as an (n,) array of integers, whether or not they are classes. Raises WrongDtype or ShapeMismatch for anything else.

    With `missing`, floats are accepted too, as a column with missing labels has them: NaN becomes −1, a fraction is refused.
    """
    indices = as_array(labels)
    if not indices.size:
        indices = indices.astype(np.int64)  # numpy makes an empty list float64
    if indices.ndim == 2 and len(indices) == records and indices.shape[1] > 1:
        one_hot = indices.dtype.kind in "biuf" and (np.count_nonzero(indices, axis=1) == 1).all()
        advice = (
            "convert one-hot labels by labels.argmax(axis=1)"
            if one_hot
            else "a head chooses one class for each row"
        )
        raise ShapeMismatch(f"labels have shape {indices.shape}, expected ({records},): {advice}")
    if missing and indices.dtype.kind in "iuf":
        floors = np.floor(indices)
        if (
            broken := np.flatnonzero(~np.isnan(indices) & ~((indices == floors) & np.isfinite(indices)))
        ).size:
            raise WrongDtype(
                f"the label in row {broken[0]} (counted from 0) is not a whole number: pass class indices, NaN for a missing label, or class "
                "keys as text"
            )
        whole = (indices >= 0) & (indices < 2**53)
        indices = np.where(whole, indices, -1).astype(np.int64)
    if indices.dtype.kind in "UO":
        raise WrongDtype("labels are text: number the classes from 0")
    if indices.dtype.kind not in "iu":
        raise WrongDtype(f"labels are {indices.dtype}: pass class indices as integers, labels.astype(int)")
    if indices.shape != (records,):
        hint = ": pass labels.ravel()" if indices.size == records else ""
        raise ShapeMismatch(f"labels have shape {indices.shape}, expected ({records},){hint}")
    return indices


def usable_rows(features: NDArray[Any], labels: NDArray[Any], classes: int) -> NDArray[np.bool_]:
    """Tell which rows can be summed, (n,): those that are finite, not all zeros, and have a label from 0 to classes − 1."""
    labelled = (labels >= 0) & (labels < classes)
    usable: NDArray[np.bool_] = np.isfinite(features).all(axis=1) & features.any(axis=1) & labelled
    return usable


def row_blocks(records: int, width: int, most: int = ROW_BLOCK_ELEMENTS) -> Iterator[slice]:
    """Cut `records` rows of `width` numbers into blocks of at most `most` rows and `ROW_BLOCK_ELEMENTS` numbers."""
    step = max(1, min(most, ROW_BLOCK_ELEMENTS // width))
    return (slice(start, min(start + step, records)) for start in range(0, records, step))


def row_sums(terms: Floats) -> Floats:
    """Sum over the last axis of (…, l) float64 by halves, so that each row's sum follows from that row alone, to the last bit.

    A library may cut a long row elsewhere if there are more rows.
    """
    while (width := terms.shape[-1]) > 1:
        half, odd = width // 2, terms[..., 2 * (width // 2) :]
        terms = terms[..., :half] + terms[..., half : 2 * half]
        terms[..., : odd.shape[-1]] += odd
    return terms[..., 0]


def check_rows(features: NDArray[Any], *, normalise: bool) -> None:
    """Raise NonFinite, ZeroRow or, unless `normalise`, NotUnitNorm (beyond `UNIT_TOLERANCE`) if a batch has an unusable row."""
    tolerance = UNIT_TOLERANCE[features.dtype.itemsize]
    for block in row_blocks(*features.shape):
        _, norms = unit_rows(features[block], first=block.start)
        if not normalise:
            wrong = np.flatnonzero(np.abs(norms - 1) > tolerance)
            seen = ", ".join(f"{norms[i]:.6g}" for i in wrong[:_ROWS_SHOWN_MAX])
            what = f"have norm {seen}, expected 1 within {tolerance:g}: pass normalise=True"
            _refuse_rows(wrong + block.start, NotUnitNorm, what)


def unit_rows(features: NDArray[Any], *, first: int = 0, total: bool = False) -> tuple[Floats, Floats]:
    """Scale rows to length 1 in float64. Each row's result depends on that row alone.

    `first` is the index of the first row in the caller's batch, for error messages. `total` replaces a row of zeros by the first unit
    vector instead of refusing it: under noise a refusal would tell of the row.

    Returns:
        The (n, l) C-contiguous rows, a copy, and their (n,) former norms. Raises NonFinite, or ZeroRow unless `total`.
    """
    rows = np.array(features, dtype=np.float64, order="C")
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        squares = row_sums(rows * rows)
        # Squares that over- or underflow say nothing about the row: divide by its largest value first.
        extreme = np.flatnonzero(~((squares > 1e-280) & (squares < 1e280)))
        peaks = np.abs(rows[extreme]).max(axis=1)
        _refuse_rows(
            extreme[~np.isfinite(peaks)] + first, NonFinite, "hold NaN or infinity: mend or drop them"
        )
        zero = peaks == 0
        if total:
            rows[extreme[zero], 0] = 1
        else:
            _refuse_rows(extreme[zero] + first, ZeroRow, "are zero and have no direction: drop these records")
        rows[extreme] /= np.where(zero, 1, peaks)[:, None]
        squares[extreme] = row_sums(rows[extreme] * rows[extreme])
        norms = np.sqrt(squares)
        rows /= norms[:, None]
        norms[extreme] *= peaks
    return rows, norms


def unit_directions(features: NDArray[Any], centre: Floats | None = None, *, total: bool = False) -> Floats:
    """The (n, l) float64 rows that a head applies its weights to: z of length 1, and with a centre m (z − m)/‖z − m‖.

    Raises NonFinite; ZeroRow for a row of zeros and, unless `total`, for z = m, which becomes the first unit vector with it.
    """
    rows, _ = unit_rows(features)
    return rows if centre is None else unit_rows(rows - centre, total=total)[0]


def with_constant(rows: Floats) -> Floats:
    """Z' = (√.9·z, √.1), the rows of a fit with a constant, (n, l + 1), again of length 1."""
    return np.column_stack([rows * FEATURES_FACTOR, np.full(len(rows), CONSTANT_ENTRY)])


def split_constant(weights: Floats) -> tuple[Floats, Floats]:
    """Split the (l + 1, C) weights of rows with a constant into weights (l, C) and bias (C,) for features of length 1."""
    return weights[:-1] * FEATURES_FACTOR, weights[-1] * CONSTANT_ENTRY


def finite_rows(features: NDArray[Any], *, first: int = 0) -> Floats:
    """Rows as float64, a copy. Raises NonFinite for NaN or infinity in a row."""
    rows = np.array(features, dtype=np.float64, order="C")
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1)) + first
    _refuse_rows(wrong, NonFinite, "hold NaN or infinity: mend or drop them")
    return rows


def bounded_rows(features: NDArray[Any], bound: float, *, first: int = 0) -> Floats:
    """Rows divided by a bound R on their length, (n, l) float64, a copy. Those within `UNIT_TOLERANCE` of R are shortened to it.

    Raises NonFinite, and NormExceeded for a longer row; `first` is the index of the first row in the caller's batch.
    """
    rows = finite_rows(features, first=first)
    rows /= bound
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    wrong = np.flatnonzero(norms > 1 + UNIT_TOLERANCE[features.dtype.itemsize])
    seen = ", ".join(f"{norms[i] * bound:.6g}" for i in wrong[:_ROWS_SHOWN_MAX])
    _refuse_rows(
        wrong + first, NormExceeded, f"have norm {seen}, the bound is {bound:g}: agree on a larger one"
    )
    rows /= np.maximum(norms, 1)[:, None]
    return rows


def _refuse_rows(rows: NDArray[np.intp], error: type[CalibrationError], what: str) -> None:
    if rows.size:
        more = f" and {rows.size - _ROWS_SHOWN_MAX} more" if rows.size > _ROWS_SHOWN_MAX else ""
        raise error(f"rows {', '.join(map(str, rows[:_ROWS_SHOWN_MAX]))}{more} {what}")
