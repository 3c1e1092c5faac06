"""Heads from noisy sums: V̂ = V + E and Û = U + F, with E symmetric.

E has deviation σ_V on the diagonal and σ_V/√2 off it, so its eigenvalues fill a semicircle of radius `edge` = σ_V·√(2l)
(Wigner). What V̂ shows below the edge is noise: inverting it is what makes plain ridge regression useless here.
Everything in this module is post-processing, free of privacy cost; N is private too, and tr V̂ stands for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.dense import eigh
from calibration.errors import CalibrationError, NonFinite, ShapeMismatch
from calibration.rows import Array, as_features, check_rows, unit_rows

if TYPE_CHECKING:
    from calibration.rows import Floats, Integers

_FAILURE = 0.05  # of AdaSSP's bound on the noise's norm (Wang 2018)


@dataclass(frozen=True, eq=False)
class NoisySolution:
    """A head solved from noisy sums, for features of length 1: scores = z @ weights + bias."""

    weights: Floats
    """(dim, C)."""
    bias: Floats | None
    """(C,), or None if the sums have no constant column."""
    eigenvalues: Floats
    """(l,) of the matrix that was inverted, ascending with those of V̂."""
    observed: Floats
    """(l,) of V̂."""
    edge: float
    """σ_V·√(2l), the largest eigenvalue that noise alone reaches."""
    above: int
    """Eigenvalues of V̂ above the edge: the directions in which something was learnt."""
    records: float
    """tr V̂, the noisy number of records."""
    vectors: Floats
    """(l, l), a column for each eigenvalue."""

    @property
    def inverse(self) -> Floats:
        """(l, l), what Û was multiplied by."""
        inverse: Floats = (self.vectors / self.eigenvalues) @ self.vectors.T
        return inverse

    def predict(self, features: Array, *, normalise: bool = False) -> Integers:
        """The class of highest score, (n,) int64.

        Raises:
            CalibrationError: as `FFCStatistics.update` for features.
        """
        matrix = as_features(features, len(self.weights))
        check_rows(matrix, normalise=normalise)
        scores = unit_rows(matrix)[0] @ self.weights
        if self.bias is not None:
            scores += self.bias
        best: Integers = scores.argmax(axis=1).astype(np.int64, copy=False)
        return best


def noise_edge(deviation: float, dim: int) -> float:
    """σ_V·√(2l), where the eigenvalues of the noise alone end."""
    return deviation * math.sqrt(2 * dim)


def solve_noisy(
    V: Floats, U: Floats, deviation: float, *, bias: bool = False, ridge: float | None = None
) -> NoisySolution:
    """The head by shrinkage: the best fixed rule known here for sums under noise.

    An eigenvalue d above the edge becomes (d + √(d² − edge²))/2, what it was before a semicircle was added to it; all others
    become one common value that keeps the trace; then a ridge is added, and Û multiplied by the inverse.

    Args:
        V: (l, l) noisy V̂, symmetric; the constant column is the last.
        U: (l, C) noisy Û.
        deviation: σ_V of the noise that is in V̂, `Mechanism.deviation("V", survivors)`.
        bias: whether the last column is the constant 1/√2.
        ridge: λ; None for ½·edge.

    Raises:
        ShapeMismatch: V or U of another shape.
        NonFinite: NaN or infinity in one of them.
        CalibrationError: a deviation that isn't positive and finite.
    """
    _check_sums(V, U, deviation)
    found = shrunk(V, deviation)
    added = found.edge / 2 if ridge is None else ridge
    return _solution(found, found.eigenvalues + added, U, bias=bias)


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A noisy symmetric matrix with its noise taken off the spectrum."""

    eigenvalues: Floats
    """(l,), ascending with those of the matrix; none is negative."""
    observed: Floats
    """(l,), the matrix's own."""
    vectors: Floats
    """(l, l), a column for each."""
    edge: float
    above: int
    """Eigenvalues of the matrix above the edge."""


def shrunk(matrix: Floats, deviation: float) -> Shrunk:
    """An eigenvalue above the edge as it was before the semicircle was added; all others one common value that keeps the trace."""
    d, Q = eigh(matrix)
    edge = noise_edge(deviation, len(d))
    above = int(np.count_nonzero(d > edge))
    first = len(d) - above
    kept = (d[first:] + np.sqrt(d[first:] ** 2 - edge**2)) / 2
    bulk = max(0.0, float(d.sum() - kept.sum()) / first) if first else 0.0
    return Shrunk(np.concatenate([np.full(first, bulk), kept]), d, Q, edge, above)


def solve_adassp(V: Floats, U: Floats, deviation: float, *, bias: bool = False) -> NoisySolution:
    """A baseline: AdaSSP (Wang 2018, algorithm 2), its smallest eigenvalue read off V̂ instead of bought.

    λ = max(0, σ·√(l·ln(2l²/0.05)) − max(0, d_min)), σ = σ_V/√2 as it stands off the diagonal: the paper's noise has one deviation
    everywhere, and what is off the diagonal decides the noise's norm.

    Raises:
        CalibrationError: as `solve_noisy`.
    """
    _check_sums(V, U, deviation)
    found = shrunk(V, deviation)
    d = found.observed
    ridge = deviation * math.sqrt(len(d) * math.log(2 * len(d) ** 2 / _FAILURE) / 2)
    return _solution(found, d + max(0.0, ridge - max(0.0, float(d[0]))), U, bias=bias)


def solve_mean_ridge(V: Floats, U: Floats, deviation: float, *, bias: bool = False) -> NoisySolution:
    """A baseline: λ = tr V̂/l, the ridge one would take without knowing of the noise.

    Raises:
        CalibrationError: as `solve_noisy`.
    """
    _check_sums(V, U, deviation)
    found = shrunk(V, deviation)
    return _solution(found, found.observed + found.observed.mean(), U, bias=bias)


def _check_sums(V: Floats, U: Floats, deviation: float) -> None:
    if V.ndim != 2 or V.shape[0] != V.shape[1] or U.ndim != 2 or len(U) != len(V):
        raise ShapeMismatch(f"V is (l, l) and U (l, C), not {V.shape} and {U.shape}")
    if not (np.isfinite(V).all() and np.isfinite(U).all()):
        raise NonFinite("V or U hold NaN or infinity; a noisy sum of integers can't")
    if not (math.isfinite(deviation) and deviation > 0):
        raise CalibrationError(
            f"the noise has a positive deviation, not {deviation!r}; solve_ffc is for exact sums"
        )


def _solution(found: Shrunk, eigenvalues: Floats, U: Floats, *, bias: bool) -> NoisySolution:
    # A baseline may meet an eigenvalue of 0: its reciprocal is as useless as a very large one.
    tiny = np.finfo(np.float64).eps * max(1.0, float(np.abs(eigenvalues).max()))
    safe = np.where(np.abs(eigenvalues) < tiny, tiny, eigenvalues)
    Q = found.vectors
    W = Q @ (Q.T @ U / safe[:, None])
    return NoisySolution(
        weights=W[:-1] * math.sqrt(0.5) if bias else W,
        bias=W[-1] * math.sqrt(0.5) if bias else None,
        eigenvalues=eigenvalues,
        observed=found.observed,
        edge=found.edge,
        above=found.above,
        records=float(found.observed.sum()),
        vectors=Q,
    )
