"""Whole-number sums of rows that are no longer than 1: what questions release under noise beside FFC's own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from calibration.exact_products import exact_products
from calibration.layout import in_pieces
from calibration.rows import as_features, as_labels, row_blocks, unit_rows, with_constant

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
        for block in row_blocks(len(matrix), self.dim, self.lattice.exact_rows):
            self._add(matrix[block], indices[block])
        self.records += len(matrix)

    def pieces(self, lattice: object, elements: int) -> Iterator[Integers]:
        """The vector."""
        del lattice
        return in_pieces(self.flat, elements)

    def part(self, block: str) -> Integers:
        """A block's elements, to add to."""
        return self.flat[self.layout.slices[block]]

    def whole(self, share: Floats) -> Integers:
        """From 0 to 1 in whole steps, never more; 1 for what is no number."""
        steps: Integers = np.floor(np.nan_to_num(share, nan=1.0).clip(0, 1) * self.lattice.unit(2)).astype(
            np.int64
        )
        return steps

    def _add(self, rows: Floats, labels: Integers) -> None:
        raise NotImplementedError


class WeightedMoments(IntegerSums):
    """V = Σ qqᵀ and U = Σ q·one_hot(y)ᵀ of q = √w_y·z in whole steps: no longer than 1, whatever the weights.

    V is Σ w_y zzᵀ, and a column of U is √w_c times Σ z.

    Args:
        layout: V and U.
        lattice: of the round.
        weights: (C,), above 0 and up to 1.
        bias: whether rows end in the constant 1/√2.
    """

    def __init__(
        self, layout: Layout, lattice: FeaturesLattice, weights: Floats, *, bias: bool = False
    ) -> None:
        super().__init__(layout, lattice, len(weights), layout.blocks[0].shape[0] - bias)
        self._roots, self._bias = np.sqrt(weights), bias

    def _add(self, rows: Floats, labels: Integers) -> None:
        unit, _ = unit_rows(rows)
        solved = with_constant(unit, math.sqrt(0.5)) if self._bias else unit
        whole = self.lattice.encode_bounded(solved * self._roots[labels, None])
        add_product(self, "V", whole)
        U = self.part("U").reshape(-1, self.classes)
        for label in np.unique(labels).tolist():
            U[:, label] += whole[labels == label].sum(axis=0)


class ClassMoments(IntegerSums):
    """CCVR's N, S and M.c: counts, sums and second moments of each class, of rows divided by R and cut to length 1.

    Args:
        layout: N, S and M.c.
        lattice: of the round.
        norm_bound: R.
        unit: rows are scaled to length 1 first.
        axes: (p, dim) orthonormal rows to project by; None for none.
        dim: features per record, before any projection.
    """

    def __init__(
        self,
        layout: Layout,
        lattice: FeaturesLattice,
        dim: int,
        *,
        norm_bound: float = 1.0,
        unit: bool = True,
        axes: Floats | None = None,
    ) -> None:
        super().__init__(layout, lattice, layout.blocks[0].shape[0], dim)
        self._bound, self._unit, self._axes = norm_bound, unit, axes

    def _add(self, rows: Floats, labels: Integers) -> None:
        direction, norms = unit_rows(rows, total=True)
        if not self._unit:
            direction *= np.minimum(norms / self._bound, 1)[:, None]
        short = direction if self._axes is None else exact_products(direction, self._axes.T)
        # Axes are orthonormal to 1e-6: what they lengthen by that much is cut again.
        short /= np.maximum(np.linalg.norm(short, axis=1, keepdims=True), 1)
        whole = self.lattice.encode_bounded(short)
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
