"""The report as one self-contained HTML file."""

from __future__ import annotations

from html import escape
from itertools import groupby
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from research.report.cells import HEADS, Cell, Measured, assumed, where
from research.report.groups import Group, accuracy_and_gain, cpu_s, groups, said
from research.report.pictures import pictures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from training.results import Diverged

_NONE = "<td>–</td>"
_GAP = 1.0  # points of accuracy that a difference takes to be more than a shade


def page(
    found: Sequence[Cell], diverged: Sequence[Diverged] = (), *, title: str = "Our runs and the papers'"
) -> str:
    """Write the page; runs that diverged have their own table. Raises ValueError without cells."""
    if not found:
        raise ValueError("a report takes at least one result")
    compared = [cell for cell in found if cell.comparisons]
    own = groups(found)
    template = Template(Path(__file__).with_name("report.html").read_text("utf-8"))
    return template.substitute(
        style=Path(__file__).with_name("style.css").read_text("utf-8"),
        title=escape(title),
        lead=_lead(found, compared),
        figures="".join(_figures(found, compared)),
        summary=_summary(own),
        papers="".join(_papers(compared)) or "<p>None of these runs repeats a row of a paper's table.</p>",
        differs="".join(_differs(compared)),
        runs="".join(_runs(own)),
        diverged=_diverged(diverged),
        identities="".join(_identities(own)),
        environment=escape(" · ".join(_environments(found))),
    )


def _lead(found: Sequence[Cell], compared: Sequence[Cell]) -> str:
    runs = sum(len(cell.runs) for cell in found)
    data = sorted({cell.first.data.name for cell in found})
    stands = sum(cell.first.data.stands_in_for is not None for cell in compared)
    said = f"{_count(runs, 'run')} of {_count(len(found), 'experiment')} on {escape(_and(data))}."
    if compared:
        said += f" {_count(len(compared), 'experiment')} repeat a row of a paper's table"
        said += (
            f", <strong>{stands} of them on data that stand in for the paper's</strong>." if stands else "."
        )
    return said


def _figures(found: Sequence[Cell], compared: Sequence[Cell]) -> Iterator[str]:
    gains = [
        (cell.measured(head).mean - cell.measured("none").mean, head, cell)
        for cell in found
        for head in cell.heads
        if head in {"ffc", "ccvr", "rff"}
    ]
    if gains:
        gain, head, cell = max(gains, key=lambda each: each[0])
        yield _figure_of(
            "largest gain by a calibration",
            f"{gain:+.1f} points",
            f"{HEADS[head]} on {cell.first.method}, {cell.where}",
        )
    ffc = [gain for gain, head, _ in gains if head == "ffc"]
    if ffc:
        better = sum(gain > 0 for gain in ffc)
        yield _figure_of(
            "FFC gains",
            f"{better} of {len(ffc)}",
            f"experiments; {sum(ffc) / len(ffc):+.1f} points on average",
        )
    differences = [
        each.difference for cell in compared for each in cell.comparisons if each.difference is not None
    ]
    if differences:
        near = sum(abs(difference) <= _GAP for difference in differences)
        yield _figure_of(
            "within a point of the paper",
            f"{near} of {len(differences)}",
            "numbers on the paper's own data and scale",
        )
    seconds = sum(run.cost.wall_s for cell in found for run in cell.runs)
    counted = sum(run.cost.cpu_s or 0 for cell in found for run in cell.runs)
    yield _figure_of(
        "time", _time(seconds), f"on the clock, {_time(counted)} of processors, calibrations included"
    )


def _figure_of(name: str, value: str, detail: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)} <small>{escape(detail)}</small></dd></div>"


def _papers(compared: Sequence[Cell]) -> Iterator[str]:
    by_paper = sorted(compared, key=lambda cell: (cell.row.paper if cell.row else "", cell.where))
    for (paper, place), group in groupby(
        by_paper, key=lambda cell: (cell.row.paper if cell.row else "", cell.where)
    ):
        own = list(group)
        source = own[0].row.source if own[0].row else ""
        rows = "".join(_compared(own))
        caption = f"{source}. Ours: {place}."
        yield (
            f"<h3>{escape(paper)}</h3>"
            + _table(
                f"Ours beside {paper}'s",
                caption,
                [
                    "method",
                    "head",
                    "ours, %",
                    "seeds",
                    "paper, %",
                    "difference",
                    "gain, ours",
                    "gain, paper",
                    "what differs",
                ],
                rows,
                numbers=(2, 3, 4, 5, 6, 7),
            )
        )


