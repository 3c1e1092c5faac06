"""Rounds: a live one takes messages and commits what they change, until it is replaced by one that has ended.

Every change of a live round goes through `_accept_decisions`, which computes the next standing and commits the events before the round changes and
any caller is answered. If another process was first, its events are applied and everything is decided again. Decisions that arrive during
a commit share the next one. A restart replays the events. When a round ends, its outcome and the signed transcript remain; its uploads,
boxes, shares and seeds are deleted (analysis: Results).
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from service.coordination.documents import EMPTY_PUBLICATION, Documents, Publication
from service.coordination.events import Event
from service.coordination.journal import Appended, DeletedRoundError, Journal, Outcome, Stalled, Unknown
from service.coordination.standing import (
    Decision,
    Position,
    RoundEnd,
    Standing,
    fold_decisions,
    refuse_decision,
)
from service.coordination.summing import DamagedChunkError, Memory, Summing, note_damage
from service.coordination.watch import Watch
from service.http.problems import problem_of, wrong_phase
from service.storage import audit
from service.storage.blobs import Blobs, in_blob_thread
from service.storage.database import Batches, Database
from service.telemetry.logs import log
from service.telemetry.metrics import ROUNDS_ENDED
from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import CoordinatorPhase, Ended, Erasing, Recovered
from veilsum.protocol.coordinator.base import cancelled_fault, chunk_fault
from veilsum.protocol.coordinator.statements import Answer, Statements
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Message
from veilsum.protocol.rest import Problem, RoundView, UploadView, round_name
from veilsum.protocol.shelf import Announced
from veilsum.protocol.transcript import Transcript

LIST_PIECE_BYTES = 1 << 17
"""Smallest piece of a long message that is sent by itself."""


class Round(ABC):
    """One attempt, as everyone may see it.

    Args:
        watch: of those who wait for its changes; None makes a new one.

    Attributes:
        attempt: roster, study, manifest and opening.
        size: members of its roster.
        opened_s: Unix time in seconds.
        writing: how many of its chunks are being written.
    """

    writing = 0

    def __init__(self, blobs: Blobs, attempt: Attempt, opened_s: float, watch: Watch | None = None) -> None:
        self.id, self.attempt, self.opened_s = round_name(attempt.context), attempt, opened_s
        self.federation, self.size = attempt.roster.federation.hex(), len(attempt.roster.members)
        self.watch = watch or Watch(lambda: self.position.view_version, lambda: self.position.asked)
        self._blobs = blobs
        self._encoded: tuple[Message, bytes] | None = None
        self._statements: Statements | None = None

    @property
    @abstractmethod
    def position(self) -> Position:
        """Where it stands, or how it ended. Another process may change it between two looks."""

    @abstractmethod
    async def refresh(self) -> None:
        """Apply other processes' events."""

    @abstractmethod
    async def _commit_decision(self, decide: Decision) -> None:
        """Store the event that is chosen."""

    @property
    def at_rest(self) -> bool:
        """Whether it has ended."""
        return self.end is not None

    @property
    def state(self) -> str:
        """Its phase, or how it ended."""
        return self.position.state

    def current_view(self) -> RoundView:
        return self.position.view

    @property
    def end(self) -> RoundEnd | None:
        """How it ended; None while it is live."""
        return now if isinstance(now := self.position, RoundEnd) else None

    @property
    def closing(self) -> Closing:
        """The certificate, the Erasure or the admin's Lost. Raises PeerFault(wrong-phase) before there is one."""
        if (end := self.end) is None:
            raise wrong_phase(f"round {self.id} is {self.state} and not closed yet")
        return end.closing

    @property
    def documents(self) -> Documents:
        now = self.position
        if isinstance(now, RoundEnd):
            return Documents(self._blobs, self.id, now.view, now.record, now.digests)
        return Documents(self._blobs, self.id, now.view, None)

    def check_asker(self, member: str) -> None:
        """Refuse a party outside the round's cohort (unknown-member)."""
        if member not in self.attempt.members:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{member} is not in this round's cohort", [member])

    def request_for(self, member: str) -> bytes | Iterator[bytes] | None:
        """Return the message that this member has to answer now, a long one in pieces. A certificate goes to every member."""
        found = self.position.request_for(member)
        if isinstance(found, Message):
            return self._encode_message(found)
        return None if found is None else _split_pieces(found)

    def _encode_message(self, message: Message) -> bytes:
        """Return a message's bytes, encoded once for all members."""
        known = self._encoded
        if known is None or known[0] != message:
            known = self._encoded = message, message.to_bytes()
        return known[1]

    def upload_view(self, member: str) -> UploadView:
        """Return which chunks of a member's announced upload are missing."""
        missing = self.position.missing_chunks(member)
        return UploadView(member=member, chunks=self.attempt.chunk_count, missing=missing)

    async def receive(self, message: Message, now_s: float) -> None:
        """Store a member's message. After the end an answer changes nothing, and is checked by what the transcript holds (ANSWER-1 to ANSWER-6)."""
        late_answer: Answer | None = None

        def decide(now: Position) -> Event | None:
            nonlocal late_answer
            if isinstance(now, RoundEnd) and isinstance(message, Answer):
                late_answer = message
                return None
            if now.ignores_message(message):
                return None
            return Event(now_s, "message", message.to_bytes(), message)

        await self._commit_decision(decide)
        if late_answer is not None:
            await self._check_late_answer(late_answer)

    async def _check_late_answer(self, answer: Answer) -> None:
        """Refuse an answer to an ended round that its sender did not sign for it, or that contradicts what was signed before."""
        self.attempt.check_from_decryptor(answer)
        if self._statements is None:
            self._statements = await in_blob_thread(self._read_statements)
        if self._statements is not None:
            self._statements.check_contradiction(answer)
            self._statements.check_outcome(self.attempt, answer)

    def _read_statements(self) -> Statements | None:
        """Read from an ended round's transcript what its decryptors signed; None if storage has lost it."""
        try:
            transcript = Transcript.from_json(self.documents.fetch_transcript().decode())
            return Statements.from_entries(self.attempt, transcript.entries)
        except (PeerFault, UnicodeDecodeError):
            return None

    @abstractmethod
    async def store_chunk(self, member: str, index: int, digest: bytes, data: bytes, now_s: float) -> None:
        """Store a chunk, then count it. The same chunk again changes nothing."""

    async def cancel(self, now_s: float, reason: str) -> None:
        """Cancel the round; an ended one stays as it is."""

        def decide(now: Position) -> Event | None:
            if isinstance(now.phase, Erasing) and now.phase.certificate is None:
                raise wrong_phase(
                    "the round is erasing: decryptors end it by their reports, or the admin closes it"
                )
            # A recovered round only lacks the coordinator's own arithmetic, so no one has to agree.
            return None if isinstance(now.phase, Recovered) else Event(now_s, "cancel", reason.encode())

        await self._commit_decision(decide)

    async def extend_deadline(self, now_s: float, deadline_s: float) -> None:
        """Move the phase's deadline to `deadline_s`, in Unix time. The same deadline again changes nothing.

        Raises:
            PeerFault: wrong-phase if the phase has no deadline, or the round has ended; conflict for a time before the
                current deadline; terms-refused for a time after the terms' latest end.
        """

        def decide(now: Position) -> Event | None:
            if now.phase.deadline_s == deadline_s:
                return None
            return Event(now_s, "extend", repr(float(deadline_s)).encode())

        await self._commit_decision(decide)


