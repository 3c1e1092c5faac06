"""A live round's events in storage, numbered without a gap."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service import audit
from service.events import Event
from service.storage.database import Database
from service.storage.tables import events, links, rounds, sums
from veilsum.protocol.record import ResultRecord
from veilsum.protocol.rest import RoundView

KEEP_S = 120.0
"""Longest time in which a transcript and a result are stored."""


@dataclass(frozen=True)
class RoundEnd:
    """How a round ended, as its row keeps it.

    Attributes:
        link: of the federation's chain.
        deed: for the audit log.
    """

    final: RoundView
    closing: bytes
    record: ResultRecord | None
    link: bytes
    deed: audit.Deed


class Journal:
    """One round's events. No lock is held while anything is computed: who was not first is told so, and looks again.

    Attributes:
        seen: how many of them the round has taken up; the next one gets this number, so that an event which was
            committed although nobody heard of it is never written over, nor skipped.
    """

    def __init__(self, database: Database, round_id: str) -> None:
        self._database, self._round = database, round_id
        self._row = select(rounds).where(rounds.c.id == round_id)
        self.seen = 0

    async def append(self, following: Sequence[Event]) -> bool:
        """Store the next events durably, all or none; False where another process was first: look at `unseen`, and decide again.

        Whoever is told otherwise looks at `unseen` before the next one.
        """
        rows = [
            {"round": self._round, "number": number, **vars(event)}
            for number, event in enumerate(following, self.seen)
        ]
        async with self._database.transaction() as connection:
            # Whoever ends the round waits for this, and then finds the events; or this one finds the end.
            live = select(rounds.c.final.is_(None)).where(rounds.c.id == self._round)
            if not (await connection.execute(live.with_for_update(read=True))).scalar_one():
                return False
            if len(await self._database.add_all(connection, events, rows)) < len(rows):
                await connection.rollback()
                return False
            await self._database.announce(connection, self._round)
        return True

    async def unseen(self) -> tuple[Row[Any] | None, list[Event]]:
        """The round's row if it has ended, else None and the stored events that the round has not taken up."""
        async with self._database.reading() as connection:
            stored = await connection.execute(
                select(events.c.at_s, events.c.kind, events.c.body)
                .where(events.c.round == self._round, events.c.number >= self.seen)
                .order_by(events.c.number)
            )
            found = [Event(at_s, kind, body) for at_s, kind, body in stored]
            row = (await connection.execute(self._row)).one()
            return (row, []) if row.final is not None else (None, found)

    async def is_behind(self) -> bool:
        """Whether another process has gone on with the round."""
        if not self._database.shared:
            return False
        following = select(events.c.number).where(events.c.round == self._round, events.c.number == self.seen)
        async with self._database.reading() as connection:
            row = (
                await connection.execute(
                    select(rounds.c.final.is_(None), following.exists()).where(rounds.c.id == self._round)
                )
            ).one()
            return not row[0] or bool(row[1])

    async def end(self, end: RoundEnd, keep: Callable[[], None]) -> tuple[Row[Any], bool] | None:
        """End the round by the events seen so far, and delete them; None where there are more by now.

        Args:
            end: what its row is to hold.
            keep: stores the transcript and the documents, while nobody else can end the round.

        Returns:
            The row, and whether it was ended now: it stays as it is where it has ended before.
        """
        async with self._database.transaction(KEEP_S) as connection:
            row = (await connection.execute(self._row.with_for_update())).one()
            if row.final is not None:
                return row, False
            count = select(func.count()).select_from(events).where(events.c.round == self._round)
            if (await connection.execute(count)).scalar_one() != self.seen:
                return None
            await asyncio.to_thread(keep)
            await audit.begin(self._database, connection)
            await connection.execute(
                update(rounds)
                .where(rounds.c.id == self._round)
                .values(
                    final=end.final.model_dump_json(),
                    closing=end.closing,
                    record=end.record.model_dump_json() if end.record else None,
                    state=end.final.state,
                )
            )
            await self._link(connection, row.federation, end.link)
            for table in (events, sums):
                await connection.execute(delete(table).where(table.c.round == self._round))
            await audit.write(self._database, connection, [end.deed])
            await self._database.announce(connection, self._round)
            await self._database.announce(connection, row.federation)
            return (await connection.execute(self._row)).one(), True

    async def _link(self, connection: AsyncConnection, federation: str, link: bytes) -> None:
        """Only one round of a federation is live, so nobody else is at its chain."""
        position = select(func.count()).select_from(links).where(links.c.federation == federation)
        await connection.execute(
            insert(links).values(
                federation=federation,
                position=(await connection.execute(position)).scalar_one(),
                body=link,
            )
        )
