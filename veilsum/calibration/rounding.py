"""What the rounding of the sums lattice can do to weights, before and after the solve."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilsum.calibration.ffc import FFCStatistics
from veilsum.calibration.ridge import Solution, default_grid
from veilsum.calibration.rows import Floats

_PROMISE = 1e-6


def smallest_ridge(dim: int, members: float, scale_bits: int) -> float:
    """The smallest λ for which each column of W is promised within 1e-6·(‖w‖ + ½) of float64 ridge.

    Each of n members rounds by an error uniform on ±½ step. So the sum's error has variance n/12, the symmetric error matrix E a spectral
    norm near 2√(l·n/12) steps (Wigner's edge), and the error of a column of U half that length. The solve amplifies both by at most 1/λ,
    E's after ‖w‖; a ridge of 1e6 times E's norm keeps the change below that.

    Args:
        dim: l, rows of V with the constant column.
        members: n; times the roundings behind each entry, if a member rounds more than once.
        scale_bits: s of the sums lattice.
    """
    return 2 * math.sqrt(dim * members / 12) * 2.0**-scale_bits / _PROMISE


def weights_error_bound(
    weights: Floats, ridge: float, *, members: float, scale_bits: int, smallest_eigenvalue: float = 0.0
) -> float:
    """Bound max|ΔW| for all rounding errors; infinity if λ = 0 and V's smallest eigenvalue does not exceed the rounding.

    With Ŵ solved from the rounded sums V̂ = V + E, Û = U + F and W from the true ones, (V + λI)(Ŵ − W) = F − EŴ exactly. An entry of E or F
    is at most η = n/2 steps, so ‖E‖₂ ≤ lη and ‖F_c‖₂ ≤ √l·η, and ‖(V + λI)⁻¹‖₂ ≤ 1/(λ + max(0, d̂ − lη)) for the smallest eigenvalue d̂ of V̂
    (Weyl). The largest entry of a column is below its Euclidean norm.

    Args:
        weights: (l, C), Ŵ as `Solution.raw_weights`.
        ridge: λ.
        members: as `smallest_ridge`.
        scale_bits: s of the sums lattice.
        smallest_eigenvalue: d̂; 0 is always valid.
    """
    dim = len(weights)
    error = members / 2 * 2.0**-scale_bits
    definite = ridge + max(0.0, smallest_eigenvalue - dim * error)
    if definite <= 0:
        return math.inf
    largest_column = float(np.linalg.norm(weights, axis=0).max(initial=0))
    return (math.sqrt(dim) * error + dim * error * largest_column) / definite


@dataclass(frozen=True)
class Rounding:
    """How coarsely exact sums were rounded.

    Attributes:
        bits: s, of steps of 2^−s.
        members: how many vectors were added, each rounded once.
        promised: keep λ so large that the weights are within 1e-6 of unrounded ones.
    """

    bits: int
    members: int
    promised: bool

    def ridges(self, statistics: FFCStatistics, *, roundings: float = 1.0) -> Sequence[float] | None:
        """The λ to compare, if each member rounded `roundings` times what an entry is made of; None for the solver's own grid."""
        if not self.promised:
            return None
        width = len(statistics.V)
        smallest = smallest_ridge(width, roundings * self.members, self.bits)
        grid: list[float] = default_grid(statistics.records, width).tolist()
        return [ridge for ridge in grid if ridge >= smallest] or [smallest]

    def error_bound(self, solution: Solution, *, roundings: float = 1.0) -> float | None:
        """The most that rounding may have moved a weight; None where no bound holds."""
        bound = weights_error_bound(
            solution.raw_weights,
            solution.ridge,
            members=roundings * self.members,
            scale_bits=self.bits,
            smallest_eigenvalue=solution.smallest_eigenvalue,
        )
        return bound if math.isfinite(bound) else None