def _compared(found: Iterable[Cell]) -> Iterator[str]:
    for cell in found:
        assert cell.row is not None
        for i, each in enumerate(cell.comparisons):
            spread = f" ± {each.paper_spread:.2f}" if each.paper_spread is not None else ""
            difference = each.difference
            sign = "" if difference is None or abs(difference) <= _GAP else "up" if difference > 0 else "down"
            name = (
                escape(cell.row.method) if i == 0 else f'<span class="again">{escape(cell.row.method)}</span>'
            )
            why = escape("; ".join(cell.differs)) if i == 0 else ""
            yield (
                f'<tr><th scope="row">{name}<small>{escape(cell.row.where) if i == 0 else ""}</small></th>'
                f'<td>{HEADS.get(each.head, each.head)}</td><td class="number">{each.ours}</td>'
                f'<td class="number">{each.ours.seeds}</td><td class="number">{each.paper:.2f}{spread}</td>'
                f'<td class="number {sign}">{_signed(difference)}</td>'
                f'<td class="number">{_signed(each.gain)}</td><td class="number">{_signed(each.paper_gain)}</td>'
                f'<td class="why">{why}</td></tr>'
            )


def _differs(compared: Sequence[Cell]) -> Iterator[str]:
    if left_open := assumed(compared):
        yield f"<h3>Settings that the papers leave open</h3><ul>{''.join(f'<li>{escape(each)}.</li>' for each in left_open)}</ul>"
    reasons = sorted({reason for cell in compared for reason in cell.differs})
    if not reasons:
        return
    yield "<h3>Why numbers differ</h3><ul>"
    for reason in reasons:
        share = [cell for cell in compared if reason in cell.differs]
        yield f"<li>{escape(reason)}: {_count(len(share), 'experiment')}.</li>"
    yield "</ul><p>A row that names anything is of another task than the paper's, so that no difference is stated: compare gains over the trained head, and which method comes first.</p>"


def _runs(own: Sequence[Group]) -> Iterator[str]:
    for group in own:
        heads = [HEADS.get(head, head) for head in group.heads]
        notes = [f"Another task than the papers': {'; '.join(group.differs)}."] if group.differs else []
        if settings := said(group.settings):
            notes.append(f"{'All have' if len(group.cells) == 1 else 'Most have'} {settings}.")
        notes += group.notes
        yield f"<section><h2>{escape(group.where)}</h2>"
        yield "".join(f'<p class="why">{escape(note)}</p>' for note in notes)
        yield _table(
            f"Accuracy by head on {group.where}",
            "Test accuracy in percent by head: mean over seeds ± standard deviation, and below it what the head gained over"
            " the trained one of the same run."
            + (" The best of each column is bold." if group.ranked else ""),
            ["method", *heads, "CPU, a run", "sent a round", "seeds", "has instead"],
            "".join(_methods(group)),
            numbers=tuple(range(1, len(heads) + 4)),
        )
        fits = [
            f"{HEADS.get(fit.head, fit.head)} {_time(fit.seconds) or '–'}, {_bytes(fit.upload_bytes)}"
            for fit in group.fits
        ]
        if fits:
            yield f'<p class="why">To fit, and what a member sends for it: {escape("; ".join(fits))}.</p>'
        if any(cell.worst_decile("none") for cell in group.cells):
            yield _table(
                f"The worst tenth of members, {group.where}",
                "Accuracy in percent of the tenth of the members with the lowest: the classes' test accuracies, in the shares of each"
                " member's own records.",
                ["method", *heads],
                "".join(_by_method([(cell, map(cell.worst_decile, group.heads)) for cell in group.cells])),
                numbers=tuple(range(1, len(heads) + 1)),
            )
        if group.personal:
            yield _table(
                f"Members' own records, {group.where}",
                "Accuracy in percent on members' own held-out records, the mean over members, by how each fits the model to itself.",
                ["method", *group.personal],
                "".join(_by_method([(cell, map(cell.own_records, group.personal)) for cell in group.cells])),
                numbers=tuple(range(1, len(group.personal) + 1)),
            )
        for picture in pictures(group.cells):
            yield (
                '<figure><div class="panel scroll" tabindex="0" role="region" aria-label="Figure">'
                f'<img src="{picture.image}" alt="{escape(picture.alternative)}"></div>'
                f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
            )
        yield "</section>"


