"""Rounds to be opened at a time: each is begun once, by whichever process comes first, and never a second time.

An entry is marked as begun, and logged, in the transaction that stores its round, or the reason why there is none: a process that
dies before has opened nothing, and another one does.
"""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from protocol.errors import PeerFault
from protocol.rest import Problem, RoundRequest
from protocol.scheduling import ScheduleRequest, ScheduleView
from service import audit
from service.keeper import Chore, Keeper
from service.problems import not_found, problem_of, wrong_phase
from service.storage.database import Database
from service.storage.tables import schedules

if TYPE_CHECKING:
    from service.coordinator import Coordinator


class NotDueError(Exception):
    """The entry was taken back, or another process was first."""


async def begin(
    database: Database,
    connection: AsyncConnection,
    name: str,
    now_s: float,
    *,
    round_id: str | None = None,
    fault: PeerFault | None = None,
) -> None:
    """Mark an entry as begun, with what came of it, in a transaction that `audit.begin` began; NotDueError where it is over."""
    values = {
        "begun_s": now_s,
        "round": round_id,
        "fault": None if fault is None else problem_of(fault).model_dump_json(),
    }
    taken = await connection.execute(
        update(schedules).where(schedules.c.id == name, schedules.c.begun_s.is_(None)).values(values)
    )
    if not taken.rowcount:
        raise NotDueError(name)
    on = f"schedule={name}" if round_id is None else f"schedule={name} round_id={round_id}"
    outcome = audit.DONE if fault is None else fault.cause
    await audit.write(
        database, connection, [audit.Deed(now_s, audit.COORDINATOR, "scheduled round", on, outcome)]
    )


class Schedules:
    """All entries of one coordinator.

    Args:
        coordinator: opens the rounds.
    """

    def __init__(self, coordinator: "Coordinator", database: Database, keeper: Keeper) -> None:
        self._coordinator, self._database, self._keeper = coordinator, database, keeper
        self._due: dict[str, float] = {}

    async def load(self) -> None:
        """Take up what waits, whoever has added it; what fell due while no process ran is opened now."""
        async with self._database.reading() as connection:
            waiting = await connection.execute(select(schedules).where(schedules.c.begun_s.is_(None)))
            self._due |= {row.id: row.at_s for row in waiting}
        self._keeper.wake()

    async def add(self, cohort: str, request: ScheduleRequest) -> ScheduleView:
        """Keep an entry; PeerFault: not-found, or wrong-phase where the cohort has not formed."""
        (await self._coordinator.cohort(cohort)).formed()
        name = secrets.token_hex(8)
        async with self._database.transaction() as connection:
            await connection.execute(
                insert(schedules).values(
                    id=name, cohort=cohort, at_s=request.at_s, request=request.round.model_dump_json()
                )
            )
        self._due[name] = request.at_s
        self._keeper.wake()
        return await self.view(name)

    async def remove(self, name: str) -> None:
        """Take an entry back; PeerFault: not-found, wrong-phase where it has begun."""
        view = await self.view(name)
        async with self._database.transaction() as connection:
            gone = await connection.execute(
                delete(schedules).where(schedules.c.id == name, schedules.c.begun_s.is_(None))
            )
        if not gone.rowcount:
            raise wrong_phase(f"the entry has begun: its round is {view.round or 'not known'}")
        self._due.pop(name, None)

    async def of(self, cohort: str) -> tuple[ScheduleView, ...]:
        """A cohort's entries, by time."""
        query = (
            select(schedules).where(schedules.c.cohort == cohort).order_by(schedules.c.at_s, schedules.c.id)
        )
        async with self._database.reading() as connection:
            return tuple(map(_view, await connection.execute(query)))

    async def view(self, name: str) -> ScheduleView:
        """One entry; PeerFault(not-found)."""
        async with self._database.reading() as connection:
            row = (await connection.execute(select(schedules).where(schedules.c.id == name))).one_or_none()
        if row is None:
            raise not_found("entry of a schedule")
        return _view(row)

    def chores(self) -> Iterator[Chore]:
        """What is to be opened, and when."""
        for name, at_s in self._due.items():
            yield Chore(f"schedule/{name}", at_s, partial(self._open, name))

    async def _open(self, name: str) -> None:
        query = select(schedules).where(schedules.c.id == name, schedules.c.begun_s.is_(None))
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is not None:
            with suppress(NotDueError):
                await self._begin(row)
        self._due.pop(name, None)  # last: whatever else fails is tried again

    async def _begin(self, row: Row[tuple[object, ...]]) -> None:
        try:
            await self._coordinator.open_round(
                row.cohort, RoundRequest.model_validate_json(row.request), row.id
            )
        except PeerFault as fault:
            async with self._database.transaction() as connection:
                await audit.begin(self._database, connection)
                await begin(self._database, connection, row.id, self._coordinator.now(), fault=fault)


def _view(row: Row[tuple[object, ...]]) -> ScheduleView:
    return ScheduleView(
        schedule=row.id,
        cohort=row.cohort,
        at_s=row.at_s,
        begun_s=row.begun_s,
        round=row.round,
        fault=Problem.model_validate_json(row.fault) if row.fault else None,
        request=RoundRequest.model_validate_json(row.request),
    )
