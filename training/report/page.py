"""The report as one HTML file without a single outside resource."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from itertools import groupby
from string import Template
from typing import TYPE_CHECKING

from training.report.cells import HEADS, Cell
from training.report.pictures import pictures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_GAP = 1.0  # points of accuracy that a difference takes to be more than a shade


def page(found: Sequence[Cell], *, title: str = "Runs beside the papers") -> str:
    """The whole page.

    Raises:
        ValueError: if there are no cells.
    """
    if not found:
        raise ValueError("a report takes at least one result")
    compared = [cell for cell in found if cell.comparisons]
    template = Template(files("training.report").joinpath("report.html").read_text("utf-8"))
    return template.substitute(
        style=style(),
        title=escape(title),
        lead=_lead(found, compared),
        figures="".join(_figures(found, compared)),
        papers="".join(_papers(compared)) or "<p>None of these runs repeats a row of a paper's table.</p>",
        differs="".join(_differs(compared)),
        runs="".join(_runs(found)),
        cost=_costs(found),
        identities="".join(_identities(found)),
        environment=escape(" · ".join(_environments(found))),
    )


def style() -> str:
    """What a page looks like, as CSS."""
    return files("training.report").joinpath("style.css").read_text("utf-8")


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
    yield _figure_of("time", _time(seconds), "of training and calibration in all")


def _figure_of(name: str, value: str, detail: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)} <small>{escape(detail)}</small></dd></div>"


def _papers(compared: Sequence[Cell]) -> Iterator[str]:
    by_paper = sorted(compared, key=lambda cell: (cell.row.paper if cell.row else "", cell.where))
    for (paper, where), group in groupby(
        by_paper, key=lambda cell: (cell.row.paper if cell.row else "", cell.where)
    ):
        own = list(group)
        source = own[0].row.source if own[0].row else ""
        rows = "".join(_compared(own))
        caption = f"{source}. Ours: {where}."
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
    reasons = sorted({reason for cell in compared for reason in cell.differs})
    if not reasons:
        return
    yield "<h3>Why numbers differ</h3><ul>"
    for reason in reasons:
        share = [cell for cell in compared if reason in cell.differs]
        yield f"<li>{escape(reason)}: {_count(len(share), 'experiment')}.</li>"
    yield "</ul><p>A row that names anything is of another task than the paper's, so that no difference is stated: compare gains over the trained head, and which method comes first.</p>"


def _runs(found: Sequence[Cell]) -> Iterator[str]:
    for where, group in groupby(sorted(found, key=lambda cell: cell.where), key=lambda cell: cell.where):
        own = list(group)
        heads = [head for head in HEADS if any(head in cell.heads for cell in own)]
        heads += sorted({head for cell in own for head in cell.heads} - set(HEADS))
        best = {head: max(cell.measured(head).mean for cell in own if head in cell.heads) for head in heads}
        rows = []
        for cell in own:
            values = []
            for head in heads:
                if head not in cell.heads:
                    values.append('<td class="number">–</td>')
                    continue
                measured = cell.measured(head)
                mark = (
                    ' class="number best"'
                    if len(own) > 1 and measured.mean == best[head]
                    else ' class="number"'
                )
                values.append(f"<td{mark}>{measured}</td>")
            seeds = f'<td class="number">{len(cell.runs)}</td>'
            rows.append(f'<tr><th scope="row">{escape(cell.first.method)}</th>{"".join(values)}{seeds}</tr>')
        said = "Test accuracy in percent by head: mean over seeds ± standard deviation. The best of each column is bold."
        yield f"<section><h2>{escape(where)}</h2>"
        yield _table(
            f"Accuracy by head on {where}",
            said,
            ["method", *(HEADS.get(head, head) for head in heads), "seeds"],
            "".join(rows),
            numbers=tuple(range(1, len(heads) + 2)),
        )
        for picture in pictures(own):
            yield (
                '<figure><div class="panel scroll" tabindex="0" role="region" aria-label="Figure">'
                f'<img src="{picture.image}" alt="{escape(picture.alternative)}"></div>'
                f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
            )
        yield "</section>"


def _costs(found: Sequence[Cell]) -> str:
    rows = []
    for cell in sorted(found, key=lambda each: (each.where, each.first.method)):
        costs = [run.cost for run in cell.runs]
        cpu = [cost.cpu_s for cost in costs if cost.cpu_s is not None]
        uploads = {
            each.kind: each.upload_bytes for each in cell.first.calibrations if each.upload_bytes is not None
        }
        rows.append(
            f'<tr><th scope="row">{escape(cell.first.method)}<small>{escape(cell.where)}</small></th>'
            f'<td class="number">{_time(sum(c.wall_s for c in costs) / len(costs))}</td>'
            f'<td class="number">{_time(sum(cpu) / len(cpu)) if cpu else "–"}</td>'
            f'<td class="number">{_bytes(cell.first.cost.upload_bytes)}</td>'
            f'<td class="number">{len(cell.first.history)}</td>'
            f"<td>{escape(', '.join(f'{HEADS.get(kind, kind)} {_bytes(size)}' for kind, size in uploads.items())) or '–'}</td></tr>"
        )
    return _table(
        "Cost",
        "Means over seeds; what a member sends in one round of training, and once for each calibration.",
        ["method", "time", "processor", "sent a round", "rounds", "sent to calibrate"],
        "".join(rows),
        numbers=(1, 2, 3, 4),
    )


def _identities(found: Sequence[Cell]) -> Iterator[str]:
    for cell in found:
        for run in cell.runs:
            yield (
                f'<tr><th scope="row">{escape(run.experiment)}</th><td class="number">{run.seed}</td>'
                f'<td class="mono">{escape(run.deal.digest[:16])}</td><td class="number">{run.deal.moved}</td></tr>'
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


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _bytes(size: int | None) -> str:
    if size is None:
        return "–"
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
