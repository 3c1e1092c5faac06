"""The ε of a mechanism by published theorems alone, beside that of the project's own proof.

Concentrated bounds (Bun, Steinke 2016) compose as ρ = Σρ_i, but their conversion is lossy: they need more noise than GDP for the same ε.
"""

import math
from collections.abc import Callable

from veilsum.calibration.layout import SymmetricBlock
from veilsum.calibration.privacy.mechanism import Mechanism


def published_epsilon(mechanism: Mechanism, delta: float) -> float:
    """Return ε at δ from published theorems alone.

    Each coordinate has D_α ≤ αΔ_i²/(2mv) + τ_i (Kairouz, Liu, Steinke 2021, proposition 14). Divergences of independent coordinates
    add, and `zcdp_epsilon` converts their sum.
    """
    smallest, offset = math.inf, 0.0
    for part, share in zip(mechanism.release.parts, mechanism.shares, strict=True):
        step = (part.weight / mechanism.lattice.unit(part.degree)) ** 2 * mechanism.honest
        symmetric = isinstance(part.block, SymmetricBlock)
        smallest = min(smallest, (2 if symmetric else 1) * step * share.variance, step * share.diagonal)
        on = part.block.shape[0] if symmetric else 0
        offset += (part.block.elements - on) * sum_defect(share.variance, mechanism.honest)
        offset += on * sum_defect(share.diagonal, mechanism.honest)
    return zcdp_epsilon(mechanism.sensitivity**2 / smallest / 2, delta, offset=offset)


def zcdp_epsilon(rho: float, delta: float, *, offset: float = 0.0) -> float:
    """Return ε at δ for Rényi divergences of at most αρ + `offset` at every order α > 1.

    It is the minimum over α of αρ + offset + (ln(1/δ) − ln α)/(α − 1) + ln(1 − 1/α) (Canonne, Kamath, Steinke 2020, proposition 12).
    Every α gives a valid bound, so an inexact minimum only gives a larger ε.
    """

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


def _minimise_unimodal(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimum of a unimodal function, by golden-section search."""
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(120):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if function(left) < function(right) else (left, high)
    return function((low + high) / 2)
