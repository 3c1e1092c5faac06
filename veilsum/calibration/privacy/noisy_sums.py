"""Decoded noisy sums and their post-processing: heads from V̂ = V + E and Û = U + F, means, and the Gaussians of the classes.

E is symmetric, with deviation σ_V on the diagonal and σ_V/√2 off it, so its eigenvalues fill a semicircle of radius `edge` = σ_V·√(2l)
(Wigner). Eigenvalues of V̂ below the edge are noise, so plain ridge regression, which inverts them, is useless here. Û_c/n̂_c has noise of
deviation σ_U/n̂_c on each feature, which adds l·σ_U²/n̂_c² to the squared length of a mean. Post-processing costs no privacy.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from veilsum.calibration.errors import CalibrationError, NonFinite, NoRecords, ShapeMismatch
from veilsum.calibration.head import Head, find_empty_classes
from veilsum.calibration.lattice import exact_products
from veilsum.calibration.rows import (
    CONSTANT_ENTRY,
    FEATURES_FACTOR,
    SQRT_HALF,
    Floats,
    Integers,
    split_constant,
    unit_rows,
)
from veilsum.calibration.spectrum import FLOAT64_EPS, eigh

_SEEN_DEVIATIONS = 2.0
"""A class counts as empty unless its count exceeds this many deviations."""


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A noisy symmetric matrix with the noise removed from its spectrum.

    Attributes:
        eigenvalues: (l,) without noise, in the order of `observed`, not negative.
        observed: (l,) eigenvalues of the noisy matrix, ascending.
        vectors: (l, l), one eigenvector per column.
        edge: σ·√(2l), the largest eigenvalue that noise alone reaches.
        above: number of observed eigenvalues above the edge, the directions that carry a signal.
    """

    eigenvalues: Floats
    observed: Floats
    vectors: Floats
    edge: float
    above: int


@dataclass(frozen=True, repr=False, eq=False)
class NoisySolution(Head):
    """A head solved from noisy sums.

    Attributes:
        eigenvalues: (l,) of the inverted matrix, in the order of `spectrum.observed`.
        spectrum: the spectrum of V̂.
    """

    eigenvalues: Floats
    spectrum: Shrunk

    @property
    def records(self) -> float:
        """The noisy number of records, tr V̂."""
        return float(self.spectrum.observed.sum())


def noise_edge(deviation: float, dim: int) -> float:
    """Return σ_V·√(2l), the largest eigenvalue that noise alone reaches."""
    return deviation * math.sqrt(2 * dim)


def shrink_spectrum(matrix: Floats, deviation: float) -> Shrunk:
    """Shrink each eigenvalue d above the edge to (d + √(d² − edge²))/2, its value before noise; the others to one that keeps the trace."""
    d, Q = eigh(matrix)
    edge = noise_edge(deviation, len(d))
    above = int(np.count_nonzero(d > edge))
    first = len(d) - above
    kept = (d[first:] + np.sqrt(d[first:] ** 2 - edge**2)) / 2
    bulk = max(0.0, float(d.sum() - kept.sum()) / first) if first else 0.0
    return Shrunk(np.concatenate([np.full(first, bulk), kept]), d, Q, edge, above)


def solve_noisy(
    V: Floats, U: Floats, deviation: float, *, constant: bool = False, ridge: float | None = None
) -> NoisySolution:
    """Solve for the head by shrinkage: shrink the eigenvalues of V̂, add a ridge, and multiply Û by the inverse.

    Args:
        V: (l, l) noisy V̂, symmetric; the constant is the last row and column.
        U: (l, C) noisy Û.
        deviation: σ_V of the noise in V̂, `Mechanism.deviation("V", survivors)`.
        constant: whether the last column is the constant.
        ridge: λ; None for ½·edge.

    Raises:
        CalibrationError: V or U has a wrong shape or is not finite, or the deviation is not positive and finite.
    """
    if V.ndim != 2 or V.shape[0] != V.shape[1] or U.ndim != 2 or len(U) != len(V):
        raise ShapeMismatch(f"V is (l, l) and U (l, C), not {V.shape} and {U.shape}")
    if not (np.isfinite(V).all() and np.isfinite(U).all()):
        raise NonFinite("V or U hold NaN or infinity; noisy sums of integers do not")
    if not (math.isfinite(deviation) and deviation > 0):
        raise CalibrationError(
            f"the noise has a positive deviation, not {deviation!r}: use solve_ffc for exact sums"
        )
    found = shrink_spectrum(V, deviation)
    eigenvalues = found.eigenvalues + (found.edge / 2 if ridge is None else ridge)
    # Without a ridge, an eigenvalue may be 0.
    eigenvalues = np.maximum(eigenvalues, FLOAT64_EPS * max(1.0, float(eigenvalues.max())))
    W = found.vectors @ (found.vectors.T @ U / eigenvalues[:, None])
    weights, bias = split_constant(W) if constant else (W, None)
    return NoisySolution(weights, bias, (), eigenvalues=eigenvalues, spectrum=found)


