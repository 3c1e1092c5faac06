"""A member's statistics for any question, with the names of the records that are in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.digest import MODULUS, SHORT_BYTES, digests_of, sum_of_digests
from calibration.errors import CalibrationError, LabelOutOfRange
from calibration.indicator import ClassIndicator
from calibration.lattice import FeaturesLattice
from calibration.privacy.mechanism import MemberCut, StepWeights
from calibration.rows import (
    Array,
    Floats,
    Integers,
    any_labels,
    as_features,
    as_labels,
    finite_rows,
    row_blocks,
    unit_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from calibration.privacy import NoiseTerms
    from calibration.questions import Question
    from calibration.questions.base import RoundLattice


class Collected:
    """Sums of one's own records as a round asks for them; what `contribute` takes.

    Records of withheld classes are looked at, and named, but not summed. A record's name is that of
    `FFCStatistics.records_digest`, whatever is asked: so a ledger knows the same record in every round.

    Args:
        question: of the round.
        lattice: of the round.
        withheld: classes that are left out, because few members hold them.
        normalise: accept rows of any length.
        noise: of the round's terms; None for an exact sum. Under noise no record is refused, since a refusal is seen and would tell of
            it: rows of any length are taken, below 0 they are cut where the terms rest on that, and a record that is none (`left_out`)
            adds nothing.

    Raises:
        LabelOutOfRange: a withheld class that is none.
        CalibrationError: terms or material that do not fit the question.
    """

    def __init__(
        self,
        question: Question,
        lattice: RoundLattice,
        *,
        withheld: tuple[int, ...] = (),
        normalise: bool = False,
        noise: NoiseTerms | None = None,
    ) -> None:
        self.statistic, self.layout = question.name, question.layout
        self.bias, self.withheld = question.bias, withheld
        self.lattice = lattice if isinstance(lattice, FeaturesLattice) else None
        self._dim, self._classes = question.dim, question.classes
        if withheld and not 0 <= min(withheld) <= max(withheld) < self._classes:
            raise LabelOutOfRange(f"classes to withhold are 0 to {self._classes - 1}, not {list(withheld)}")
        self._question, self._sums = (
            question,
            question.accumulator(lattice, normalise=normalise or noise is not None),
        )
        self.noise, self._directed = noise, question.directed
        self.left_out = 0
        """Records under noise that are none: a row with NaN or infinity, or one of zeros where its length is to be 1; a label that is no class."""
        self._held = np.zeros(self._classes, bool)
        self._digest, self._names = 0, bytearray()

    @property
    def records(self) -> int:
        """How many are summed."""
        return self._sums.records

    @property
    def records_digest(self) -> bytes:
        """As `FFCStatistics.records_digest`."""
        return self._digest.to_bytes(32, "little")

    @property
    def record_digests(self) -> bytes:
        """As `FFCStatistics.record_digests`."""
        return bytes(self._names)

    def update(self, features: Array, labels: Array) -> None:
        """Add a batch of records; nothing is added if anything about it is refused.

        Args:
            features: (n, dim) float16, float32 or float64, numpy or torch.
            labels: (n,) integers; under noise also floats, of which those that are none, as NaN for a missing label, are left out.

        Raises:
            CalibrationError: as `FFCStatistics.update`; or what the round's own bounds refuse.
        """
        matrix = as_features(features, self._dim)
        if self.noise is not None:
            self._update_all(matrix, any_labels(labels, len(matrix), missing=True), self.noise)
            return
        indices = as_labels(labels, len(matrix), self._classes)
        kept = ~np.isin(indices, self.withheld)
        self._sums.update(matrix if kept.all() else matrix[kept], indices[kept])
        self._name(matrix, indices)

    def _name(self, matrix: NDArray[Any], indices: Integers) -> None:
        self._held[indices] = True
        for block in row_blocks(len(matrix), self._dim):
            digests = digests_of(_directions(matrix[block]), indices[block])
            self._digest = (self._digest + sum_of_digests(digests)) % MODULUS
            self._names += b"".join([digest[:SHORT_BYTES] for digest in digests])

    def _update_all(self, matrix: NDArray[Any], labels: Integers, noise: NoiseTerms) -> None:
        """Add the records that are some, each looked at by itself: what one of them is changes nothing about the others.

        A record is named as it came, not as the terms have it cut: whether the ledger knows it is no choice of the coordinator's. So
        one without direction, which some questions take and others do not, has no name in any.
        """
        some = np.isfinite(matrix).all(axis=1) & (labels >= 0) & (labels < self._classes)
        named = some & matrix.any(axis=1)
        self._name(matrix[named], labels[named])
        cut = np.maximum(matrix, 0) if noise.nonnegative else matrix
        if self._directed:
            some &= cut.any(axis=1)
        self.left_out += int(np.count_nonzero(~some))
        some &= ~np.isin(labels, self.withheld)
        most = (
            1 if self.lattice is None else self.lattice.exact_rows
        )  # so many are added in one step, or none of them
        usable = np.flatnonzero(some)
        for block in row_blocks(len(usable), self._dim, most):
            self._add(cut[usable[block]], labels[usable[block]])

    def _add(self, matrix: NDArray[Any], indices: Integers) -> None:
        """Add records under noise; should any be refused after all, it alone is left out: nobody may see a refusal that tells of it."""
        try:
            with np.errstate(all="ignore"):  # warnings may be errors where a member runs
                self._sums.update(matrix, indices)
        except (CalibrationError, ArithmeticError):
            if len(matrix) > 1:
                for each in range(len(matrix)):
                    self._add(matrix[each : each + 1], indices[each : each + 1])
            else:
                self.left_out += 1

    def indicator(self) -> ClassIndicator:
        """Which classes are held, those withheld included."""
        return ClassIndicator(
            self._held, len(self._names) // SHORT_BYTES, self.records_digest, bytes(self._names)
        )

    def pieces(self, lattice: Any, elements: int) -> Iterator[Integers]:
        """The vector that goes into the secure sum, in pieces of so many elements; cut where terms protect a member as a whole."""
        noise, posed = self.noise, self._question
        bound = None if noise is None else noise.bound(posed, lattice)
        if noise is None or bound is None:
            return self._sums.pieces(lattice, elements)
        release = noise.release(posed, lattice)
        weights = StepWeights(self.layout, lattice, release.weight, release.counts_weight)
        cut = MemberCut(weights, bound, self._sums.pieces(lattice, elements))
        return map(cut.of, self._sums.pieces(lattice, elements))

    def vector(self, lattice: Any) -> Integers:
        """The (layout.elements,) int64 vector."""
        return np.concatenate(list(self.pieces(lattice, self.layout.elements)))

    def __repr__(self) -> str:
        return f"<Collected {self.records} records for a {self.statistic} round>"


def _directions(matrix: Any) -> Floats:
    """Rows of length 1; those without direction, which only rounds of unscaled features take, as they are."""
    rows = finite_rows(matrix)
    some = rows.any(axis=1)
    rows[some] = unit_rows(matrix[some])[0]
    return rows
