"""CCVR's statistics: count, sum and second moment of the features of each class (Luo et al. 2021, eq. 3 and 4).

In the paper, members send means and covariances. These do not add up; n_c, Σz and Σzzᵀ do, and determine them. At l = 1280 and C = 100
these are 82 million numbers, 656 MB, so statistics are one flat array.
"""

import math
from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from veilsum.calibration.checks import check_semidefinite, summation_error
from veilsum.calibration.errors import (
    CalibrationError,
    ConfigMismatch,
    LayoutMismatch,
    NoRecords,
    SumCheckFailed,
)
from veilsum.calibration.ffc import FFCStatistics
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.layout import ccvr_layout
from veilsum.calibration.rows import Array, Floats, Integers, as_features, as_labels, bounded_rows, row_blocks

_COVARIANCE_BLOCK_ELEMENTS = (
    2**20
)  # in the rows of one product: 8 MiB of float64, beside an (l, l) product and its packed triangle
_SUM_PIECE_ELEMENTS = 2**17


class CCVRStatistics:
    """Streaming n_c, Σz and Σzzᵀ of each class.

    Args:
        dim: l, features per record.
        classes: C.
        norm_bound: R. Features are divided by it, so that no record adds more than 1 to an entry.
    """

    def __init__(self, dim: int, classes: int, *, norm_bound: float = 1.0) -> None:
        if not 0 < norm_bound < math.inf:
            raise CalibrationError(f"a norm bound is above 0 and finite, not {norm_bound!r}")
        self.layout = ccvr_layout(dim, classes)
        self.dim, self.classes, self.norm_bound = dim, classes, float(norm_bound)
        self._flat = np.zeros(self.layout.elements)

    @property
    def counts(self) -> Integers:
        """Records of each class, (C,) int64. Raises SumCheckFailed if a sum that was added has a fraction or a negative count."""
        counts = self._flat[self.layout.slices["n"]]
        if (counts != np.rint(counts)).any() or (counts < 0).any():
            raise SumCheckFailed("a class has a fractional or negative number of records", identity="counts")
        return counts.astype(np.int64)

    @property
    def records(self) -> int:
        """Number of records, N."""
        return int(self.counts.sum())

    @property
    def _sums(self) -> Floats:
        """Σz of each class, (C, dim), a view."""
        return self._flat[self.layout.slices["S"]].reshape(self.classes, self.dim)

    def update(self, features: Array, labels: Array) -> None:
        """Add a batch of records. A batch that is refused adds nothing.

        Large batches are cheaper: each class present costs a pass over its l(l + 1)/2 numbers.

        Args:
            features: (n, dim) float16, float32 or float64, numpy or torch, no row longer than the norm bound.
            labels: (n,) integers, 0 ≤ label < classes.

        Raises:
            WrongDtype, ShapeMismatch, LabelOutOfRange: as `FFCStatistics.update`.
            NonFinite, NormExceeded: NaN or infinity in a row, or a row longer than the norm bound.
        """
        matrix = as_features(features, self.dim)
        indices = as_labels(labels, len(matrix), self.classes)
        most = max(1, _COVARIANCE_BLOCK_ELEMENTS // self.dim)
        for block in row_blocks(len(matrix), self.dim, most):
            bounded_rows(matrix[block], self.norm_bound, first=block.start)
        for label, chosen in _by_class(indices):
            for block in row_blocks(len(chosen), self.dim, most):
                self._add_class(label, bounded_rows(matrix[chosen[block]], self.norm_bound))

    def add(self, rows: Floats, labels: Integers) -> None:
        """Add (n, dim) float64 rows, divided by the norm bound, and their class indices; nothing is checked."""
        for label, chosen in _by_class(labels):
            self._add_class(label, rows[chosen])

    def _add_class(self, label: int, rows: Floats) -> None:
        self._flat[self.layout.slices["n"]][label] += len(rows)
        self._sums[label] += rows.sum(axis=0)
        moment = self.layout.blocks[2 + label]
        packed = np.empty(moment.elements)
        moment.pack(rows.T @ rows, packed)
        self._flat[self.layout.slices[moment.name]] += packed

    def merge(self, other: Self) -> None:
        """Add the records of `other`. Raises ConfigMismatch for another dim, number of classes or norm bound."""
        if self.layout != other.layout or self.norm_bound != other.norm_bound:
            raise ConfigMismatch(
                f"{other!r} does not add to {self!r}: accumulate both under the same settings"
            )
        self._flat += other._flat

    def vector(self, lattice: SumsLattice, out: Integers | None = None) -> Integers:
        """Encode the (layout.elements,) int64 vector for the secure sum, into `out` if given. Raises HeadroomExceeded for too many records."""
        # No entry of N rows of length ≤ 1 exceeds N; the last digits of a long float64 sum may.
        return lattice.encode(self._flat, out, bound=self.records)

    def add_sums(self, lattice: SumsLattice, total: Integers) -> None:
        """Add the centred sum of members' vectors, (elements,) int64; empty statistics become the pooled ones."""
        if total.shape != (self.layout.elements,):
            raise LayoutMismatch(
                f"the sum has shape {total.shape}; these statistics need ({self.layout.elements},)"
            )
        for start in range(0, len(total), _SUM_PIECE_ELEMENTS):
            piece = slice(start, start + _SUM_PIECE_ELEMENTS)
            self._flat[piece] += lattice.decode(total[piece])

    def check(self, lattice: SumsLattice, members: int) -> None:
        """Check a sum of honest members' statistics, class by class: one (l + 1, l + 1) Cholesky each.

        Raises:
            SumCheckFailed: a wrong count, |Σz_j| or tr Σzzᵀ above n_c, or [[Σzzᵀ, Σz], [Σzᵀ, n_c]] not semidefinite.
        """
        counts, sums = self.counts, self._sums
        step = members / 2 / lattice.unit()
        for label, count in enumerate(counts.tolist()):
            slack = summation_error(count, self.dim)
            moment = self._second_moment(label)
            for identity, value, most in (
                ("class mass", np.abs(sums[label]).max(), count + step + slack),
                ("trace", np.trace(moment), count + step * self.dim + slack),
            ):
                if value > most:
                    raise SumCheckFailed(
                        f"class {label} reaches {value:g} with {count} records, at most {most:g} is possible",
                        identity=identity,
                    )
            spread = step * (self.dim + 1) + 2 * slack
            check_semidefinite(moment, sums[label][:, None], counts[label : label + 1], spread)

    @property
    def pooled(self) -> FFCStatistics:
        """V, U and counts of all classes together."""
        V = np.zeros((self.dim, self.dim))
        for label in range(self.classes):
            V += self._second_moment(label)
        return FFCStatistics.from_blocks(V, self._sums.T, self.counts, constant=False)

    def mean(self, label: int) -> Floats:
        """μ_c, (dim,), in the features' own units (eq. 3). Raises NoRecords for an empty class."""
        count = int(self.counts[label])
        if not count:
            raise NoRecords(f"class {label} has no records, so no mean: leave it out")
        mean: Floats = self._sums[label] * (self.norm_bound / count)
        return mean

    def covariance(self, label: int) -> Floats:
        """Σ_c = (Σzzᵀ − n_c μ_cμ_cᵀ)/(n_c − 1), (dim, dim), unbiased (eq. 4). Raises NoRecords below two records."""
        count = int(self.counts[label])
        if count < 2:
            raise NoRecords(
                f"class {label} has {count} records, a covariance takes two: use shared_covariance"
            )
        return self._class_scatter(label) / (count - 1)

    def shared_covariance(self) -> Floats:
        """All classes' scatter/(N − C'), (dim, dim), over the C' classes with records. Raises NoRecords if no class has two records."""
        counts = self.counts
        held = np.flatnonzero(counts)
        freedom = int(counts.sum()) - len(held)
        if freedom < 1:
            raise NoRecords(f"{counts.sum()} records of {len(held)} classes leave no covariance: add records")
        scatter = np.zeros((self.dim, self.dim))
        for label in held.tolist():
            scatter += self._class_scatter(label)
        return scatter / freedom

    def _second_moment(self, label: int) -> Floats:
        """Σzzᵀ of features divided by the norm bound, (dim, dim), a new array."""
        block = self.layout.blocks[2 + label]
        moment: Floats = block.unpack(self._flat[self.layout.slices[block.name]])
        return moment

    def _class_scatter(self, label: int) -> Floats:
        mean = self.mean(label)
        scatter = self._second_moment(label)
        scatter *= self.norm_bound**2
        scatter -= self.counts[label] * np.outer(mean, mean)
        return scatter

    def __repr__(self) -> str:
        return f"<CCVRStatistics {self.records} records, dim {self.dim}, classes {self.classes}, norm ≤ {self.norm_bound:g}>"


def _by_class(labels: Integers) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Each class that is present, with the places of its rows."""
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    return zip(present.tolist(), np.split(order, starts)[1:], strict=True)
