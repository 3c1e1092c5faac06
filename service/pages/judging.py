"""What a judgement's page shows: its figures, and the places of their marks in pictures of 300 by 220."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sqlalchemy import select

from service.coordination.coordinator import Coordinator
from service.coordination.documents import document_name
from service.coordination.rounds import Round
from service.storage.blobs import in_blob_thread
from service.storage.tables import cohorts, rounds
from veilsum.calibration.judge import NOT_SHARES, Figure, JudgeFigures, list_figures
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.periods import PeriodKind
from veilsum.study.judgement import TABLES_DOCUMENT, judge_tables, read_tables
from veilsum.study.judging import read_shown

_LEFT_PX, _TOP_PX, _WIDTH_PX, _HEIGHT_PX = 38, 10, 252, 176
_ROW_PX = 22
_CLASSES_DRAWN_MAX, _JUDGEMENTS_DRAWN_MAX = 40, 24


@dataclass(frozen=True)
class Mark:
    """A point with its interval, in pixels, and what it stands for."""

    name: str
    x: float
    y: float
    low: float
    high: float
    value: str
    interval: str


@dataclass(frozen=True)
class FigureRow:
    """A figure in words; `needed` records, if it can't be stated."""

    name: str
    value: str
    interval: str
    needed: int


class LevelRow(NamedTuple):
    """What a threshold does, in words."""

    threshold: str
    recall: str
    false_alarms: str
    precision: str


@dataclass(frozen=True)
class JudgementPage:
    """What the page of a judgement shows.

    Attributes:
        heads: how many were shown.
        chosen: the one to use, from 1.
        figures: stated and not.
        recalls: of the classes that are stated, from left (0) to right (1); the worst first.
        reliability: bins, by confidence and accuracy.
        curve: points of the ROC curve, by false alarms and recall; empty without scores.
        levels: rows of thresholds, as texts.
        drift: accuracy by judgement, oldest first; empty for one.
    """

    heads: int
    chosen: int
    figures: tuple[FigureRow, ...]
    recalls: tuple[Mark, ...]
    reliability: tuple[Mark, ...]
    curve: tuple[Mark, ...]
    levels: tuple[LevelRow, ...]
    drift: tuple[Mark, ...]


async def read_judgement(here: Coordinator, found: Round) -> JudgementPage:
    """Read what a finished judgement's page shows."""
    figures = await _read_figures(here, found)
    names = found.attempt.content.class_names
    return JudgementPage(
        heads=max(1, len(figures.head_accuracies)),
        chosen=figures.chosen + 1,
        figures=tuple(_describe(name, each) for name, each in list_figures(figures, names)),
        recalls=_place_recalls(figures, names),
        reliability=_place_bins(figures),
        curve=_place_curve(figures),
        levels=_list_levels(figures),
        drift=await _read_drift(here, found),
    )


async def _read_figures(here: Coordinator, found: Round) -> JudgeFigures:
    attempt, record = found.attempt, found.documents.require_record()
    material = await here.catalogue.material_of(attempt)
    assert material is not None
    name = document_name(TABLES_DOCUMENT)
    content = await in_blob_thread(partial(found.documents.fetch_document, name))
    question = attempt.content.question
    tables = read_tables(question, {TABLES_DOCUMENT: content})
    members = len(record.survivors) - len(record.evicted)
    return judge_tables(attempt.spec, tables, members, read_shown(question, material))


