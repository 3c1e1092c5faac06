"""Feature matrices and labels as they come from users, and as the statistics need them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.errors import (
    LabelOutOfRange,
    NonFinite,
    NormExceeded,
    NotUnitNorm,
    RowError,
    ShapeMismatch,
    WrongDtype,
    ZeroRow,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# How far a norm may lie from 1: what normalising in the narrower type leaves, with room for long
# sums. float64 is given float32's room because features are mostly float32 before they are widened.
UNIT_TOLERANCE = {2: 2e-3, 4: 1e-5, 8: 1e-5}

# About 16 MiB of float64 a block: large enough for BLAS, small enough to bound memory.
BLOCK_ELEMENTS = 2**21

_SHOWN = 5


@runtime_checkable
class Tensor(Protocol):
    """What is asked of a torch tensor, so that torch need not be imported."""

    def detach(self) -> Any:
        """Leave the graph."""

    def cpu(self) -> Any:
        """Leave the device."""


Array = ArrayLike | Tensor


def as_array(values: Array) -> NDArray[Any]:
    """An array or a torch tensor (any device, with or without gradient) as a numpy array.

    Raises:
        WrongDtype: numpy has no such type (torch.bfloat16, say), or the array is masked.
        ShapeMismatch: nested lists of unequal length.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise WrongDtype("a masked array's mask would be lost; drop the masked records, then pass .data")
    if isinstance(values, Tensor):
        tensor = values.detach().cpu()
        try:
            return np.asarray(tensor.numpy())
        except TypeError as error:
            raise WrongDtype(f"numpy can't hold this tensor ({error}); pass tensor.float()") from error
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ShapeMismatch(f"the rows are not of one length ({error}); pass one (n, dim) array") from error


def as_features(features: Array, dim: int) -> NDArray[Any]:
    """Features as an (n, dim) array of float16, float32 or float64, not copied.

    Raises:
        WrongDtype: another type.
        ShapeMismatch: another shape.
    """
    matrix = as_array(features)
    if matrix.dtype.kind != "f" or matrix.dtype.itemsize not in UNIT_TOLERANCE:
        raise WrongDtype(f"features are {matrix.dtype}; pass float16, float32 or float64")
    if matrix.ndim != 2 or matrix.shape[1] != dim:
        raise ShapeMismatch(f"features have shape {matrix.shape}; pass (n, {dim}), one row a record")
    return matrix


def as_labels(labels: Array, records: int, classes: int) -> Integers:
    """Labels as an (n,) int64 array of class indices.

    Raises:
        WrongDtype: not integers.
        ShapeMismatch: not one label a record.
        LabelOutOfRange: a label outside 0…classes − 1.
    """
    indices = any_labels(labels, records)
    wrong = np.flatnonzero((indices < 0) | (indices >= classes))
    if wrong.size:
        shown = ", ".join(f"{indices[i]} in row {i}" for i in wrong[:_SHOWN])
        raise LabelOutOfRange(
            f"{wrong.size} of {records} labels lie outside 0…{classes - 1}: {shown}; "
            "pass class indices from 0, or more classes"
        )
    return indices.astype(np.int64, copy=False)


def any_labels(labels: Array, records: int, *, missing: bool = False) -> NDArray[Any]:
    """Labels as an (n,) array of integers, classes or not.

    Args:
        labels: integers.
        records: n.
        missing: also take floats, where those that are no whole number become −1.

    Raises:
        WrongDtype: not integers.
        ShapeMismatch: not one label a record.
    """
    indices = as_array(labels)
    if not indices.size:
        indices = indices.astype(np.int64)  # numpy makes an empty list float64
    if missing:
        indices = _whole_labels(indices)
    if indices.dtype.kind not in "iu":
        raise WrongDtype(f"labels are {indices.dtype}; pass class indices as integers, labels.astype(int)")
    if indices.shape != (records,):
        hint = "; pass labels.ravel()" if indices.size == records else ""
        raise ShapeMismatch(
            f"labels have shape {indices.shape} for {records} records, not ({records},){hint}"
        )
    return indices


