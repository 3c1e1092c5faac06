"""Which rows of the papers' tables have a run, and which of their models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from training.experiments import load_experiment
from training.report.papers import paper_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training.report.cells import Cell
    from training.report.papers import PaperRow


@dataclass(frozen=True)
class Coverage:
    """What was run of one paper.

    Attributes:
        paper: its short name.
        rows: how many of its rows an experiment here repeats.
        as_printed: how many have a run on the paper's data and at its size.
        otherwise: how many others have a run on fewer or other records, or at another size.
        models: those of its rows that no run has, by their names in `training.models`.
    """

    paper: str
    rows: int
    as_printed: int
    otherwise: int
    models: tuple[str, ...]

    @property
    def missing(self) -> int:
        """How many rows have no run at all."""
        return self.rows - self.as_printed - self.otherwise


def coverage(found: Sequence[Cell]) -> list[Coverage]:
    """Each paper's, in the order of its rows."""
    compared = [
        (cell.row.id, not cell.differs) for cell in found if cell.row is not None and cell.comparisons
    ]
    printed = {row for row, same in compared if same}
    otherwise = {row for row, _ in compared} - printed
    tried = {cell.first.recipe.get("model", {}).get("architecture") for cell in found}
    papers: dict[str, list[PaperRow]] = {}
    for row in paper_rows().values():
        papers.setdefault(row.paper, []).append(row)
    return [
        Coverage(
            paper,
            len(rows),
            sum(row.id in printed for row in rows),
            sum(row.id in otherwise for row in rows),
            tuple(sorted({_architecture(row.id) for row in rows} - tried)),
        )
        for paper, rows in papers.items()
    ]


@cache
def _architecture(row: str) -> str:
    name, _, variant = row.partition("/")
    return load_experiment(name, variant or None).model.architecture
