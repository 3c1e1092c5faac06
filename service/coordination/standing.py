"""Where a round stands: live, by the fold of its events, or ended, by its row. Both are immutable values.

Whoever holds one sees one moment of the round, in any thread.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

from fastapi.sse import format_sse_event
from sqlalchemy import Row

from service.coordination.events import Event
from service.http.problems import problem_of, storage_damaged, wrong_phase
from service.storage.faults import check_named, seal_text, unseal_text
from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import (
    ClosedByAdmin,
    Collecting,
    CoordinatorPhase,
    Erasing,
    Failed,
    Freezing,
    Recovered,
    Revealing,
    Voided,
    VoidedByErasure,
    Voiding,
)
from veilsum.protocol.coordinator.base import Delivering
from veilsum.protocol.cost import cost_in_words
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Certificate, Message, Upload, parse_message
from veilsum.protocol.record import ResultRecord
from veilsum.protocol.rest import RoundView, round_name
from veilsum.protocol.shelf import Announced
from veilsum.protocol.study import COUNT_STEP
from veilsum.protocol.transcript import Transcript
from veilsum.study.views import spec_view

SUMLESS_ENDS = (Voided, VoidedByErasure, Failed, ClosedByAdmin)
"""Ends without a sum to compute."""
_BEFORE_END: dict[type[CoordinatorPhase], str] = {
    Voided: Voiding.name,
    VoidedByErasure: Erasing.name,
    Failed: Revealing.name,
    ClosedByAdmin: Erasing.name,
}
"""How an end is shown until it is stored."""
Timeline = tuple[tuple[str, float], ...]
"""The states a round was in, each with its start in Unix time."""


@dataclass(frozen=True)
class Stall:
    """Why a live round takes nothing: the event that follows in storage can't be read or applied.

    Attributes:
        fault: storage-damaged, with what leads out of it.
        digest: the SHA-256 of the announcement that its member has to send again; empty for another event.
    """

    fault: PeerFault
    digest: bytes = b""

    @classmethod
    def at_event(cls, number: int, digest: bytes = b"") -> "Stall":
        """Explain what leads out of it."""
        what, how = f"event {number} of this round", "Restore a backup, or cancel the round"
        if digest:
            what = "a member's announcement"
            how = "The round continues once that member sends it again, as it is asked to. You can also cancel the round"
        detail = f"the coordinator's storage has lost {what}. {how}; otherwise it ends at its latest end. No member is at fault"
        return cls(storage_damaged(detail), digest)


class Snapshot:
    """A round at one moment, as everyone sees it, encoded once."""

    view: RoundView

    @cached_property
    def json(self) -> bytes:
        """The view as JSON."""
        return self.view.model_dump_json().encode()

    @cached_property
    def event(self) -> bytes:
        """The view as a server-sent event."""
        return format_sse_event(data_str=self.json.decode(), event="round", id=str(self.view.version))


@dataclass(frozen=True, eq=False)
class Standing(Snapshot):
    """Where a live round stands. It holds seeds, so that nothing keeps it after the end.

    Attributes:
        seen: how many events led here.
        asked: the version since which no member is asked anything new.
        not_before_s: no deadline passes before this Unix time.
        stall: why no event follows; None while events do.
    """

    phase: CoordinatorPhase
    transcript: Transcript
    timeline: Timeline
    seen: int = 0
    asked: int = 1
    not_before_s: float = 0.0
    stall: Stall | None = None

    @property
    def version(self) -> int:
        """Grows with every event."""
        return self.seen + 1

    @property
    def view_version(self) -> int:
        """The version of the view, which a stall changes too. The event at which the round stalled may lead to the same number."""
        return self.version + (self.stall is not None)

    @property
    def attempt(self) -> Attempt:
        """Roster, study, manifest and opening."""
        return self.phase.attempt

    @property
    def state(self) -> str:
        """The phase's name; until its end is stored, the name of the phase before it."""
        return _BEFORE_END.get(type(self.phase), self.phase.name)

    @property
    def deadline_s(self) -> float | None:
        """The phase's deadline, in Unix time; the latest end of a round that takes nothing."""
        deadline_s = self.attempt.terms.latest_end_s if self.stall else self.phase.deadline_s
        return None if deadline_s is None else max(deadline_s, self.not_before_s)

    @property
    def sumless_end(self) -> PeerFault | None:
        """Why the phase ends the round without a sum; None if it does not, and while the round stalls."""
        return self.phase.fault if isinstance(self.phase, SUMLESS_ENDS) and not self.stall else None

    @property
    def announced(self) -> Mapping[str, Announced]:
        """Announcements by member; after `Collecting`, only complete ones."""
        name = "announced" if isinstance(self.phase, Collecting) else "uploads"
        known: Mapping[str, Announced] = getattr(self.phase, name, {})
        return known

    @property
    def uploaded(self) -> tuple[str, ...]:
        """Members with a complete upload, as far as the phase still knows."""
        if isinstance(self.phase, Collecting):
            return tuple(member for member in self.attempt.members if self.phase.has_upload(member))
        uploads = getattr(self.phase, "uploads", None)
        return tuple(uploads) if uploads is not None else self.survivors

    @property
    def survivors(self) -> tuple[str, ...]:
        """The certified set, once there is one."""
        certificate: Certificate | None = getattr(self.phase, "certificate", None)
        return tuple(s.member for s in certificate.survivors) if certificate is not None else ()

    def check_collecting(self) -> Collecting:
        """Return the phase while it takes uploads. Raises PeerFault(wrong-phase) after that."""
        if not isinstance(self.phase, Collecting):
            raise wrong_phase(f"the round is {self.state} and takes no uploads")
        return self.phase

    def missing_chunks(self, member: str) -> tuple[int, ...]:
        """Return which chunks of a member's announced upload are missing. Raises PeerFault: wrong-phase, chunk-unknown."""
        return () if member in self.uploaded else self.check_collecting().missing_chunks(member)

    def holds_chunk(self, member: str, index: int, digest: bytes) -> bool:
        """Whether this chunk is stored; true also for a repeated request after the round has moved on.

        Raises:
            PeerFault: conflict if it is stored with another digest.
        """
        known = self.announced.get(member)
        if known is None or not 0 <= index < self.attempt.chunk_count:
            return False
        if isinstance(self.phase, Collecting) and not self.phase.stored[member] >> index & 1:
            return False
        if known.chunk_digest(index) != digest:
            raise PeerFault(
                Cause.CONFLICT,
                f"chunk {index} is stored as {member} announced it, and other bytes were sent now: do two processes work on copies of "
                "one folder?",
                [member],
            )
        return True

    def ignores_message(self, message: Message) -> bool:
        """Whether a message is an upload that is in: its signed header pins the rest."""
        if not isinstance(message, Upload) or isinstance(self.phase, Collecting):
            return False
        known = self.announced.get(message.header.member)
        return known is not None and known.header == message.header

    def request_for(self, member: str) -> Message | Iterator[bytes] | None:
        """Return the message that this member has to answer now; a long one as an iterator of its bytes."""
        if isinstance(self.phase, Delivering) and (found := self.phase.deliveries_for(member)) is not None:
            return found
        return self.phase.request_for(member)

    def apply_event(self, event: Event) -> "Standing":
        """Return where an event leads; this standing if it changes nothing. Raises PeerFault if the rules forbid it."""
        phase = event.apply_to(self.phase)
        return self if phase is self.phase else self.step_to(phase, event)

    def step_to(self, phase: CoordinatorPhase, event: Event) -> "Standing":
        """Return where an event leads, by the phase after it."""
        seen = self.seen + 1
        return Standing(
            phase,
            event.note_in(self.transcript, self.phase, phase),
            _extend_timeline(self.timeline, phase.name, event.at_s),
            seen,
            seen + 1 if _asks_anew(self.phase, phase) else self.asked,
            self.not_before_s,
        )

    @cached_property
    def view(self) -> RoundView:  # type: ignore[override]  # computed once, and never set
        attempt, phase = self.attempt, self.phase
        fault = self.stall.fault if self.stall else getattr(phase, "fault", None)
        return RoundView.model_validate(
            {
                "round": round_name(attempt.context),
                "federation": attempt.roster.federation.hex(),
                "cohort": attempt.manifest.cohort.hex(),
                "context": attempt.context.hex(),
                "sequence": attempt.opening.sequence,
                "attempt": attempt.opening.attempt,
                "members": attempt.members,
                "survivors_min": attempt.survivors_min,
                "sum_survivors_min": attempt.quorum.survivors_min,
                "threshold": attempt.quorum.threshold,
                "state": self.state,
                "ended": False,
                "version": self.view_version,
                "deadline_s": self.deadline_s,
                "uploaded": self.uploaded,
                "waiting_for": phase.waiting_for(),
                "survivors": self.survivors,
                "evicted": getattr(phase, "evicted", ()),
                "reported": phase.silent_decryptors if isinstance(phase, Erasing) else (),
                "reports_min": attempt.quorum.erasures_min,
                "fault": problem_of(fault).model_dump() if fault else None,
                "phase_seconds": _durations(self.timeline),
                "spec": spec_view(attempt),
                "cost": cost_in_words(attempt),
            }
        )

    def final_view(
        self, state: str, now_s: float, *, counts: tuple[int, ...] = (), **outcome: Any
    ) -> RoundView:
        """Return the view of an end of this state.

        Args:
            state: of the round.
            now_s: Unix time in seconds.
            counts: the sums of a finished count.
            outcome: what else the view shows of the end.
        """
        counted = {"holders": counts} if self.view.spec.step == COUNT_STEP else {"reached": counts}
        seconds = _durations(_extend_timeline(self.timeline, state, now_s))
        ended = {"ended": True, "version": self.version + 1, "deadline_s": None, "waiting_for": ()}
        return self.view.model_copy(
            update={"state": state, "phase_seconds": seconds, **ended, **counted, **outcome}
        )