@dataclass(frozen=True, eq=False)
class NoisyMean:
    """Σ(z, 1)/√2.

    Attributes:
        sums: (dim + 1,), the noisy sum.
        constant: last number of each summed row: 1/√2, rounded.
    """

    sums: Floats
    constant: float

    @property
    def records(self) -> int:
        """An estimate of N; 0 if noise made it negative."""
        return max(0, round(float(self.sums[-1]) / self.constant))

    @property
    def mean(self) -> Floats:
        """m, (dim,), of length at most 1; zeros if the estimate of N is 0."""
        if self.records < 1:
            return np.zeros(len(self.sums) - 1)
        mean: Floats = self.sums[:-1] / SQRT_HALF / (float(self.sums[-1]) / self.constant)
        return mean / max(1.0, float(np.linalg.norm(mean)))


@dataclass(frozen=True, eq=False)
class NoisySums:
    """V̂ and Û.

    Attributes:
        V: (l, l).
        U: (l, C).
        deviation: σ_V.
        column_deviation: σ_U.
        constant: whether the last column is the constant. Class counts, and results that need them, exist only then.
        ridge: the study's λ; None for ½·edge.
    """

    V: Floats
    U: Floats
    deviation: float
    column_deviation: float
    constant: bool
    ridge: float | None

    @cached_property
    def solution(self) -> NoisySolution:
        """The head, by shrinkage."""
        return solve_noisy(self.V, self.U, self.deviation, constant=self.constant, ridge=self.ridge)

    @property
    def records(self) -> int:
        """An estimate of N, tr V̂; 0 if noise made it negative."""
        return max(0, round(self.solution.records))

    @property
    def counts(self) -> Floats:
        """(C,) noisy number of records of each class, from the constant row of Û. Raises CalibrationError without a constant."""
        if not self.constant:
            raise CalibrationError(
                "a noisy sum counts classes only in a column of constants: ffc with constant = true"
            )
        counts: Floats = self.U[-1] / CONSTANT_ENTRY
        return counts

    @property
    def _held_counts(self) -> Floats:
        """(C,) counts: 0 for a class that noise alone explains, else at least 1. If noise explains all classes, all count as held."""
        counts = self.counts
        seen = counts > _SEEN_DEVIATIONS * self.column_deviation / CONSTANT_ENTRY
        held: Floats = np.where(seen | ~seen.any(), np.maximum(counts, 1), 0)
        return held

    def _class_means(self) -> tuple[Floats, Floats, Floats, tuple[int, ...]]:
        """Return held counts (C,), means of unit features (C, dim), the noise variance of each feature of a mean (C,), and empty classes."""
        held = self._held_counts
        divisors = np.maximum(held, 1)
        means: Floats = (self.U[:-1] / FEATURES_FACTOR).T / divisors[:, None] * (held > 0)[:, None]
        variances = (self.column_deviation / FEATURES_FACTOR / divisors) ** 2
        return held, means, variances, find_empty_classes(held)

    def nearest_mean(self) -> Head:
        """Compute the nearest-class-mean head, as `nearest_class_mean` does."""
        _, means, variances, empty = self._class_means()
        squares = (means**2).sum(axis=1) - means.shape[1] * variances
        return Head(means.T, -0.5 * np.maximum(squares, 0), empty)

    def solve_lda(self) -> Head:
        """Compute the LDA head, as `solve_lda` does, with class shares from the counts; Σ is (V̂ − Σn̂μμᵀ, shrunk, plus ½·edge)/N̂."""
        held, means, variances, empty = self._class_means()
        square = FEATURES_FACTOR**2
        found = shrink_spectrum(self.V[:-1, :-1] / square - (means.T * held) @ means, self.deviation / square)
        values = (found.eigenvalues + found.edge / 2) / held.sum()
        weights = found.vectors @ ((found.vectors.T @ means.T) / values[:, None])
        squares = np.einsum("cl,lc->c", means, weights) - variances * (1 / values).sum()
        shares = np.where(held > 0, held, 1) / held.sum()
        bias = np.where(held > 0, np.log(shares) - 0.5 * np.maximum(squares, 0), 0.0)
        return Head(weights, bias, empty)

    @property
    def posterior(self) -> tuple[Floats, Floats]:
        """Whitening (l, l), with zᵀA⁻¹z = ‖whitening·z‖², and variances (C,) of the head, as in `ridge_posterior`.

        RSS_c = n̂_c − 2wᵀÛ_c + wᵀV_sw + 2σ_U²·tr A⁻¹, with V_s before λ is added. w fits the noise of Û as well; the last term corrects
        for that.
        """
        counts = self.counts
        ridge = noise_edge(self.deviation, len(self.V)) / 2 if self.ridge is None else self.ridge
        values, vectors = self.solution.eigenvalues, self.solution.spectrum.vectors
        projections = vectors.T @ self.U
        scores = projections / values[:, None]
        own = values - ridge
        rss = counts - 2 * (scores * projections).sum(axis=0) + (scores**2 * own[:, None]).sum(axis=0)
        rss += 2 * self.column_deviation**2 * float((1 / values).sum())
        freedom = max(1.0, float(counts.sum()) - float((own / values).sum()))
        whitening: Floats = vectors.T / np.sqrt(values)[:, None]
        return whitening, np.maximum(rss, 0) / freedom


