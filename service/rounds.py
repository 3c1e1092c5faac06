"""A round in time: its accepted events, in order, are all there is; the phase is their fold.

Every change runs through `_submit`: the next phase is computed, the event is committed, and only then
does the round move and anybody hear of it. A restart replays the events. When a round ends, what is
left is its outcome: uploads, boxes, shares and seeds are deleted (protocol §4.8).
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from sqlalchemy import delete, func, insert, select, update

from protocol.attempt import Attempt
from protocol.coordinator import Collecting, CoordinatorPhase, Lost, Recovered, Voided, Windows
from protocol.coordinator.ended import Certified
from protocol.messages import Certificate, Message, parse
from protocol.rest import Problem, ResultRecord, RoundView, UploadView
from service.preflight import terms_view
from service.problems import problem_of, wrong_phase
from service.storage.blobs import FileBlobs
from service.storage.database import Database
from service.storage.tables import events, links, rounds
from service.watch import Watch


@dataclass(frozen=True)
class Event:
    """Something that happened to a round, as it is stored."""

    at_s: float
    kind: str
    body: bytes = b""

    def apply(self, phase: CoordinatorPhase) -> CoordinatorPhase:
        """The phase after this event; PeerFault where the rules forbid it."""
        if self.kind == "message":
            return phase.receive(parse(self.body), self.at_s)
        if self.kind == "chunk":
            member, index = json.loads(self.body)
            return cast("Collecting", phase).chunk_stored(member, index, self.at_s)
        if self.kind == "expire":
            return phase.expire(self.at_s)
        return phase.cancel(self.at_s, self.body.decode())


@dataclass
class Round:
    """One attempt of a round, live or ended."""

    database: Database
    blobs: FileBlobs
    wake: Callable[[], None]
    id: str
    attempt: Attempt
    opened_s: float
    phase: CoordinatorPhase | None = None
    version: int = 1
    final: RoundView | None = None
    certificate: Certificate | None = None
    record: ResultRecord | None = None
    timeline: list[tuple[str, float]] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.watch = Watch(lambda: self.version)

    @classmethod
    def begin(
        cls,
        database: Database,
        blobs: FileBlobs,
        wake: Callable[[], None],
        round_id: str,
        attempt: Attempt,
        windows: Windows,
        opened_s: float,
    ) -> "Round":
        """A round that has just opened."""
        phase = Collecting.begin(attempt, windows, opened_s)
        timeline = [(phase.name, opened_s)]
        return cls(database, blobs, wake, round_id, attempt, opened_s, phase, timeline=timeline)

    async def replay(self) -> None:
        """Bring a round that was just loaded to where its stored events lead."""
        async with self.database.transaction() as connection:
            stored = await connection.execute(
                select(events.c.at_s, events.c.kind, events.c.body)
                .where(events.c.round == self.id)
                .order_by(events.c.number)
            )
        for at_s, kind, body in stored:
            self._moved(await asyncio.to_thread(Event(at_s, kind, body).apply, self.live), at_s)

    # What members and operators do

    async def receive(self, message: Message, now_s: float) -> None:
        """Take a member's message durably; after the end an answer is late and changes nothing."""
        async with self.lock:
            if self.final is not None:
                if isinstance(message, Certified.late):
                    return
                raise wrong_phase(f"the round is {self.final.state}")
            await self._submit(Event(now_s, "message", message.to_bytes()))

    async def store_chunk(self, member: str, index: int, digest: bytes, data: bytes, now_s: float) -> None:
        """Store a chunk durably, then count it; the same chunk again changes nothing."""
        collecting = self._collecting()
        collecting.check_chunk(member, index, digest, len(data))
        if index in collecting.stored[member]:
            return
        # Outside the lock, so that lanes write side by side; the digest was announced, so any copy is the same.
        await asyncio.to_thread(self.blobs.put, self.chunk_name(member, index), data)
        async with self.lock:
            if index not in self._collecting().stored[member]:
                await self._submit(Event(now_s, "chunk", json.dumps([member, index]).encode()))

    async def expire(self, now_s: float) -> None:
        """Move on if the phase's time is up."""
        async with self.lock:
            if self.deadline_s is not None and now_s >= self.deadline_s:
                await self._submit(Event(now_s, "expire"))

    async def cancel(self, now_s: float, reason: str) -> None:
        """Give the round up; one that has ended stays as it is."""
        async with self.lock:
            if self.final is not None:
                raise wrong_phase(f"the round is {self.final.state} already")
            await self._submit(Event(now_s, "cancel", reason.encode()))

    async def finish(self, record: ResultRecord | None, fault: Problem | None, now_s: float) -> None:
        """Keep the outcome of a recovered round: its signed result, or why the sum was refused."""
        async with self.lock:
            if self.final is None:
                await self._finalise("done" if record else "failed", fault, record, now_s)

    async def _submit(self, event: Event) -> None:
        before = self.live
        after = await asyncio.to_thread(event.apply, before)
        if after is before:
            return
        async with self.database.transaction() as connection:
            number = select(func.count()).select_from(events).where(events.c.round == self.id)
            await connection.execute(
                insert(events).values(
                    round=self.id,
                    number=(await connection.execute(number)).scalar_one(),
                    at_s=event.at_s,
                    kind=event.kind,
                    body=event.body,
                )
            )
        self._moved(after, event.at_s)
        await self.settle(event.at_s)
        self._changed()

    async def settle(self, now_s: float) -> None:
        """End a round whose phase has no sum to compute."""
        if isinstance(self.phase, Voided | Lost):
            await self._finalise(self.phase.name, problem_of(self.phase.fault), None, now_s)

    async def _finalise(
        self, state: str, fault: Problem | None, record: ResultRecord | None, now_s: float
    ) -> None:
        certificate = self.phase.certificate if isinstance(self.phase, Certified) else None
        self.timeline.append((state, now_s))
        final = self._view(state, fault).model_copy(
            update={"ended": True, "version": self.version + 1, "deadline_s": None, "waiting_for": ()}
        )
        async with self.database.transaction() as connection:
            await connection.execute(
                update(rounds)
                .where(rounds.c.id == self.id)
                .values(
                    final=final.model_dump_json(),
                    certificate=certificate.to_bytes() if certificate else None,
                    record=record.model_dump_json() if record else None,
                )
            )
            if certificate is not None:
                federation = self.attempt.roster.federation.hex()
                position = select(func.count()).select_from(links).where(links.c.federation == federation)
                await connection.execute(
                    insert(links).values(
                        federation=federation,
                        position=(await connection.execute(position)).scalar_one(),
                        body=self.attempt.link(certificate.hash).encode_fields(),
                    )
                )
            await connection.execute(delete(events).where(events.c.round == self.id))
        await asyncio.to_thread(self.blobs.delete, f"uploads/{self.id}")
        self.final, self.certificate, self.record, self.version = final, certificate, record, final.version
        self.phase = None  # it holds seeds
        self._changed()

    def _moved(self, after: CoordinatorPhase, at_s: float) -> None:
        self.phase = after
        self.version += 1
        if after.name != self.timeline[-1][0]:
            self.timeline.append((after.name, at_s))

    def _changed(self) -> None:
        self.watch.notify()
        self.wake()

    # What anybody may see

    @property
    def live(self) -> CoordinatorPhase:
        """The phase of a round that has not ended; PeerFault(wrong-phase) otherwise."""
        if self.phase is None:
            raise wrong_phase(f"the round is {self.view().state}")
        return self.phase

    @property
    def recovered(self) -> Recovered | None:
        """The phase that only waits for the coordinator's own arithmetic, if the round is in it."""
        return self.phase if isinstance(self.phase, Recovered) else None

    @property
    def deadline_s(self) -> float | None:
        """When `expire` is due."""
        return self.phase.deadline_s if self.phase is not None else None

    def request_for(self, member: str) -> Message | None:
        """What this member has to answer now; a certificate is news for everybody."""
        return self.phase.request_for(member) if self.phase is not None else self.certificate

    def upload_view(self, member: str) -> UploadView:
        """What of a member's announced upload is missing."""
        missing = () if self.uploaded(member) else self._collecting().missing_chunks(member)
        return UploadView(member=member, chunks=self.attempt.chunks, missing=missing)

    def uploaded(self, member: str) -> bool:
        """Whether the member's upload is whole."""
        return member in self._whole()

    def _whole(self) -> tuple[str, ...]:
        if self.final is not None:
            return self.final.uploaded
        if isinstance(self.phase, Collecting):
            collecting = self.phase
            return tuple(m for m in self.attempt.members if collecting.whole(m))
        uploads = getattr(self.phase, "uploads", None)
        return tuple(uploads) if uploads is not None else self._survivors()

    def _survivors(self) -> tuple[str, ...]:
        certificate = getattr(self.phase, "certificate", None)
        return tuple(s.member for s in certificate.survivors) if certificate is not None else ()

    def view(self) -> RoundView:
        """The round as it stands."""
        if self.final is not None:
            return self.final
        fault = getattr(self.phase, "fault", None)
        return self._view(self.live.name, problem_of(fault) if fault else None)

    def _view(self, state: str, fault: Problem | None) -> RoundView:
        quorum, opening, phase = self.attempt.quorum, self.attempt.opening, self.live
        spans = zip(self.timeline, self.timeline[1:], strict=False)
        return RoundView.model_validate(
            {
                "round": self.id,
                "federation": self.attempt.roster.federation.hex(),
                "cohort": self.attempt.manifest.cohort.hex(),
                "context": self.attempt.context.hex(),
                "sequence": opening.sequence,
                "attempt": opening.attempt,
                "state": state,
                "ended": False,
                "version": self.version,
                "deadline_s": phase.deadline_s,
                "members": self.attempt.members,
                "survivors_min": quorum.survivors_min,
                "threshold": quorum.threshold,
                "uploaded": self._whole(),
                "waiting_for": phase.waiting_for(),
                "survivors": self._survivors(),
                "fault": fault.model_dump() if fault else None,
                "phase_seconds": {name: round(until - since, 6) for (name, since), (_, until) in spans},
                "terms": terms_view(opening.terms),
            }
        )

    def chunk_name(self, member: str, index: int) -> str:
        """Where a chunk is stored."""
        return f"uploads/{self.id}/{member}/{index}"

    def _collecting(self) -> Collecting:
        if not isinstance(self.phase, Collecting):
            raise wrong_phase(f"the round is {self.view().state} and takes no uploads")
        return self.phase
