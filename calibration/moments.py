"""Whole-number sums of integer rows: what noisy studies release (docs/protocol.md §9).

Each takes rows that are no longer than 1, maps them to integers row by row, and adds whole numbers: a row more changes nothing that
another adds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from calibration.exact_products import exact_products
from calibration.head import log_softmax
from calibration.lattice import FeaturesLattice
from calibration.rows import row_blocks

if TYPE_CHECKING:
    from calibration.privacy.release import Release
    from calibration.rows import Floats, Integers

_SQRT_HALF = math.sqrt(0.5)


class IntegerSums(ABC):
    """An accumulator of one flat array of whole numbers.

    Args:
        release: its blocks.
        constant: whether rows become (x, 1)/√2.
        lattice: of the rows.
    """

    def __init__(
        self, release: Release, *, constant: bool = False, lattice: FeaturesLattice | None = None
    ) -> None:
        self.layout, self.constant = release.layout, constant
        self.lattice = FeaturesLattice() if lattice is None else lattice
        self.flat = np.zeros(self.layout.elements, np.int64)

    def update(self, rows: Floats, labels: Integers) -> None:
        """Add (n, l) float64 rows no longer than 1, each with its class."""
        widest = max(max(block.shape) for block in self.layout.blocks)
        for block in row_blocks(len(rows), widest, self.lattice.exact_rows):
            self._add(rows[block], labels[block])

    def part(self, block: str) -> Integers:
        """A block's elements, to add to."""
        return self.flat[self.layout.slices[block]]

    def whole(self, rows: Floats) -> Integers:
        """The integer rows."""
        scaled = rows * _SQRT_HALF if self.constant else rows
        return self.lattice.encode_rows(scaled, constant=self.constant)

    def add_product(self, block: str, whole: Integers) -> None:
        """Add qᵀq to a symmetric block; a product in float64 of rows that `exact_rows` allows is exact."""
        reals = whole.astype(np.float64)
        self.part(block)[:] += (reals.T @ reals).astype(np.int64)[np.triu_indices(reals.shape[1])]

    @abstractmethod
    def _add(self, rows: Floats, labels: Integers) -> None: ...


class IntegerMean(IntegerSums):
    """z = Σ q, of rows that end in the constant."""

    def __init__(self, release: Release) -> None:
        super().__init__(release, constant=True)

    def _add(self, rows: Floats, labels: Integers) -> None:
        del labels
        self.part("z")[:] += self.whole(rows).sum(axis=0)


class IntegerMoments(IntegerSums):
    """V = Σ qqᵀ and U = Σ q·one_hot(y)ᵀ."""

    def _add(self, rows: Floats, labels: Integers) -> None:
        whole = self.whole(rows)
        self.add_product("V", whole)
        U = self.part("U").reshape(whole.shape[1], -1)
        for label in np.unique(labels).tolist():
            U[:, label] += whole[labels == label].sum(axis=0)


class ClassMoments(IntegerSums):
    """CCVR's N, S and M.c: counts, sums and second moments of each class."""

    def _add(self, rows: Floats, labels: Integers) -> None:
        whole = self.whole(rows)
        counts, sums = self.part("N"), self.part("S").reshape(-1, whole.shape[1])
        for label in np.unique(labels).tolist():
            own = whole[labels == label]
            counts[label] += len(own) * self.lattice.unit(2)
            sums[label] += own.sum(axis=0)
            self.add_product(f"M.{label}", own)


class GradientSums(IntegerSums):
    """G = Σ q·ρᵀ, (l, C), with ρ the integers of r/max(1, ‖r‖) and r = softmax(Wᵀx + b) − one_hot(y).

    Args:
        release: G.
        weights: (l, C) W, without the row of a constant.
        bias: (C,) b; None without a constant.
    """

    def __init__(self, release: Release, weights: Floats, bias: Floats | None) -> None:
        super().__init__(release, constant=bias is not None)
        self._weights, self._bias = weights, bias

    def _add(self, rows: Floats, labels: Integers) -> None:
        scores = exact_products(rows, self._weights)
        scores += 0.0 if self._bias is None else self._bias
        residuals = np.exp(log_softmax(scores))
        residuals[np.arange(len(labels)), labels] -= 1
        residuals /= np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), 1)
        whole = self.whole(rows).astype(np.float64)
        gradient = (whole.T @ self.lattice.encode_rows(residuals)).astype(np.int64)
        self.part("G")[:] += gradient.ravel()
