"""Runs that differ only in the seed, taken together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from statistics import mean, stdev
from typing import TYPE_CHECKING, Self

from research.papers import PaperRow, row_of
from research.results import AnalysedResult, task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    """An accuracy in percent over seeds: mean, sample standard deviation (None for one seed), number of seeds."""

    mean: float
    spread: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Measure accuracies in percent, one a seed."""
        return cls(mean(values), stdev(values) if len(values) > 1 else None, len(values))

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.spread is None else f"{self.mean:.2f} ± {self.spread:.2f}"


@dataclass(frozen=True)
class Comparison:
    """One head of a cell beside the paper's.

    Attributes:
        head: "none" or a calibration's kind.
        ours: our accuracy.
        paper: the paper's accuracy in percent.
        paper_spread: its ±.
        gain: our gain over the trained head, in points; None for the trained head.
        paper_gain: the paper's gain; None if its row has no trained head.
        same_task: whether data and size are the paper's, so that accuracies are comparable.
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
        """Our accuracy minus the paper's, in points; None if the task differs."""
        return self.ours.mean - self.paper if self.same_task else None


@dataclass(frozen=True)
class Cell:
    """One experiment at the same settings under all seeds.

    Attributes:
        runs: one result per seed, in order.
        row: the paper's row, if there is one.
    """

    runs: tuple[AnalysedResult, ...]
    row: PaperRow | None

    @property
    def first(self) -> AnalysedResult:
        """The run with the smallest seed, for what all runs share."""
        return self.runs[0]

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads that every run has, the trained one first."""
        every = set.intersection(*({each.kind for each in run.calibrations} for run in self.runs))
        known = [kind for kind in HEADS if kind in every]
        return ("none", *known, *sorted(every - set(HEADS)))

    def measured(self, head: str, *, average_last: int = 1) -> Measured:
        """Return the accuracy of a head, the trained head's averaged over the last rounds."""
        values = []
        for run in self.runs:
            evaluated = (
                _list_last_accuracies(run, average_last) if head == "none" and average_last > 1 else []
            )
            value = mean(evaluated) if evaluated else run.accuracy_after(head)
            assert value is not None
            values.append(100 * value)
        return Measured.of(values)

    def worst_decile(self, head: str) -> Measured | None:
        """Return the accuracy of the worst tenth of members under a head; None if a run lacks accuracies by class."""
        values = [100 * value for run in self.runs if (value := run.worst_decile(head)) is not None]
        return Measured.of(values) if len(values) == len(self.runs) else None

    def gain(self, head: str) -> Measured:
        """Return a head's gain over the trained head, in points, computed per seed."""
        values = [
            100 * (after - run.accuracy)
            for run in self.runs
            if (after := run.accuracy_after(head)) is not None
        ]
        return Measured.of(values)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Comparisons of the heads that the paper has too."""
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
        """Last rounds over which the trained head's accuracy is averaged: the paper's share of all rounds."""
        if self.row is None:
            return 1
        share = self.row.average_last / self.row.rounds if self.row.rounds else 0
        return min(self.row.average_last, max(1, round(share * self.first.rounds)))

    @property
    def differs(self) -> tuple[str, ...]:
        """Reasons why the numbers differ from the paper's: other data, a smaller run, the data's note."""
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
                f"mean of the last {self.averaged} of {self.first.rounds} rounds, "
                f"the paper's of {row.average_last} of {row.rounds:,}"
            )
        if (
            known := min(len(_list_last_accuracies(run, self.averaged)) for run in self.runs)
        ) < self.averaged:
            why.append(f"evaluated in {known} of the last {self.averaged} rounds")
        return tuple(why)

    @property
    def where(self) -> str:
        """The data and the deal, which comparable cells share."""
        return where(self.first)

    def own_records(self, method: str) -> Measured | None:
        """Return the mean of members' accuracies on their own held-out records by a personal method; None if a run lacks it."""
        values = [100 * mean(run.personal[method]) for run in self.runs if method in run.personal]
        return Measured.of(values) if len(values) == len(self.runs) else None


def assumed(found: Iterable[Cell]) -> tuple[str, ...]:
    """Return what the rows of these cells leave open, each statement once."""
    said = (each for cell in found if cell.row is not None for each in cell.row.assumed)
    return tuple(dict.fromkeys(said))


def where(run: AnalysedResult | Diverged) -> str:
    """Describe a run's data and deal in words."""
    options = dict(run.deal.options)
    told = run.deal.kind
    if told == "dirichlet" and "alpha" in options:
        told = f"Dir({options.pop('alpha'):g})"
    if "members" in options:
        told += f" over {options.pop('members')} members"
    left = ", ".join(
        f"{name} {value:g}" if isinstance(value, float | int) else str(value)
        for name, value in options.items()
    )
    told += f" ({left})" if left else ""
    if isinstance(run, AnalysedResult) and run.personal:
        told += ", a part of each kept back"
    return f"{run.data.name}, {run.data.records:,} records, {told}"


def cells(results: Iterable[AnalysedResult]) -> list[Cell]:
    """Group results that differ only in the seed, sorted by experiment.

    Runs of one experiment at other settings form another cell. Of two runs with one seed the later in the list counts.
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


def _list_last_accuracies(run: AnalysedResult, last: int) -> list[float]:
    """Return the accuracies that a run measured in its last rounds."""
    begin = run.rounds - last
    return [line.accuracy for line in run.history if line.round > begin and line.accuracy is not None]
