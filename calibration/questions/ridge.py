"""Exact rounds that end in one ridge head: FFC with and without a bias, or of random features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calibration.accuracy import smallest_ridge, weights_error_bound
from calibration.lattice import SumsLattice
from calibration.questions.base import Answer, Summed
from calibration.ridge import default_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibration.ffc import FFCStatistics
    from calibration.head import Head
    from calibration.solution import Solution


def grid_of(statistics: FFCStatistics, summed: Summed, *, roundings: float = 1.0) -> Sequence[float] | None:
    """The ridges to try: those asked for, or the solver's own without those below which the promised precision would not hold.

    Args:
        statistics: to be solved.
        summed: how they came about.
        roundings: how often each member rounded what an entry of them is made of; as often as it counts, where it is scaled.
    """
    if summed.ridges:
        return summed.ridges
    if not summed.promised:
        return None
    assert isinstance(summed.lattice, SumsLattice)
    dim = len(statistics.V)
    smallest = smallest_ridge(dim, roundings * summed.members, summed.lattice.bits)
    grid = default_grid(statistics.records, dim).tolist()
    return [ridge for ridge in grid if ridge >= smallest] or [smallest]


def error_bound(solution: Solution, summed: Summed, *, roundings: float = 1.0) -> float | None:
    """How far rounding may have moved a weight at the most; None where no bound holds. `roundings` as for `grid_of`."""
    assert isinstance(summed.lattice, SumsLattice)
    bound = weights_error_bound(
        solution.raw_weights,
        solution.ridge,
        members=roundings * summed.members,
        scale_bits=summed.lattice.bits,
        smallest_eigenvalue=solution.smallest_eigenvalue,
    )
    return bound if bound < float("inf") else None


def ridge_answer(
    solution: Solution, summed: Summed, head: Head | None = None, *, roundings: float = 1.0, **more: Any
) -> Answer:
    """The answer of a ridge head whose λ was given or found by GCV, unless `more` says otherwise. `roundings` as for `grid_of`."""
    values: dict[str, Any] = {
        "chosen_by": "gcv" if len(solution.grid) > 1 else "given",
        "solution": solution,
        "grid": solution.grid,
        "errors": solution.gcv,
        "ridge": solution.ridge,
        "error_bound": error_bound(solution, summed, roundings=roundings),
    }
    return Answer(solution.records, head or solution, **{**values, **more})
