"""Integer sums: the accumulators of noisy studies (member: Noise).

Each accumulator takes rows of length at most 1, rounds each row to integers by itself, and adds these. So no row changes another row's
contribution.
"""

from abc import ABC, abstractmethod

import numpy as np

from veilsum.calibration.head import log_softmax
from veilsum.calibration.lattice import FeaturesLattice, exact_products
from veilsum.calibration.privacy.release import Release
from veilsum.calibration.rows import FEATURES_FACTOR, SQRT_HALF, Floats, Integers, row_blocks, row_sums

RESIDUAL_CLIP = 0.25
"""Residuals are clipped to this length, then divided by it."""


class IntegerSums(ABC):
    """An accumulator of one flat integer array, `flat`, in the blocks of a release.

    Rows are multiplied by `factor`, and with a `constant` above 0 their integer rows end in it.
    """

    lattice = FeaturesLattice()

    def __init__(self, release: Release, *, factor: float = 1.0, constant: int = 0) -> None:
        self.layout, self.factor, self.constant = release.layout, factor, constant
        self.flat = np.zeros(self.layout.elements, np.int64)

    def update(self, rows: Floats, labels: Integers) -> None:
        """Add (n, l) float64 rows of length at most 1, with their (n,) classes."""
        widest = max(max(block.shape) for block in self.layout.blocks)
        for block in row_blocks(len(rows), widest, self.lattice.exact_rows):
            whole = self.lattice.encode_rows(rows[block] * self.factor, constant=self.constant)
            self._add_block(rows[block], whole, labels[block])

    @abstractmethod
    def _add_block(self, rows: Floats, whole: Integers, labels: Integers) -> None:
        """Add a block of rows x, with their integer rows q."""

    def _block_view(self, block: str) -> Integers:
        """Return a view of a block's elements."""
        return self.flat[self.layout.slices[block]]

    def _add_product(self, block: str, whole: Integers) -> None:
        """Add qᵀq to a symmetric block. The float64 product is exact for up to `exact_rows` rows."""
        reals = whole.astype(np.float64)
        self._block_view(block)[:] += (reals.T @ reals).astype(np.int64)[np.triu_indices(reals.shape[1])]


class IntegerMean(IntegerSums):
    """z = Σ q, over rows (x, 1)/√2."""

    def __init__(self, release: Release) -> None:
        super().__init__(release, factor=SQRT_HALF, constant=self.lattice.mean_constant)

    def _add_block(self, rows: Floats, whole: Integers, labels: Integers) -> None:
        del rows, labels
        self._block_view("z")[:] += whole.sum(axis=0)


class IntegerMoments(IntegerSums):
    """V = Σ qqᵀ and U = Σ q·one_hot(y)ᵀ. With `constant`, rows become (√.9·x, √.1)."""

    def __init__(self, release: Release, *, constant: bool) -> None:
        if constant:
            super().__init__(release, factor=FEATURES_FACTOR, constant=self.lattice.constant)
        else:
            super().__init__(release)

    def _add_block(self, rows: Floats, whole: Integers, labels: Integers) -> None:
        del rows
        self._add_product("V", whole)
        U = self._block_view("U").reshape(whole.shape[1], -1)
        for label in np.unique(labels).tolist():
            U[:, label] += whole[labels == label].sum(axis=0)


class ClassMoments(IntegerSums):
    """CCVR's N, S and M.c: counts, sums and second moments of each class."""

    def _add_block(self, rows: Floats, whole: Integers, labels: Integers) -> None:
        del rows
        counts, sums = self._block_view("N"), self._block_view("S").reshape(-1, whole.shape[1])
        for label in np.unique(labels).tolist():
            own = whole[labels == label]
            counts[label] += len(own) * self.lattice.unit(2)
            sums[label] += own.sum(axis=0)
            self._add_product(f"M.{label}", own)


class GradientSums(IntegerSums):
    """G = Σ q·ρᵀ, (l, C), with ρ the integers of r/max(¼, ‖r‖) and r = softmax(Wᵀx) − one_hot(y), W (l, C)."""

    def __init__(self, release: Release, weights: Floats) -> None:
        super().__init__(release)
        self._weights = weights

    def _add_block(self, rows: Floats, whole: Integers, labels: Integers) -> None:
        residuals = np.exp(log_softmax(exact_products(rows, self._weights)))
        residuals[np.arange(len(labels)), labels] -= 1
        residuals /= np.maximum(np.sqrt(row_sums(residuals * residuals)), RESIDUAL_CLIP)[:, None]
        gradient = whole.astype(np.float64).T @ self.lattice.encode_rows(residuals)
        self._block_view("G")[:] += gradient.astype(np.int64).ravel()
