"""The answer to a sum: heads, documents, and material for the next step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from numpy.typing import NDArray

from veilsum.calibration.head import Head
from veilsum.calibration.judge_tables import Scale
from veilsum.calibration.ridge import Solution
from veilsum.calibration.rows import Floats

REFUSED_NOTE = "refused"
"""The note of a document without arrays: why it does not follow from the sums."""


LOG_ODDS_CRITERIA = frozenset({"gradient", "virtual features"})
"""Heads of the logistic loss, by `chosen_by`: their scores are log-odds at a temperature of 1."""


@dataclass(frozen=True, eq=False)
class Document:
    """A document published with the head: arrays as safetensors hold them, and as JSON what those do not say."""

    arrays: Mapping[str, NDArray[Any]]
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Answer:
    """What follows from a sum.

    Attributes:
        records: N. An estimate under noise; 0 where the sum does not tell.
        head: None after a mean.
        chosen_by: how λ or the head was found: "given", "gcv", "shrinkage", "gradient", "virtual features"; "" without a head.
        solution: of an exact ridge head.
        ridge: λ of the head; None where it has none.
        grid: (G,) λ compared.
        errors: (G,) by that criterion; infinite where undefined.
        error_bound: the most that rounding may have moved a weight; None where no bound holds.
        heads: further heads from the same sums, by name: those of the study's other statistics by kind, "lda" and "ncm".
        documents: what else is published, by name.
        material: what the next step of the chain takes, by name; empty at its end.
        scales: of heads whose study has a judge, by name as in `heads`; "" for `head`.
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
    scales: Mapping[str, Scale] = field(default_factory=dict)

    @classmethod
    def of_ridge(cls, solution: Solution, head: Head, error_bound: float | None) -> Self:
        """Build the answer of a ridge head, with λ given or chosen by GCV."""
        return cls(
            solution.records,
            head,
            chosen_by="gcv" if len(solution.grid) > 1 else "given",
            solution=solution,
            ridge=solution.ridge,
            grid=solution.grid,
            errors=solution.gcv,
            error_bound=error_bound,
        )
