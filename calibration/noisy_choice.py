"""How much to add to a noisy spectrum, by folds or by leaving one out: what follows where λ is chosen under noise.

The fixed rule is ½·edge (`solve_noisy`). Noise on a fold is independent of the head that the other folds give, so the fold's error
n_f − 2tr(WᵀÛ_f) + tr(WᵀV̂_fW) is right on average under noise as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import CalibrationError
from calibration.exact_products import exact_products
from calibration.head import LARGEST_WEIGHT, Head
from calibration.layout import DenseBlock, Layout, SymmetricBlock
from calibration.moments import IntegerSums
from calibration.privacy.solving import shrunk
from calibration.rows import ORTHONORMAL, orthonormal, unit_rows, with_constant

if TYPE_CHECKING:
    from calibration.lattice import FeaturesLattice
    from calibration.rows import Floats, Integers

FACTORS = np.array([1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0])
"""Of the edge, that are tried."""


def noisy_fold_layout(rows: int, classes: int, folds: int) -> Layout:
    """V.0, U.0, V.1 and so on."""
    return Layout(
        tuple(
            block
            for fold in range(folds)
            for block in (SymmetricBlock(f"V.{fold}", rows), DenseBlock(f"U.{fold}", (rows, classes)))
        )
    )


@dataclass(frozen=True, eq=False)
class NoisyFolds:
    """What a noisy round of folds pools.

    Attributes:
        V: (K, l, l).
        U: (K, l, C).
        deviation: σ_V of each fold.
    """

    V: Floats
    U: Floats
    deviation: float

    @property
    def records(self) -> int:
        """N as tr ΣV̂ has it."""
        return max(0, round(float(np.trace(self.V.sum(axis=0)))))

    @property
    def errors(self) -> Floats:
        """(K, G) errors over each fold, less its number of records, of heads fitted on the others."""
        folds = range(len(self.V))
        return np.array([self._errors(fold) for fold in folds])

    def _errors(self, fold: int) -> Floats:
        rest = np.arange(len(self.V)) != fold
        heads = paths(self.V[rest], self.U[rest], self.deviation)
        quadratic = np.einsum("glc,lm,gmc->g", heads, self.V[fold], heads, optimize=True)
        errors: Floats = quadratic - 2 * np.einsum("glc,lc->g", heads, self.U[fold])
        return errors

    @property
    def best(self) -> int:
        """Of `FACTORS`."""
        return int(self.errors.sum(axis=0).argmin())

    @property
    def edge(self) -> float:
        """Of the noise on all folds together."""
        return self.deviation * math.sqrt(2 * len(self.V) * self.V.shape[1])

    def head(self, *, bias: bool) -> Head:
        """Fitted on all folds."""
        return exported(paths(self.V, self.U, self.deviation)[self.best], bias=bias)


def paths(V: Floats, U: Floats, deviation: float) -> Floats:
    """(G, l, C): heads of the sum of folds, with each factor of its edge added."""
    found = shrunk(V.sum(axis=0), deviation * math.sqrt(len(V)))
    projections = found.vectors.T @ U.sum(axis=0)
    values = found.eigenvalues + FACTORS[:, None] * found.edge
    weights: Floats = found.vectors @ (projections / values[:, :, None])
    return weights


SQUARE_MAX = 4.0
"""As of exact sums, what a record's squared error counts for at most."""
_LEVERAGE_MAX = 0.9
"""Of a record that noise, or whoever published the path, gives more."""


@dataclass(frozen=True, eq=False)
class NoisyPath:
    """All heads of one noisy sum over `FACTORS`, as published to the members.

    Attributes:
        vectors: (l, l) of V̂.
        values: (l,), shrunk.
        projections: (l, C), QᵀÛ.
        edge: of the noise on V̂.
        bias: whether the last column is the constant.
    """

    vectors: Floats
    values: Floats
    projections: Floats
    edge: float
    bias: bool

    @property
    def grid(self) -> Floats:
        """(G,) what is added to the values."""
        return FACTORS * self.edge

    def head(self, index: int) -> Head:
        """At one of the grid."""
        values = self.values + self.grid[index]
        return exported(self.vectors @ (self.projections / values[:, None]), bias=self.bias)


def leaving_layout() -> Layout:
    """Squares and hits, (G,) each."""
    return Layout(tuple(DenseBlock(name, (len(FACTORS),)) for name in ("squares", "hits")))


class NoisyLeaving(IntegerSums):
    """Errors of a member's records, each left out, at each of `FACTORS`: (y − Wᵀz)/(1 − h), as without noise (`loo`).

    Args:
        layout: `leaving_layout`, maybe with parameters.
        lattice: of the round.
        path: as published.

    Raises:
        CalibrationError: vectors that are not orthonormal; heads that scores could overflow by.
    """

    def __init__(self, layout: Layout, lattice: FeaturesLattice, path: NoisyPath) -> None:
        rows, classes = path.projections.shape
        super().__init__(layout, lattice, classes, rows - path.bias)
        self._path = path
        with np.errstate(all="ignore"):
            self._inverses = 1 / (path.values + path.grid[:, None])
            self._weights = self._inverses[:, :, None] * path.projections
        if not orthonormal(path.vectors):
            raise CalibrationError(f"the path's vectors are not orthonormal to {ORTHONORMAL:g}")
        if not np.abs(self._weights).max() <= LARGEST_WEIGHT:
            raise CalibrationError(f"a path with a weight beyond {LARGEST_WEIGHT:g} has no errors here")

    def _add(self, rows: Floats, labels: Integers) -> None:
        unit, _ = unit_rows(rows)
        path, own = self._path, np.arange(len(labels))
        rotated = exact_products(with_constant(unit, math.sqrt(0.5)) if path.bias else unit, path.vectors)
        squares, hits = self.part("squares"), self.part("hits")
        for index, (inverse, weights) in enumerate(zip(self._inverses, self._weights, strict=True)):
            leverage = np.minimum((rotated**2 * inverse).sum(axis=1), _LEVERAGE_MAX)
            scores = exact_products(rotated, weights)
            scores[own, labels] -= leverage
            scores /= (1 - leverage)[:, None]
            hits[index] += int(np.count_nonzero(scores.argmax(axis=1) == labels)) * self.lattice.unit(2)
            scores[own, labels] -= 1
            squares[index] += self.whole((scores**2).sum(axis=1) / SQUARE_MAX).sum()


def exported(weights: Floats, *, bias: bool) -> Head:
    """The head for features of length 1 of weights for (z, 1)/√2."""
    if not bias:
        return Head(weights, None, ())
    return Head(weights[:-1] * math.sqrt(0.5), weights[-1] * math.sqrt(0.5), ())