class EndedRound(Round):
    """A round that has ended. It changes no more."""

    def __init__(
        self, blobs: Blobs, attempt: Attempt, opened_s: float, end: RoundEnd, watch: Watch | None = None
    ) -> None:
        super().__init__(blobs, attempt, opened_s, watch)
        self._end = end

    @property
    def position(self) -> RoundEnd:
        return self._end

    async def refresh(self) -> None:
        pass

    async def store_chunk(self, member: str, index: int, digest: bytes, data: bytes, now_s: float) -> None:
        del member, index, digest, data, now_s
        self._end.check_collecting()

    async def _commit_decision(self, decide: Decision) -> None:
        decide(self._end)


@dataclass(frozen=True)
class Host:
    """What all live rounds of a process share.

    Attributes:
        memory: for running sums.
        key: the coordinator's, which signs transcripts.
        wake: called at every change.
        on_ended: called with the ended round that takes a live one's place.
        on_deleted: called with a live round that another process has deleted.
        on_garbage: called with a round that erases or has ended, and so leaves something in storage that must be deleted.
    """

    database: Database
    blobs: Blobs
    memory: Memory
    key: SigningKey
    wake: Callable[[], None]
    on_ended: Callable[[EndedRound], None]
    on_deleted: Callable[["LiveRound"], None]
    on_garbage: Callable[[Round], None]


