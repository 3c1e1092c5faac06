"""An estimate of μ from an attacker's view, to compare with the promised μ.

An attacker that knows everything except whether one record, the canary, is in the sum decides best by the likelihood ratio. For Gaussian
noise it is linear: Σ Δ_i·x_i/σ_i². Over many releases with and without the canary, its means lie μ standard deviations apart. A bound
on ε by counting hits (Clopper, Pearson 1934) is far too loose to detect noise that is short by half; this detects a few percent.
"""

import math
from dataclasses import dataclass

import numpy as np

from veilsum.calibration.errors import ShapeMismatch
from veilsum.calibration.rows import Floats

_QUANTILE = 2.58  # a correct mechanism fails one audit in 200
_ABOVE, _BELOW = 1.005, 0.95


@dataclass(frozen=True)
class Estimate:
    """μ̂ and its standard error."""

    mu: float
    error: float

    def fault(self, promised: float) -> str | None:
        """Return what is wrong with a mechanism that promised this μ; None if nothing shows.

        Too little noise: μ̂ − 2.58 standard errors exceed 1.005·μ. Too much, which wastes accuracy: μ̂ + 2.58 of them are below 0.95·μ.
        """
        if self.mu - _QUANTILE * self.error > _ABOVE * promised:
            return f"too little noise: μ̂ = {self.mu:.3f} ± {self.error:.3f} where {promised:.3f} was promised"
        if self.mu + _QUANTILE * self.error < _BELOW * promised:
            return f"too much noise: μ̂ = {self.mu:.3f} ± {self.error:.3f} where {promised:.3f} was promised"
        return None


def estimate_mu(without: Floats, having: Floats) -> Estimate:
    """Estimate μ̂ from the distinguisher's scores of releases without and with the canary.

    μ̂ is the difference of means over the pooled standard deviation s; its error is √(2/n + μ̂²/4n) for n scores of each.

    Args:
        without: (n,) scores, n ≥ 2.
        having: (n,) scores.

    Raises:
        ShapeMismatch: if the shapes differ, or there are fewer than two scores of each.
    """
    if without.shape != having.shape or without.ndim != 1 or without.size < 2:
        raise ShapeMismatch(f"scores have shapes {without.shape} and {having.shape}; pass (n,) each, n ≥ 2")
    pooled = math.sqrt((float(np.var(without, ddof=1)) + float(np.var(having, ddof=1))) / 2)
    mu = float(having.mean() - without.mean()) / pooled
    return Estimate(mu, math.sqrt(2 / without.size + mu**2 / (4 * without.size)))
