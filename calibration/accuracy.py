"""What the rounding of the sums lattice can do to the weights, before and after the solve."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from calibration.rows import Floats

_PROMISE = 1e-6


def smallest_ridge(dim: int, members: float, scale_bits: int) -> float:
    """The smallest λ for which each column of W is promised within 1e-6·(‖w‖ + ½) of float64 ridge.

    Each of n members rounds by an error uniform on ±½ step, so the sum's error has variance n/12, the symmetric error matrix E a
    spectral norm near 2√(l·n/12) steps (Wigner's edge), and a column of U's error half that length. The solve amplifies both by 1/λ
    at most, E's after ‖w‖; a ridge 1e6 times E's norm keeps the change below that.

    Args:
        dim: l, rows of V, the constant column included.
        members: n; times the roundings behind each entry of the sums that are solved, where a member rounds more than once.
        scale_bits: s of the sums lattice.
    """
    return 2 * math.sqrt(dim * members / 12) * 2.0**-scale_bits / _PROMISE


def weights_error_bound(
    weights: Floats, ridge: float, *, members: float, scale_bits: int, smallest_eigenvalue: float = 0.0
) -> float:
    """A bound on max|ΔW| that holds whatever the rounding errors were.

    With Ŵ solved from the rounded sums V̂ = V + E, Û = U + F and W from the true ones,
    (V + λI)(Ŵ − W) = F − EŴ, which is exact, not first order. An entry of E or F is at most n/2 steps
    η, so ‖E‖₂ ≤ lη and ‖F_c‖₂ ≤ √l·η, and ‖(V + λI)⁻¹‖₂ ≤ 1/(λ + max(0, d̂ − lη)) for the smallest
    eigenvalue d̂ of V̂ (Weyl). The largest entry of a column is below its Euclidean norm.

    Args:
        weights: (l, C), Ŵ in the space that was solved (`Solution.raw_weights`).
        ridge: λ.
        members: n; times the roundings behind each entry of the sums that were solved, where a member rounds more than once.
        scale_bits: s of the sums lattice.
        smallest_eigenvalue: d̂; 0 is always right.

    Returns:
        The bound; infinity if λ = 0 and d̂ does not exceed the rounding.
    """
    dim = len(weights)
    error = members / 2 * 2.0**-scale_bits
    definite = ridge + max(0.0, smallest_eigenvalue - dim * error)
    if definite <= 0:
        return math.inf
    largest_column = float(np.linalg.norm(weights, axis=0).max(initial=0))
    return (math.sqrt(dim) * error + dim * error * largest_column) / definite
