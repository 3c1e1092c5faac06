"""Members × phases: the answers of each member. A round's transcript shows them, which is public at its end; while the round runs, its view does."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from service.pages.wording import PHASES
from service.rounds import Round
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Erased, Receipt, Refusal, RevealSummary, Vote, parse
from veilsum.protocol.rest import RoundView
from veilsum.protocol.transcript import Transcript

Answers = dict[str, frozenset[str]]
"""The sender of each kind of answer, by the phase that asks for it."""

_ANSWERS = {
    Receipt.kind: "checking",
    Vote.kind: "freezing",
    RevealSummary.kind: "revealing",
    Erased.kind: "erasing",
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
    if round_.final is not None:
        try:
            return _read(Transcript.from_json(round_.documents.transcript().decode()).entries)
        except PeerFault:
            return None
    return _read(round_.noted.entries) if round_.noted is not None else None


def _read(entries: Iterable[bytes]) -> Answers:
    found: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        if (phase := _ANSWERS.get(entry[1])) is not None:
            found[phase].add(getattr(parse(entry), "member"))  # noqa: B009 - of four kinds, all with a member
        elif entry[1] == Refusal.kind:
            found["refused"].add(getattr(parse(entry), "member"))  # noqa: B009 - as above
    return {phase: frozenset(members) for phase, members in found.items()}


def columns(view: RoundView) -> tuple[str, ...]:
    """Return the phases in which members answer."""
    asked = tuple(phase for phase in PHASES if phase not in {"recovered", "done"})
    return (*asked, "erasing") if view.state in {"erasing", "erased", "lost"} else asked


def rows(
    round_: Round, view: RoundView, answers: Answers | None, members: Iterable[str], *, chunks: bool
) -> list[Row]:
    """Make a line for each of these members; `chunks` shows how far an unfinished upload is, for operators."""
    askers = frozenset(round_.attempt.decryptors)
    found = answers or {}
    return [_row(round_, view, found, askers, member, partly=chunks) for member in members]


def _row(
    round_: Round, view: RoundView, answers: Answers, askers: frozenset[str], member: str, *, partly: bool
) -> Row:
    whole = member in view.uploaded
    chunks = round_.attempt.chunks
    marks = {"collecting": "done" if whole else "waiting" if view.state == "collecting" else "absent"}
    for phase in columns(view)[1:]:
        marks[phase] = _mark(view, answers, phase, member) if member in askers else "none"
    stored = chunks if whole else _stored(round_, view, member, chunks) if partly else 0
    return Row(member, stored, chunks, marks, _fate(view, member, whole=whole))


def _mark(view: RoundView, answers: Answers, phase: str, member: str) -> str:
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
    return _missing(view, phase) if phase in view.phase_seconds and answers else "none"


def _missing(view: RoundView, phase: str) -> str:
    """Say of an answer that never came whether the round went on without it."""
    after = PHASES[PHASES.index(phase) + 1 :] if phase in PHASES else ()
    return "unneeded" if view.state in after or not view.phase_seconds.keys().isdisjoint(after) else "absent"


def _stored(round_: Round, view: RoundView, member: str, chunks: int) -> int:
    if view.state != "collecting":
        return 0
    try:
        return chunks - len(round_.upload_view(member).missing)
    except PeerFault:  # not announced yet
        return 0


def _fate(view: RoundView, member: str, *, whole: bool) -> str:
    if member in view.evicted:
        return "evicted"
    if member in view.survivors:
        return "in the sum" if view.state == "done" else "certified"
    if view.survivors:
        return "left out" if whole else "not in time"
    return ""