async def _read_drift(here: Coordinator, found: Round) -> tuple[Mark, ...]:
    """Read the accuracies of the newest judgements by this version of the study, whatever heads they showed."""
    manifest = found.attempt.manifest
    judged = (
        select(rounds.c.id, cohorts.c.period)
        .join(cohorts, cohorts.c.id == rounds.c.cohort)
        .where(
            cohorts.c.federation == found.current_view().federation,
            cohorts.c.study == manifest.study.hex(),
            cohorts.c.period.startswith(f"{PeriodKind.JUDGE}-", autoescape=True),
            rounds.c.state == "done",
        )
        .order_by(rounds.c.number.desc())
        .limit(_JUDGEMENTS_DRAWN_MAX)
    )
    seen = list[tuple[str, Figure]]()
    for row in reversed(await here.database.read_rows(judged)):
        with here.database.quarantine.skip_errors(f"round {row.id}"), suppress(PeerFault):
            figure = (await _read_figures(here, await here.catalogue.find_round(row.id))).accuracy
            if figure.is_stated:
                seen.append((row.period, figure))
    if len(seen) < 2:
        return ()
    step = _WIDTH_PX / len(seen)
    return tuple(
        _place_upright(period, _LEFT_PX + step * (place + 0.5), figure)
        for place, (period, figure) in enumerate(seen)
    )


def _describe(name: str, figure: Figure) -> FigureRow:
    value, interval = _write(name, figure)
    return FigureRow(name, value, interval, 0 if figure.is_stated else figure.records_needed)


def _write(name: str, figure: Figure) -> tuple[str, str]:
    if name in NOT_SHARES:
        return f"{figure.value:.3g}", f"{figure.low:.3g} to {figure.high:.3g}"
    return f"{100 * figure.value:.1f}\u00a0%", f"{100 * figure.low:.1f} to {100 * figure.high:.1f}\u00a0%"


def place_x(share: float) -> float:
    """Return the pixel of a share from 0 to 1, from left to right."""
    return round(_LEFT_PX + _WIDTH_PX * share, 1)


def place_y(share: float) -> float:
    """Return the pixel of a share from 0 to 1, from the bottom up."""
    return round(_TOP_PX + _HEIGHT_PX * (1 - share), 1)


def _place_upright(name: str, x: float, figure: Figure) -> Mark:
    value, interval = _write(name, figure)
    y, low, high = (place_y(each) for each in (figure.value, figure.low, figure.high))
    return Mark(name, round(x, 1), y, low, high, value, interval)


def _place_recalls(figures: JudgeFigures, names: Sequence[str]) -> tuple[Mark, ...]:
    stated = [
        (name, each)
        for name, each in zip(names, figures.recalls, strict=True)
        if each is not None and each.is_stated
    ]
    worst = sorted(stated, key=lambda one: one[1].value)[:_CLASSES_DRAWN_MAX]
    return tuple(
        Mark(
            name,
            place_x(each.value),
            _TOP_PX + _ROW_PX * (place + 0.5),
            place_x(each.low),
            place_x(each.high),
            *_write(name, each),
        )
        for place, (name, each) in enumerate(worst)
    )


def _place_bins(figures: JudgeFigures) -> tuple[Mark, ...]:
    return tuple(
        _place_upright(f"{100 * confidence:.0f} % sure", place_x(confidence), accuracy)
        for confidence, accuracy in figures.calibration.list_stated_bins()
    )


def _place_curve(figures: JudgeFigures) -> tuple[Mark, ...]:
    if (score := figures.score) is None or not score.auroc.is_stated:
        return ()
    stated = [each for each in score.levels if each.recall.is_stated and each.false_alarms.is_stated]
    return tuple(
        _place_upright(f"{each.threshold:+.3g}", place_x(each.false_alarms.value), each.recall)
        for each in stated
    )


def _list_levels(figures: JudgeFigures) -> tuple[LevelRow, ...]:
    if (score := figures.score) is None:
        return ()
    return tuple(
        LevelRow(
            f"{each.threshold:+.4g}", *map(_write_level, (each.recall, each.false_alarms, each.precision))
        )
        for each in score.levels
        if each.recall.is_stated or each.false_alarms.is_stated
    )


def _write_level(figure: Figure) -> str:
    # These cells may break anywhere, or the table is too wide for a phone.
    return "{} ({})".format(*_write("", figure)).replace("\u00a0", " ") if figure.is_stated else "–"
