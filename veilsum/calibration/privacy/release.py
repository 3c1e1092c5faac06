"""Releases: the vectors of noisy steps, and their sensitivity to one row or one member (member: Noise).

The sensitivity is a norm of weighted blocks. For a symmetric block it is the Frobenius norm, so an element off the diagonal of the packed
triangle counts twice. Rows are integer vectors of length at most 2^f, so that ‖qqᵀ‖ ≤ 4^f.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.lattice import FeaturesLattice
from veilsum.calibration.layout import Block, DenseBlock, Layout, SymmetricBlock
from veilsum.calibration.rows import Floats, Integers
from veilsum.calibration.spectrum import FLOAT64_EPS

COUNTS_WEIGHT = 0.5
"""Weight of CCVR's counts. They are twice as noisy as a moment's diagonal, for 6 % more noise on the other blocks at w = 1."""
FEW_CLASSES = 20
"""Up to this many classes, class sums have the weight 1; with more classes 2, because the task is harder."""
_FLOAT64_INTEGERS = 2**53  # float64 holds integers up to here


@dataclass(frozen=True)
class WeightedBlock:
    """A block of a noisy vector.

    Attributes:
        degree: degree of its numbers in the features.
        weight: b, its weight relative to other blocks.
    """

    block: Block
    degree: int
    weight: float = 1.0

    @cached_property
    def diagonal(self) -> Integers:
        """(dim,) indices of the diagonal in the packed triangle of a symmetric block."""
        rows = np.arange(self.block.shape[0], dtype=np.int64)
        return rows * self.block.shape[0] - rows * (rows - 1) // 2


@dataclass(frozen=True)
class Release:
    """The blocks of a noisy vector, in order, and Δ₁, the largest norm of one row's weighted contribution."""

    parts: tuple[WeightedBlock, ...]
    row_sensitivity: float

    @cached_property
    def layout(self) -> Layout:
        return Layout(tuple(part.block for part in self.parts))

    def block_named(self, name: str) -> WeightedBlock:
        [found] = [part for part in self.parts if part.block.name == name]
        return found

    def element_weights(self, lattice: FeaturesLattice) -> Floats:
        """Return the (elements,) weight of one grid step of each element: Δ is the norm of vector · weights."""
        flat = np.empty(self.layout.elements)
        for part, place in zip(self.parts, self.layout.slices.values(), strict=True):
            step = part.weight / lattice.unit(part.degree)
            flat[place] = step
            if isinstance(part.block, SymmetricBlock):
                flat[place] *= math.sqrt(2)
                flat[place][part.diagonal] = step
        return flat


def default_weight(classes: int) -> float:
    """Return w, the weight of the class sums."""
    return 1.0 if classes <= FEW_CLASSES else 2.0


def mean_release(dim: int) -> Release:
    """Return the release of Σ(z, 1)/√2."""
    return Release((WeightedBlock(DenseBlock("z", (dim + 1,)), 1),), 1.0)


def ffc_release(width: int, classes: int) -> Release:
    """Return the release of V = Σxxᵀ and U = Σx·one_hot(y)ᵀ."""
    weight = default_weight(classes)
    V, U = SymmetricBlock("V", width), DenseBlock("U", (width, classes))
    return Release((WeightedBlock(V, 2), WeightedBlock(U, 1, weight)), math.sqrt(1 + weight**2))


def ccvr_release(dim: int, classes: int) -> Release:
    """Return the release of CCVR's counts N, sums S, and second moment M.c of each class c."""
    weight = default_weight(classes)
    N, S = DenseBlock("N", (classes,)), DenseBlock("S", (classes, dim))
    moments = tuple(WeightedBlock(SymmetricBlock(f"M.{label}", dim), 2) for label in range(classes))
    parts = (WeightedBlock(N, 2, COUNTS_WEIGHT), WeightedBlock(S, 1, weight), *moments)
    return Release(parts, math.sqrt(1 + weight**2 + COUNTS_WEIGHT**2))


def gradient_release(width: int, classes: int) -> Release:
    """Return the release of G = Σx·ρᵀ, ‖ρ‖ ≤ 1."""
    return Release((WeightedBlock(DenseBlock("G", (width, classes)), 2),), 1.0)


def clip_member(vector: Integers, weights: Floats, bound: float) -> Integers:
    """Shrink a member's vector to a weighted norm of at most `bound`; a vector within the bound is returned unchanged.

    Every element is scaled by one factor and truncated towards zero, so the result is an integer vector within the bound. The factor is
    slightly too small, to allow for rounding in floating point. `weights` are `Release.element_weights`, and `bound` is positive and finite.
    """
    if not (math.isfinite(bound) and bound > 0):
        raise CalibrationError(f"a member is clipped to a positive bound, not to {bound!r}")
    held = np.clip(vector, -_FLOAT64_INTEGERS, _FLOAT64_INTEGERS).astype(np.float64)
    # A sum of n squares is off by at most (n + 4)·eps in any order.
    surely = float(np.linalg.norm(held * weights)) * (1 + (vector.size + 4) * FLOAT64_EPS)
    if surely <= bound:
        return vector
    clipped: Integers = np.trunc(held * (bound / surely * (1 - 4 * FLOAT64_EPS))).astype(np.int64)
    return clipped
