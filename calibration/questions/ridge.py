"""Rounds that end in one ridge head: FFC with and without a bias, of exact or noisy sums, weighted, folded, or of random features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calibration.accuracy import smallest_ridge, weights_error_bound
from calibration.lattice import SumsLattice
from calibration.questions.base import Answer, Summed
from calibration.ridge import default_grid, solve_ffc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibration.ffc import FFCStatistics
    from calibration.head import Head
    from calibration.solution import Solution


def grid_of(statistics: FFCStatistics, summed: Summed) -> Sequence[float] | None:
    """The ridges to try: those asked for, or the solver's own without those below which the promised precision would not hold."""
    if summed.ridges:
        return summed.ridges
    if not isinstance(summed.lattice, SumsLattice) or not summed.promised:
        return None
    dim = len(statistics.V)
    smallest = smallest_ridge(dim, summed.members, summed.lattice.bits)
    grid = default_grid(statistics.mass, dim).tolist()
    return [ridge for ridge in grid if ridge >= smallest] or [smallest]


def solved(statistics: FFCStatistics, summed: Summed, ridge: float | None = None) -> Solution:
    """Ridge at one λ, or at the one of `grid_of` that GCV chooses."""
    return solve_ffc(statistics, grid_of(statistics, summed) if ridge is None else ridge)


def error_bound(solution: Solution, summed: Summed) -> float | None:
    """How far rounding may have moved a weight at the most; None where nothing was rounded or no bound holds."""
    if not isinstance(summed.lattice, SumsLattice):
        return None
    bound = weights_error_bound(
        solution.raw_weights,
        solution.ridge,
        members=summed.members,
        scale_bits=summed.lattice.bits,
        smallest_eigenvalue=solution.smallest_eigenvalue,
    )
    return bound if bound < float("inf") else None


def ridge_answer(solution: Solution, summed: Summed, head: Head | None = None, **more: Any) -> Answer:
    """The answer of a ridge head whose λ was given or found by GCV, unless `more` says otherwise."""
    values: dict[str, Any] = {
        "chosen_by": "gcv" if len(solution.grid) > 1 else "given",
        "solution": solution,
        "grid": solution.grid,
        "errors": solution.gcv,
        "ridge": solution.ridge,
        "error_bound": error_bound(solution, summed),
    }
    return Answer(solution.records, head or solution, **{**values, **more})
