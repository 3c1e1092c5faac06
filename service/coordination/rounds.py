"""A round: its accepted events, in order, are its whole state; phase and transcript are folds of them.

Every change goes through `_accept`, which computes the next phase and commits the event before the round changes and any caller is
answered. If another process was first, its events are applied and everything is decided again. Decisions that arrive during a commit share
the next one. A restart replays the events. When a round ends, its outcome and the signed transcript remain; its uploads, boxes, shares and
seeds are deleted (protocol §4.8).
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import structlog
from fastapi.sse import format_sse_event

from service.coordination.documents import NOTHING, Documents, Publication
from service.coordination.journal import (
    AT_ONCE,
    Decision,
    Event,
    Journal,
    RoundEnd,
    Transition,
    asks_anew,
    folded,
    refusals,
    replayed,
)
from service.coordination.summing import DamagedChunkError, Memory, Summing, chunk_name, note_damage
from service.coordination.watch import Watch
from service.http.problems import problem_of, wrong_phase
from service.storage import audit
from service.storage.blobs import Blobs, in_blob_thread
from service.storage.database import Batches, Database
from service.telemetry.logs import LOGGER
from service.telemetry.metrics import ROUNDS_ENDED
from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import (
    ClosedByAdmin,
    Collecting,
    CoordinatorPhase,
    Ended,
    Erasing,
    Failed,
    Recovered,
    Revealing,
    Voided,
    VoidedByErasure,
    Voiding,
)
from veilsum.protocol.coordinator.base import Delivering, cancelled, chunk_fault
from veilsum.protocol.cost import cost_in_words
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Certificate, Message, Upload
from veilsum.protocol.rest import Problem, RoundView, UploadView, round_name
from veilsum.protocol.shelf import Announced
from veilsum.protocol.transcript import Transcript
from veilsum.study.views import spec_view

log = structlog.get_logger(LOGGER)

PIECE_BYTES = 1 << 17
"""Smallest piece of a long message that is sent by itself."""
SETTLED = (Voided, VoidedByErasure, Failed, ClosedByAdmin)
"""Ends without a sum to compute."""
_ON_THE_WAY: dict[type[CoordinatorPhase], str] = {
    Voided: Voiding.name,
    VoidedByErasure: Erasing.name,
    Failed: Revealing.name,
    ClosedByAdmin: Erasing.name,
}
"""How an end is shown until it is stored."""
Timeline = tuple[tuple[str, float], ...]
"""The states a round was in, each with its start in Unix time."""


@dataclass(frozen=True)
class RenderedView:
    """A round's view at one version, and its bytes, encoded once."""

    version: int
    view: RoundView

    @cached_property
    def json(self) -> bytes:
        """The view, encoded as JSON."""
        return self.view.model_dump_json().encode()

    @cached_property
    def event(self) -> bytes:
        """The view as a server-sent event."""
        return format_sse_event(data_str=self.json.decode(), event="round", id=str(self.version))


