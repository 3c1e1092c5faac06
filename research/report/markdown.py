"""The comparison as a page of the documentation: tables only, the same for the same result files."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from research.papers import EXPERIMENTS, row_of
from research.report.cells import HEADS, Cell, assumed, where
from research.report.coverage import coverage
from research.report.groups import Group, accuracy_and_gain, groups, said, taken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from training.results import Diverged, RunFacts

_HEAD = """# Reproduction

Written by `python -m research.report` from result files alone; `make reproduction` writes `research/reproduction.md` from those in `research/results`. With an output that ends in `.html`
it makes a page with pictures. Accuracies are percent on the test records: the mean over seeds ± the sample's standard deviation. A gain is a head's accuracy less the trained head's of the same run, in points. Where data stand in
for a paper's, or a run is smaller, the row says so and no difference is stated, for the task is another: compare gains, and which method comes first.
"""


_STACKED_MARK = ", float32, torch"
"""How `research.stacked` names its device."""
_ABREAST_MARK = " side by side, torch"
"""How `research.abreast` names its device."""


def markdown(found: Sequence[Cell], diverged: Sequence[Diverged] = ()) -> str:
    """Write the page; runs that diverged have their own table."""
    if not found:
        return f"{_HEAD}\nThere are no result files yet.\n"
    own = groups(found)
    compared = [cell for cell in found if cell.comparisons]
    parts = [_HEAD, *_not_run(found), *_summary(own), *_compare_papers(compared, diverged)]
    for group in own:
        parts += _group(group)
    if diverged:
        parts += [
            "## Diverged\n",
            "Runs that ended early: a loss was not finite, or no head could be calibrated between rounds. They are in none of the means above.\n",
            table(["data and deal", "method", "seed", "in round", "learning rate"], map(_left, diverged)),
            "",
        ]
    parts += _list_commands(found, diverged)
    parts += [
        "## Partitions\n",
        "Who held what: the SHA-256 of each partition, and how many records a repair moved so that no member has too few.\n",
        table(["data and deal", "seed", "partition", "moved", "runs"], _dealt(own)),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _list_commands(found: Sequence[Cell], diverged: Sequence[Diverged]) -> Iterator[str]:
    """Name the command that repeats each run."""
    yield "## How to repeat a run\n"
    yield "With the data sets' folder in `VEILSUM_DATA`.\n"
    runs: dict[str, list[RunFacts]] = {}
    for run in (*(run for cell in found for run in cell.runs), *diverged):
        runs.setdefault(_name_command(run), []).append(run)
    rows = []
    for command, own in sorted(runs.items()):
        devices = ", ".join(sorted({run.environment.device.partition(",")[0] for run in own}))
        seeds = "".join(f" --seed {seed}" for seed in sorted({run.seed for run in own}))
        seeded = command.startswith(("veilsum", "python -m research.abreast"))
        rows.append([f"`{command}{seeds if seeded else ''}`", str(len(own)), devices])
    yield from (table(["command", "runs", "device"], rows), "")


def _name_command(run: RunFacts) -> str:
    """Return the command that repeats a run, without its seed, perhaps with others."""
    file, _, variants = run.experiment.partition("/")
    if file == "reproduce-small":
        return "make reproduce-small"
    device = run.environment.device
    if _STACKED_MARK in device:
        folder = "--output runs/stacked"
        return f"python -m research.stacked train --alpha {run.deal.options['alpha']} {folder}; python -m research.stacked finish {folder}"
    if _ABREAST_MARK in device:
        return f"python -m research.abreast {run.experiment} --output runs/abreast"
    words = "".join(f" --variant {variant}" for variant in variants.split("+") if variant)
    place = "" if device == "cpu" else " --device cuda"
    path = f"research/experiments/{file}.toml" if file in EXPERIMENTS else f"{file}.toml"
    return f"veilsum train {path}{words}{place}"


def _not_run(found: Sequence[Cell]) -> Iterator[str]:
    papers = coverage(found)
    total, printed = (
        sum(values) for values in zip(*((each.rows, each.as_printed) for each in papers), strict=True)
    )
    some = sum(each.otherwise for each in papers)
    without = sorted({model for each in papers for model in each.models})
    yield "## What was not run\n"
    yield (
        f"Of the {total} rows of the papers' tables that come as experiments, {printed} {_have(printed)} a run on the paper's records and at its size, {some} {_have(some)} one on fewer or other "
        f"records or at another size, and {total - printed - some} {_have(total - printed - some)} none: their figures were not repeated. Tests hold the data, model, members, deal, rounds and local epochs of every row to what it prints, and the rates of SphereFed, CCVR and GMV to the papers' appendices."
        + (f" No run is of {_listed(without)}." if without else "")
        + "\n"
    )
    header = ["paper", "rows", "run as printed", "run otherwise", "not run", "models without a run"]
    rows = (
        [
            each.paper,
            str(each.rows),
            str(each.as_printed),
            str(each.otherwise),
            str(each.missing),
            ", ".join(each.models) or "–",
        ]
        for each in papers
    )
    yield from (table(header, rows), "")


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _listed(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _summary(own: Sequence[Group]) -> Iterator[str]:
    ranked = [group for group in own if len(group.cells) > 1 and group.gains]
    if not ranked:
        return
    heads = [head for head in HEADS if any(head in group.gains for group in ranked)]
    yield "## In short\n"
    yield "The method with the best trained head, the best of all, and each calibration's mean gain over the methods with the smallest and the largest.\n"
    if any(len(group.ranked) < len(group.cells) for group in ranked):
        yield "Methods with other seeds or partitions than most count in the gains alone; where there is no such majority, none is called the best.\n"
    rows = []
    for group in ranked:
        first, last = group.best.get("none"), group.best_of_all
        gains = [
            f"{_signed(sum(g) / len(g))} ({_signed(min(g))} … {_signed(max(g))})" if g else "–"
            for g in (group.gains.get(each, ()) for each in heads)
        ]
        rows.append(
            [
                group.where,
                str(len(group.cells)),
                str(len(group.ranked)),
                f"{first.first.method}, {first.measured('none')}" if first else "–",
                f"{last.cell.first.method}, {HEADS.get(last.head, last.head)}, {last.cell.measured(last.head)}"
                if last
                else "–",
                *gains,
            ]
        )
    header = [
        "data and deal",
        "methods",
        "ranked",
        "best trained head",
        "best of all",
        *(HEADS[head] for head in heads),
    ]
    yield from (table(header, rows), "")


def _compare_papers(compared: Sequence[Cell], diverged: Sequence[Diverged]) -> Iterator[str]:
    for paper, group in groupby(sorted(compared, key=_paper), key=_paper):
        own = list(group)
        yield from (f"## {paper}\n", f"{_source(own[0])}.\n", table(_COMPARED, _compared(own)), "")
        if lost := [told for run in diverged if (told := _lost_row(run, paper))]:
            yield f"Diverged, so without a figure: {'; '.join(lost)}.\n"
        if left_open := assumed(own):
            yield f"Settings that the paper leaves open: {'; '.join(left_open)}.\n"


def _group(group: Group) -> Iterator[str]:
    yield f"## {group.where}\n"
    if group.differs:
        yield f"Another task than the papers': {'; '.join(group.differs)}.\n"
    if settings := said(group.settings):
        yield f"{'All have' if len(group.cells) == 1 else 'Most have'} {settings}.\n"
    yield from (f"{note}\n" for note in group.notes)
    header = [
        "method",
        *(HEADS.get(head, head) for head in group.heads),
        "device and time of a run",
        "seeds",
        "has instead",
    ]
    best = group.best
    rows = []
    for cell in group.cells:
        values = []
        for head in group.heads:
            if head not in cell.heads:
                values.append("–")
                continue
            accuracy, gain = accuracy_and_gain(cell, head)
            told = f"**{accuracy}**" if best.get(head) is cell else str(accuracy)
            values.append(told if gain is None else f"{told} ({_signed(gain.mean)})")
        extra = "; ".join(reason for reason in cell.differs if reason not in group.differs)
        rows.append(
            [
                cell.first.method,
                *values,
                taken(cell),
                str(len(cell.runs)),
                "; ".join(filter(None, (said(group.changes(cell)), extra))),
            ]
        )
    yield from (table(header, rows), "")
    fits = [
        f"{HEADS.get(fit.head, fit.head)}"
        + (f" {fit.seconds:.1f} s" if fit.seconds is not None else "")
        + (f", {fit.upload_bytes / 1e6:.2f} MB a member" if fit.upload_bytes is not None else "")
        for fit in group.fits
    ]
    if fits:
        bold = "Bold: the best of its column. " if best else ""
        yield f"{bold}In brackets: the gain. A fit took {'; '.join(fits)}.\n"
    worst = [[str(cell.worst_decile(head) or "–") for head in group.heads] for cell in group.cells]
    if any(value != "–" for row in worst for value in row):
        yield "The tenth of the members with the lowest accuracy: the classes' test accuracies, in the shares of each member's own records.\n"
        header = ["method", *(HEADS.get(head, head) for head in group.heads)]
        rows = [[cell.first.method, *own] for cell, own in zip(group.cells, worst, strict=True)]
        yield from (table(header, rows), "")
    if group.personal:
        yield "On members' own held-out records, the mean over members, by how each fits the model to itself:\n"
        own = (
            [cell.first.method, *(str(cell.own_records(each) or "–") for each in group.personal)]
            for cell in group.cells
        )
        yield from (table(["method", *group.personal], own), "")


def _lost_row(run: Diverged, paper: str) -> str:
    """Name the paper's row that a diverged run was to repeat; "" if it is another paper's, or none."""
    row = row_of(run.experiment, None, smaller=bool(run.scale or run.data.stands_in_for))
    if row is None or row.paper != paper:
        return ""
    return (
        f"{row.method} in round {run.round} (paper: {row.accuracy['none']:.2f}, {row.where}; {row.setting})"
    )


def _left(run: Diverged) -> list[str]:
    return [where(run), run.method, str(run.seed), str(run.round), f"{run.lr:g}"]


def _dealt(own: Iterable[Group]) -> Iterator[list[str]]:
    for group in own:
        for dealt in group.dealt:
            yield [
                group.where,
                str(dealt.seed),
                f"`{dealt.digest}`",
                str(dealt.moved),
                str(len(dealt.methods)),
            ]


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
        for i, each in enumerate(cell.comparisons):
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
                "″" if i else f"{'; '.join(cell.differs) or 'nothing'} (paper: {cell.row.setting})",
            ]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _paper(cell: Cell) -> str:
    return cell.row.paper if cell.row else ""


def _source(cell: Cell) -> str:
    return cell.row.source if cell.row else ""


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")
