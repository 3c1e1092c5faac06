"""Coverage of the papers' tables by runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from research.papers import paper_experiment, paper_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from research.papers import PaperRow
    from research.report.cells import Cell


@dataclass(frozen=True)
class Coverage:
    """Coverage of one paper.

    Attributes:
        paper: its short name.
        rows: rows that an experiment here repeats.
        as_printed: rows with a run on the paper's data and at its size.
        otherwise: other rows with a run on fewer or other records, or at another size.
        models: models of its rows without a run, by their names in `training.models`.
    """

    paper: str
    rows: int
    as_printed: int
    otherwise: int
    models: tuple[str, ...]

    @property
    def missing(self) -> int:
        """Rows without a run."""
        return self.rows - self.as_printed - self.otherwise


def coverage(found: Sequence[Cell]) -> list[Coverage]:
    """Return each paper's coverage, in the order of its rows."""
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
    return paper_experiment(name, variant or None).model.architecture