@dataclass(frozen=True, eq=False)
class NoisyGaussians:
    """The Gaussians of the classes, for `solve_ccvr`.

    With noise E of deviation σ on the diagonal and σ/√2 off it, E‖E‖² = σ²·l(l + 1)/2. The covariance of a class is shrunk towards the
    shared covariance by the part of their difference that noise explains; then its spectrum is shrunk to remove the remaining noise.

    Attributes:
        noisy_counts: (C,) N̂.
        sums: (C, l) Σz of each class.
        moments: (C, l, l) Σzzᵀ of each class.
        count_deviation: deviation of the noise on N̂.
        deviation: σ, the deviation on the diagonal of a moment.
    """

    noisy_counts: Floats
    sums: Floats
    moments: Floats
    count_deviation: float
    deviation: float

    @property
    def dim(self) -> int:
        return int(self.sums.shape[1])

    @property
    def classes(self) -> int:
        return len(self.sums)

    @cached_property
    def counts(self) -> Integers:
        """(C,) integers: 0 for a class that noise alone explains, else at least 2."""
        seen = self.noisy_counts > _SEEN_DEVIATIONS * self.count_deviation
        return np.where(seen, np.maximum(2, np.rint(self.noisy_counts)), 0).astype(np.int64)

    @property
    def records(self) -> int:
        """An estimate of N, the sum of the noisy counts; 0 if noise made it negative."""
        return max(0, round(float(self.noisy_counts.sum())))

    def mean(self, label: int) -> Floats:
        """Return μ_c, (l,), of length at most 1."""
        mean: Floats = self.sums[label] / self.counts[label]
        return mean / max(1.0, float(np.linalg.norm(mean)))

    def covariance(self, label: int) -> Floats:
        """Return Σ_c, (l, l), shrunk towards the shared covariance, positive semidefinite."""
        count, shared = int(self.counts[label]), self.shared_covariance()
        own = self._class_scatter(label) / count
        noise = (self.deviation / count) ** 2 * self.dim * (self.dim + 1) / 2
        apart = float(((own - shared) ** 2).sum())
        kept = max(0.0, 1 - noise / apart) if apart else 0.0
        if kept == 0:
            return shared
        mixed = kept * own + (1 - kept) * shared
        return _without_noise(mixed, kept * self.deviation / count)

    def shared_covariance(self) -> Floats:
        """Return the shared Σ of all classes that are not empty, (l, l). Raises NoRecords if all are empty."""
        return self._shared_covariance

    @cached_property
    def _shared_covariance(self) -> Floats:
        held = np.flatnonzero(self.counts)
        if not len(held):
            raise NoRecords("the noise drowned the records of every class: take a larger ε or more records")
        scatter = sum(self._class_scatter(label) for label in held.tolist())
        records = int(self.counts.sum())
        deviation = self.deviation * math.sqrt(len(held))
        return _without_noise(np.asarray(scatter) / records, deviation / records)

    def _class_scatter(self, label: int) -> Floats:
        mean = self.mean(label)
        scatter: Floats = self.moments[label] - self.counts[label] * np.outer(mean, mean)
        return scatter


