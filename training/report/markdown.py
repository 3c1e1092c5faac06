"""The comparison as a page of the documentation: tables alone, the same for the same result files."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from training.report.cells import HEADS, Cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HEAD = """# Reproduction

Written by `make reproduction` from the result files in `benchmarks/figures/results`; `veilsum report` makes a page with pictures of them. Accuracies are percent on the
test records: the mean over seeds ± the sample's standard deviation. What stands in for a paper's data, and in what a run is smaller, is
said in its row. Then no difference is stated, for the task is another: compare what a head gains over the trained one, and which method comes first.
"""


def markdown(found: Sequence[Cell]) -> str:
    """The page."""
    if not found:
        return f"{_HEAD}\nThere are no result files yet.\n"
    parts = [_HEAD]
    compared = [cell for cell in found if cell.comparisons]
    for paper, group in groupby(sorted(compared, key=_paper), key=_paper):
        own = list(group)
        parts += [f"## {paper}\n", f"{_source(own[0])}.\n", _table(_COMPARED, _compared(own)), ""]
    parts.append("## All runs\n")
    for where, group in groupby(sorted(found, key=lambda cell: cell.where), key=lambda cell: cell.where):
        own = list(group)
        heads = [head for head in HEADS if any(head in cell.heads for cell in own)]
        rows = [
            [
                cell.first.method,
                *(str(cell.measured(h)) if h in cell.heads else "–" for h in heads),
                str(len(cell.runs)),
                _minutes(cell),
            ]
            for cell in own
        ]
        header = ["method", *(HEADS[head] for head in heads), "seeds", "minutes a run"]
        parts += [f"### {where}\n", _table(header, rows), ""]
    return "\n".join(parts).rstrip() + "\n"


_COMPARED = [
    "method",
    "head",
    "ours",
    "paper",
    "difference",
    "gain, ours",
    "gain, paper",
    "seeds",
    "what differs",
]


def _compared(found: Iterable[Cell]) -> Iterable[list[str]]:
    for cell in found:
        assert cell.row is not None
        for each in cell.comparisons:
            paper = f"{each.paper:.2f}" + (
                f" ± {each.paper_spread:.2f}" if each.paper_spread is not None else ""
            )
            yield [
                cell.row.method,
                HEADS[each.head],
                str(each.ours),
                f"{paper} ({cell.row.where})",
                _signed(each.difference),
                _signed(each.gain),
                _signed(each.paper_gain),
                str(each.ours.seeds),
                "; ".join(cell.differs) or "nothing",
            ]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _paper(cell: Cell) -> str:
    return cell.row.paper if cell.row else ""


def _source(cell: Cell) -> str:
    return cell.row.source if cell.row else ""


def _minutes(cell: Cell) -> str:
    return f"{sum(run.cost.wall_s for run in cell.runs) / len(cell.runs) / 60:.1f}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")
