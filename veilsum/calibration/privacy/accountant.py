"""The privacy accountant: guarantees by Gaussian differential privacy (GDP).

A mechanism is μ-GDP if distinguishing two neighbours by its output is as hard as distinguishing N(0, 1) from N(μ, 1) (Dong, Roth, Su 2022).
Rounds compose exactly, μ² = Σμ_i², and μ gives ε for every δ.
"""

import math

from veilsum.calibration.errors import CalibrationError

EPSILON_MAX = 500.0
"""Maximum ε. A larger one guarantees nothing, and e^ε would soon overflow float64."""

_SQRT_2 = math.sqrt(2)
_MU_STEPS = 1 << 30


def gdp_delta(mu: float, epsilon: float) -> float:
    """Compute δ(ε) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2), for μ ≥ 0 and ε ≤ `EPSILON_MAX` (Dong, Roth, Su 2022, corollary 1)."""
    if not (mu >= 0 and 0 <= epsilon <= EPSILON_MAX):
        raise CalibrationError(
            f"μ is not negative and ε from 0 to {EPSILON_MAX:g}; got μ = {mu!r}, ε = {epsilon!r}"
        )
    if mu == 0:
        return 0.0
    above, below = _normal_cdf(mu / 2 - epsilon / mu), _normal_cdf(-mu / 2 - epsilon / mu)
    return max(0.0, above - math.exp(epsilon) * below)


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε with δ(ε) ≤ `delta`, to float64 precision; infinite if it exceeds `EPSILON_MAX`."""
    _check_delta(delta)
    if gdp_delta(mu, EPSILON_MAX) > delta:
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, EPSILON_MAX
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if gdp_delta(mu, middle) <= delta else (middle, high)
    return high


def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ, a multiple of 2^−30, with δ(ε) ≤ `delta`. It determines the size of the noise."""
    _check_delta(delta)
    low, high = 0, _MU_STEPS
    while gdp_delta(high / _MU_STEPS, epsilon) <= delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if gdp_delta(middle / _MU_STEPS, epsilon) <= delta else (low, middle)
    return low / _MU_STEPS


def _normal_cdf(value: float) -> float:
    return math.erfc(-value / _SQRT_2) / 2


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise CalibrationError(f"δ is between 0 and 1, not {delta!r}: take one well below 1/N")