class LiveRound(Round):
    """A round until its end.

    Attributes:
        summing: its sum, by ranges of chunks.
    """

    def __init__(self, host: Host, attempt: Attempt, opened_s: float, standing: Standing) -> None:
        super().__init__(host.blobs, attempt, opened_s)
        self._host = host
        self._journal = Journal(host.database, host.blobs, self.id, standing)
        self._lock = asyncio.Lock()
        self._decisions = Batches(self._accept_decisions)
        self.summing = Summing(host.database, host.blobs, host.memory, self.id, attempt)
        self._count_again = 0

    @property
    def position(self) -> Position:
        return self._journal.standing

    @property
    def standing(self) -> Standing | None:
        """Where it stands; None once it has ended."""
        return now if isinstance(now := self.position, Standing) else None

    @property
    def recovered(self) -> Recovered | None:
        """The phase that only waits for the coordinator's own arithmetic; None in another phase, and while the round stalls."""
        standing = self.standing
        if standing is None or standing.stall:
            return None
        return standing.phase if isinstance(standing.phase, Recovered) else None

    # What members and operators do

    async def store_chunk(self, member: str, index: int, digest: bytes, data: bytes, now_s: float) -> None:
        def decide(now: Position) -> Event | None:
            if now.holds_chunk(member, index, digest):
                return None
            # Once more: meanwhile the round may take chunks, and not this party's any more.
            now.check_collecting().check_chunk(member, index, digest, data)
            return Event(now_s, "chunk", json.dumps([member, index]).encode())

        if decide(self.position) is None:
            return
        self.writing += 1
        try:
            # Outside the lock, so that lanes write side by side; the digest was announced, so any copy is the same.
            await in_blob_thread(self.summing.store_chunk, member, index, digest, data)
            await self._commit_decision(decide)
        finally:
            self.writing -= 1
            self._host.wake()

    async def replace_chunk(self, chunk: DamagedChunkError, now_s: float) -> None:
        """Request a damaged chunk again while uploads are collected; later, fail the sum."""
        member, index = chunk.member, chunk.index
        note_damage("chunk", self.id, member=member, index=index)
        event = Event(now_s, "damaged", json.dumps([member, index]).encode())
        await self._commit_decision(lambda now: event if isinstance(now, Standing) else None)
        if self.recovered is not None:
            await self.store_failure(problem_of(chunk_fault(member, index)), now_s)

    async def receive(self, message: Message, now_s: float) -> None:
        if self.standing and self.standing.stall:
            await in_blob_thread(self._journal.restore_announcement, message)
        await super().receive(message, now_s)

    async def cancel(self, now_s: float, reason: str) -> None:
        await self._rewind_stalled(now_s)
        await super().cancel(now_s, reason)
        if self.recovered is not None:
            await self.store_failure(problem_of(cancelled_fault(reason)), now_s)

    # What goes on by itself

    @property
    def due_s(self) -> float | None:
        """When `pass_deadline` next has work, in Unix time; None if it has none."""
        if (standing := self.standing) is None:
            return None
        if standing.sumless_end is not None or not isinstance(self._journal.last, Appended | Stalled):
            return 0.0
        return standing.deadline_s

    async def pass_deadline(self, now_s: float) -> None:
        """End a phase whose deadline has passed, and store an end without a sum; retry what storage failed before."""
        async with self._lock:
            await self._catch_up()
            await self._end_without_sum(now_s)
        if now_s >= self.attempt.terms.latest_end_s:
            await self._rewind_stalled(now_s)

        def decide(now: Position) -> Event | None:
            deadline_s = now.deadline_s
            return None if deadline_s is None or now_s < deadline_s else Event(now_s, "expire")

        await self._commit_decision(decide)

    def ranges_to_add(self) -> tuple[list[int], Mapping[str, Announced]]:
        """Return the ranges that lack so many uploads that adding them pays, and the complete uploads."""
        standing = self.standing
        if (
            standing is None
            or standing.stall
            or standing.version < self._count_again
            or not (known := standing.announced)
        ):
            return [], {}
        uploaded = {member: known[member] for member in standing.uploaded}
        missing = {part: self.summing.missing_uploads(part, len(uploaded)) for part in self.summing.parts}
        # Each upload is at least one event, so there is no need to count again at every chunk.
        self._count_again = standing.version + max(0, min(missing.values()))
        return [part for part, more in missing.items() if more <= 0], uploaded

    async def store_result(self, outcome: Publication, now_s: float) -> None:
        """Store the signed result of a recovered round, or a count's sums, with its documents, unless it was cancelled meanwhile."""
        async with self._lock:
            await self._store_end(Recovered, "done", None, now_s, outcome)

    async def store_failure(self, fault: Problem, now_s: float) -> None:
        """Store why the sum of a recovered round was refused."""
        async with self._lock:
            await self._store_end(Recovered, "failed", fault, now_s)

    async def apply_stored(self) -> None:
        async with self._lock:
            await self._follow_step(self._journal.catch_up())

    async def refresh(self) -> None:
        if await self._journal.is_behind():
            await self.apply_stored()

    # How it changes

    async def _commit_decision(self, decide: Decision) -> None:
        await self._decisions.put_item(decide)

    async def _accept_decisions(self, decisions: Sequence[Decision]) -> list[Exception | None]:
        """Decide, fold and append. Returns for each decision None, or why it was refused.

        If another process was first, everything that was not stored is decided again.
        """
        faults = list[Exception | None]()
        async with self._lock:
            while following := decisions[len(faults) :]:
                await self._catch_up()
                if isinstance(now := self.position, RoundEnd):
                    return [*faults, *(refuse_decision(decide, now) for decide in following)]
                if now.stall:
                    # Members try again until it goes on, or ends.
                    return [*faults, *[PeerFault(Cause.UNAVAILABLE, now.stall.fault.detail)] * len(following)]
                found, events, after = await asyncio.to_thread(fold_decisions, now, following)
                if not events:
                    faults += found
                elif await self._follow_step(self._journal.append_events(events, after=after)):
                    await self._end_without_sum(events[-1].at_s)
                    faults += found
        return faults

    async def _end_without_sum(self, now_s: float) -> None:
        """Store the end, if the phase ends the round without a sum to compute."""
        if (standing := self.standing) is not None and (fault := standing.sumless_end) is not None:
            phase = standing.phase
            await self._store_end(type(phase), phase.name, problem_of(fault), now_s)

    async def _store_end(
        self,
        kind: type[CoordinatorPhase],
        state: str,
        fault: Problem | None,
        now_s: float,
        outcome: Publication = EMPTY_PUBLICATION,
    ) -> None:
        """Store the end of a phase of this kind, after the events of other processes, unless one of them has ended or rewound the round or it stalls."""
        while (standing := self.standing) is not None and not standing.stall:
            if not isinstance(standing.phase, kind):
                return
            assert isinstance(standing.phase, Ended)
            closing = standing.phase.closing
            signed = await asyncio.to_thread(standing.transcript.sign, self._host.key, self.attempt.context)
            view = standing.final_view(
                state, now_s, fault=fault, counts=outcome.counts, transcript=signed.head.hex()
            )
            deed = audit.Deed(now_s, audit.COORDINATOR_ACTOR, "round ended", f"round_id={self.id}", state)
            # Outside the transaction, because storage may stall. After a crash the stored events lead to the same documents again.
            documents = Documents(self._blobs, self.id, view, outcome.record)
            digests = await in_blob_thread(documents.store_documents, signed, outcome.documents)
            end = RoundEnd(view, closing, outcome.record, digests)
            if await self._follow_step(
                self._journal.end_round(end, self.attempt.make_link(closing).encode(), deed)
            ):
                ROUNDS_ENDED.labels(state).inc()
                cause = fault.cause if fault else None
                survivors = len(view.survivors)
                log.info("round ended", round=self.id, state=state, cause=cause, survivors=survivors)
            else:
                await self._catch_up()

    async def _rewind_stalled(self, now_s: float) -> None:
        """Make void what can't be read, and what followed it: members and decryptors answer for what they have signed (VOTE-3)."""
        async with self._lock:
            await self._catch_up()
            if self.standing and self.standing.stall:
                await self._follow_step(self._journal.rewind(now_s))

    async def _catch_up(self) -> None:
        """Apply what storage may hold beyond the standing."""
        if not isinstance(self._journal.last, Appended):
            await self._follow_step(self._journal.catch_up())

    async def _follow_step(self, step: Awaitable[Outcome]) -> bool:
        """Await a step of the journal, and show where it led. Returns whether it is committed; raises storage's error if that is unknown.

        Raises:
            DeletedRoundError: no one is shown this round any more.
        """
        before = self.position
        try:
            outcome = await step
        except DeletedRoundError:
            self.summing.discard_running()
            self.watch.stop()
            self._host.on_deleted(self)
            raise
        finally:
            self._show_change(before)
        if isinstance(outcome, Unknown):
            raise outcome.error
        return isinstance(outcome, Appended)

    def _show_change(self, before: Position) -> None:
        if self.state == Erasing.name != before.state:
            self.summing.discard_running()
            self._host.on_garbage(self)
        if self.end is not None and isinstance(before, Standing):
            self.summing.discard_running()
            ended = EndedRound(self._blobs, self.attempt, self.opened_s, self.end, self.watch)
            self._host.on_ended(ended)
            self._host.on_garbage(self)
        self.watch.notify_waiters()
        self._host.wake()  # also where storage failed: the scheduler looks again


def _split_pieces(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a message in pieces: with 200 members it has 2 MB, and all decryptors fetch theirs at once."""
    piece = bytearray()
    for part in parts:
        piece += part
        if len(piece) >= LIST_PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)
