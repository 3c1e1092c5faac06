"""The privacy accountant: guarantees by Gaussian differential privacy (GDP), and a bound from published theorems.

A mechanism is μ-GDP if distinguishing two neighbours by its output is as hard as distinguishing N(0, 1) from N(μ, 1) (Dong, Roth, Su 2022).
Rounds compose exactly, μ² = Σμ_i², and μ gives ε for every δ. Concentrated bounds (Bun, Steinke 2016) compose as ρ = Σρ_i, but their
conversion is lossy: they need more noise than GDP for the same ε.
"""

import math
from collections.abc import Callable

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
    """Return the smallest ε with δ(ε) ≤ `delta`; infinite if it exceeds `EPSILON_MAX`."""
    _check_delta(delta)
    if gdp_delta(mu, EPSILON_MAX) > delta:
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    return _find_crossing(lambda epsilon: gdp_delta(mu, epsilon) <= delta, 0.0, EPSILON_MAX)


def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ, a multiple of 2^−30, with δ(ε) ≤ `delta`. It determines the size of the noise."""
    _check_delta(delta)
    low, high = 0, _MU_STEPS
    while gdp_delta(high / _MU_STEPS, epsilon) <= delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if gdp_delta(middle / _MU_STEPS, epsilon) <= delta:
            low = middle
        else:
            high = middle
    return low / _MU_STEPS


def zcdp_epsilon(rho: float, delta: float, *, offset: float = 0.0) -> float:
    """Return ε at δ for Rényi divergences of at most αρ + `offset` at every order α > 1.

    It is the minimum over α of αρ + offset + (ln(1/δ) − ln α)/(α − 1) + ln(1 − 1/α) (Canonne, Kamath, Steinke 2020, proposition 12).
    Every α gives a valid bound, so an inexact minimum only gives a larger ε.
    """
    _check_delta(delta)
    if not (rho >= 0 and offset >= 0):
        raise CalibrationError(f"ρ and its offset must not be negative; got {rho!r}, {offset!r}")
    if rho == 0:
        return offset

    def epsilon_at(log_order: float) -> float:
        rest = math.exp(log_order)  # α − 1
        return (1 + rest) * rho + (-math.log(delta) - math.log1p(rest)) / rest + log_order - math.log1p(rest)

    return max(0.0, offset + _minimise_unimodal(epsilon_at, -20.0, 40.0))


def sum_defect(variance: int, shares: int) -> float:
    """Compute τ = 10·Σ_{k<n} exp(−2π²σ²·k/(k + 1)), the distance between a sum of n discrete Gaussians and a discrete Gaussian.

    Each has variance σ² ≥ ¼ (Kairouz, Liu, Steinke 2021, theorem 1).
    """
    # Terms shrink, so the 64th bounds all later ones.
    terms = [math.exp(-2 * math.pi**2 * variance * k / (k + 1)) for k in range(1, min(shares, 64))]
    return 10 * (math.fsum(terms) + max(0, shares - 64) * math.exp(-2 * math.pi**2 * variance * 64 / 65))


def _normal_cdf(value: float) -> float:
    return math.erfc(-value / _SQRT_2) / 2


def _find_crossing(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest argument, to float64 precision, from which a monotone condition holds."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _minimise_unimodal(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimum of a unimodal function, by golden-section search."""
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(120):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if function(left) < function(right) else (left, high)
    return function((low + high) / 2)


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise CalibrationError(f"δ is between 0 and 1, not {delta!r}: take one well below 1/N")
