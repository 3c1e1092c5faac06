"""Rounds that count the records of each class, exact or under noise: what class-balanced weights follow from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.checks import counts_of
from calibration.errors import LayoutMismatch, SumCheckFailed
from calibration.layout import Layout, in_pieces
from calibration.layouts import ffc_layout
from calibration.privacy import Release, counts_sensitivity
from calibration.privacy.mechanism import counts_layout
from calibration.questions.base import (
    Accumulator,
    Answer,
    Asked,
    Document,
    Earlier,
    Question,
    RoundLattice,
    Summed,
    Wish,
    total_of,
)
from calibration.rows import as_features, as_labels, check_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calibration.head import Head
    from calibration.lattice import FeaturesLattice
    from calibration.privacy import NoiseTerms
    from calibration.rows import Array, Floats, Integers


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """What a round of counts pools.

    Attributes:
        counts: (C,) records; under noise real numbers, also below 0.
        deviation: of the noise; 0 for an exact sum.
    """

    counts: Integers | Floats
    deviation: float = 0.0


class Counts(Question):
    """How many records of each class there are: what class-balanced weights follow from."""

    name: ClassVar[str] = "counts"
    title: ClassVar[str] = "records of each class, and no head"
    learns: ClassVar[str] = "the records of each class, over all members together"
    has_head: ClassVar[bool] = False
    combines: ClassVar[bool] = True
    takes_noise: ClassVar[bool] = True

    @classmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """One number a class."""
        del earlier
        if wish.noisy:
            return Asked(counts_layout(wish.classes).having(dim=wish.dim, classes=wish.classes))
        blocks = tuple(block for block in ffc_layout(1, wish.classes).blocks if block.name == "n")
        return Asked(Layout(blocks).having(dim=wish.dim, classes=wish.classes))

    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """Counts alone; the features are only looked at for the records' names."""
        del lattice
        noisy = self.layout.blocks == counts_layout(self.classes).blocks
        self._expect(self.ask(Wish(self.dim, self.classes, noisy=noisy), None).layout)
        return _Counting(self.dim, self.classes, 2 if noisy else 0, normalise=normalise)

    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """N alone."""
        del lattice
        self._expect(counts_layout(self.classes))
        return Release(counts_sensitivity(noise.neighbours), counts_weight=1.0)

    def gathered(self, gathering: Any, summed: Summed) -> ClassCounts:
        """The counts; of an exact sum none is negative or a fraction."""
        if summed.mechanism is not None:
            noisy = summed.lattice.decode(total_of(gathering), 2)
            return ClassCounts(noisy, summed.mechanism.deviation("N", summed.members))
        counts = counts_of(total_of(gathering), summed.lattice)
        if not counts.any():
            raise SumCheckFailed("no class has records", identity="counts")
        return ClassCounts(counts)

    def check_head(self, head: Head) -> None:
        """There is none."""
        del head
        raise LayoutMismatch("a round of counts ends in no head")

    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """No head, the counts alone."""
        del summed
        whole = np.maximum(np.rint(statistics.counts), 0).astype(np.int64)
        notes = {"deviation": statistics.deviation} if statistics.deviation else {}
        document = Document({"counts": whole}, notes)
        records = max(0, round(float(statistics.counts.sum())))
        return Answer(records, None, documents={"counts": document})


class _Counting:
    def __init__(self, dim: int, classes: int, degree: int, *, normalise: bool) -> None:
        self._dim, self._degree, self._normalise = dim, degree, normalise
        self._counts = np.zeros(classes, np.int64)

    @property
    def records(self) -> int:
        return int(self._counts.sum())

    def update(self, features: Array, labels: Array) -> None:
        matrix = as_features(features, self._dim)
        indices = as_labels(labels, len(matrix), len(self._counts))
        check_rows(matrix, normalise=self._normalise)
        self._counts += np.bincount(indices, minlength=len(self._counts))

    def pieces(self, lattice: RoundLattice, elements: int) -> Iterator[Integers]:
        return in_pieces(self._counts * lattice.unit(self._degree), elements)
