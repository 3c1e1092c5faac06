"""A live round's events in storage, numbered without a gap."""

import json
from dataclasses import dataclass
from typing import cast

from sqlalchemy import insert, select

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
        return phase.cancel(self.at_s, self.body.decode())


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
