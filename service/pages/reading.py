"""Gather the pages' data from the coordinator: no more than the REST routes show to the same caller."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, func, select

from service.coordination.catalogue import FORMING_COHORTS
from service.coordination.cohorts import Cohort
from service.coordination.coordinator import Coordinator
from service.coordination.federations import names_of
from service.coordination.journal import select_round_count
from service.coordination.rounds import Round
from service.coordination.standing import Standing, read_view
from service.http.metering import in_thread
from service.pages.wording import PHASES
from service.storage.tables import cards, cohorts, rounds
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Erased, Receipt, Refusal, RevealSummary, Roster, Vote, parse_message
from veilsum.protocol.rest import CohortView, RoundView, round_name
from veilsum.protocol.study import DISCLOSED_STEPS, Question
from veilsum.protocol.transcript import Transcript
from veilsum.study.progress import RunEnd, find_last_link

_COHORTS_SHOWN_MAX = 20
"""Cohorts that are forming, as many as the list of rounds shows."""


@dataclass(frozen=True)
class Filter:
    """Which rounds a list shows; empty for all."""

    federation: str = ""
    state: str = ""

    def admits_round(self, view: RoundView) -> bool:
        """Whether the list shows a running round."""
        return self.federation in {"", view.federation} and self.state in {"", "live", view.state}

    @property
    def ended_conditions(self) -> tuple[ColumnElement[bool], ...]:
        """Conditions on the rows of ended rounds."""
        chosen: list[ColumnElement[bool]] = [rounds.c.state.is_not(None)]
        if self.federation:
            chosen.append(rounds.c.federation == self.federation)
        if self.state:
            chosen.append(rounds.c.state == self.state)
        return tuple(chosen)


@dataclass(frozen=True)
class RoundsPage:
    """A page of a list of rounds: first those that run, then the others, each the newest first.

    Attributes:
        views: each with when the round was opened, Unix time.
        total: how many rounds are on all pages.
        running: how many of those run; not those that are past their latest end.
        any: whether there are any rounds at all.
    """

    views: list[tuple[RoundView, float]]
    total: int
    running: int
    any: bool


async def rounds_page(here: Coordinator, chosen: Filter, first: int, most: int) -> RoundsPage:
    """Read `most` rounds of a list, from the place `first` on."""
    await here.feed.refresh_all()
    live = sorted(here.catalogue.live_rounds(), key=lambda round_: (round_.opened_s, round_.id), reverse=True)
    running = [
        (view, round_.opened_s)
        for round_ in live
        if chosen.admits_round(view := round_.current_view()) and not view.ended
    ]
    views = running[first : first + most]
    newest = (
        select(rounds.c.id, rounds.c.final, rounds.c.opened_s)
        .where(*chosen.ended_conditions)
        .order_by(rounds.c.opened_s.desc(), rounds.c.id.desc())
    )
    following = newest.offset(max(0, first - len(running))).limit(most - len(views))
    ended = select(func.count()).select_from(rounds).where(*chosen.ended_conditions)
    total = len(running) + await here.database.read_value(ended)
    some = await here.database.read_value(select(rounds.c.number).limit(1)) is not None
    found = await here.database.read_rows(following) if len(views) < most else []

    def read() -> None:
        for row in found:
            with here.database.quarantine.skip_errors(f"round {row.id}"):
                views.append((read_view(row.id, row.final), row.opened_s))

    await in_thread(read)
    return RoundsPage(views, total, sum(view.state != "erasing" for view, _ in running), some)


async def forming_cohorts(here: Coordinator, federation: str) -> list[CohortView]:
    """Read the cohorts that are forming, the newest first: of one federation, or of all if it is empty."""
    chosen = (*FORMING_COHORTS, cohorts.c.federation == federation) if federation else FORMING_COHORTS
    newest = select(cohorts.c.id).where(*chosen).order_by(cohorts.c.counter.desc()).limit(_COHORTS_SHOWN_MAX)
    views = list[CohortView]()
    for each in await here.database.read_values(newest):
        with here.database.quarantine.skip_errors(f"cohort {each}"):
            views.append(await here.cohort_view(await here.catalogue.find_cohort(each)))
    return [view for view in views if view.forming]


async def find_no_sum(here: Coordinator, view: RoundView, question: Question) -> PeerFault | None:
    """Return why no sum can follow a finished count; None if one can."""
    if view.state != "done" or view.spec.step not in DISCLOSED_STEPS:
        return None
    return await here.find_count_fault(view.federation, question, view.spec.period)


async def run_end(here: Coordinator, cohort: Cohort, view: CohortView) -> dict[str, Any]:
    """How a run that is over ended: its last round, how that ended without a result, or why no sum can follow it."""
    last = end = no_sum = None
    question, repeats = cohort.content.question, cohort.enrolling.repeats
    if view.state == "formed" and view.step is None:
        links = await here.federations.read_links(view.federation)
        link = find_last_link(question, view.period, links, repeats)
        with here.database.quarantine.skip_errors(f"the run of cohort {view.cohort}"):
            if link is not None:
                last = (await here.catalogue.find_round(round_name(link.context))).current_view()
                end, no_sum = RunEnd.of_round(last), await find_no_sum(here, last, question)
    return {"last": last, "end": end, "no_sum": no_sum}


@dataclass(frozen=True)
class Person:
    """A member of a federation.

    Attributes:
        cohorts: in how many it enrolled.
        last_round: the newest round that has its upload, and when that was opened in Unix time.
    """

    member: str
    key: str
    roles: tuple[str, ...]
    cohorts: int
    last_round: tuple[str, float] | None


@dataclass(frozen=True)
class FederationPage:
    """A federation, with the ids of its cohorts, oldest first, and how many rounds it has."""

    id: str
    roster: Roster
    cohorts: tuple[str, ...] = field(repr=False)
    rounds: int

    @property
    def names(self) -> tuple[str, ...]:
        """Its members."""
        return names_of(self.roster)

    def describe_people(
        self, members: Iterable[str], enrolled: Mapping[str, int], uploaded: Mapping[str, tuple[str, float]]
    ) -> list[Person]:
        """Describe some of them, by the number of cohorts that each enrolled in, and its newest upload."""
        roles = {"decryptor": self.roster.decryptors, "reader": self.roster.readers}
        return [
            Person(
                member,
                self.roster.key_of(member).hex(),
                tuple(role for role, named in roles.items() if member in named),
                enrolled.get(member, 0),
                uploaded.get(member),
            )
            for member in members
        ]


async def federation_names(here: Coordinator) -> dict[str, str]:
    """Return the names of all federations by id, except those with a damaged roster."""
    names = dict[str, str]()
    for each in await here.federations.list_ids():
        with here.database.quarantine.skip_errors(f"federation {each}"):
            names[each] = (await here.federations.read_roster(each)).name
    return names


async def federation_page(here: Coordinator, federation: str) -> FederationPage:
    """Read one federation; PeerFault(not-found)."""
    newest = await here.federations.read_roster(federation)
    cohort_ids = select(cohorts.c.id).where(cohorts.c.federation == federation).order_by(cohorts.c.counter)
    count = select_round_count(federation)
    ids = tuple(await here.database.read_values(cohort_ids))
    return FederationPage(federation, newest, ids, await here.database.read_value(count))


async def count_enrolments(here: Coordinator, federation: str, members: Collection[str]) -> Mapping[str, int]:
    """Return, by member, in how many cohorts it enrolled; none for a member without any."""
    own = select(cards.c.member, func.count()).join(cohorts, cohorts.c.id == cards.c.cohort)
    named = cohorts.c.federation == federation, cards.c.member.in_(members)
    return dict(await here.database.read_rows(own.where(*named).group_by(cards.c.member)))


async def newest_uploads(here: Coordinator, federation: str) -> Mapping[str, tuple[str, float]]:
    """Return, by member, the newest round that has its upload, and when that was opened in Unix time."""
    history = await here.summaries.read_history(federation)
    live = {
        member: (round_.id, round_.opened_s)
        for round_ in here.catalogue.live_rounds(federation)
        for member in round_.current_view().uploaded
    }
    return {**history.uploaded, **live}


Answers = dict[str, frozenset[str]]
"""The senders of each kind of answer, by the phase that asks for it; of refusals to sign, by "refused"."""

_PHASE_OF_ANSWER = {
    Receipt.kind: "checking",
    Vote.kind: "freezing",
    RevealSummary.kind: "revealing",
    Erased.kind: "erasing",
    Refusal.kind: "refused",
}
_READ_MEMBERS = 200
"""A transcript of more members is too long to read for a page, which then shows only the members that it waits for."""


@dataclass(frozen=True)
class Row:
    """One member's line.

    Attributes:
        stored: how many of its `chunks` are in; all or none for viewers that may not see more.
        marks: by phase, "done", "waiting", "absent", "unneeded" (enough others answered), "refused", "later" or "none" (the member is
            not asked).
        fate: whether it is in the sum.
    """

    member: str
    stored: int
    chunks: int
    marks: dict[str, str]
    fate: str


def answers_of(round_: Round) -> Answers | None:
    """Read the answers from the transcript; None if it cannot be read."""
    if len(round_.attempt.members) > _READ_MEMBERS:
        return None
    now = round_.position
    if isinstance(now, Standing):
        return _collect_answers(now.transcript.entries)
    try:
        return _collect_answers(Transcript.from_json(round_.documents.fetch_transcript().decode()).entries)
    except PeerFault:
        return None


def _collect_answers(entries: Iterable[bytes]) -> Answers:
    found: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        if (phase := _PHASE_OF_ANSWER.get(entry[1])) is not None:
            found[phase].add(getattr(parse_message(entry), "member"))  # noqa: B009 - of five kinds, all with a member
    return {phase: frozenset(members) for phase, members in found.items()}


def answer_columns(view: RoundView) -> tuple[str, ...]:
    """List the phases in which members answer."""
    asked = tuple(phase for phase in PHASES if phase not in {"recovered", "done"})
    return (*asked, "erasing") if view.state in {"erasing", "erased", "lost"} else asked


def member_rows(
    round_: Round, view: RoundView, answers: Answers | None, members: Iterable[str], *, chunks: bool
) -> list[Row]:
    """Make a row for each of these members; `chunks` shows operators the progress of unfinished uploads."""
    askers = frozenset(round_.attempt.decryptors)
    found = answers or {}
    return [_member_row(round_, view, found, askers, member, partly=chunks) for member in members]


def _member_row(
    round_: Round, view: RoundView, answers: Answers, askers: frozenset[str], member: str, *, partly: bool
) -> Row:
    whole = member in view.uploaded
    chunks = round_.attempt.chunk_count
    marks = {"collecting": "done" if whole else "waiting" if view.state == "collecting" else "absent"}
    for phase in answer_columns(view)[1:]:
        marks[phase] = _answer_mark(view, answers, phase, member) if member in askers else "none"
    stored = chunks if whole else _stored_chunks(round_, view, member, chunks) if partly else 0
    return Row(member, stored, chunks, marks, _member_fate(view, member, whole=whole))


def _answer_mark(view: RoundView, answers: Answers, phase: str, member: str) -> str:
    if member in answers.get(phase, ()):
        return "done"
    # Only the transcript, at the end, shows refusals.
    if phase == "freezing" and view.ended and member in answers.get("refused", ()):
        return "refused"
    if phase == view.state:
        return "waiting" if member in view.waiting_for else "later" if answers else "done"
    if phase == "checking" and view.state in {"freezing", "revealing"} and member in view.waiting_for:
        return "waiting"  # for its boxes, which it may still send
    live = not view.ended and view.state in PHASES
    if phase not in view.phase_seconds and live and phase in PHASES[PHASES.index(view.state) :]:
        return "later"
    return _missing_mark(view, phase) if phase in view.phase_seconds and answers else "none"


def _missing_mark(view: RoundView, phase: str) -> str:
    """Whether the round went on without an answer that never came."""
    after = PHASES[PHASES.index(phase) + 1 :] if phase in PHASES else ()
    return "unneeded" if view.state in after or not view.phase_seconds.keys().isdisjoint(after) else "absent"


def _stored_chunks(round_: Round, view: RoundView, member: str, chunks: int) -> int:
    if view.state != "collecting":
        return 0
    try:
        return chunks - len(round_.upload_view(member).missing)
    except PeerFault:  # not announced yet
        return 0


def _member_fate(view: RoundView, member: str, *, whole: bool) -> str:
    if member in view.evicted:
        return "evicted"
    if member in view.survivors:
        return "in the sum" if view.state == "done" else "certified"
    if view.survivors:
        return "left out" if whole else "not in time"
    return ""