def _methods(group: Group) -> Iterator[str]:
    best = group.best
    for cell in group.cells:
        values = []
        for head in group.heads:
            if head not in cell.heads:
                values.append('<td class="number">–</td>')
                continue
            accuracy, gain = accuracy_and_gain(cell, head)
            mark = " best" if best.get(head) is cell else ""
            below = "" if gain is None else f"<small>{_spread(gain)}</small>"
            values.append(f'<td class="number{mark}">{accuracy}{below}</td>')
        instead = [
            said(group.changes(cell)),
            *(reason for reason in cell.differs if reason not in group.differs),
        ]
        yield (
            f'<tr><th scope="row">{escape(cell.first.method)}</th>{"".join(values)}'
            f'<td class="number">{_time(cpu_s(cell)) or "–"}</td>'
            f'<td class="number">{_bytes(cell.first.cost.upload_bytes)}</td>'
            f'<td class="number">{len(cell.runs)}</td>'
            f'<td class="why">{escape("; ".join(filter(None, instead)))}</td></tr>'
        )


def _by_method(rows: Iterable[tuple[Cell, Iterable[Measured | None]]]) -> Iterator[str]:
    for cell, measured in rows:
        values = "".join(f'<td class="number">{each or "–"}</td>' for each in measured)
        yield f'<tr><th scope="row">{escape(cell.first.method)}</th>{values}</tr>'


def _diverged(runs: Sequence[Diverged]) -> str:
    if not runs:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(run.method)}<small>{escape(where(run))}</small></th>'
        f'<td class="number">{run.seed}</td><td class="number">{run.round}</td><td class="number">{run.lr:g}</td></tr>'
        for run in runs
    )
    return (
        "<section><h2>Diverged</h2>"
        + _table(
            "Diverged",
            "Runs that ended early: a loss was not finite, or no head could be calibrated between rounds. They are in none of the means above.",
            ["method", "seed", "in round", "learning rate"],
            rows,
            numbers=(1, 2, 3),
        )
        + "</section>"
    )


def _summary(own: Sequence[Group]) -> str:
    ranked = [group for group in own if len(group.cells) > 1 and group.gains]
    if not ranked:
        return ""
    heads = [head for head in HEADS if any(head in group.gains for group in ranked)]
    rows = []
    for group in ranked:
        first, last = group.best.get("none"), group.best_of_all
        gains = "".join(
            f'<td class="number">{_signed(sum(g) / len(g))}<small>{_signed(min(g))} … {_signed(max(g))}</small></td>'
            if g
            else '<td class="number">–</td>'
            for g in (group.gains.get(each, ()) for each in heads)
        )
        rows.append(
            f'<tr><th scope="row">{escape(group.where)}<small>{_count(len(group.cells), "method")}, '
            f"{len(group.ranked)} ranked</small></th>"
            + (
                f"<td>{escape(first.first.method)}<small>{first.measured('none')}</small></td>"
                if first
                else _NONE
            )
            + (
                f"<td>{escape(last.cell.first.method)}, {HEADS.get(last.head, last.head)}"
                f"<small>{last.cell.measured(last.head)}</small></td>"
                if last
                else _NONE
            )
            + f"{gains}</tr>"
        )
    return (
        "<section><h2>In short</h2>"
        + _table(
            "In short",
            "The method with the best trained head, the best of all, and each calibration's mean gain over the methods in"
            " points, with the smallest and the largest below it. Methods with other seeds or partitions than most count in"
            " the gains alone; where there is no such majority, none is called the best.",
            ["data and deal", "best trained head", "best of all", *(HEADS[head] for head in heads)],
            "".join(rows),
            numbers=tuple(range(3, 3 + len(heads))),
        )
        + "</section>"
    )


def _identities(own: Sequence[Group]) -> Iterator[str]:
    for group in own:
        for dealt in group.dealt:
            yield (
                f'<tr><th scope="row">{escape(group.where)}<small>{escape(", ".join(dealt.methods))}</small></th>'
                f'<td class="number">{dealt.seed}</td>'
                f'<td class="mono">{escape(dealt.digest)}</td><td class="number">{dealt.moved}</td></tr>'
            )


def _environments(found: Sequence[Cell]) -> list[str]:
    kinds = {run.environment for cell in found for run in cell.runs}
    return sorted(
        f"Python {e.python}, torch {e.torch}, numpy {e.numpy}, {e.processor}, {e.device}" for e in kinds
    )


def _table(label: str, caption: str, header: Sequence[str], rows: str, *, numbers: tuple[int, ...]) -> str:
    cells = "".join(
        f'<th scope="col"{" class=" + chr(34) + "number" + chr(34) if i in numbers else ""}>{escape(name)}</th>'
        for i, name in enumerate(header)
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")


def _spread(gain: Measured) -> str:
    return _signed(gain.mean) + ("" if gain.spread is None else f" ± {gain.spread:.2f}")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _bytes(size: float | None) -> str:
    if size is None:
        return "–"
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
