"""Which classes a member holds: what an indicator round sums before rare classes are withheld."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.errors import LatticeMismatch, LayoutMismatch
from calibration.lattice import IndicatorLattice
from calibration.layout import DenseBlock, Layout, in_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calibration.rows import Integers


def indicator_layout(classes: int) -> Layout:
    """One element a class.

    Raises:
        LayoutMismatch: `classes` is not a whole number from 1.
    """
    return Layout((DenseBlock("holds", (classes,)),))


def indicator_classes(layout: Layout) -> int:
    """C of a layout that `indicator_layout` made.

    Raises:
        LayoutMismatch: any other layout.
    """
    match layout.blocks:
        case (DenseBlock("holds", (classes,)),):
            return classes
    raise LayoutMismatch("not a layout of class indicators; make it with indicator_layout(classes)")


class ClassIndicator:
    """1 for each class of which a member has a record, else 0; made by `FFCStatistics.indicator`.

    Args:
        holds: (C,) of truth values.
        records: N, how many records it looked at.
        records_digest: names the set of those records, as `FFCStatistics.records_digest`.
        record_digests: names each, as `FFCStatistics.record_digests`.
    """

    statistic: ClassVar[str] = "indicator"
    bias: ClassVar[bool] = False
    withheld: ClassVar[tuple[int, ...]] = ()

    def __init__(self, holds: Any, records: int, records_digest: bytes, record_digests: bytes) -> None:
        self.holds: Integers = np.asarray(holds, bool).astype(np.int64)
        self.holds.flags.writeable = False
        self.layout = indicator_layout(len(self.holds))
        self.lattice = IndicatorLattice()
        self.records, self.records_digest, self.record_digests = records, records_digest, record_digests

    def vector(self, lattice: IndicatorLattice | None = None) -> Integers:
        """The (C,) int64 vector that goes into the secure sum.

        Raises:
            LatticeMismatch: the round's lattice is another.
        """
        if lattice not in {None, self.lattice}:
            raise LatticeMismatch(f"an indicator goes on {self.lattice}, the round asks for {lattice}")
        return self.holds.copy()

    def pieces(self, lattice: IndicatorLattice | None, elements: int) -> Iterator[Integers]:
        """`vector` in pieces of so many elements."""
        return in_pieces(self.vector(lattice), elements)

    def __repr__(self) -> str:
        return f"<ClassIndicator of {len(self.holds)} classes>"