def _extend_timeline(timeline: Timeline, state: str, at_s: float) -> Timeline:
    return timeline if timeline[-1][0] == state else (*timeline, (state, at_s))


def _durations(timeline: Timeline) -> dict[str, float]:
    # A clock that was set back makes no phase shorter than nothing.
    return {name: round(max(0.0, until - since), 6) for (name, since), (_, until) in pairwise(timeline)}


@dataclass(frozen=True)
class RoundEnd(Snapshot):
    """How a round ended, as its row stores it. It answers what `Standing` does.

    Attributes:
        closing: the certificate, the Erasure or the admin's Lost, for members that have not heard of the end.
        digests: SHA-256 of what it has published, by name; None if it ended before they were stored.
    """

    deadline_s: ClassVar[None] = None
    stall: ClassVar[None] = None
    view: RoundView
    closing: Closing
    record: ResultRecord | None
    digests: Mapping[str, str] | None = None

    @classmethod
    def from_row(cls, row: Row[Any]) -> "RoundEnd":
        """Read the row of an ended round. Raises any error if it is damaged."""
        record = ResultRecord.model_validate_json(unseal_text(row.record)) if row.record else None
        digests = json.loads(unseal_text(row.digests)) if row.digests else None
        return cls(read_view(row.id, row.final), read_closing(row.closing), record, digests)

    def to_columns(self) -> dict[str, Any]:
        """The columns that `from_row` needs."""
        return {
            "final": seal_text(self.view.model_dump_json()),
            "closing": self.closing.to_bytes(),
            "record": seal_text(self.record.model_dump_json()) if self.record else None,
            "digests": seal_text(json.dumps(self.digests)) if self.digests is not None else None,
            "state": self.view.state,
        }

    @property
    def version(self) -> int:
        """The last version."""
        return self.view.version

    asked = view_version = version

    @property
    def state(self) -> str:
        """How the round ended."""
        return self.view.state

    @property
    def phase(self) -> CoordinatorPhase:
        """Raises PeerFault(wrong-phase)."""
        raise wrong_phase(f"the round is {self.state} already")

    def check_collecting(self) -> Collecting:
        """Raises PeerFault(wrong-phase)."""
        raise wrong_phase(f"the round is {self.state} and takes no uploads")

    def holds_chunk(self, _member: str, _index: int, _digest: bytes) -> bool:
        """No: chunks are deleted."""
        return False

    def missing_chunks(self, member: str) -> tuple[int, ...]:
        """Return no chunks for a complete upload. Raises PeerFault(wrong-phase) for others."""
        return () if member in self.view.uploaded else self.check_collecting().missing_chunks(member)

    def ignores_message(self, message: Message) -> bool:
        """Whether a message is what closed the round. Raises PeerFault(wrong-phase) for others; `EndedRound` checks late answers."""
        if message != self.closing:
            raise wrong_phase(f"the round is {self.state}")
        return True

    def request_for(self, _member: str) -> Message:
        """Return what closed the round, for every member."""
        return self.closing


