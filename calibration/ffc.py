"""Fast Federated Calibration: the sufficient statistics of a ridge-regressed head.

SphereFed, eq. 9: V = Σ zzᵀ, U = Σ z·one_hot(y)ᵀ over a member's records, z on the unit sphere. They
add over records, batches and members; `solve_ffc` turns any total into weights (eq. 10 with a ridge).
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.checks import counts_of
from calibration.digest import MODULUS, sum_of_digests
from calibration.errors import (
    ConfigMismatch,
    HeadroomExceeded,
    LatticeMismatch,
    RecordsNotTracked,
)
from calibration.lattice import FeaturesLattice, SumsLattice
from calibration.layouts import ffc_dimensions, ffc_layout
from calibration.rows import (
    Array,
    Floats,
    Integers,
    as_features,
    as_labels,
    check_rows,
    row_blocks,
    unit_rows,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from calibration.layout import Layout

_SQRT_HALF = math.sqrt(0.5)


class FFCStatistics:
    """Streaming V, U and class counts of labelled features (SphereFed, eq. 9).

    Every row is scaled to length 1 in float64, also one that already is within `UNIT_TOLERANCE`: then
    |V_ij| ≤ N and tr V = N hold to the last digits, which the ring's headroom and the checks rest on.

    Args:
        dim: features per record.
        classes: C.
        bias: fit a bias by z' = (z, 1)/√2, still of length 1. The constant is the last column.
        normalise: accept rows of any length. Otherwise a norm other than 1 is refused, as a sign that
            the features come from the wrong layer.
        lattice: accumulate exact integers on this lattice instead of float64.
        track_records: keep `records_digest`, at about 7 µs a record.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        bias: bool = False,
        normalise: bool = False,
        lattice: FeaturesLattice | None = None,
        track_records: bool = True,
    ) -> None:
        self.layout = ffc_layout(dim, classes, bias=bias)
        if lattice is not None and not isinstance(lattice, FeaturesLattice):
            raise LatticeMismatch(
                f"statistics accumulate in float64 or on a FeaturesLattice, not {lattice!r}; "
                "a SumsLattice goes to vector(lattice)"
            )
        self.dim, self.classes = ffc_dimensions(self.layout, bias=bias)
        self.bias, self.normalise = bool(bias), normalise
        self.lattice, self.track_records = lattice, track_records
        if lattice is not None:
            lattice.check_dim(self.dim + self.bias)
        self.rounding_deviation = 0.0
        """Standard deviation of an element's error from a sums lattice; 0 unless made by `from_sums`."""
        rows, dtype = self.dim + self.bias, np.float64 if lattice is None else np.int64
        self._V: NDArray[Any] = np.zeros((rows, rows), dtype)
        # Column by column, so that adding to a class touches one run of memory.
        self._U: NDArray[Any] = np.zeros((rows, self.classes), dtype, order="F")
        self._counts = np.zeros(self.classes, np.int64)
        self._digest = 0

    @property
    def V(self) -> Floats:  # noqa: N802 - the paper's name
        """Σ zzᵀ, (l, l) float64, read-only; copy it to keep it over the next update."""
        return self._decoded(self._V, 2)

    @property
    def U(self) -> Floats:  # noqa: N802 - the paper's name
        """Σ z·one_hot(y)ᵀ, (l, C) float64, read-only, as `V`."""
        return self._decoded(self._U, 1)

    @property
    def counts(self) -> Integers:
        """Records of each class, (C,) int64, read-only, as `V`."""
        view = self._counts.view()
        view.flags.writeable = False
        return view

    @property
    def records(self) -> int:
        """N, records of all classes."""
        return int(self._counts.sum())

    @property
    def constant(self) -> float:
        """The value of the constant column of a fit with a bias: 1/√2, or q₀/2^f on a features lattice."""
        return _SQRT_HALF if self.lattice is None else self.lattice.constant / self.lattice.unit(1)

    @property
    def records_digest(self) -> bytes:
        """32 bytes that name the set of records, whatever their order and batches.

        The sum modulo 2^256 of SHA-256 over each record's normalised features (float64, or the lattice's
        integers) and label. It tells one's own data sets apart; whoever may choose records freely can
        make two sets collide, so it proves nothing to others.

        Raises:
            RecordsNotTracked: with `track_records=False`, and for pooled sums.
        """
        if not self.track_records:
            raise RecordsNotTracked(
                "these statistics keep no digest of their records; create them with track_records=True"
            )
        return self._digest.to_bytes(32, "little")

    def update(self, features: Array, labels: Array) -> None:
        """Add a batch of records; nothing is added if anything about the batch is refused.

        Args:
            features: (n, dim) float16, float32 or float64, numpy or torch, n ≥ 0.
            labels: (n,) integers, 0 ≤ label < classes.

        Raises:
            WrongDtype: features or labels of another type.
            ShapeMismatch: features or labels of another shape.
            LabelOutOfRange: a label that is no class.
            NonFinite: NaN or infinity in a row.
            ZeroRow: a row without direction.
            NotUnitNorm: a row not of length 1, unless `normalise`.
            HeadroomExceeded: int64 can't hold so many records on this lattice.
        """
        matrix = as_features(features, self.dim)
        indices = as_labels(labels, len(matrix), self.classes)
        check_rows(matrix, normalise=self.normalise)
        for block in row_blocks(len(matrix), self.dim, self._exact_rows(len(matrix))):
            self._add(self._solved_rows(matrix, block), indices[block])

    def merge(self, other: FFCStatistics) -> None:
        """Add the records of `other` to these.

        Raises:
            ConfigMismatch: another dim, number of classes, bias, lattice or tracking of records.
        """
        for setting in ("dim", "classes", "bias", "lattice", "track_records"):
            ours, theirs = getattr(self, setting), getattr(other, setting)
            if ours != theirs:
                raise ConfigMismatch(
                    f"{setting} is {ours!r} here and {theirs!r} there; accumulate both under the same settings"
                )
        self._V += other._V
        self._U += other._U
        self._counts += other._counts
        self._digest = (self._digest + other._digest) % MODULUS
        self.rounding_deviation = math.hypot(self.rounding_deviation, other.rounding_deviation)

    def __add__(self, other: FFCStatistics) -> FFCStatistics:
        total = copy.deepcopy(self)
        total.merge(other)
        return total

    def vector(self, lattice: SumsLattice | FeaturesLattice | None = None) -> Integers:
        """The (layout.elements,) int64 vector that goes into the secure sum.

        Args:
            lattice: the round's. float64 statistics need a `SumsLattice`; integer statistics have a
                lattice of their own, which is the default.

        Raises:
            LatticeMismatch: statistics that were not accumulated for this lattice.
        """
        lattice = self.lattice if lattice is None else lattice
        if isinstance(lattice, SumsLattice) and self.lattice is None:
            flat = self.layout.flatten({"V": self._V, "U": self._U, "n": self._counts.astype(np.float64)})
            # No entry of N unit rows exceeds N; the last digits of a long float64 sum may.
            np.clip(flat, -self.records, self.records, out=flat)
            return lattice.encode(flat)
        if lattice is None or lattice != self.lattice:
            raise LatticeMismatch(
                f"these statistics were accumulated {'in float64' if self.lattice is None else self.lattice}, "
                f"the round asks for {lattice}; pass a SumsLattice for float64 statistics, or accumulate with "
                "FFCStatistics(lattice=FeaturesLattice(…))"
            )
        return self.layout.flatten({"V": self._V, "U": self._U, "n": self._counts})

    @classmethod
    def from_sums(
        cls,
        layout: Layout,
        lattice: SumsLattice | FeaturesLattice,
        vector: Integers,
        *,
        bias: bool,
        members: int | None = None,
    ) -> FFCStatistics:
        """Pooled statistics from the centred sum of members' vectors.

        Args:
            layout: of the round, as `ffc_layout` gives it.
            lattice: of the round.
            vector: (elements,) int64 sum.
            bias: whether the last column is the constant.
            members: how many vectors were added, for the size of the rounding error. By default as many
                as there are records.

        Raises:
            LayoutMismatch: not a layout of FFC statistics, or a vector of another length.
            WrongDtype: not int64.
            SumCheckFailed: a count that is a fraction or negative.
        """
        dim, classes = ffc_dimensions(layout, bias=bias)
        own = lattice if isinstance(lattice, FeaturesLattice) else None
        pooled = cls(dim, classes, bias=bias, lattice=own, track_records=False)
        blocks = layout.unflatten(vector)
        V, U = lattice.decode(blocks["V"], 2), lattice.decode(blocks["U"], 1)
        pooled._counts = counts_of(blocks["n"], lattice)
        if own is not None:
            pooled._V, pooled._U = blocks["V"], blocks["U"]
        else:
            pooled._V, pooled._U = V, U
            rounded = pooled.records if members is None else members
            pooled.rounding_deviation = math.sqrt(rounded / 12) / lattice.unit(0)
        return pooled

    def __repr__(self) -> str:
        return (
            f"<FFCStatistics {self.records} records, dim {self.dim}, classes {self.classes}, bias {self.bias}, "
            f"lattice {self.lattice}>"
        )

    def _decoded(self, statistic: NDArray[Any], degree: int) -> Floats:
        view = statistic.view() if self.lattice is None else self.lattice.decode(statistic, degree)
        view.flags.writeable = False
        return view

    def _exact_rows(self, records: int) -> int:
        """How many rows one float64 product may take; on a lattice its integers must stay below 2^53."""
        if self.lattice is None:
            return max(records, 1)
        if (self.records + records) * self.lattice.unit(2) >= 2**62:
            raise HeadroomExceeded(
                f"{self.records + records} records at {self.lattice.bits} bits leave int64; "
                "take a coarser lattice or split the records over several statistics"
            )
        return (2**53 - 1) // self.lattice.unit(2)

    def _solved_rows(self, matrix: NDArray[Any], block: slice) -> NDArray[Any]:
        if self.lattice is not None:
            return self.lattice.encode_rows(matrix[block], bias=self.bias, first=block.start)
        rows, _ = unit_rows(matrix[block], first=block.start)
        if not self.bias:
            return rows
        return np.column_stack([rows * _SQRT_HALF, np.full(len(rows), _SQRT_HALF)])

    def _add(self, rows: NDArray[Any], labels: Integers) -> None:
        reals = rows.astype(np.float64, copy=False)
        # numpy sends A.T @ A to BLAS syrk: half the work, exactly symmetric, as fast as scipy's dsyrk.
        self._V += (reals.T @ reals).astype(self._V.dtype, copy=False)
        present, sizes = np.unique(labels, return_counts=True)
        grouped = rows[np.argsort(labels, kind="stable")]
        stop = 0
        for label, size in zip(present.tolist(), sizes.tolist(), strict=True):
            start, stop = stop, stop + size
            self._U[:, label] += grouped[start:stop].sum(axis=0)
            self._counts[label] += size
        if self.track_records:
            self._digest = (self._digest + sum_of_digests(rows, labels)) % MODULUS