class Round:
    """One attempt, live or ended.

    Args:
        memory: for running sums, which all rounds share.
        wake: called at every change.
        told: called with the federation when the round has ended.
        key: the coordinator's, which signs the transcript.
        phase: the first one; None where the round has ended.
        noted: what the transcript begins with; None where the round has ended.

    Attributes:
        attempt: roster, study, manifest and opening.
        size: members of its roster.
        opened_s: Unix time in seconds.
        phase: None once the round has ended: it holds seeds.
        version: grows with every change.
        asked: the version since which no member is asked anything new.
        final: the view that stays; None while the round is live.
        closing: the certificate, the Erasure or the admin's Lost, for members that have not heard of the end.
        noted: the transcript so far; None once it is kept.
        not_before_s: no deadline passes before this Unix time.
        littered: nothing can come of its chunks and ranges any more, and they may still lie in storage.
        summing: its sum, by ranges of chunks.
        documents: what it publishes.
    """

    final: RoundView | None = None
    closing: Closing | None = None
    not_before_s, littered = 0.0, False

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        memory: Memory,
        wake: Callable[[], None],
        told: Callable[[str], None],
        key: SigningKey,
        attempt: Attempt,
        opened_s: float,
        phase: CoordinatorPhase | None = None,
        noted: Transcript | None = None,
    ) -> None:
        self.id, self.attempt, self.version = round_name(attempt.context), attempt, 1
        self.federation, self.size = attempt.roster.federation.hex(), len(attempt.roster.members)
        self.opened_s, self.phase, self.noted = opened_s, phase, noted
        self.asked = self.version
        self.watch = Watch(lambda: self.version, lambda: self.asked)
        self._database, self._blobs, self._wake, self._key, self._told = database, blobs, wake, key, told
        self._journal = Journal(database, blobs, self.id)
        self._lock = asyncio.Lock()
        self._decisions = Batches(self._accept)
        self._timeline: Timeline = ((phase.name, opened_s),) if phase is not None else ()
        self._behind = False
        """Storage may hold events that this object has not taken up: what it holds decides."""
        self._ending = False
        """This object may have ended the round, whatever it was told of the commit."""
        self._shown: RenderedView | None = None
        self._shown_bytes: tuple[Message, bytes] | None = None
        self.summing = Summing(database, blobs, memory, self.id, attempt)
        self.documents = Documents(blobs, self.id, self.view)
        self._writing = self._look_again = 0

    # Coming back from storage

    async def resume(self, not_before_s: float) -> Self:
        """Apply the stored events. Deadlines that passed meanwhile are postponed a little for members."""
        self.not_before_s, self._behind = not_before_s, True
        await self._catch_up()
        return self

    def restore(self, end: RoundEnd, *, littered: bool) -> Self:
        """Apply the stored end."""
        self.final, self.closing, self.documents.record = end.final, end.closing, end.record
        self.phase, self.version, self.littered = None, self.final.version, littered
        self.asked, self.noted = self.version, None
        self.summing.let_go()
        return self

    async def refresh(self) -> None:
        """Apply other processes' events."""
        if self.final is None and await self._journal.is_behind():
            async with self._lock:
                self._behind = True
                await self._catch_up()

    async def _catch_up(self) -> None:
        while self._behind and self.final is None:
            ended, unseen = await self._journal.unseen()
            assert self.noted is not None
            for step in await asyncio.to_thread(replayed, self.live, self.noted, unseen):
                self._moved(step)
            if ended is not None:
                # The process that ended it clears up; if it died, the hourly sweep does.
                self.restore(ended, littered=self._ending)
            if len(unseen) < AT_ONCE:
                self._behind = False
                self._changed()

    # What it is

    @property
    def live(self) -> CoordinatorPhase:
        """The phase of a live round. Raises PeerFault(wrong-phase) if it has ended."""
        if (phase := self.phase) is None:
            raise self._over()
        return phase

    def _over(self) -> PeerFault:
        return wrong_phase(f"the round is {self.view().state}")

    @property
    def deadline_s(self) -> float | None:
        """The phase's deadline, in Unix time."""
        return self._deadline_s(self.phase)

    def _deadline_s(self, phase: CoordinatorPhase | None) -> float | None:
        if phase is None or phase.deadline_s is None:
            return None
        return max(phase.deadline_s, self.not_before_s)

    @property
    def state(self) -> str:
        """Its phase, or how it ended."""
        if self.final is not None:
            return self.final.state
        return _ON_THE_WAY.get(type(phase := self.live), phase.name)

    def view(self) -> RoundView:
        """The round's current view."""
        return self.shown.view

    @property
    def shown(self) -> RenderedView:
        """The view and its bytes, built once for each version."""
        version, shown = self.version, self._shown
        if shown is None or shown.version != version:
            fault = getattr(self.phase, "fault", None)
            view = self.final or self._view(None, problem_of(fault) if fault else None, self._timeline)
            shown = self._shown = RenderedView(version, view)
        return shown

    def _view(
        self,
        end: str | None,
        fault: Problem | None,
        timeline: Timeline,
        head: bytes | None = None,
        holders: tuple[int, ...] = (),
    ) -> RoundView:
        """Build the view of the phase, or of an end of this name."""
        attempt, opening, phase = self.attempt, self.attempt.opening, self.live
        return RoundView.model_validate(
            {
                "round": self.id,
                "federation": self.federation,
                "cohort": attempt.manifest.cohort.hex(),
                "context": attempt.context.hex(),
                "sequence": opening.sequence,
                "attempt": opening.attempt,
                "members": attempt.members,
                "survivors_min": attempt.survivors_min,
                "threshold": attempt.quorum.threshold,
                "state": end or self.state,
                "ended": end is not None,
                "version": self.version + (end is not None),
                "deadline_s": None if end else self.deadline_s,
                "uploaded": _whole_uploads(phase),
                "waiting_for": () if end else phase.waiting_for(),
                "survivors": _survivors_of(phase),
                "evicted": getattr(phase, "evicted", ()),
                "reported": phase.silent if isinstance(phase, Erasing) else (),
                "reports_min": attempt.quorum.erasures_min,
                "holders": holders,
                "fault": fault.model_dump() if fault else None,
                # A clock that was set back makes no phase shorter than nothing.
                "phase_seconds": {
                    name: round(max(0.0, until - since), 6)
                    for (name, since), (_, until) in pairwise(timeline)
                },
                "spec": spec_view(attempt),
                "cost": cost_in_words(attempt),
                "transcript": head.hex() if head else None,
            }
        )

    # What members and operators do

    async def receive(self, message: Message, now_s: float) -> None:
        """Store a member's message. After the end an answer is late and changes nothing."""

        def decide(phase: CoordinatorPhase | None) -> Event | None:
            if self.final is not None:
                if isinstance(message, Ended.late) or message == self.closing:
                    return None
                raise wrong_phase(f"the round is {self.final.state}")
            if isinstance(message, Upload) and not isinstance(phase, Collecting):
                known = _announcements(phase).get(message.header.member)
                if known is not None and known.header == message.header:
                    return None  # it is in: its signed header pins the rest
            return Event(now_s, "message", message.to_bytes(), message)

        if self.final is not None:
            decide(None)
        else:
            await self._decisions.put(decide)

    async def store_chunk(self, member: str, index: int, digest: bytes, data: bytes, now_s: float) -> None:
        """Store a chunk, then count it. The same chunk again changes nothing."""

        def decide(phase: CoordinatorPhase | None) -> Event | None:
            if _is_stored(phase, member, index, digest):
                return None
            # Once more: meanwhile the round may take chunks, and not this party's any more.
            self._collecting(phase).check_chunk(member, index, digest, data)
            return Event(now_s, "chunk", json.dumps([member, index]).encode())

        if decide(self.phase) is None:
            return
        self._writing += 1
        try:
            # Outside the lock, so that lanes write side by side; the digest was announced, so any copy is the same.
            await in_blob_thread(self._take, member, index, digest, data)
            await self._decisions.put(decide)
        finally:
            self._writing -= 1
            self._wake()

    def _take(self, member: str, index: int, digest: bytes, data: bytes) -> None:
        self._blobs.put(chunk_name(self.id, member, index), data)
        self.summing.take(member, index, digest, data)

    async def damaged(self, chunk: DamagedChunkError, now_s: float) -> None:
        """Request a damaged chunk again while uploads are collected; later, fail the sum."""
        member, index = chunk.member, chunk.index
        note_damage("chunk", self.id, member=member, index=index)
        body = json.dumps([member, index]).encode()
        await self._decisions.put(lambda phase: None if phase is None else Event(now_s, "damaged", body))
        if self.recovered is not None:
            await self.fail(problem_of(chunk_fault(member, index)), now_s)

    async def cancel(self, now_s: float, reason: str) -> None:
        """Cancel the round; an ended one stays as it is."""

        def decide(phase: CoordinatorPhase | None) -> Event | None:
            if self.final is not None:
                raise wrong_phase(f"the round is {self.final.state} already")
            if isinstance(phase, Erasing) and phase.certificate is None:
                raise wrong_phase(
                    "the round is erasing: decryptors end it by their reports, or the admin closes it"
                )
            # A recovered round only lacks the coordinator's own arithmetic, so no one has to agree.
            return None if isinstance(phase, Recovered) else Event(now_s, "cancel", reason.encode())

        await self._decisions.put(decide)
        if self.recovered is not None:
            await self.fail(problem_of(cancelled(reason)), now_s)

    async def extend(self, now_s: float, deadline_s: float) -> None:
        """Move the phase's deadline to `deadline_s`, in Unix time. The same deadline again changes nothing.

        Raises:
            PeerFault: wrong-phase if the phase has no deadline, or the round has ended; conflict for a time before the
                current deadline; terms-refused for a time after the terms' latest end.
        """

        def decide(phase: CoordinatorPhase | None) -> Event | None:
            if self.final is not None:
                raise wrong_phase(f"the round is {self.final.state} already")
            if phase is not None and phase.deadline_s == deadline_s:
                return None
            return Event(now_s, "extend", repr(float(deadline_s)).encode())

        await self._decisions.put(decide)

    async def finish(self, outcome: Publication, now_s: float) -> None:
        """Store the signed result of a recovered round, or an indicator's counts, with its documents, unless it was cancelled meanwhile."""
        await self._finish("done", None, now_s, outcome)

    async def fail(self, fault: Problem, now_s: float) -> None:
        """Store why the sum of a recovered round was refused."""
        await self._finish("failed", fault, now_s)

    def end(self) -> Closing:
        """Return the certificate, the Erasure or the admin's Lost. Raises PeerFault(wrong-phase) before there is one."""
        if self.closing is None:
            raise wrong_phase(f"round {self.id} is {self.view().state} and not closed yet")
        return self.closing

    # What goes on by itself

    @property
    def at_rest(self) -> bool:
        """Whether it has ended and is cleaned up."""
        return self.final is not None and not self.littered

    @property
    def due_s(self) -> float | None:
        """When `advance` next has work, in Unix time; None if it has none."""
        if self.final is not None:
            return 0.0 if self.littered and not self._writing else None
        if self._behind or self._settled is not None or (self._given_up and not self._writing):
            return 0.0
        return self.deadline_s

    def to_add(self) -> tuple[list[int], Mapping[str, Announced]]:
        """Return the ranges that lack so many uploads that adding them pays, and the complete uploads."""
        known = _announcements(self.phase)
        if self.phase is None or not known or self.version < self._look_again:
            return [], {}
        uploaded = {member: known[member] for member in _whole_uploads(self.phase)}
        missing = {part: self.summing.missing(part, len(uploaded)) for part in self.summing.parts}
        # Each upload is at least one event, so there is no need to count again at every chunk.
        self._look_again = self.version + max(0, min(missing.values()))
        return [part for part, more in missing.items() if more <= 0], uploaded

    async def advance(self, now_s: float) -> None:
        """End a phase whose deadline has passed, store the end, and clean up; retry what storage failed before."""
        async with self._lock:
            await self._catch_up()
            if self.final is None:
                await self._settle(now_s)

        def decide(phase: CoordinatorPhase | None) -> Event | None:
            deadline_s = self._deadline_s(phase)
            return None if deadline_s is None or now_s < deadline_s else Event(now_s, "expire")

        await self._decisions.put(decide)
        if self.littered and not self._writing and (self.final is not None or self._given_up):
            await self._clear_up(now_s)

    async def _clear_up(self, now_s: float) -> None:
        """Delete what is no longer needed. Needs no lock, because nothing is written there any more."""
        final = self.final
        await in_blob_thread(self._blobs.delete, f"uploads/{self.id}")
        await in_blob_thread(self.summing.forget)
        if final is not None:
            await in_blob_thread(self._journal.forget)
            await in_blob_thread(self.documents.clear)
        if not await self._journal.is_cleared():
            await self._database.forget()
            # Last: until this is committed, a process that finds the round does all of it again.
            await self._journal.clear(self._deed(now_s, "uploads deleted"), ended=final is not None)
        if self.final is final:  # an erasing round may have ended meanwhile
            self.littered = False

    @property
    def _given_up(self) -> bool:
        """Whether it is erasing, so that no sum is possible and its traces can be deleted."""
        return self.littered and isinstance(self.phase, Erasing)

    # What everyone may see

    @property
    def recovered(self) -> Recovered | None:
        """The phase that only waits for the coordinator's own arithmetic; None in another phase."""
        return self.phase if isinstance(self.phase, Recovered) else None

    def check_asker(self, member: str) -> None:
        """Refuse a party outside the round's cohort (unknown-member)."""
        if member not in self.attempt.members:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{member} is not in this round's cohort", [member])

    def request_for(self, member: str) -> bytes | Iterator[bytes] | None:
        """Return the message that this member has to answer now, a long one in pieces. A certificate goes to every member."""
        phase = self.phase  # once: this runs in a thread, and the round may end meanwhile
        if isinstance(phase, Delivering) and (deliveries := phase.deliveries_for(member)) is not None:
            return _pieces(deliveries)
        message = self.closing if phase is None else phase.request_for(member)
        return None if message is None else self._encoded(message)

    def _encoded(self, message: Message) -> bytes:
        """Return a message's bytes, encoded once for all members."""
        known = self._shown_bytes
        if known is None or known[0] != message:
            known = self._shown_bytes = message, message.to_bytes()
        return known[1]

    def upload_view(self, member: str) -> UploadView:
        """Return which chunks of a member's announced upload are missing."""
        uploaded = self.final.uploaded if self.final is not None else _whole_uploads(self.live)
        missing = () if member in uploaded else self._collecting(self.phase).missing_chunks(member)
        return UploadView(member=member, chunks=self.attempt.chunks, missing=missing)

    def _collecting(self, phase: CoordinatorPhase | None) -> Collecting:
        if not isinstance(phase, Collecting):
            raise wrong_phase(f"the round is {self.view().state} and takes no uploads")
        return phase

    # Going on

    @property
    def _settled(self) -> PeerFault | None:
        """How the phase ends the round without a sum; None if it does not."""
        return self.phase.fault if isinstance(self.phase, SETTLED) else None

    async def _finish(
        self, state: str, fault: Problem | None, now_s: float, outcome: Publication = NOTHING
    ) -> None:
        async with self._lock:
            while self.final is None and not await self._finalise(state, fault, now_s, outcome):
                await self._catch_up()

    async def _accept(self, decisions: Sequence[Decision]) -> list[Exception | None]:
        """Decide, fold and append. Returns for each decision None, or why it was refused.

        If another process was first, everything that was not stored is decided again.
        """
        faults: list[Exception | None] = []
        async with self._lock:
            while len(faults) < len(decisions):
                await self._catch_up()
                if self.phase is None or self.noted is None:
                    return faults + refusals(decisions[len(faults) :], self._over())
                found, steps = await asyncio.to_thread(
                    folded, self.phase, self.noted, decisions[len(faults) :]
                )
                if not steps or await self._keep(steps):
                    faults += found
        return faults

    async def _keep(self, steps: Sequence[Transition]) -> bool:
        self._behind = True  # until storage has said that it holds the events, and nothing before them
        try:
            if not await self._journal.append([step.event for step in steps]):
                return False
            for step in steps:
                self._moved(step)
            self._behind = False
            await self._settle(steps[-1].event.at_s)
            return True
        finally:
            self._changed()  # also where storage failed: the scheduler looks again

    async def _settle(self, now_s: float) -> None:
        """End a round without a sum to compute."""
        if (fault := self._settled) is not None:
            await self._finalise(self.live.name, problem_of(fault), now_s)

    async def _finalise(
        self, state: str, fault: Problem | None, now_s: float, outcome: Publication = NOTHING
    ) -> bool:
        """Store the end. Returns False if there are events to apply first."""
        assert self.noted is not None
        assert isinstance(self.phase, Ended)
        closing = self.phase.closing
        signed = await asyncio.to_thread(self.noted.signed, self._key, self.attempt.context)
        timeline = _extended(self._timeline, state, now_s)
        final = self._view(state, fault, timeline, signed.head, outcome.holders)
        deed = self._deed(now_s, "round ended", state)
        end, link = RoundEnd(final, closing, outcome.record), self.attempt.link(closing).encode()
        # Until storage has said that it holds the end, and nothing before it.
        self._behind = self._ending = True
        # Outside the transaction, because storage may stall. After a crash the stored events lead to the same documents again.
        await in_blob_thread(self.documents.put, signed, outcome)
        ended = await self._journal.end(end, link, deed)
        if ended is None:
            return False
        if ended is end:
            ROUNDS_ENDED.labels(state).inc()
            cause = fault.cause if fault else None
            log.info("round ended", round=self.id, state=state, cause=cause, of=len(final.survivors))
        self.restore(ended, littered=True)
        self._behind = False
        self._changed()
        self._told(self.federation)
        return True

    def _deed(self, now_s: float, what: str, outcome: str = audit.DONE) -> audit.Deed:
        return audit.Deed(now_s, audit.COORDINATOR, what, f"round_id={self.id}", outcome)

    def _moved(self, step: Transition) -> None:
        anew = asks_anew(self.live, step.after)
        self.phase, self.noted = step.after, step.noted
        self._journal.seen += 1
        self._timeline = _extended(self._timeline, step.after.name, step.event.at_s)
        self.littered = self.littered or isinstance(step.after, Erasing)
        self.version += 1  # last: a thread may ask for the view, which is kept under its version
        self.asked = self.version if anew else self.asked

    def _changed(self) -> None:
        self.watch.notify()
        self._wake()