def read_closing(body: bytes) -> Closing:
    """Parse what closed an attempt. Raises PeerFault if it is damaged."""
    closing = parse_message(body)
    if not isinstance(closing, Closing):
        raise storage_damaged("the row holds another message")
    return closing


def read_view(round_id: str, final: str) -> RoundView:
    """Read an ended round's view. Raises any error if it is damaged."""
    view = RoundView.model_validate_json(unseal_text(final))
    check_named(round_id, view.round)
    return view


Position = Standing | RoundEnd
Decision = Callable[[Position], Event | None]
"""Chooses the event that follows, if any; none follows an end. Raises PeerFault if none can."""


def replay_events(standing: Standing, events: Sequence[Event]) -> tuple[Standing, Exception | None]:
    """Apply stored events, each of which was accepted before. Returns where they lead, and why one of them can't be applied."""
    for event in events:
        try:
            standing = standing.step_to(event.apply_to(standing.phase), event)
        except OSError:  # of the disk, and not of the event
            raise
        except Exception as error:  # noqa: BLE001 - a damaged event fails anywhere
            return standing, error
    return standing, None


def fold_decisions(
    standing: Standing, decisions: Sequence[Decision]
) -> tuple[list[Exception | None], list[Event], Standing]:
    """Fold decisions into events, up to one that ends the phase.

    Returns:
        For each decision None or why it was refused; the events; where they lead.
    """
    faults, events = list[Exception | None](), list[Event]()
    for decide in decisions:
        event, after, fault = _decide_event(decide, standing)
        faults.append(fault)
        if event is not None:
            events.append(event)
            before, standing = standing, after
            if before.phase.name != after.phase.name:
                break
    return faults, events, standing


