"""What follows from a sum: the head, and what is published beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from calibration.accuracy import smallest_ridge, weights_error_bound
from calibration.ridge import default_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from calibration.ffc import FFCStatistics
    from calibration.head import Head
    from calibration.rows import Floats
    from calibration.solution import Solution

REFUSED = "refused"
"""The note of a document without arrays: why it does not follow from the sums."""


@dataclass(frozen=True, eq=False)
class Document:
    """Something published beside the head.

    Attributes:
        arrays: named, as safetensors hold them.
        notes: what they do not say, as JSON.
    """

    arrays: Mapping[str, NDArray[Any]]
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Answer:
    """What follows from a sum.

    Attributes:
        records: N. Of a noisy sum an estimate; 0 where the sum does not say.
        head: None after a mean.
        chosen_by: how λ or the head was found: "given", "gcv", "shrinkage", "gradient", "virtual features"; "" without a head.
        solution: of an exact ridge head.
        ridge: λ of the head; None where it has none.
        grid: (G,) λ compared.
        errors: (G,) by that criterion; infinite where it is undefined.
        error_bound: how far rounding may have moved a weight at most; None where no bound holds.
        heads: further ones from the same sums, by name: those of the study's other statistics by kind, "lda" and "ncm".
        documents: what else is published, by name.
        material: what the next step of the chain takes, by name; empty at its end.
    """

    records: int
    head: Head | None
    chosen_by: str = ""
    solution: Solution | None = None
    ridge: float | None = None
    grid: Floats | None = None
    errors: Floats | None = None
    error_bound: float | None = None
    heads: Mapping[str, Head] = field(default_factory=dict)
    documents: Mapping[str, Document] = field(default_factory=dict)
    material: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class Rounding:
    """How coarsely exact sums were rounded.

    Attributes:
        bits: s, of steps of 2^−s.
        members: how many vectors were added, each rounded once.
        promised: whether λ is kept so large that the weights are within 1e-6 of unrounded ones.
    """

    bits: int
    members: int
    promised: bool

    def ridges(self, statistics: FFCStatistics, *, roundings: float = 1.0) -> Sequence[float] | None:
        """The λ to compare; None for the solver's own.

        Args:
            statistics: to be solved.
            roundings: how often each member rounded what an entry of them is made of.
        """
        if not self.promised:
            return None
        width = len(statistics.V)
        smallest = smallest_ridge(width, roundings * self.members, self.bits)
        grid: list[float] = default_grid(statistics.records, width).tolist()
        return [ridge for ridge in grid if ridge >= smallest] or [smallest]

    def error_bound(self, solution: Solution, *, roundings: float = 1.0) -> float | None:
        """How far rounding may have moved a weight at most; None where no bound holds."""
        bound = weights_error_bound(
            solution.raw_weights,
            solution.ridge,
            members=roundings * self.members,
            scale_bits=self.bits,
            smallest_eigenvalue=solution.smallest_eigenvalue,
        )
        return bound if math.isfinite(bound) else None


def ridge_answer(solution: Solution, head: Head, error_bound: float | None) -> Answer:
    """Of a ridge head whose λ was given or found by GCV."""
    return Answer(
        solution.records,
        head,
        chosen_by="gcv" if len(solution.grid) > 1 else "given",
        solution=solution,
        ridge=solution.ridge,
        grid=solution.grid,
        errors=solution.gcv,
        error_bound=error_bound,
    )
