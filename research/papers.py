"""The papers' experiment files, and the papers' tables as data: one row for each experiment that repeats it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.experiments.config import Experiment, list_variants, load_experiment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HERE = Path(__file__).parent
EXPERIMENTS: dict[str, tuple[str, ...]] = {
    file.stem: list_variants(file) for file in sorted(_HERE.glob("experiments/*.toml"))
}
"""The variants of each experiment file, by its name."""


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
        accuracy: in percent, by head: "none" is the trained head, the others are calibrations.
        spread: the number after the table's ±, in points, by head.
        average_last: last rounds that the paper averages.
        rounds: the paper's rounds, if it averages several.
        also: other experiments here to compare with it.
        assumed: what the paper leaves open and its experiment chose, and where the experiment departs from published code.
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
    assumed: tuple[str, ...] = ()


def paper_experiment(
    name: str, variant: str | Sequence[str] | None = None, changes: Mapping[str, Any] | None = None
) -> Experiment:
    """Load one of the papers' experiments by its name; see `load_experiment`."""
    return load_experiment(_HERE / "experiments" / f"{name}.toml", variant, changes)


@cache
def paper_rows() -> dict[str, PaperRow]:
    """Load every row, by its id."""
    rows = {}
    for file in sorted(_HERE.glob("tables/*.toml")):
        table: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
        for row in table["rows"]:
            assumed = (*table.get("assumed", ()), *row.pop("assumed", ()))
            rows[row["id"]] = PaperRow(
                paper=table["name"],
                source=table["source"],
                **({"spread": {}} | row | {"also": tuple(row.get("also", ()))}),
                assumed=assumed,
            )
    return rows


def row_of(experiment: str, paper_row: str | None, *, smaller: bool = False) -> PaperRow | None:
    """Find the row to compare a run with.

    Args:
        experiment: the run's, with variants after a slash, joined by a plus.
        paper_row: the row that the run names, which has precedence.
        smaller: whether the run states that it is smaller or on other data. Then a variant without a row is compared with its
            experiment's row, and several variants with the last one's row if the others have none. Other variants change what the
            paper measured, so a difference would be meaningless.
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
