"""A round in time: what members, operators and the clock do to its course (service/course.py), its chunks, and what is told of it.

When a round ends, its uploads, boxes, shares and seeds are deleted (protocol §4.8).
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Row

from protocol.messages import Message
from protocol.phases import cancelled
from protocol.published import ResultRecord
from protocol.rest import Problem, UploadView
from service import audit
from service.course import Course, Outcome
from service.journal import Event
from service.modes import AnyClosing, Collector, Mode, Phase, Summands
from service.problems import not_found, problem_of, wrong_phase
from service.storage.blobs import Blobs
from service.storage.database import Database
from service.summing import Summing


class Round(Course):
    """One attempt of a round, live or ended.

    Attributes:
        summing: its sum, by ranges of chunks.
    """

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        wake: Callable[[], None],
        mode: Mode,
        opened_s: float,
        ended: Row[tuple[object, ...]] | None = None,
    ) -> None:
        super().__init__(database, blobs, wake, mode, opened_s, ended)
        self.summing = Summing(
            database,
            blobs,
            self.id,
            mode.attempt,
            lambda owner, index: blobs.get(self.chunk_name(owner, index)),
        )
        self._writing = 0
        self._look_again = 0

    @property
    def attempt(self) -> Any:
        """Roster and opening: an `Attempt` or a `HelperAttempt`, as the mode says."""
        return self.mode.attempt

    # What members and operators do

    async def receive(self, message: Message, now_s: float) -> None:
        """Take a member's message durably; after the end an answer is late and changes nothing."""

        def decide(phase: Phase | None) -> Event | None:
            if self.final is not None:
                if isinstance(message, self.mode.late) or message == self.closing:
                    return None
                raise wrong_phase(f"the round is {self.final.state}")
            if self.mode.is_known(phase, message):
                return None
            return Event(now_s, "message", message.to_bytes())

        if self.final is not None:
            decide(None)
        else:
            await self._submit(decide)

    async def store_chunk(self, member: str, index: int, digest: bytes, data: bytes, now_s: float) -> None:
        """Store a chunk durably, then count it; the same chunk again changes nothing."""

        def decide(phase: Phase | None) -> Event | None:
            if self.mode.is_stored(phase, member, index, digest):
                return None
            # Once more: meanwhile the round may take chunks, and not this party's any more.
            self._collecting(phase).check_chunk(member, index, digest, data)
            return Event(now_s, "chunk", json.dumps([member, index]).encode())

        if decide(self.phase) is None:
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

        def decide(phase: Phase | None) -> Event | None:
            if self.final is not None:
                raise wrong_phase(f"the round is {self.final.state} already")
            if self.mode.waits_for_admin(phase):
                raise wrong_phase("the round is lost: the admin closes it, over the decryptors' reports")
            # All that is missing of a recovered one is the coordinator's own arithmetic: nobody has to agree.
            return Event(now_s, "cancel", reason.encode()) if self.mode.summands(phase) is None else None

        await self._submit(decide)
        if self.recovered is not None:
            await self.fail(problem_of(cancelled(reason)), now_s)

    async def extend(self, now_s: float, deadline_s: float) -> None:
        """Give the phase time until `deadline_s`, in Unix time; the same again changes nothing.

        Raises:
            PeerFault: wrong-phase where it waits for no time, or the round has ended; conflict for an earlier time than the
                present deadline; terms-refused beyond the terms' latest end.
        """

        def decide(phase: Phase | None) -> Event | None:
            if self.final is not None:
                raise wrong_phase(f"the round is {self.final.state} already")
            if self._running(phase).deadline_s == deadline_s:
                return None
            return Event(now_s, "extend", repr(float(deadline_s)).encode())

        await self._submit(decide)

    async def finish(self, outcome: Outcome, now_s: float) -> None:
        """Keep the signed result of a recovered round, or an indicator's counts, with its documents; not if it was given up meanwhile."""
        await self._finish("done", None, now_s, outcome)

    async def fail(self, fault: Problem, now_s: float) -> None:
        """Keep why the sum of a recovered round was refused."""
        await self._finish("failed", fault, now_s)

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
            return self._blobs.read(self._document_name(name, self.record))
        except FileNotFoundError:
            raise wrong_phase(f"round {self.id} keeps no {name}") from None

    def _check_done(self) -> None:
        view = self.view()
        if view.state != "done":
            raise wrong_phase(f"the round is {view.state}" + (f": {view.fault.detail}" if view.fault else ""))

    def transcript(self) -> bytes:
        """The signed transcript's file; PeerFault as `read_transcript`."""
        return b"".join(self.read_transcript()[1])

    def read_transcript(self) -> tuple[int, Iterator[bytes]]:
        """Its length and its bytes, piece by piece; PeerFault: wrong-phase before the round has ended, not-found where none is kept."""
        if self.final is None:
            raise wrong_phase(f"the round is {self.view().state}: its transcript is signed when it ends")
        if self.final.transcript is None:
            raise not_found("transcript: rounds with mask helpers keep none")
        return self._blobs.read(self._transcript_name(self.final.transcript))

    # What goes on by itself

    @property
    def at_rest(self) -> bool:
        """Whether it has ended, and nothing is to be cleared up after it."""
        return self.final is not None and not self.littered

    @property
    def size(self) -> int:
        """Members of its roster."""
        return len(self.attempt.roster.members)

    @property
    def due_s(self) -> float | None:
        """When `advance` has something to do, in Unix time; None while it has not."""
        if self.final is not None:
            return 0.0 if self.littered and not self._writing else None
        if self._behind or self._settled is not None or (self._given_up and not self._writing):
            return 0.0
        return self.deadline_s

    def to_add(self) -> tuple[list[int], tuple[str, ...]]:
        """Ranges to which enough uploads are to be added, and whose upload is whole."""
        if self.phase is None or self._settled is not None or self.mode.waits_for_admin(self.phase):
            return [], ()
        if self.version < self._look_again:
            return [], ()
        uploaded = self.mode.uploaded(self.phase)
        missing = {part: self.summing.missing(part, len(uploaded)) for part in self.summing.parts}
        # Each of them is an event at the least: not to count them again at every chunk.
        self._look_again = self.version + max(0, min(missing.values()))
        return [part for part, more in missing.items() if more <= 0], uploaded

    async def advance(self, now_s: float) -> None:
        """Pass a deadline that is over, end what has ended, clear up; again if storage failed it before."""
        async with self._lock:
            await self._catch_up()
            if self.final is None:
                await self._settle(now_s)
        await self._submit(lambda phase: Event(now_s, "expire") if self._is_over(phase, now_s) else None)
        if self.littered and not self._writing and (self.final is not None or self._given_up):
            await self._clear_up(now_s)

    async def _clear_up(self, now_s: float) -> None:
        """Delete what nothing can come of any more. It takes its time and no lock: nobody puts any more of it there."""
        final = self.final
        await asyncio.to_thread(self._blobs.delete, f"uploads/{self.id}")
        await asyncio.to_thread(self.summing.forget)
        if final is not None:
            await asyncio.to_thread(self._clear_results)
        await self._database.forget()
        async with self._database.transaction() as connection:
            await audit.begin(self._database, connection)
            await audit.write(self._database, connection, [self._deed(now_s, "uploads deleted")])
        if self.final is final:  # a lost round may have ended meanwhile
            self.littered = False

    def _is_over(self, phase: Phase | None, now_s: float) -> bool:
        deadline_s = self._deadline_s(phase)
        return deadline_s is not None and now_s >= deadline_s

    @property
    def _given_up(self) -> bool:
        """Lost, and traces of it are to be cleared: there can be no sum, whatever the admin does."""
        return self.littered and self.mode.waits_for_admin(self.phase)

    # What anybody may see

    @property
    def recovered(self) -> Summands | None:
        """What only waits for the coordinator's own arithmetic, if the round is in that phase."""
        return self.mode.summands(self.phase)

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
        missing = () if whole else self._collecting(self.phase).missing_chunks(member)
        return UploadView(member=member, chunks=self.mode.chunks_of(member), missing=missing)

    def chunk_name(self, member: str, index: int) -> str:
        """Where a chunk is stored."""
        return f"uploads/{self.id}/{member}/{index}"

    def _collecting(self, phase: Phase | None) -> Collector:
        collector = self.mode.collector(phase)
        if collector is None:
            raise wrong_phase(f"the round is {self.view().state} and takes no uploads")
        return collector
