"""A live round's events in storage, numbered without a gap.

Phase and transcript are both folds of the events. A refused message moves no phase, but where it proves its sender false it is an
event too: what it proves, once for each cause and party, so that nobody can fill the disk by it.
"""

import json
from dataclasses import dataclass
from typing import cast

from sqlalchemy import insert, select

from protocol.causes import Cause
from protocol.coordinator import CoordinatorPhase
from protocol.errors import PeerFault
from protocol.messages import parse
from protocol.transcript import Accusation, Transcript
from service.modes import Collector, Mode, Phase
from service.storage.database import Database
from service.storage.tables import events


@dataclass(frozen=True)
class Event:
    """Something that happened to a round, as it is stored."""

    at_s: float
    kind: str
    body: bytes = b""

    def __repr__(self) -> str:
        return f"<Event {self.kind} {len(self.body)} B>"

    def apply(self, phase: Phase, mode: Mode) -> Phase:
        """The phase after this event; PeerFault where the rules forbid it."""
        if self.kind == "message":
            return phase.receive(mode.parse(self.body), self.at_s)
        if self.kind == "chunk":
            member, index = json.loads(self.body)
            return cast("Collector", phase).chunk_stored(member, index, self.at_s)
        if self.kind == "expire":
            return phase.expire(self.at_s)
        if self.kind == "refused":
            return phase
        return phase.cancel(self.at_s, self.body.decode())

    def note(self, transcript: Transcript | None, before: Phase, after: Phase) -> Transcript | None:
        """The transcript after this event led from one phase to the next; None where none is kept."""
        if transcript is None:
            return None
        before, after = cast("CoordinatorPhase", before), cast("CoordinatorPhase", after)
        if self.kind == "message":
            return transcript.received(parse(self.body), before, after)
        if self.kind == "refused":
            cause, parties, entry = json.loads(self.body)
            return transcript.accusing(Accusation(Cause(cause), tuple(parties), bytes.fromhex(entry)))
        return transcript.moved(before, after)

    def refused(self, transcript: Transcript | None, fault: PeerFault) -> "Event | None":
        """What is kept of this event although it was refused; None where it proves nothing new to others."""
        if transcript is None or self.kind != "message":
            return None
        found = Accusation.of(parse(self.body), fault)
        if found is None or transcript.accusing(found) is transcript:
            return None
        body = json.dumps([found.cause.value, found.parties, found.entry.hex()])
        return Event(self.at_s, "refused", body.encode())


class Journal:
    """One round's events.

    Attributes:
        seen: how many of them the round has taken up; the next one gets this number, so that an event which was
            committed although nobody heard of it is never written over, nor skipped.
    """

    def __init__(self, database: Database, round_id: str) -> None:
        self._database, self._round = database, round_id
        self.seen = 0

    async def append(self, event: Event) -> None:
        """Store the next event durably; whoever is told otherwise looks at `unseen` before the next one."""
        async with self._database.transaction() as connection:
            await connection.execute(
                insert(events).values(
                    round=self._round, number=self.seen, at_s=event.at_s, kind=event.kind, body=event.body
                )
            )

    async def unseen(self) -> list[Event]:
        """The stored events that the round has not taken up."""
        async with self._database.reading() as connection:
            stored = await connection.execute(
                select(events.c.at_s, events.c.kind, events.c.body)
                .where(events.c.round == self._round, events.c.number >= self.seen)
                .order_by(events.c.number)
            )
            return [Event(at_s, kind, body) for at_s, kind, body in stored]
