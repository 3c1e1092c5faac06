"""FFC statistics: the sufficient statistics of a ridge head (SphereFed: Dong et al. 2022, eq. 9).

V = Σ zzᵀ and U = Σ z·one_hot(y)ᵀ over a member's records, z on the unit sphere. They add over records, batches and members; `solve_ffc`
turns any total into weights.
"""

import copy
import math
from collections.abc import Iterator
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilsum.calibration.checks import counts_of
from veilsum.calibration.errors import ConfigMismatch, ShapeMismatch
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.layout import ffc_layout
from veilsum.calibration.rows import (
    Array,
    Floats,
    Integers,
    as_features,
    as_labels,
    check_rows,
    row_blocks,
    unit_rows,
    with_constant,
)
from veilsum.calibration.spectrum import Spectrum

_STRIP_ROWS = 128
"""Of V at l = 1280, 1.3 MB: in the cache while it is rounded. 64 and 256 take as long."""


class FFCStatistics:
    """Streaming V, U and class counts of labelled features.

    Every row is scaled to length 1 in float64, even within `UNIT_TOLERANCE`, so that |V_ij| ≤ N and tr V ≤ N hold to the last digits. The
    ring's headroom and the checks depend on it.

    Args:
        dim: features per record.
        classes: C.
        constant: fit a constant by z' = (√.9·z, √.1), again of length 1. The constant is the last column.
        normalise: accept rows of any length. By default other norms than 1 are refused: they suggest features of the wrong layer.
    """

    def __init__(self, dim: int, classes: int, *, constant: bool = False, normalise: bool = False) -> None:
        self.layout = ffc_layout(dim, classes, constant=constant)
        self.dim, self.classes = int(dim), int(classes)
        self.constant, self.normalise = bool(constant), normalise
        self.rounding_deviation = 0.0
        """Standard deviation of an element's error from a sums lattice; 0 unless made by `from_sums`."""
        rows = self.dim + self.constant
        self._batch: Floats = np.empty((0, rows))
        """The rows of the first batch until `_whole` is made: most members have one, and their vector takes no (l, l) memory."""
        self._whole: Floats | None = None
        # Column by column, so that adding to a class touches one run of memory.
        self._U: Floats = np.zeros((rows, self.classes), order="F")
        self._counts = np.zeros(self.classes, np.int64)

    @property
    def V(self) -> Floats:  # noqa: N802 - the paper's name
        """Σ zzᵀ, (l, l) float64, a read-only view: copy it to keep it over the next update."""
        return _read_only(self._square_sums)

    @property
    def _square_sums(self) -> Floats:
        """V, which may be written to."""
        if self._whole is None:
            # numpy sends A.T @ A to BLAS syrk: half the work, exactly symmetric, as fast as scipy's dsyrk.
            self._whole = self._batch.T @ self._batch
            self._batch = self._batch[:0].copy()
        return self._whole

    @property
    def U(self) -> Floats:  # noqa: N802 - the paper's name
        """Σ z·one_hot(y)ᵀ, (l, C) float64, a read-only view."""
        return _read_only(self._U)

    @property
    def counts(self) -> Integers:
        """Records of each class, (C,) int64, a read-only view."""
        return _read_only(self._counts)

    @property
    def records(self) -> int:
        """Number of records, N."""
        return int(self._counts.sum())

    def spectrum(self, *, in_place: bool = False) -> Spectrum:
        """Decompose V; `in_place` works in the memory of a large V, which must not be read meanwhile."""
        return Spectrum.decompose(self._square_sums, self.rounding_deviation, in_place=in_place)

    def update(self, features: Array, labels: Array) -> None:
        """Add a batch of records. A batch that is refused adds nothing.

        Args:
            features: (n, dim) float16, float32 or float64, numpy or torch, n ≥ 0.
            labels: (n,) integers, 0 ≤ label < classes.

        Raises:
            WrongDtype, ShapeMismatch: features or labels of another type or shape.
            LabelOutOfRange: a label is not a class index.
            NonFinite, ZeroRow: NaN, infinity or all zeros in a row.
            NotUnitNorm: a row of another length than 1, unless `normalise`.
        """
        matrix = as_features(features, self.dim)
        indices = as_labels(labels, len(matrix), self.classes)
        check_rows(matrix, normalise=self.normalise)
        for block in row_blocks(len(matrix), self.dim):
            self.add(unit_rows(matrix[block], first=block.start)[0], indices[block])

    def add(self, rows: Floats, labels: Integers) -> None:
        """Add (n, dim) float64 rows of length 1, to the last digits, or shorter, and their class indices; nothing is checked or copied."""
        rows = with_constant(rows) if self.constant else rows
        if self._whole is None and not len(self._batch):
            self._batch = rows
        else:
            np.add(self._square_sums, rows.T @ rows, out=self._square_sums)
        present, sizes = np.unique(labels, return_counts=True)
        grouped = rows[np.argsort(labels, kind="stable")]
        stop = 0
        for label, size in zip(present.tolist(), sizes.tolist(), strict=True):
            start, stop = stop, stop + size
            self._U[:, label] += grouped[start:stop].sum(axis=0)
            self._counts[label] += size

    def merge(self, other: Self) -> None:
        """Add the records of `other`. Raises ConfigMismatch for another dim, number of classes or another constant."""
        self.check_settings(other)
        np.add(self._square_sums, other._square_sums, out=self._square_sums)
        self._U += other._U
        self._counts += other._counts
        self.rounding_deviation = math.hypot(self.rounding_deviation, other.rounding_deviation)

    def __add__(self, other: Self) -> Self:
        total = copy.deepcopy(self)
        total.merge(other)
        return total

    def check_settings(self, other: Self) -> None:
        """Raise ConfigMismatch unless `other` has the same dim, classes and constant."""
        for setting in ("dim", "classes", "constant"):
            ours, theirs = getattr(self, setting), getattr(other, setting)
            if ours != theirs:
                raise ConfigMismatch(
                    f"{setting} is {ours!r} here and {theirs!r} there: accumulate both under the same settings"
                )

    def vector(self, lattice: SumsLattice, out: Integers | None = None) -> Integers:
        """Encode the (layout.elements,) int64 vector for the secure sum, into `out` if given. Raises HeadroomExceeded for too many records."""
        out = np.empty(self.layout.elements, np.int64) if out is None else out
        flat, bound, stop = out.view(np.float64), self.records, 0
        for strip in self._row_strips():
            start = stop
            for row, numbers in enumerate(strip):
                first, stop = stop, stop + len(numbers) - row
                flat[first:stop] = numbers[row:]
            # No entry of N unit rows exceeds N; the last digits of a long float64 sum may.
            lattice.encode(flat[start:stop], out[start:stop], bound=bound)
        _, sums, counts = self.layout.blocks
        sums.pack(self._U, flat[self.layout.slices["U"]])
        counts.pack(self._counts, flat[self.layout.slices["n"]])
        lattice.encode(flat[stop:], out[stop:], bound=bound)
        return out

    def _row_strips(self) -> Iterator[Floats]:
        """V's rows from the diagonal of the first of them on, a few at a time; of a single batch each strip is made as it is asked for."""
        for start in range(0, self.dim + self.constant, _STRIP_ROWS):
            rows = slice(start, start + _STRIP_ROWS)
            if self._whole is None:
                yield self._batch[:, rows].T @ self._batch[:, start:]
            else:
                yield self._whole[rows, start:]

    def first_features(self, size: int) -> "FFCStatistics":
        """Statistics of the first `size` features alone, if these have length √(size/dim) in every row.

        Random features do, since all their pairs have one length: one upload holds the sums of every smaller number. The rows count as
        scaled to length 1 again. Raises ShapeMismatch for a size outside 1…dim, ConfigMismatch for statistics with a constant column.
        """
        if not 1 <= size <= self.dim:
            raise ShapeMismatch(f"{size} features of {self.dim}: pass 1 to {self.dim}")
        if self.constant:
            raise ConfigMismatch("the first features need sums without a constant column")
        part = FFCStatistics(size, self.classes)
        scale = self.dim / size
        part._whole, part._U = self._square_sums[:size, :size] * scale, self._U[:size] * math.sqrt(scale)
        part._counts = self._counts.copy()
        part.rounding_deviation = self.rounding_deviation * scale
        return part

    def from_sums(
        self, lattice: SumsLattice, vector: Integers, *, members: int | None = None
    ) -> "FFCStatistics":
        """Pooled statistics with these settings, from the centred sum of members' vectors.

        Args:
            lattice: of the vectors.
            vector: (layout.elements,) int64 sum.
            members: how many vectors were added, for the size of the rounding error; by default as many as there are records.

        Raises:
            LayoutMismatch: a vector of another length.
            WrongDtype: not int64.
            SumCheckFailed: a count that is a fraction or negative.
        """
        pooled = FFCStatistics(self.dim, self.classes, constant=self.constant)
        blocks = self.layout.unflatten(vector)
        pooled._counts = counts_of(blocks["n"], lattice)
        pooled._whole = lattice.decode(blocks["V"], in_place=True)
        pooled._U = lattice.decode(blocks["U"])
        rounded = pooled.records if members is None else members
        pooled.rounding_deviation = math.sqrt(rounded / 12) / lattice.unit()
        return pooled

    @classmethod
    def from_blocks(cls, V: Floats, U: Floats, counts: Integers, *, constant: bool) -> Self:
        """Pooled statistics from the blocks that a round publishes to its members.

        Args:
            V: (l, l) float64, l = dim + constant. It is made symmetric to the last digit.
            U: (l, C) float64.
            counts: (C,) int64.
            constant: whether the last column is the constant.
        """
        rows = len(V) - bool(constant)
        square = V.ndim == U.ndim == 2 and V.shape == (len(U), len(U))
        if not square or counts.shape != U.shape[1:] or rows < 1:
            raise ShapeMismatch(
                f"V, U and counts have shapes {V.shape}, {U.shape}, {counts.shape}: pass (l, l), (l, C), (C,)"
            )
        pooled = cls(rows, len(counts), constant=constant)
        pooled._whole = np.asarray((V + V.T) / 2, np.float64)
        pooled._U[...], pooled._counts[...] = U, counts
        return pooled

    def __repr__(self) -> str:
        return f"<FFCStatistics {self.records} records, dim {self.dim}, classes {self.classes}, constant {self.constant}>"


_Kept = TypeVar("_Kept", bound=NDArray[Any])


def _read_only(array: _Kept) -> _Kept:
    view = array.view()
    view.flags.writeable = False
    return view
