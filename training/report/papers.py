"""The papers' tables as data: a row an experiment, named by the experiment that repeats it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class PaperRow:
    """One row of a paper's table.

    Attributes:
        id: the experiment that repeats it.
        paper: its short name.
        source: authors, year, title.
        where: the table.
        method: as the table calls it.
        data: the data set.
        setting: model, members, deal, rounds, local epochs.
        accuracy: in percent, by head: "none" is what training left, the others are calibrations.
        spread: what stands behind the table's ±, in points, by head.
        average_last: over how many of the last rounds the paper averages.
        rounds: how many it has, where it averages over several.
        also: further experiments of ours that are held against it.
    """

    id: str
    paper: str
    source: str
    where: str
    method: str
    data: str
    setting: str
    accuracy: Mapping[str, float]
    spread: Mapping[str, float]
    average_last: int = 1
    rounds: int = 0
    also: tuple[str, ...] = ()


@cache
def paper_rows() -> dict[str, PaperRow]:
    """Every row by its id."""
    rows = {}
    for file in sorted(files("training.report").joinpath("papers").iterdir(), key=lambda each: each.name):
        table: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
        for row in table["rows"]:
            rows[row["id"]] = PaperRow(
                paper=table["name"],
                source=table["source"],
                **({"spread": {}} | row | {"also": tuple(row.get("also", ()))}),
            )
    return rows


def row_of(experiment: str, paper_row: str | None, *, smaller: bool = False) -> PaperRow | None:
    """The row that a run is held against.

    Args:
        experiment: the run's; a variant's stands after a slash, several with a plus between them.
        paper_row: what the run itself names, which goes first.
        smaller: whether the run says in what it is another task than a paper's, smaller or on other data: then a variant without a row of its own is held
            against its experiment's, and of several variants the last one's row counts where the others have none. Other
            variants change what the paper measured, and a difference would say nothing.
    """
    rows = paper_rows()
    also = {name: row.id for row in rows.values() for name in row.also}
    names = [paper_row, experiment, also.get(experiment)]
    if smaller:
        stem, _, variants = experiment.partition("/")
        *others, last = (f"{stem}/{variant}" for variant in variants.split("+"))
        if not others:
            names.append(stem)
        elif not any(other in rows or other in also for other in others):
            names += [last, also.get(last)]
    return next((rows[name] for name in names if name in rows), None)
