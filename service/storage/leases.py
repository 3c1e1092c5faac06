"""Leases: work that any process may do and one does at a time. When that one dies, another takes over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy import ColumnElement, delete, or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from service.storage.database import Database
from service.storage.tables import leases

LEASE_S = 15.0
"""How long a holder keeps its work without a sign of life while its connections stand: its machine is gone, or it stands still."""


class Leases:
    """This process's leases. They only save work: what is done twice changes nothing the second time.

    Args:
        database: whose clock they run by.
        lease_s: how long a lease lasts unless it is renewed, as it is after each third of that.
    """

    def __init__(self, database: Database, lease_s: float = LEASE_S) -> None:
        self._database, self.lease_s = database, lease_s

    @asynccontextmanager
    async def held(self, key: str) -> AsyncIterator[bool]:
        """Try to hold the lease for as long as the block lasts; whether this process holds it."""
        if not self._database.shared:
            yield True
            return
        fence = await self._take(key)
        if fence is None:
            yield False
            return
        renewing = asyncio.create_task(self._renew(key, fence))
        try:
            yield True
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(OSError, SQLAlchemyError):  # it will run out
                async with self._database.transaction() as connection:
                    await connection.execute(delete(leases).where(*self._own(key, fence)))

    async def _take(self, key: str) -> int | None:
        async with self._database.transaction() as connection:
            free = {"key": key, "holder": "", "until_s": 0.0, "fence": 0}
            await self._database.add(connection, leases, free)
            found = await connection.execute(
                select(leases.c.fence)
                .where(leases.c.key == key)
                .where(or_(leases.c.until_s < self._database.clock, self._database.gone(leases.c.holder)))
                .with_for_update(skip_locked=True)
            )
            fence = found.scalar_one_or_none()
            if fence is None:
                return None
            await connection.execute(
                update(leases)
                .where(leases.c.key == key)
                .values(
                    holder=self._database.process,
                    until_s=self._database.clock + self.lease_s,
                    fence=fence + 1,
                )
            )
            return int(fence) + 1

    async def _renew(self, key: str, fence: int) -> None:
        while True:
            await asyncio.sleep(self.lease_s / 3)
            with suppress(OSError, SQLAlchemyError):
                async with self._database.transaction() as connection:
                    until_s = self._database.clock + self.lease_s
                    await connection.execute(
                        update(leases).where(*self._own(key, fence)).values(until_s=until_s)
                    )

    def _own(self, key: str, fence: int) -> tuple[ColumnElement[bool], ...]:
        """Unless another process has taken it over."""
        return leases.c.key == key, leases.c.holder == self._database.process, leases.c.fence == fence
