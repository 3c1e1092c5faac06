"""Whole-number sums of rows that are no longer than 1: what questions release under noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibration.layout import in_pieces
from calibration.rows import as_features, as_labels, row_blocks, unit_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calibration.lattice import FeaturesLattice
    from calibration.layout import Layout
    from calibration.rows import Array, Floats, Integers


class IntegerSums:
    """An accumulator of one flat array of whole numbers.

    Args:
        layout: of the round.
        lattice: of the round.
        classes: C.
        dim: features per record.
    """

    def __init__(self, layout: Layout, lattice: FeaturesLattice, classes: int, dim: int) -> None:
        self.layout, self.lattice, self.classes, self.dim = layout, lattice, classes, dim
        self.flat = np.zeros(layout.elements, np.int64)
        self.records = 0

    def update(self, features: Array, labels: Array) -> None:
        """Add a batch of records, which `Collected` has looked through."""
        matrix = as_features(features, self.dim)
        indices = as_labels(labels, len(matrix), self.classes)
        for block in row_blocks(len(matrix), max(self.dim, self.classes), self.lattice.exact_rows):
            self._add(matrix[block], indices[block])
        self.records += len(matrix)

    def pieces(self, lattice: object, elements: int) -> Iterator[Integers]:
        """The vector."""
        del lattice
        return in_pieces(self.flat, elements)

    def part(self, block: str) -> Integers:
        """A block's elements, to add to."""
        return self.flat[self.layout.slices[block]]

    def _add(self, rows: Floats, labels: Integers) -> None:
        raise NotImplementedError


class IntegerMoments(IntegerSums):
    """V = Σ qqᵀ, U = Σ q·one_hot(y)ᵀ and, where the layout has it, N, of integer rows q.

    Args:
        layout: V, U, and maybe N.
        lattice: of the round.
        bias: whether rows end in the constant.
    """

    def __init__(self, layout: Layout, lattice: FeaturesLattice, *, bias: bool = False) -> None:
        rows, classes = layout.blocks[1].shape
        super().__init__(layout, lattice, classes, rows - bias)
        self._bias = bias

    def _add(self, rows: Floats, labels: Integers) -> None:
        whole = self.lattice.encode_rows(rows, bias=self._bias)
        add_product(self, "V", whole)
        U = self.part("U").reshape(-1, self.classes)
        for label in np.unique(labels).tolist():
            U[:, label] += whole[labels == label].sum(axis=0)
        if "N" in self.layout.slices:
            self.part("N")[:] += np.bincount(labels, minlength=self.classes) * self.lattice.unit(2)


class ClassMoments(IntegerSums):
    """CCVR's N, S and M.c: counts, sums and second moments of each class, of rows divided by R and cut to length 1.

    Args:
        layout: N, S and M.c.
        lattice: of the round.
        norm_bound: R.
        unit: rows are scaled to length 1 first.
        dim: features per record.
    """

    def __init__(
        self,
        layout: Layout,
        lattice: FeaturesLattice,
        dim: int,
        *,
        norm_bound: float = 1.0,
        unit: bool = True,
    ) -> None:
        super().__init__(layout, lattice, layout.blocks[0].shape[0], dim)
        self._bound, self._unit = norm_bound, unit

    def _add(self, rows: Floats, labels: Integers) -> None:
        direction, norms = unit_rows(rows, total=True)
        if not self._unit:
            direction *= np.minimum(norms / self._bound, 1)[:, None]
        direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1)
        whole = self.lattice.encode_bounded(direction)
        counts, sums = self.part("N"), self.part("S").reshape(self.classes, -1)
        for label in np.unique(labels).tolist():
            own = whole[labels == label]
            counts[label] += len(own) * self.lattice.unit(2)
            sums[label] += own.sum(axis=0)
            add_product(self, f"M.{label}", own)


def add_product(sums: IntegerSums, block: str, whole: Integers) -> None:
    """Add qᵀq to a symmetric block; a product in float64 of rows that `exact_rows` allows is exact."""
    reals = whole.astype(np.float64)
    dim = reals.shape[1]
    sums.part(block)[:] += (reals.T @ reals).astype(np.int64)[np.triu_indices(dim)]
