"""Gradient descent under noise, from a noisy sum on.

Gradients take noise on l·C numbers instead of l²/2, so most of the budget goes to them (DP-FC: Mehta et al. 2023). Three choices make them
count, each measured in docs/privacy.md:

- Rows are whitened by A^−¼ and scaled to length 1, A being V̂ without its noise plus the ridge. Plain rows hide small directions below the
  noise; A^−½ would lift the noise with them.
- A residual is cut to length ¼, so that a record still moves its own class while the noise is a quarter.
- Steps shrink to zero, which averages the noise. Their size is the largest that leaves noise of deviation 1 on a weight, up to 800/N, which
  keeps the descent stable.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

from veilsum.calibration.head import Head
from veilsum.calibration.lattice import exact_products
from veilsum.calibration.privacy.noisy_sums import NoisySums
from veilsum.calibration.rows import Floats, unit_rows

_SQRT_HALF = math.sqrt(0.5)
_CONFIDENCE = 0.9
_LARGEST = 200.0


@dataclass(frozen=True, eq=False)
class NoisyGradient:
    """G, (l, C), the sum of residuals that were cut and scaled to length 1 at most, times rows; and the deviation of its noise."""

    sums: Floats
    deviation: float


@dataclass(frozen=True, eq=False)
class Descent:
    """Where a descent stands.

    Attributes:
        whitening: (l, l), A^−¼, scaled so that rows keep their mean square length.
        weights: (l, C), of whitened rows.
        rate: the largest step, 200/N.
    """

    whitening: Floats
    weights: Floats
    rate: float

    @classmethod
    def from_sums(cls, sums: NoisySums) -> Self:
        """Start at the head of a noisy sum, scaled so that scores of 1 and 0, at which ridge aims, give the class a probability of 0.9."""
        values, spectrum = sums.solution.eigenvalues, sums.solution.spectrum
        roots, kept = values**-0.25, spectrum.eigenvalues
        if kept.any():
            roots *= math.sqrt(float(kept.sum() / (roots**2 @ kept)))
        vectors, odds = spectrum.vectors, _CONFIDENCE / (1 - _CONFIDENCE) * max(1, sums.U.shape[1] - 1)
        weights = vectors @ (vectors.T @ sums.U / (roots * values)[:, None]) * math.log(odds)
        return cls((vectors * roots) @ vectors.T, weights, _LARGEST / max(1, sums.records))

    def stepped(self, gradient: NoisyGradient, step: int, steps: int) -> Self:
        """Return the descent after step 1, 2, … of so many."""
        size = min(1 / (math.sqrt(steps) * gradient.deviation), self.rate)
        falling = 2 * (steps - step + 1) / (steps + 1)
        return replace(self, weights=self.weights - falling * size * gradient.sums)

    def head(self, *, bias: bool) -> Head:
        """The head for rows that are not whitened. A row's scores differ by one factor, so its class is the same."""
        weights = self.whitening @ self.weights
        if not bias:
            return Head(weights, None, ())
        return Head(weights[:-1] * _SQRT_HALF, weights[-1] * _SQRT_HALF, ())


def whitened(rows: Floats, whitening: Floats) -> Floats:
    """Whitening · row, scaled to length 1, for each of (n, l) rows; each row's bits follow from that row alone."""
    return unit_rows(exact_products(rows, whitening.T), total=True)[0]