def _pieces(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a message in pieces: with 200 members it has 2 MB, and all decryptors fetch theirs at once."""
    piece = bytearray()
    for part in parts:
        piece += part
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _extended(timeline: Timeline, state: str, at_s: float) -> Timeline:
    return timeline if timeline[-1][0] == state else (*timeline, (state, at_s))


def _announcements(phase: CoordinatorPhase | None) -> Mapping[str, Announced]:
    """Return the phase's announcements by member; after `Collecting`, only complete ones."""
    known: Mapping[str, Announced] = getattr(
        phase, "announced" if isinstance(phase, Collecting) else "uploads", {}
    )
    return known


def _is_stored(phase: CoordinatorPhase | None, member: str, index: int, digest: bytes) -> bool:
    """Whether this chunk is stored; true also for a repeated request after the round has moved on.

    Raises:
        PeerFault: conflict if it is stored with another digest.
    """
    known = _announcements(phase).get(member)
    if phase is None or known is None or not 0 <= index < phase.attempt.chunks:
        return False
    if isinstance(phase, Collecting) and not phase.stored[member] >> index & 1:
        return False
    if known.chunk_digest(index) != digest:
        raise PeerFault(
            Cause.CONFLICT,
            f"chunk {index} is stored as {member} announced it, and other bytes were sent now: do two processes work on copies of "
            "one folder?",
            [member],
        )
    return True


def _whole_uploads(phase: CoordinatorPhase) -> tuple[str, ...]:
    """Return the members with a complete upload, as far as the phase still knows."""
    if isinstance(phase, Collecting):
        return tuple(member for member in phase.attempt.members if phase.whole(member))
    uploads = getattr(phase, "uploads", None)
    return tuple(uploads) if uploads is not None else _survivors_of(phase)


def _survivors_of(phase: CoordinatorPhase) -> tuple[str, ...]:
    """Return the certified set, once there is one."""
    certificate: Certificate | None = getattr(phase, "certificate", None)
    return tuple(s.member for s in certificate.survivors) if certificate is not None else ()