def _decide_event(decide: Decision, standing: Standing) -> tuple[Event | None, Standing, Exception | None]:
    """Return the event to store, if any, where it leads, and why the decision was refused, if it was."""
    event = None
    try:
        event = decide(standing)
        after = standing if event is None else standing.apply_event(event)
    except PeerFault as fault:
        proof = None if event is None else event.prove_refusal(standing.transcript, fault)
        return proof, standing if proof is None else standing.step_to(standing.phase, proof), fault
    except Exception as error:  # noqa: BLE001 - a defect that one message finds is not for the others to suffer
        return None, standing, error
    return None if after is standing else event, after, None


def refuse_decision(decide: Decision, end: RoundEnd) -> Exception | None:
    """Return why a decision is refused after the end; None if it asks for nothing."""
    try:
        decide(end)
    except Exception as error:  # noqa: BLE001 - as in `_decide_event`
        return error
    return None


def _asks_anew(before: CoordinatorPhase, after: CoordinatorPhase) -> bool:
    """Whether the second phase, which follows the first, asks any member something new.

    That is another phase, a chunk once more, one more dealer that is to be left out, or a decryptor that has its boxes now and may sign.
    Rebuilt seeds ask nothing new: members that reveal have the certificate, and are told of the round's end.
    """
    if isinstance(before, Revealing) and isinstance(after, Recovered):
        return False
    if isinstance(before, Collecting) and isinstance(after, Collecting):
        return after.whole_count < before.whole_count
    return before.name != after.name or _count_asked(before) != _count_asked(after)


def _count_asked(phase: CoordinatorPhase) -> tuple[int, tuple[str, ...]]:
    """Return what changes the members' requests besides the phase."""
    late = len(phase.receipts) if isinstance(phase, Freezing | Revealing) else 0
    return late, phase.evicted if isinstance(phase, Revealing) else ()