def _without_noise(matrix: Floats, deviation: float) -> Floats:
    found = shrink_spectrum(matrix, deviation)
    covariance: Floats = (found.vectors * found.eigenvalues) @ found.vectors.T
    return covariance


_EDGE_CONFIDENCE = 0.9
_LARGEST_FIRST_STEP = 600.0
_WEIGHT_DEVIATION = 1.2
"""Deviation of the noise that all steps together leave on a weight."""


@dataclass(frozen=True, eq=False)
class NoisyGradient:
    """G, (l, C), the sum of rows times residuals that are clipped and scaled to length at most 1; and the deviation of its noise."""

    sums: Floats
    deviation: float


@dataclass(frozen=True, eq=False)
class Descent:
    """The state of a gradient descent.

    Attributes:
        whitening: (l, l), A^−½, A with ½·edge at least, scaled so that rows keep their mean square length.
        weights: (l, C), for whitened rows.
        rate: the maximum size of the first step, 600/N.
    """

    whitening: Floats
    weights: Floats
    rate: float

    @classmethod
    def from_sums(cls, sums: NoisySums) -> Self:
        """Start at the head of a noisy sum, scaled so that ridge's target scores, 1 and 0, give the class a probability of 0.9."""
        values, spectrum = sums.solution.eigenvalues, sums.solution.spectrum
        roots, kept = np.maximum(values, spectrum.edge / 2) ** -0.5, spectrum.eigenvalues
        if kept.any():
            roots *= math.sqrt(float(kept.sum() / (roots**2 @ kept)))
        vectors, odds = (
            spectrum.vectors,
            _EDGE_CONFIDENCE / (1 - _EDGE_CONFIDENCE) * max(1, sums.U.shape[1] - 1),
        )
        weights = vectors @ (vectors.T @ sums.U / (roots * values)[:, None]) * math.log(odds)
        return cls((vectors * roots) @ vectors.T, weights, _LARGEST_FIRST_STEP / max(1, sums.records))

    def take_step(self, gradient: NoisyGradient, step: int, steps: int) -> Self:
        """Return the descent after step `step` of `steps`. The squares of the steps' sizes fall linearly."""
        sizes = [math.sqrt(left / steps) for left in range(steps, 0, -1)]
        first = min(_WEIGHT_DEVIATION / (math.hypot(*sizes) * gradient.deviation), self.rate)
        return replace(self, weights=self.weights - first * sizes[step - 1] * gradient.sums)

    def make_head(self, *, constant: bool) -> Head:
        """Return the head for rows without whitening. It scales all scores of a row by one factor, so the predicted class is the same."""
        weights = self.whitening @ self.weights
        head, bias = split_constant(weights) if constant else (weights, None)
        return Head(head, bias, ())


def whiten_rows(rows: Floats, whitening: Floats) -> Floats:
    """Return whitening · row, scaled to length 1, for each of (n, l) rows. The bits of each result depend on its row alone."""
    return unit_rows(exact_products(rows, whitening.T), total=True)[0]