def _whole_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as int64: a missing one makes a whole column float, and one beyond int64 is no class."""
    if labels.dtype.kind not in "iuf":
        return labels
    whole = (labels >= 0) & (labels < 2**53) & (labels == np.floor(labels))
    return np.where(whole, labels, -1).astype(np.int64)


def row_blocks(records: int, width: int, most: int = BLOCK_ELEMENTS) -> Iterator[slice]:
    """Slices that cut `records` rows of `width` numbers into blocks of bounded size."""
    step = max(1, min(most, BLOCK_ELEMENTS // width))
    return (slice(start, min(start + step, records)) for start in range(0, records, step))


def unit_rows(features: NDArray[Any], *, first: int = 0, total: bool = False) -> tuple[Floats, Floats]:
    """Rows scaled to length 1 in float64, and the lengths they had.

    A row's result does not depend on the rows around it: the digest of the records needs that.

    Args:
        features: (n, l) array of a real type.
        first: the index of the first row in the caller's batch, for error messages.
        total: a row of zeros becomes the first unit vector, instead of being refused: under noise no refusal may tell of it.

    Returns:
        The (n, l) C-contiguous rows, a copy, and their (n,) former norms.

    Raises:
        NonFinite: NaN or infinity in a row.
        ZeroRow: a row of zeros.
    """
    rows = np.array(features, dtype=np.float64, order="C")
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
        # Squares that over- or underflow say nothing about the row: take out its largest value first.
        extreme = np.flatnonzero(~((squares > 1e-280) & (squares < 1e280)))
        peaks = np.abs(rows[extreme]).max(axis=1)
        _refuse(extreme[~np.isfinite(peaks)] + first, NonFinite, "hold NaN or infinity; mend or drop them")
        if total:
            rows[extreme[peaks == 0], 0] = 1
        else:
            _refuse(
                extreme[peaks == 0] + first, ZeroRow, "are zero and have no direction; drop these records"
            )
        rows[extreme] /= np.where(peaks == 0, 1, peaks)[:, None]
        squares[extreme] = np.einsum("ij,ij->i", rows[extreme], rows[extreme])
        norms = np.sqrt(squares)
        rows /= norms[:, None]
        norms[extreme] *= peaks
    return rows, norms


def directions(features: NDArray[Any], centre: Floats | None = None, *, total: bool = False) -> Floats:
    """Rows as heads take them: z of length 1, and with a centre m then (z − m)/‖z − m‖; (n, l) float64.

    Args:
        features: (n, l) array of a real type, no row of it zeros.
        centre: (l,) m, ‖m‖ ≤ 1.
        total: a row that is m becomes the first unit vector, instead of being refused.

    Raises:
        NonFinite: NaN or infinity in a row.
        ZeroRow: a row of zeros; one that is m, unless `total`.
    """
    rows, _ = unit_rows(features)
    return rows if centre is None else unit_rows(rows - centre, total=total)[0]


def with_constant(rows: Floats, constant: float) -> Floats:
    """Unit rows as a fit with a bias solves them, z' = (z/√2, constant), (n, l + 1)."""
    return np.column_stack([rows * math.sqrt(0.5), np.full(len(rows), constant)])


def finite_rows(features: NDArray[Any], *, first: int = 0) -> Floats:
    """Rows as float64, a copy.

    Raises:
        NonFinite: NaN or infinity in a row.
    """
    rows = np.array(features, dtype=np.float64, order="C")
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1)) + first
    _refuse(wrong, NonFinite, "hold NaN or infinity; mend or drop them")
    return rows


def bounded_rows(features: NDArray[Any], bound: float, *, first: int = 0) -> Floats:
    """Rows divided by a bound on their length, (n, l) float64 of length 1 at most, a copy.

    Args:
        features: (n, l) array of a real type.
        bound: R. Rows that exceed it within `UNIT_TOLERANCE` are scaled to it.
        first: the index of the first row in the caller's batch, for error messages.

    Raises:
        NonFinite: NaN or infinity in a row.
        NormExceeded: a row longer than R.
    """
    rows = finite_rows(features, first=first)
    rows /= bound
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    wrong = np.flatnonzero(norms > 1 + UNIT_TOLERANCE[features.dtype.itemsize])
    seen = ", ".join(f"{norms[i] * bound:.6g}" for i in wrong[:_SHOWN])
    _refuse(wrong + first, NormExceeded, f"have norm {seen}, the bound is {bound:g}; agree on a larger one")
    rows /= np.maximum(norms, 1)[:, None]
    return rows


def usable_rows(features: NDArray[Any], labels: NDArray[Any], classes: int) -> NDArray[np.bool_]:
    """Which rows can be summed: finite, not all zeros, with a label from 0 to classes − 1; (n,) truth values."""
    labelled = (labels >= 0) & (labels < classes)
    usable: NDArray[np.bool_] = np.isfinite(features).all(axis=1) & features.any(axis=1) & labelled
    return usable


def check_rows(features: NDArray[Any], *, normalise: bool) -> None:
    """Refuse a batch with an unusable row.

    Raises:
        NonFinite: NaN or infinity in a row.
        ZeroRow: a row of zeros.
        NotUnitNorm: a norm further from 1 than `UNIT_TOLERANCE` while `normalise` is false.
    """
    tolerance = UNIT_TOLERANCE[features.dtype.itemsize]
    for block in row_blocks(*features.shape):
        _, norms = unit_rows(features[block], first=block.start)
        if not normalise:
            wrong = np.flatnonzero(np.abs(norms - 1) > tolerance)
            seen = ", ".join(f"{norms[i]:.6g}" for i in wrong[:_SHOWN])
            _refuse(
                wrong + block.start,
                NotUnitNorm,
                f"have norm {seen}, not 1 within {tolerance:g}; pass normalise=True",
            )


def _refuse(rows: NDArray[np.intp], error: type[RowError], what: str) -> None:
    if rows.size:
        shown = [int(row) for row in rows[:_SHOWN]]
        more = f" and {rows.size - _SHOWN} more" if rows.size > _SHOWN else ""
        raise error(f"rows {', '.join(map(str, shown))}{more} {what}", rows=shown)
