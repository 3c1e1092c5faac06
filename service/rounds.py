"""A round in time: its accepted events, in order, are all there is; phase and transcript are their folds.

Every change runs through `_submit`: the next phase is computed, the event is committed, and only then
does the round move and anybody hear of it. A restart replays the events. When a round ends, what is
left is its outcome and the signed transcript: uploads, boxes, shares and seeds are deleted (protocol §4.8).
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Row, delete, func, insert, select, update

from protocol.coordinator.base import cancelled
from protocol.errors import PeerFault
from protocol.messages import Message
from protocol.published import ResultRecord
from protocol.rest import Problem, RoundView, UploadView, round_name
from protocol.transcript import Transcript
from service.journal import Event, Journal
from service.modes import AnyClosing, Collector, Mode, Phase, Summands
from service.problems import not_found, problem_of, wrong_phase
from service.storage.blobs import FileBlobs
from service.storage.database import Database
from service.storage.tables import events, links, rounds
from service.views import Timeline, round_view
from service.watch import Watch


class Round:
    """One attempt of a round, live or ended.

    Attributes:
        mode: what the attempt is, and what its messages and phases mean.
        phase: None once the round has ended: it holds seeds.
        version: grows with every change.
        final: the view that stays; None while the round is live.
        closing: the certificate or the admin's Lost, for members who still have to hear of the end.
        record: the signed result.
        noted: the transcript so far; None once it is kept, and where the mode keeps none.
        not_before_s: no deadline passes before this Unix time.
    """

    phase: Phase | None
    final: RoundView | None = None
    closing: AnyClosing | None = None
    record: ResultRecord | None = None
    not_before_s = 0.0

    def __init__(
        self,
        database: Database,
        blobs: FileBlobs,
        wake: Callable[[], None],
        mode: Mode,
        opened_s: float,
    ) -> None:
        self.id, self.mode, self.version = round_name(mode.attempt.context), mode, 1
        self.noted = mode.noted
        self.watch = Watch(lambda: self.version)
        self._database, self._blobs, self._wake = database, blobs, wake
        self._journal = Journal(database, self.id)
        self._lock = asyncio.Lock()
        self.phase = mode.begin(opened_s)
        self._timeline: Timeline = ((self.phase.name, opened_s),)
        self._behind = False
        """Storage may hold events that this object has not taken up: what it holds decides."""
        self._writing = 0
        self._littered = False
        """Nothing can come of its chunks any more, and they may still lie in storage."""

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
        self.phase, self.version, self._littered = None, self.final.version, littered
        self.noted = None
        return self

    async def _catch_up(self) -> None:
        if self._behind:
            for event in await self._journal.unseen():
                after = await asyncio.to_thread(event.apply, self.live, self.mode)
                noted = await asyncio.to_thread(event.note, self.noted, self.live, after)
                self._moved(after, noted, event.at_s)
            self._behind = False
            self._changed()

    # What members and operators do

    async def receive(self, message: Message, now_s: float) -> None:
        """Take a member's message durably; after the end an answer is late and changes nothing."""
        async with self._lock:
            if self.final is not None:
                if isinstance(message, self.mode.late) or message == self.closing:
                    return
                raise wrong_phase(f"the round is {self.final.state}")
            if self.mode.is_known(self.phase, message):
                return
            await self._submit(Event(now_s, "message", message.to_bytes()))

    async def store_chunk(self, member: str, index: int, digest: bytes, data: bytes, now_s: float) -> None:
        """Store a chunk durably, then count it; the same chunk again changes nothing."""
        if self.mode.is_stored(self.phase, member, index, digest):
            return
        self._collecting().check_chunk(member, index, digest, len(data))
        self._writing += 1
        try:
            # Outside the lock, so that lanes write side by side; the digest was announced, so any copy is the same.
            await asyncio.to_thread(self._blobs.put, self.chunk_name(member, index), data)
            async with self._lock:
                if not self.mode.is_stored(self.phase, member, index, digest):
                    # Once more: meanwhile the round may take chunks, and not this party's any more.
                    self._collecting().check_chunk(member, index, digest, len(data))
                    await self._submit(Event(now_s, "chunk", json.dumps([member, index]).encode()))
        finally:
            self._writing -= 1
            self._wake()

    async def cancel(self, now_s: float, reason: str) -> None:
        """Give the round up; one that has ended stays as it is."""
        async with self._lock:
            if self.final is not None:
                raise wrong_phase(f"the round is {self.final.state} already")
            if self.mode.waits_for_admin(self.phase):
                raise wrong_phase("the round is lost: the admin closes it, over the decryptors' reports")
            if self.recovered is not None:
                # All that is missing is the coordinator's own arithmetic: nobody has to agree.
                await self._finalise("failed", problem_of(cancelled(reason)), None, now_s)
            else:
                await self._submit(Event(now_s, "cancel", reason.encode()))

    async def finish(
        self,
        record: ResultRecord | None,
        documents: Mapping[str, bytes],
        now_s: float,
        holders: tuple[int, ...] = (),
    ) -> None:
        """Keep the signed result of a recovered round, or an indicator's counts, with its documents; not if it was given up meanwhile."""
        async with self._lock:
            if self.final is None:
                for name, data in documents.items():
                    await asyncio.to_thread(self._blobs.put, f"results/{self.id}/{name}", data)
                await self._finalise("done", None, record, now_s, holders)

    async def fail(self, fault: Problem, now_s: float) -> None:
        """Keep why the sum of a recovered round was refused."""
        async with self._lock:
            if self.final is None:
                await self._finalise("failed", fault, None, now_s)

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
        return self.document_path(name).read_bytes()

    def document_path(self, name: str) -> Path:
        """Where it lies."""
        self._check_done()
        if name not in self._blobs.names(f"results/{self.id}"):
            raise wrong_phase(f"round {self.id} keeps no {name}")
        return self._blobs.path(f"results/{self.id}/{name}")

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
    def due_s(self) -> float | None:
        """When `advance` has something to do, in Unix time; None while it has not."""
        if self.final is not None:
            return 0.0 if self._littered and not self._writing else None
        if self._behind or self._settled is not None or (self._given_up and not self._writing):
            return 0.0
        return self.deadline_s

    async def advance(self, now_s: float) -> None:
        """Pass a deadline that is over, end what has ended, clear up; again if storage failed it before."""
        async with self._lock:
            if self.final is None:
                await self._catch_up()
                await self._settle(now_s)
            if self.deadline_s is not None and now_s >= self.deadline_s:
                await self._submit(Event(now_s, "expire"))
            if self._littered and not self._writing and (self.final is not None or self._given_up):
                await asyncio.to_thread(self._blobs.delete, f"uploads/{self.id}")
                if self.final is not None and self.final.state != "done":
                    await asyncio.to_thread(self._blobs.delete, f"results/{self.id}")
                await self._database.forget()
                self._littered = False

    @property
    def _given_up(self) -> bool:
        """Lost, and traces of it are to be cleared: there can be no sum, whatever the admin does."""
        return self._littered and self.mode.waits_for_admin(self.phase)

    @property
    def _settled(self) -> PeerFault | None:
        """Why the phase ends the round without a sum to compute; None where it does not."""
        return self.mode.fault(self.phase) if self.phase is not None else None

    async def _submit(self, event: Event) -> None:
        await self._catch_up()
        try:
            after = await asyncio.to_thread(event.apply, self.live, self.mode)
        except PeerFault as fault:
            if proof := await asyncio.to_thread(event.refused, self.noted, fault):
                await self._keep(proof, self.live)
            raise
        if after is not self.live:
            await self._keep(event, after)

    async def _keep(self, event: Event, after: Phase) -> None:
        noted = await asyncio.to_thread(event.note, self.noted, self.live, after)
        self._behind = True  # until storage has said that it holds the event
        try:
            await self._journal.append(event)
            self._moved(after, noted, event.at_s)
            self._behind = False
            await self._settle(event.at_s)
        finally:
            self._changed()  # also where storage failed: the keeper looks again

    async def _settle(self, now_s: float) -> None:
        """End a round whose phase has no sum to compute."""
        if (fault := self._settled) is not None:
            await self._finalise(self.live.name, problem_of(fault), None, now_s)

    async def _finalise(
        self,
        state: str,
        fault: Problem | None,
        record: ResultRecord | None,
        now_s: float,
        holders: tuple[int, ...] = (),
    ) -> None:
        closing = self.mode.closing_of(self.live)
        link = self.mode.link(closing)
        head = await asyncio.to_thread(self._keep_transcript)
        final = self._view(state, fault, _extended(self._timeline, state, now_s), head, holders)
        this = rounds.c.id == self.id
        async with self._database.transaction() as connection:
            ended = await connection.execute(
                update(rounds)
                .where(this, rounds.c.final.is_(None))
                .values(
                    final=final.model_dump_json(),
                    closing=closing.to_bytes(),
                    record=record.model_dump_json() if record else None,
                )
            )
            # Not where an earlier commit went through although it was reported as failed.
            if ended.rowcount and link is not None:
                federation = self.attempt.roster.federation.hex()
                position = select(func.count()).select_from(links).where(links.c.federation == federation)
                await connection.execute(
                    insert(links).values(
                        federation=federation,
                        position=(await connection.execute(position)).scalar_one(),
                        body=link[0],
                        past=link[1],
                    )
                )
            await connection.execute(delete(events).where(events.c.round == self.id))
            row = (await connection.execute(select(rounds).where(this))).one()
        self.restore(row, littered=True)
        self._changed()

    def _keep_transcript(self) -> bytes | None:
        """Sign and store it while the events stand from which a crash would have it made again; its head."""
        if self.noted is None:
            return None
        signed = self.mode.signed(self.noted)
        self._blobs.put(f"transcripts/{self.id}", signed.to_json().encode())
        return signed.head

    def _moved(self, after: Phase, noted: Transcript | None, at_s: float) -> None:
        self.phase, self.noted = after, noted
        self._journal.seen += 1
        self.version += 1
        self._timeline = _extended(self._timeline, after.name, at_s)
        self._littered = self._littered or self.mode.waits_for_admin(after)

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
