"""LDA, class means and the posterior from noisy sums: as from exact ones, less what noise adds on average.

Û_c/n̂_c has noise of deviation σ_U/n̂_c on each feature, which adds l·σ_U²/n̂_c² to a mean's squared length; a covariance loses its noise as V̂
does (`solve_noisy`). All of it costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.head import Head
from calibration.privacy.solving import NoisySolution, shrunk
from calibration.rows import Floats

_SEEN = 2.0
"""A class whose count is no more deviations above 0 is taken to be empty."""


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """Sums of unit features, without any constant.

    Attributes:
        V: (l, l).
        U: (l, C).
        counts: (C,).
        deviation: σ_V.
        column_deviation: σ_U.
        count_deviation: of the counts.
    """

    V: Floats
    U: Floats
    counts: Floats
    deviation: float
    column_deviation: float
    count_deviation: float

    @property
    def held(self) -> Floats:
        """(C,) counts, 0 where noise alone explains a class, else 1 at least; where it explains all, they are all held."""
        seen = self.counts > _SEEN * self.count_deviation
        held: Floats = np.where(seen | ~seen.any(), np.maximum(self.counts, 1), 0)
        return held

    @property
    def means(self) -> Floats:
        """(C, l)."""
        means: Floats = self.U.T / np.maximum(self.held, 1)[:, None] * (self.held > 0)[:, None]
        return means

    @property
    def mean_variances(self) -> Floats:
        """(C,) of the noise on each feature of a mean."""
        variances: Floats = (self.column_deviation / np.maximum(self.held, 1)) ** 2
        return variances

    def nearest_mean(self) -> Head:
        """As `nearest_class_mean`."""
        squares = (self.means**2).sum(axis=1) - len(self.V) * self.mean_variances
        return Head(self.means.T, -0.5 * np.maximum(squares, 0), self._empty)

    def lda(self) -> Head:
        """As `solve_lda` with the shares of the counts; Σ = (what is left of V̂ − Σn̂μμᵀ, and ½·edge)/N̂."""
        held, means = self.held, self.means
        found = shrunk(self.V - (means.T * held) @ means, self.deviation)
        values = (found.eigenvalues + found.edge / 2) / held.sum()
        weights = found.vectors @ ((found.vectors.T @ means.T) / values[:, None])
        squares = np.einsum("cl,lc->c", means, weights) - self.mean_variances * (1 / values).sum()
        shares = np.where(held > 0, held, 1) / held.sum()
        bias = np.where(held > 0, np.log(shares) - 0.5 * np.maximum(squares, 0), 0.0)
        return Head(weights, bias, self._empty)

    @property
    def _empty(self) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self.held == 0).tolist())


def posterior_of(
    solution: NoisySolution, U: Floats, counts: Floats, column_deviation: float, ridge: float
) -> tuple[Floats, Floats]:
    """Whitening (l, l), of which zᵀA⁻¹z = ‖whitening·z‖², and variances (C,) of a noisy head, as `ridge_posterior` has them.

    `ridge` is what `solve_noisy` added to the spectrum.

    RSS_c = n̂_c − 2wᵀÛ_c + wᵀV_sw + 2σ_U²·tr A⁻¹, V_s the spectrum without what was added to it: w follows Û's noise, and the last term takes back what
    that seems to explain.
    """
    values, vectors = solution.eigenvalues, solution.vectors
    projections = vectors.T @ U
    scores = projections / values[:, None]
    own = values - ridge
    rss = counts - 2 * (scores * projections).sum(axis=0) + (scores**2 * own[:, None]).sum(axis=0)
    rss += 2 * column_deviation**2 * float((1 / values).sum())
    freedom = max(1.0, float(counts.sum()) - float((own / values).sum()))
    whitening: Floats = vectors.T / np.sqrt(values)[:, None]
    return whitening, np.maximum(rss, 0) / freedom
