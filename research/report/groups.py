"""Cells on the same data and deal: their ranking, and the settings in which methods differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

from research.report.cells import HEADS, Measured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from research.report.cells import Cell


_CHOSEN = frozenset({"ridge", "shrinkage", "bandwidth"})
"""Options of calibrations that a fit chooses from the records by default."""


class Fit(NamedTuple):
    """A calibration's cost, as means over a group's runs: seconds, and bytes that a member sends."""

    head: str
    seconds: float | None
    upload_bytes: float | None


class Best(NamedTuple):
    """A head of a cell."""

    head: str
    cell: Cell


class Dealt(NamedTuple):
    """A partition under a seed, and the experiments that ran on it."""

    seed: int
    digest: str
    moved: int
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Cells that share data and deal, in the order of their methods, FedAvg first.

    Attributes:
        where: data and deal in words.
        cells: at least one.
    """

    where: str
    cells: tuple[Cell, ...]

    @property
    def heads(self) -> tuple[str, ...]:
        """All heads of its cells."""
        there = {head for cell in self.cells for head in cell.heads}
        return (*(head for head in HEADS if head in there), *sorted(there - set(HEADS)))

    @property
    def personal(self) -> tuple[str, ...]:
        """All personal methods of its runs."""
        return tuple(sorted({method for cell in self.cells for run in cell.runs for method in run.personal}))

    @property
    def ranked(self) -> tuple[Cell, ...]:
        """The cells with the seeds and partitions that more than half of all cells share; empty without such a majority."""
        deals = [tuple((run.seed, run.deal.digest) for run in cell.runs) for cell in self.cells]
        usual, count = Counter(deals).most_common(1)[0]
        if count < 2 or 2 * count <= len(deals):
            return ()
        return tuple(cell for cell, own in zip(self.cells, deals, strict=True) if own == usual)

    @property
    def best(self) -> Mapping[str, Cell]:
        """The best ranked cell by head."""
        having = {head: [cell for cell in self.ranked if head in cell.heads] for head in self.heads}
        return {
            head: max(own, key=lambda cell: cell.measured(head).mean) for head, own in having.items() if own
        }

    @property
    def best_of_all(self) -> Best | None:
        """The best head and cell of all ranked ones; None without a ranking."""
        best = self.best
        head = max(best, key=lambda head: best[head].measured(head).mean, default=None)
        return None if head is None else Best(head, best[head])

    @property
    def gains(self) -> Mapping[str, tuple[float, ...]]:
        """By calibration, each cell's mean gain over its trained head in points."""
        return {
            head: tuple(cell.gain(head).mean for cell in self.cells if head in cell.heads)
            for head in self.heads
            if head != "none"
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about numbers that are not comparable."""
        ranked = self.ranked
        left = [cell.first.method for cell in self.cells if all(cell is not each for each in ranked)]
        notes = []
        if len(self.cells) > 1 and not ranked:
            notes.append("The methods have unequal seeds or partitions, so their means are no ranking yet.")
        elif len(self.cells) > 1 and left:
            notes.append(f"Not ranked, for they have other seeds or partitions: {', '.join(left)}.")
        notes += (
            f"{HEADS.get(head, head)} was not fitted alike, so that its numbers don't compare: {told}."
            for head, told in self.fitted_unalike.items()
        )
        return tuple(notes)

    @property
    def fitted_unalike(self) -> Mapping[str, str]:
        """By calibration, given options in which runs differ, with counts."""
        told = {}
        for head in self.heads:
            own = [each for cell in self.cells for run in cell.runs for each in run.calibrations]
            options = [each.options for each in own if each.kind == head]
            names = sorted({name for each in options for name in each} - _CHOSEN)
            counts = {name: Counter(each[name] for each in options if name in each) for name in names}
            unalike = [
                f"{name.replace('_', ' ')} "
                + ", ".join(f"{_words(value)} in {_runs(n)}" for value, n in values.most_common())
                for name, values in counts.items()
                if len(values) > 1
            ]
            if unalike:
                told[head] = "; ".join(unalike)
        return told

    @property
    def differs(self) -> tuple[str, ...]:
        """Differences from the papers' tasks that all cells share."""
        first, *others = (cell.differs for cell in self.cells)
        return tuple(reason for reason in first if all(reason in other for other in others))

    @property
    def settings(self) -> Mapping[str, str]:
        """The most common value of each setting."""
        recipes = [_flat(cell.first.recipe) for cell in self.cells]
        names = dict.fromkeys(name for recipe in recipes for name in recipe)
        return {
            name: Counter(recipe.get(name, "none") for recipe in recipes).most_common(1)[0][0]
            for name in names
        }

    def changes(self, cell: Cell) -> Mapping[str, str]:
        """Return a cell's settings that differ from the most common ones."""
        own = _flat(cell.first.recipe)
        return {
            name: own.get(name, "none")
            for name, usual in self.settings.items()
            if own.get(name, "none") != usual
        }

    @property
    def fits(self) -> tuple[Fit, ...]:
        """The calibrations' costs."""
        every = [each for cell in self.cells for run in cell.runs for each in run.calibrations]
        return tuple(
            Fit(
                head,
                _mean(each.seconds for each in every if each.kind == head),
                _mean(each.upload_bytes for each in every if each.kind == head),
            )
            for head in self.heads
            if head != "none"
        )

    @property
    def dealt(self) -> tuple[Dealt, ...]:
        """Partitions by seed; several per seed if methods had different ones."""
        methods: dict[tuple[int, str, int], list[str]] = {}
        for cell in self.cells:
            for run in cell.runs:
                methods.setdefault((run.seed, run.deal.digest, run.deal.moved), []).append(run.method)
        return tuple(Dealt(*key, tuple(methods[key])) for key in sorted(methods))


def groups(found: Iterable[Cell]) -> list[Group]:
    """Cells by data and deal."""
    ordered = sorted(found, key=lambda cell: (cell.where, cell.first.method != "FedAvg", cell.first.method))
    return [Group(where, tuple(own)) for where, own in groupby(ordered, key=lambda cell: cell.where)]


def cpu_s(cell: Cell) -> float | None:
    """Return the mean CPU seconds of a run, calibrations included; None if no run counted them."""
    return _mean(run.cost.cpu_s for run in cell.runs)


def taken(cell: Cell) -> str:
    """Return the devices of a cell's runs, and the mean time of a run, calibrations included: processor time if all runs counted it."""
    devices = ", ".join(dict.fromkeys(run.environment.device.partition(",")[0] for run in cell.runs))
    seconds, counted = mean(run.cost.wall_s for run in cell.runs), cpu_s(cell)
    if counted is not None and all(run.environment.device == "cpu" for run in cell.runs):
        return f"{devices}, {counted:,.0f} s of processor time"
    return f"{devices}, {seconds:,.0f} s"


def said(settings: Mapping[str, str]) -> str:
    """Settings in one line."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def accuracy_and_gain(cell: Cell, head: str) -> tuple[Measured, Measured | None]:
    """Return a head's accuracy and its gain over the trained head; None for the trained head."""
    return cell.measured(head), None if head == "none" else cell.gain(head)


def _runs(count: int) -> str:
    return f"{count} run" + ("" if count == 1 else "s")


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return mean(there) if there else None


def _flat(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Flatten a recipe to settings in words, without the seed, and with the algorithm in two parts."""
    parts: dict[str, Any] = {}
    for name, value in recipe.items():
        if name == "algorithm":
            parts |= {"aggregation": value["aggregation"], "terms": value["terms"] or "none"}
        elif name == "model":
            parts["model"] = {"kind": value["architecture"], **value["options"]}
        elif name not in {"kind", "seed"} and value is not None:
            parts[name] = value
    return {name.replace("_", " "): _words(value) for name, value in parts.items()}


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        options = ", ".join(f"{name}={_words(each)}" for name, each in value.items() if name != "kind")
        return f"{value['kind']}({options})" if options else str(value["kind"])
    if isinstance(value, list):
        return " + ".join(map(_words, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
