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
from calibration.digest import MODULUS, SHORT_BYTES, digests_of, sum_of_digests
from calibration.errors import (
    CalibrationError,
    ConfigMismatch,
    LabelOutOfRange,
    LatticeMismatch,
    NoRecords,
    RecordsNotTracked,
    ShapeMismatch,
    SumCheckFailed,
)
from calibration.indicator import ClassIndicator
from calibration.lattice import FeaturesLattice, SumsLattice
from calibration.layout import in_pieces
from calibration.layouts import ffc_dimensions, ffc_layout
from calibration.rows import (
    Array,
    Floats,
    Integers,
    as_array,
    as_features,
    as_labels,
    check_rows,
    row_blocks,
    unit_rows,
    with_constant,
)
from calibration.spectrum import Spectrum

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

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
        withheld: classes whose records are left out of V, U and counts alike, because few members hold them. They still
            count in `indicator` and in the digests, which name the records that were looked at.
        track_records: keep `records_digest` and `record_digests`, at about 7 µs and 16 bytes a record.
        class_weights: (C,) above 0 and up to 1: V = Σ w_y zzᵀ and U = Σ w_y z·one_hot(y)ᵀ, while counts stay plain.
            `balanced_weights` makes classes count alike. Not on a features lattice, which needs whole numbers.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        bias: bool = False,
        normalise: bool = False,
        lattice: FeaturesLattice | None = None,
        withheld: Collection[int] = (),
        track_records: bool = True,
        class_weights: Array | None = None,
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
        self.withheld = tuple(sorted({int(label) for label in withheld}))
        if self.withheld and not 0 <= self.withheld[0] <= self.withheld[-1] < self.classes:
            raise LabelOutOfRange(
                f"classes to withhold are 0 to {self.classes - 1}, not {list(self.withheld)}"
            )
        self.class_weights = None if class_weights is None else _parse_weights(class_weights, self.classes)
        if self.class_weights is not None and lattice is not None:
            raise LatticeMismatch(
                "weighted sums are not whole numbers; accumulate in float64 and pass a SumsLattice to vector"
            )
        self._kept = np.ones(self.classes, bool)
        self._kept[list(self.withheld)] = False
        self._held = np.zeros(self.classes, bool)
        if lattice is not None:
            lattice.check_dim(self.dim + self.bias)
        self.rounding_deviation = 0.0
        """Standard deviation of an element's error from a sums lattice; 0 unless made by `from_sums`."""
        rows, dtype = self.dim + self.bias, np.float64 if lattice is None else np.int64
        self._V: NDArray[Any] = np.zeros((rows, rows), dtype)
        # Column by column, so that adding to a class touches one run of memory.
        self._U: NDArray[Any] = np.zeros((rows, self.classes), dtype, order="F")
        self._counts = np.zeros(self.classes, np.int64)
        self._digest, self._records = 0, bytearray()

    @property
    def statistic(self) -> str:
        """What a round's terms call these statistics."""
        return "ffc-bias" if self.bias else "ffc"

    @property
    def V(self) -> Floats:  # noqa: N802 - the paper's name
        """Σ zzᵀ, (l, l) float64, read-only; copy it to keep it over the next update."""
        return self._decoded(self._V, 2)

    @property
    def U(self) -> Floats:  # noqa: N802 - the paper's name
        """Σ z·one_hot(y)ᵀ, (l, C) float64, read-only, as `V`."""
        return self._decoded(self._U, 1)

    def spectrum(self, *, in_place: bool = False) -> Spectrum:
        """Of V; `in_place` works in the memory of a large one, which nobody else may read meanwhile."""
        V = self._V if self.lattice is None else self.lattice.decode(self._V, 2)
        return Spectrum.of(V, self.rounding_deviation, in_place=in_place)

    @property
    def counts(self) -> Integers:
        """Records of each class, (C,) int64, read-only, as `V`."""
        view = self._counts.view()
        view.flags.writeable = False
        return view

    @property
    def records(self) -> int:
        """N, records of all classes but those withheld."""
        return int(self._counts.sum())

    @property
    def mass(self) -> float:
        """Σ w_y over the records: N unless classes are weighted."""
        return float(self.records if self.class_weights is None else self._counts @ self.class_weights)

    @property
    def constant(self) -> float:
        """The value of the constant column of a fit with a bias: 1/√2, or q₀/2^f on a features lattice."""
        return _SQRT_HALF if self.lattice is None else self.lattice.constant / self.lattice.unit(1)

    @property
    def records_digest(self) -> bytes:
        """32 bytes that name the set of records, whatever their order and batches.

        The sum modulo 2^256 of SHA-256 over each record's normalised float64 features and label, the same on every
        lattice and with a bias or without. It tells one's own data sets apart; whoever may choose records freely can
        make two sets collide, so it proves nothing to others.

        Raises:
            RecordsNotTracked: with `track_records=False`, and for pooled sums.
        """
        self._check_tracked()
        return self._digest.to_bytes(32, "little")

    @property
    def record_digests(self) -> bytes:
        """The first 16 bytes of each of those digests, joined, in the order of the updates.

        Whoever has a record can tell whether it is among them: they are this machine's own business, and leave it only
        under a key.

        Raises:
            RecordsNotTracked: with `track_records=False`, and for pooled sums.
        """
        self._check_tracked()
        return bytes(self._records)

    def _check_tracked(self) -> None:
        if not self.track_records:
            raise RecordsNotTracked(
                "these statistics keep no digest of their records; create them with track_records=True"
            )

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
            labelled = indices[block]
            self._held[labelled] = True
            if self.withheld:
                kept = np.flatnonzero(self._kept[labelled])
                self._add(self._solved_rows(matrix[block][kept], slice(0, len(kept))), labelled[kept])
            else:
                self._add(self._solved_rows(matrix, block), labelled)
            if self.track_records:
                rows, _ = unit_rows(matrix[block], first=block.start)
                digests = digests_of(rows, indices[block])
                self._digest = (self._digest + sum_of_digests(digests)) % MODULUS
                self._records += b"".join([digest[:SHORT_BYTES] for digest in digests])

    def merge(self, other: FFCStatistics) -> None:
        """Add the records of `other` to these.

        Raises:
            ConfigMismatch: another dim, number of classes, bias, lattice, withheld classes, tracking of records or class
                weights.
        """
        self._check_settings(other, "track_records")
        self._V += other._V
        self._U += other._U
        self._counts += other._counts
        self._held |= other._held
        self._digest = (self._digest + other._digest) % MODULUS
        self._records += other._records
        self.rounding_deviation = math.hypot(self.rounding_deviation, other.rounding_deviation)

    def __add__(self, other: FFCStatistics) -> FFCStatistics:
        total = copy.deepcopy(self)
        total.merge(other)
        return total

    def _check_settings(self, other: FFCStatistics, *more: str) -> None:
        for setting in ("dim", "classes", "bias", "lattice", "withheld", "class_weights", *more):
            ours, theirs = getattr(self, setting), getattr(other, setting)
            if ours != theirs:
                raise ConfigMismatch(
                    f"{setting} is {ours!r} here and {theirs!r} there; accumulate both under the same settings"
                )

    def remove(self, other: FFCStatistics) -> None:
        """Take the records of `other` out of these pooled sums: what is left is what would have been summed without them.

        Among members records are taken back by a round over what is left, under the same ledger as any other (`docs/heads.md`).

        Raises:
            ConfigMismatch: other settings, but for the tracking of records; or sums that name their records.
            SumCheckFailed: more records of a class than there are.
        """
        if self.track_records:
            raise ConfigMismatch(
                "sums that name their records only grow; remove from pooled ones, track_records=False"
            )
        self._check_settings(other)
        left = self._counts - other._counts
        if (left < 0).any():
            raise SumCheckFailed(
                f"class {left.argmin()} would be left with {left.min()} records", identity="counts"
            )
        self._V -= other._V
        self._U -= other._U
        self._counts = left
        self.rounding_deviation = math.hypot(self.rounding_deviation, other.rounding_deviation)

    def add_classes(self, classes: int) -> None:
        """Make room for more classes, the new ones last and empty, to merge sums of a later period that knows them.

        V does not depend on classes; U and the counts gain columns of zeros.

        Args:
            classes: how many there are then.

        Raises:
            ConfigMismatch: fewer than there are; weighted classes.
        """
        more = classes - self.classes
        if more < 0 or self.class_weights is not None:
            raise ConfigMismatch(
                f"{self.classes} classes grow, if none is weighted, but do not become {classes}; pass as many or more"
            )
        self.layout, self.classes = ffc_layout(self.dim, classes, bias=self.bias), classes
        self._U = np.asfortranarray(np.pad(self._U, ((0, 0), (0, more))))
        self._counts, self._held = np.pad(self._counts, (0, more)), np.pad(self._held, (0, more))
        self._kept = np.pad(self._kept, (0, more), constant_values=True)

    def indicator(self) -> ClassIndicator:
        """Which classes are held, those withheld included: what an indicator round asks for.

        Raises:
            RecordsNotTracked: with `track_records=False`, and for pooled sums.
        """
        return ClassIndicator(
            self._held, len(self.record_digests) // SHORT_BYTES, self.records_digest, self.record_digests
        )

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

    def pieces(self, lattice: SumsLattice | FeaturesLattice | None, elements: int) -> Iterator[Integers]:
        """`vector` in pieces of so many elements."""
        return in_pieces(self.vector(lattice), elements)

    def leading(self, size: int) -> FFCStatistics:
        """Statistics of the first `size` features alone, where these have the length √(size/dim) in every row.

        So it is with random features, whose pairs all have one length: one upload holds those of every smaller number. The
        rows count as scaled to length 1 again.

        Raises:
            ShapeMismatch: not 1 to dim features.
            ConfigMismatch: a constant column; a features lattice.
        """
        if not 1 <= size <= self.dim:
            raise ShapeMismatch(f"{size} features of {self.dim}; pass 1 to {self.dim}")
        if self.bias or self.lattice is not None:
            raise ConfigMismatch("leading features are those of float64 sums without a constant column")
        part = FFCStatistics(size, self.classes, track_records=False, class_weights=self.class_weights)
        scale = self.dim / size
        part._V, part._U = self._V[:size, :size] * scale, self._U[:size] * math.sqrt(scale)
        part._counts = self._counts.copy()
        part.rounding_deviation = self.rounding_deviation * scale
        return part

    @classmethod
    def from_sums(
        cls,
        layout: Layout,
        lattice: SumsLattice | FeaturesLattice,
        vector: Integers,
        *,
        bias: bool,
        members: int | None = None,
        class_weights: Array | None = None,
    ) -> FFCStatistics:
        """Pooled statistics from the centred sum of members' vectors.

        Args:
            layout: of the round, as `ffc_layout` gives it.
            lattice: of the round.
            vector: (elements,) int64 sum.
            bias: whether the last column is the constant.
            members: how many vectors were added, for the size of the rounding error. By default as many
                as there are records.
            class_weights: the members', if they weighted their classes.

        Raises:
            LayoutMismatch: not a layout of FFC statistics, or a vector of another length.
            WrongDtype: not int64.
            SumCheckFailed: a count that is a fraction or negative.
        """
        dim, classes = ffc_dimensions(layout, bias=bias)
        own = lattice if isinstance(lattice, FeaturesLattice) else None
        pooled = cls(dim, classes, bias=bias, lattice=own, track_records=False, class_weights=class_weights)
        blocks = layout.unflatten(vector)
        pooled._counts = counts_of(blocks["n"], lattice)
        if own is not None:
            pooled._V, pooled._U = blocks["V"], blocks["U"]
        else:
            pooled._V = lattice.decode(blocks["V"], 2, in_place=True)
            pooled._U = lattice.decode(blocks["U"], 1)
            rounded = pooled.records if members is None else members
            pooled.rounding_deviation = math.sqrt(rounded / 12) / lattice.unit(0)
        return pooled

    @classmethod
    def from_blocks(cls, V: Floats, U: Floats, counts: Integers, *, bias: bool) -> FFCStatistics:
        """Pooled statistics from their blocks, as a round publishes them to its members.

        Args:
            V: (l, l) float64, l = dim + 1 with a bias; symmetric but for its last digits, which are evened out.
            U: (l, C) float64.
            counts: (C,) int64.
            bias: whether the last column is the constant.

        Raises:
            ShapeMismatch: shapes that do not go together.
        """
        rows = len(V) - bool(bias)
        if (
            V.ndim != 2
            or U.ndim != 2
            or V.shape != (len(U), len(U))
            or counts.shape != U.shape[1:]
            or rows < 1
        ):
            raise ShapeMismatch(
                f"V, U and counts have shapes {V.shape}, {U.shape}, {counts.shape}; not (l, l), (l, C), (C,)"
            )
        pooled = cls(rows, len(counts), bias=bias, track_records=False)
        pooled._V[...], pooled._U[...], pooled._counts[...] = (V + V.T) / 2, U, counts
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
        self.lattice.check_sum(self.records + records)
        return self.lattice.exact_rows

    def _solved_rows(self, matrix: NDArray[Any], block: slice) -> NDArray[Any]:
        if self.lattice is not None:
            return self.lattice.encode_rows(matrix[block], bias=self.bias, first=block.start)
        rows, _ = unit_rows(matrix[block], first=block.start)
        if not self.bias:
            return rows
        return with_constant(rows, _SQRT_HALF)

    def _add(self, rows: NDArray[Any], labels: Integers) -> None:
        reals = rows.astype(np.float64, copy=False)
        if self.class_weights is not None:
            weights = np.asarray(self.class_weights)[labels, None]
            rows, reals = rows * weights, reals * np.sqrt(weights)
        # numpy sends A.T @ A to BLAS syrk: half the work, exactly symmetric, as fast as scipy's dsyrk.
        self._V += (reals.T @ reals).astype(self._V.dtype, copy=False)
        present, sizes = np.unique(labels, return_counts=True)
        grouped = rows[np.argsort(labels, kind="stable")]
        stop = 0
        for label, size in zip(present.tolist(), sizes.tolist(), strict=True):
            start, stop = stop, stop + size
            self._U[:, label] += grouped[start:stop].sum(axis=0)
            self._counts[label] += size


def balanced_weights(counts: Array) -> tuple[float, ...]:
    """Weights that let every class count alike, min n/n_c, (C,); 1 for classes without records.

    Class-balanced ridge is Σ_c a_c V_c with a_c = n/(C·n_c), once counts are known from a round of their own. These
    weights are a_c·C·min n/n, so that no record adds more than 1 to any entry and a ring's headroom holds; the weights of the
    head are the same at a ridge scaled alike.

    Args:
        counts: (C,) pooled records of each class.

    Raises:
        NoRecords: every count is 0.
    """
    held = as_array(counts)
    if not held.any():
        raise NoRecords("no class has records; sum the counts of the members first")
    smallest = held[held > 0].min()
    return tuple((smallest / np.where(held > 0, held, smallest)).tolist())


def _parse_weights(class_weights: Array, classes: int) -> tuple[float, ...]:
    weights = as_array(class_weights).astype(np.float64)
    if weights.shape != (classes,) or not ((weights > 0) & (weights <= 1)).all():
        raise CalibrationError(
            f"class weights are {classes} numbers above 0 and up to 1, as balanced_weights gives them, "
            f"not {weights.tolist()}"
        )
    return tuple(weights.tolist())
