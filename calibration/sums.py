"""Statistics of which a record adds at most 1 to every entry: what second rounds over the same head sum."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Self

import numpy as np

from calibration.checks import counts_of
from calibration.errors import ConfigMismatch, SumCheckFailed
from calibration.lattice import SumsLattice

if TYPE_CHECKING:
    from calibration.layout import Layout
    from calibration.rows import Floats, Integers


class RecordSums:
    """Named blocks of float64 that add over records, batches and members.

    No entry exceeds N in magnitude, so `SumsLattice.bound` proves the headroom of any ring as it does for V and U.

    Args:
        layout: one block is called n and holds counts that add up to N.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._sums: dict[str, Floats] = {block.name: np.zeros(block.shape) for block in layout.blocks}
        self.rounding_deviation = 0.0
        """Standard deviation of an element's error from a sums lattice; 0 unless `add_sums` was called."""

    @property
    def records(self) -> int:
        """N."""
        return int(self._sums["n"].sum())

    def block(self, name: str) -> Floats:
        """The sums of a block, read-only."""
        view = self._sums[name].view()
        view.flags.writeable = False
        return view

    def terms(self) -> bytes:
        """What two statistics must share beside a layout for their sum to mean something."""
        return b""

    def merge(self, other: Self) -> None:
        """Add the records of `other` to these.

        Raises:
            ConfigMismatch: another layout, or sums that belong to another head.
        """
        if self.layout != other.layout or self.terms() != other.terms():
            raise ConfigMismatch(
                "these sums belong to another head or grid; accumulate both for the same one"
            )
        for name in self._sums:
            self._sums[name] += other._sums[name]
        self.rounding_deviation = math.hypot(self.rounding_deviation, other.rounding_deviation)

    def __add__(self, other: Self) -> Self:
        total = copy.deepcopy(self)
        total.merge(other)
        return total

    def vector(self, lattice: SumsLattice) -> Integers:
        """The (layout.elements,) int64 vector that goes into the secure sum.

        Raises:
            HeadroomExceeded: int64 can't hold so many records on this lattice.
        """
        return lattice.encode(self.layout.flatten(self._sums))

    def add_sums(self, lattice: SumsLattice, vector: Integers, *, members: int | None = None) -> None:
        """Add the centred sum of members' vectors to these: empty statistics become the pooled ones.

        Args:
            lattice: of the round.
            vector: (elements,) int64.
            members: how many vectors were added, for the size of the rounding error. By default as many as there
                are records.

        Raises:
            LayoutMismatch: a vector of another length.
            WrongDtype: not int64.
            SumCheckFailed: a count that is a fraction or negative, or an entry that N records can't reach.
        """
        blocks = self.layout.unflatten(vector)
        records = int(counts_of(blocks["n"].ravel(), lattice).sum())
        vectors = records if members is None else members
        largest, bound = int(np.abs(vector).max()), lattice.bound(records, max(vectors, 1))
        if largest > bound:
            raise SumCheckFailed(
                f"an entry of {largest} steps where {records} records allow {bound}", identity="range"
            )
        for name, integers in blocks.items():
            self._sums[name] += lattice.decode(integers)
        self.rounding_deviation = math.hypot(
            self.rounding_deviation, math.sqrt(vectors / 12) / lattice.unit()
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.records} records, {self.layout.elements} elements>"
