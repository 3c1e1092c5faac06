"""Runs that differ in the seed alone, taken together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from statistics import mean, stdev
from typing import TYPE_CHECKING

from training.report.papers import PaperRow, row_of
from training.results import Result, task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from training.results import Diverged

HEADS = {
    "none": "trained",
    "ffc": "FFC",
    "rff": "random features",
    "ccvr": "CCVR",
    "lda": "LDA",
    "ncm": "class means",
    "all-data": "all data",
}


@dataclass(frozen=True)
class Measured:
    """An accuracy over seeds, in percent: the mean, the sample's standard deviation (None of one seed), the seeds."""

    mean: float
    spread: float | None
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.spread is None else f"{self.mean:.2f} ± {self.spread:.2f}"


@dataclass(frozen=True)
class Comparison:
    """One head of a cell beside the paper's.

    Attributes:
        head: "none" or a calibration's kind.
        ours: what was measured.
        paper: the paper's accuracy in percent.
        paper_spread: its ±.
        gain: what the head gained over the trained one, in points; None of the trained one itself.
        paper_gain: the paper's; None where its row has no trained head.
        same_task: whether data and size are the paper's, so that the percentages may be compared.
    """

    head: str
    ours: Measured
    paper: float
    paper_spread: float | None
    gain: float | None
    paper_gain: float | None
    same_task: bool

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, in points; None where the task is another, for then it says nothing."""
        return self.ours.mean - self.paper if self.same_task else None


@dataclass(frozen=True)
class Cell:
    """One experiment, at the same settings, under all of its seeds.

    Attributes:
        runs: a result a seed, in the seeds' order.
        row: the paper's row, where there is one.
    """

    runs: tuple[Result, ...]
    row: PaperRow | None

    @property
    def first(self) -> Result:
        """The run with the smallest seed, for what every run shares."""
        return self.runs[0]

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads that every run has, the trained one first."""
        every = set.intersection(*({each.kind for each in run.calibrations} for run in self.runs))
        known = [kind for kind in HEADS if kind in every]
        return ("none", *known, *sorted(every - set(HEADS)))

    def measured(self, head: str, *, average_last: int = 1) -> Measured:
        """The accuracy of one head; the trained one's averaged over the last rounds, where a paper does so."""
        values = []
        for run in self.runs:
            last = run.history[-average_last:] if head == "none" and average_last > 1 else ()
            value = mean(line.accuracy for line in last) if last else run.after(head)
            assert value is not None
            values.append(100 * value)
        return Measured(mean(values), stdev(values) if len(values) > 1 else None, len(values))

    def gain(self, head: str) -> Measured:
        """What a head gained over the trained one in points, seed by seed: their spread is that of the gain itself."""
        values = [100 * (after - run.accuracy) for run in self.runs if (after := run.after(head)) is not None]
        return Measured(mean(values), stdev(values) if len(values) > 1 else None, len(values))

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Each head that the paper has too."""
        if self.row is None:
            return ()
        accuracy, last = self.row.accuracy, self.averaged
        trained, paper_trained = self.measured("none", average_last=last).mean, accuracy.get("none")
        return tuple(
            Comparison(
                head,
                ours := self.measured(head, average_last=last),
                accuracy[head],
                self.row.spread.get(head),
                None if head == "none" else ours.mean - trained,
                None if head == "none" or paper_trained is None else accuracy[head] - paper_trained,
                not self.differs,
            )
            for head in self.heads
            if head in accuracy
        )

    @property
    def averaged(self) -> int:
        """Over how many of the last rounds the trained head's accuracy is averaged: the share that the paper averages over."""
        if self.row is None:
            return 1
        share = self.row.average_last / self.row.rounds if self.row.rounds else 0
        return min(self.row.average_last, max(1, round(share * len(self.first.history))))

    @property
    def differs(self) -> tuple[str, ...]:
        """Why the numbers can't be the paper's: other data, a smaller run, what else the data's note says."""
        data, row = self.first.data, self.row
        why = []
        if data.stands_in_for is not None:
            why.append(f"{data.name} stands in for {data.stands_in_for}")
        elif row is not None and data.name != row.data:
            why.append(f"{data.name}, the paper {row.data}")
        if data.note:
            why.append(data.note)
        if self.first.scale:
            why.append(self.first.scale)
        if row is not None and self.averaged < row.average_last:
            why.append(
                f"mean of the last {self.averaged} of {len(self.first.history)} rounds, "
                f"the paper's of {row.average_last} of {row.rounds:,}"
            )
        return tuple(why)

    @property
    def where(self) -> str:
        """The data and the deal, which cells must share to be compared with one another."""
        return where(self.first)

    def own_records(self, method: str) -> Measured | None:
        """The mean of members' accuracies on their own held-out records by a personal method; None where a run has it not."""
        values = [100 * mean(run.personal[method]) for run in self.runs if method in run.personal]
        if len(values) < len(self.runs):
            return None
        return Measured(mean(values), stdev(values) if len(values) > 1 else None, len(values))


def where(run: Result | Diverged) -> str:
    """A run's data and deal in words."""
    options = dict(run.deal.options)
    told = run.deal.kind
    if told == "dirichlet" and "alpha" in options:
        told = f"Dir({options.pop('alpha'):g})"
    if "members" in options:
        told += f" over {options.pop('members')} members"
    left = ", ".join(
        f"{name} {value:g}" if not isinstance(value, str) else value for name, value in options.items()
    )
    told += f" ({left})" if left else ""
    if isinstance(run, Result) and run.personal:
        told += ", a part of each kept back"
    return f"{run.data.name}, {run.data.records:,} records, {told}"


def cells(results: Iterable[Result]) -> list[Cell]:
    """Results by what they share but for the seed, in the order of their experiments' names.

    Runs of one experiment at other settings are another cell. Of two runs under one seed the later in the list counts.
    """
    found = []
    for _, group in groupby(sorted(results, key=lambda run: (run.experiment, task(run))), key=task):
        runs = {run.seed: run for run in group}
        first = next(iter(runs.values()))
        found.append(
            Cell(
                tuple(runs[seed] for seed in sorted(runs)),
                row_of(
                    first.experiment, first.paper_row, smaller=bool(first.scale or first.data.stands_in_for)
                ),
            )
        )
    return found
