"""A round in time: its accepted events, in order, are all there is; phase and transcript are their folds.

Every change runs through `_submit`: the next phase is computed, the event is committed, and only then
does the round move and anybody hear of it; where another process was first, its events are taken up and all is
decided again. A restart replays the events. When a round ends, what is
left is its outcome and the signed transcript: uploads, boxes, shares and seeds are deleted (protocol §4.8).
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import structlog
from sqlalchemy import Row

from protocol.errors import PeerFault
from protocol.messages import Message
from protocol.phases import cancelled
from protocol.published import ResultRecord
from protocol.rest import Problem, RoundView, UploadView, round_name
from protocol.transcript import Transcript
from service import audit
from service.journal import End, Event, Journal
from service.modes import AnyClosing, Collector, Mode, Phase, Summands
from service.problems import not_found, problem_of, wrong_phase
from service.storage.blobs import Blobs
from service.storage.database import Database
from service.summing import Summing
from service.telemetry.logs import LOGGER
from service.telemetry.metrics import ROUNDS_ENDED
from service.views import Timeline, round_view
from service.watch import Watch

log = structlog.get_logger(LOGGER)


@dataclass(frozen=True)
class Outcome:
    """A finished sum: what is published, and the sum itself, which only the operator may read.

    Attributes:
        record: None for an indicator round.
        holders: of an indicator round, how many members hold each class.
    """

    record: ResultRecord | None = None
    documents: Mapping[str, bytes] = field(default_factory=dict)
    holders: tuple[int, ...] = ()


NOTHING = Outcome()


class Round:
    """One attempt of a round, live or ended.

    Attributes:
        mode: what the attempt is, and what its messages and phases mean.
        opened_s: Unix time in seconds.
        phase: None once the round has ended: it holds seeds.
        version: grows with every change.
        final: the view that stays; None while the round is live.
        closing: the certificate or the admin's Lost, for members who still have to hear of the end.
        record: the signed result.
        noted: the transcript so far; None once it is kept, and where the mode keeps none.
        not_before_s: no deadline passes before this Unix time.
        littered: nothing can come of its chunks and ranges any more, and they may still lie in storage.
    """

    phase: Phase | None
    final: RoundView | None = None
    closing: AnyClosing | None = None
    record: ResultRecord | None = None
    not_before_s = 0.0

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        wake: Callable[[], None],
        mode: Mode,
        opened_s: float,
    ) -> None:
        self.id, self.mode, self.version = round_name(mode.attempt.context), mode, 1
        self.opened_s = opened_s
        self.noted = mode.noted
        self.watch = Watch(lambda: self.version)
        self._database, self._blobs, self._wake = database, blobs, wake
        self._journal = Journal(database, self.id)
        self.summing = Summing(
            database,
            blobs,
            self.id,
            mode.attempt,
            lambda owner, index: blobs.get(self.chunk_name(owner, index)),
        )
        self._lock = asyncio.Lock()
        self.phase = mode.begin(opened_s)
        self._timeline: Timeline = ((self.phase.name, opened_s),)
        self._behind = False
        """Storage may hold events that this object has not taken up: what it holds decides."""
        self._writing = 0
        self._look_again = 0
        self.littered = False

    @property
    def attempt(self) -> Any:
        """Roster and opening: an `Attempt` or a `HelperAttempt`, as the mode says."""
        return self.mode.attempt

    # Coming back from storage

    async def resume(self, not_before_s: float) -> Self:
        """Take up where the stored events lead; deadlines that passed meanwhile wait a little for members."""
        self.not_before_s, self._behind = not_before_s, True
        await self._catch_up()
        return self

    def restore(self, row: Row[tuple[object, ...]], *, littered: bool) -> Self:
        """Take up how the round ended."""
        self.final = RoundView.model_validate_json(row.final)
        self.closing = self.mode.closing_from(row.closing)
        self.record = ResultRecord.model_validate_json(row.record) if row.record else None
        self.phase, self.version, self.littered = None, self.final.version, littered
        self.noted = None
        return self

    async def refresh(self) -> None:
        """Take up what other processes have stored."""
        if self.final is None and await self._journal.is_behind():
            async with self._lock:
                self._behind = True
                await self._catch_up()

    async def _catch_up(self) -> None:
        if self._behind and self.final is None:
            ended, unseen = await self._journal.unseen()
            for event in unseen:
                after = await asyncio.to_thread(event.apply, self.live, self.mode)
                noted = await asyncio.to_thread(event.note, self.noted, self.live, after)
                self._moved(after, noted, event.at_s)
            if ended is not None:
                self.restore(ended, littered=True)
            self._behind = False
            self._changed()

    # What members and operators do

    async def receive(self, message: Message, now_s: float) -> None:
        """Take a member's message durably; after the end an answer is late and changes nothing."""

        def decide() -> Event | None:
            if self.final is not None:
                if isinstance(message, self.mode.late) or message == self.closing:
                    return None
                raise wrong_phase(f"the round is {self.final.state}")
            if self.mode.is_known(self.phase, message):
                return None
            return Event(now_s, "message", message.to_bytes())

        await self._submit(decide)

    async def store_chunk(self, member: str, index: int, digest: bytes, data: bytes, now_s: float) -> None:
        """Store a chunk durably, then count it; the same chunk again changes nothing."""

        def decide() -> Event | None:
            if self.mode.is_stored(self.phase, member, index, digest):
                return None
            # Once more: meanwhile the round may take chunks, and not this party's any more.
            self._collecting().check_chunk(member, index, digest, len(data))
            return Event(now_s, "chunk", json.dumps([member, index]).encode())

        if decide() is None:
            return
        self._writing += 1
        try:
            # Outside the lock, so that lanes write side by side; the digest was announced, so any copy is the same.
            await asyncio.to_thread(self._blobs.put, self.chunk_name(member, index), data)
            await self._submit(decide)
        finally:
            self._writing -= 1
            self._wake()

    async def cancel(self, now_s: float, reason: str) -> None:
        """Give the round up; one that has ended stays as it is."""

        def decide() -> Event | None:
            if self.final is not None:
                raise wrong_phase(f"the round is {self.final.state} already")
            if self.mode.waits_for_admin(self.phase):
                raise wrong_phase("the round is lost: the admin closes it, over the decryptors' reports")
            # All that is missing of a recovered one is the coordinator's own arithmetic: nobody has to agree.
            return Event(now_s, "cancel", reason.encode()) if self.recovered is None else None

        await self._submit(decide)
        if self.recovered is not None:
            await self.fail(problem_of(cancelled(reason)), now_s)

    async def extend(self, now_s: float, deadline_s: float) -> None:
        """Give the phase time until `deadline_s`, in Unix time; the same again changes nothing.

        Raises:
            PeerFault: wrong-phase where it waits for no time, or the round has ended; conflict for an earlier time than the
                present deadline; terms-refused beyond the terms' latest end.
        """

        def decide() -> Event | None:
            if self.final is not None:
                raise wrong_phase(f"the round is {self.final.state} already")
            if self.live.deadline_s == deadline_s:
                return None
            return Event(now_s, "extend", repr(float(deadline_s)).encode())

        await self._submit(decide)

    async def finish(self, outcome: Outcome, now_s: float) -> None:
        """Keep the signed result of a recovered round, or an indicator's counts, with its documents; not if it was given up meanwhile."""
        await self._finish("done", None, now_s, outcome)

    async def fail(self, fault: Problem, now_s: float) -> None:
        """Keep why the sum of a recovered round was refused."""
        await self._finish("failed", fault, now_s)

    async def _finish(
        self, state: str, fault: Problem | None, now_s: float, outcome: Outcome = NOTHING
    ) -> None:
        async with self._lock:
            while self.final is None and not await self._finalise(state, fault, now_s, outcome):
                await self._catch_up()

    def reports(self) -> Message:
        """What the admin is to sign over a lost round, unsigned; PeerFault(wrong-phase) where there is nothing to."""
        lost = self.mode.reports(self.phase) if self.phase is not None else None
        if lost is None:
            raise wrong_phase(f"the round is {self.view().state}: only a lost one waits for the admin")
        return lost

    def end(self) -> AnyClosing:
        """The certificate or the admin's Lost; PeerFault(wrong-phase) before there is one."""
        if self.closing is None:
            raise wrong_phase(f"round {self.id} is {self.view().state} and not closed yet")
        return self.closing

    def result(self) -> ResultRecord:
        """The signed record of a finished round; PeerFault(wrong-phase) where there is none."""
        self._check_done()
        if self.record is None:
            raise wrong_phase(
                f"round {self.id} counted how many members hold each class: its view has the counts, and it has no head"
            )
        return self.record

    def document(self, name: str) -> bytes:
        """The weights, the sums or another document of a finished round; PeerFault(wrong-phase) where there is none."""
        return b"".join(self.read_document(name)[1])

    def read_document(self, name: str) -> tuple[int, Iterator[bytes]]:
        """Its length and its bytes, piece by piece."""
        self._check_done()
        try:
            return self._blobs.read(f"results/{self.id}/{name}")
        except FileNotFoundError:
            raise wrong_phase(f"round {self.id} keeps no {name}") from None

    def _check_done(self) -> None:
        view = self.view()
        if view.state != "done":
            raise wrong_phase(f"the round is {view.state}" + (f": {view.fault.detail}" if view.fault else ""))

    def transcript(self) -> bytes:
        """The signed transcript's file; PeerFault: wrong-phase before the round has ended, not-found where none is kept."""
        if self.final is None:
            raise wrong_phase(f"the round is {self.view().state}: its transcript is signed when it ends")
        if self.final.transcript is None:
            raise not_found("transcript: rounds with mask helpers keep none")
        return self._blobs.get(f"transcripts/{self.id}")

    # What goes on by itself

    @property
    def over(self) -> bool:
        """Whether nobody changes it any more."""
        return self.final is not None

    @property
    def due_s(self) -> float | None:
        """When `advance` has something to do, in Unix time; None while it has not."""
        if self.final is not None:
            return 0.0 if self.littered and not self._writing else None
        if self._behind or self._settled is not None or (self._given_up and not self._writing):
            return 0.0
        return self.deadline_s

    def uploads_to_add(self) -> tuple[str, ...]:
        """Those whose upload is whole, once there are enough of them that are in no sum yet."""
        if self.phase is None or self._settled is not None or self.mode.waits_for_admin(self.phase):
            return ()
        if self.version < self._look_again:
            return ()
        uploaded = self.mode.uploaded(self.phase)
        missing = self.summing.missing(len(uploaded))
        # Each of them is an event at the least: not to count them again at every chunk.
        self._look_again = self.version + max(missing, 0)
        return uploaded if missing <= 0 else ()

    async def advance(self, now_s: float) -> None:
        """Pass a deadline that is over, end what has ended, clear up; again if storage failed it before."""
        async with self._lock:
            await self._catch_up()
            if self.final is None:
                await self._settle(now_s)
        await self._submit(lambda: Event(now_s, "expire") if self._is_over(now_s) else None)
        async with self._lock:
            if self.littered and not self._writing and (self.final is not None or self._given_up):
                await asyncio.to_thread(self._blobs.delete, f"uploads/{self.id}")
                await asyncio.to_thread(self.summing.forget)
                if self.final is not None and self.final.state != "done":
                    await asyncio.to_thread(self._blobs.delete, f"results/{self.id}")
                await self._database.forget()
                async with self._database.transaction() as connection:
                    await audit.begin(self._database, connection)
                    await audit.write(self._database, connection, [self._deed(now_s, "uploads deleted")])
                self.littered = False

    def _is_over(self, now_s: float) -> bool:
        return self.deadline_s is not None and now_s >= self.deadline_s

    @property
    def _given_up(self) -> bool:
        """Lost, and traces of it are to be cleared: there can be no sum, whatever the admin does."""
        return self.littered and self.mode.waits_for_admin(self.phase)

    @property
    def _settled(self) -> PeerFault | None:
        """Why the phase ends the round without a sum to compute; None where it does not."""
        return self.mode.fault(self.phase) if self.phase is not None else None

    async def _submit(self, decide: Callable[[], Event | None]) -> None:
        """Decide, fold and append; all again where another process was first."""
        async with self._lock:
            while True:
                await self._catch_up()
                event = decide()
                if event is None or await self._take(event):
                    return

    async def _take(self, event: Event) -> bool:
        """Whether all is said about this event; PeerFault where the rules forbid it."""
        try:
            after = await asyncio.to_thread(event.apply, self.live, self.mode)
        except PeerFault as fault:
            proof = await asyncio.to_thread(event.refused, self.noted, fault)
            if proof is not None and not await self._keep(proof, self.live):
                return False
            raise
        return after is self.live or await self._keep(event, after)

    async def _keep(self, event: Event, after: Phase) -> bool:
        noted = await asyncio.to_thread(event.note, self.noted, self.live, after)
        self._behind = True  # until storage has said that it holds the event, and nothing before it
        try:
            if not await self._journal.append(event):
                return False
            self._moved(after, noted, event.at_s)
            self._behind = False
            await self._settle(event.at_s)
            return True
        finally:
            self._changed()  # also where storage failed: the keeper looks again

    async def _settle(self, now_s: float) -> None:
        """End a round whose phase has no sum to compute."""
        if (fault := self._settled) is not None:
            await self._finalise(self.live.name, problem_of(fault), now_s)

    async def _finalise(
        self, state: str, fault: Problem | None, now_s: float, outcome: Outcome = NOTHING
    ) -> bool:
        """Keep the end; False where there are events to take up before."""
        closing = self.mode.closing_of(self.live)
        signed = await asyncio.to_thread(self.mode.signed, self.noted) if self.noted else None
        timeline, head = _extended(self._timeline, state, now_s), signed.head if signed else None
        final = self._view(state, fault, timeline, head, outcome.holders)

        def keep() -> None:
            # While the events stand from which a crash would have all of it made again.
            if signed is not None:
                self._blobs.put(f"transcripts/{self.id}", signed.to_json().encode())
            for name, data in outcome.documents.items():
                self._blobs.put(f"results/{self.id}/{name}", data)

        deed = self._deed(now_s, "round ended", state)
        end = End(final, closing.to_bytes(), outcome.record, self.mode.link(closing), deed)
        self._behind = True  # until storage has said that it holds the end, and nothing before it
        ended = await self._journal.end(end, keep)
        if ended is None:
            return False
        row, now = ended
        if now:
            ROUNDS_ENDED.labels(state).inc()
            cause = fault.cause if fault else None
            log.info("round ended", round=self.id, state=state, cause=cause, of=len(final.survivors))
        self.restore(row, littered=True)
        self._behind = False
        self._changed()
        return True

    def _deed(self, now_s: float, what: str, outcome: str = audit.DONE) -> audit.Deed:
        return audit.Deed(now_s, audit.COORDINATOR, what, f"round_id={self.id}", outcome)

    def _moved(self, after: Phase, noted: Transcript | None, at_s: float) -> None:
        self.phase, self.noted = after, noted
        self._journal.seen += 1
        self.version += 1
        self._timeline = _extended(self._timeline, after.name, at_s)
        self.littered = self.littered or self.mode.waits_for_admin(after)

    def _changed(self) -> None:
        self.watch.notify()
        self._wake()

    # What anybody may see

    @property
    def live(self) -> Phase:
        """The phase of a round that has not ended; PeerFault(wrong-phase) otherwise."""
        if self.phase is None:
            raise wrong_phase(f"the round is {self.view().state}")
        return self.phase

    @property
    def recovered(self) -> Summands | None:
        """What only waits for the coordinator's own arithmetic, if the round is in that phase."""
        return self.mode.summands(self.phase)

    @property
    def deadline_s(self) -> float | None:
        """When the phase's time is up, in Unix time."""
        if self.phase is None or self.phase.deadline_s is None:
            return None
        return max(self.phase.deadline_s, self.not_before_s)

    def request_for(self, member: str) -> bytes | None:
        """The message that this member has to answer now; a certificate is news for everybody."""
        message = self.mode.request_for(self.phase, self.closing, member)
        return message.to_bytes() if message is not None else None

    def upload_view(self, member: str) -> UploadView:
        """What of a member's announced upload is missing."""
        if self.final is not None:
            whole = member in (*self.final.uploaded, *self.final.helpers)
        else:
            whole = self.mode.is_whole(self.live, member)
        missing = () if whole else self._collecting().missing_chunks(member)
        return UploadView(member=member, chunks=self.mode.chunks_of(member), missing=missing)

    def view(self) -> RoundView:
        """The round as it stands."""
        if self.final is not None:
            return self.final
        fault = getattr(self.phase, "fault", None)
        return self._view(None, problem_of(fault) if fault else None, self._timeline)

    def _view(
        self,
        end: str | None,
        fault: Problem | None,
        timeline: Timeline,
        head: bytes | None = None,
        holders: tuple[int, ...] = (),
    ) -> RoundView:
        return round_view(
            self.id,
            self.mode,
            self.live,
            state=end or self.mode.state(self.live),
            ended=end is not None,
            version=self.version + (end is not None),
            deadline_s=None if end else self.deadline_s,
            fault=fault,
            timeline=timeline,
            transcript=head,
            holders=holders,
        )

    def chunk_name(self, member: str, index: int) -> str:
        """Where a chunk is stored."""
        return f"uploads/{self.id}/{member}/{index}"

    def _collecting(self) -> Collector:
        collector = self.mode.collector(self.phase)
        if collector is None:
            raise wrong_phase(f"the round is {self.view().state} and takes no uploads")
        return collector


def _extended(timeline: Timeline, state: str, at_s: float) -> Timeline:
    return timeline if timeline[-1][0] == state else (*timeline, (state, at_s))
