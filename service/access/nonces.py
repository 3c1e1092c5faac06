"""Nonces of signed requests: each is taken once, by whichever process, until its request has expired."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from protocol.causes import Cause
from protocol.errors import PeerFault
from service.batches import Batches
from service.storage.database import Database
from service.storage.tables import nonces

FORGET_EVERY_S = 60.0
CLOCKS_S = 60.0
"""A nonce outlives its request by as much: the clock of another process may be behind this one's."""


@dataclass(frozen=True)
class Nonce:
    """One signer's nonce, and the Unix time in seconds from which its request is refused by its age."""

    signer: str
    nonce: str
    expires_s: float


class Nonces:
    """The nonces that were used, in the database.

    Args:
        database: shared by all processes of one coordinator.
        now: Unix time in seconds.
    """

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database, self._now = database, now
        self._batches = Batches(self._take)
        self._forgotten_s = -FORGET_EVERY_S

    async def use(self, nonce: Nonce) -> None:
        """Remember a nonce; PeerFault(request-replayed) where it was used before."""
        if not await self._batches.put(nonce):
            raise PeerFault(
                Cause.REQUEST_REPLAYED,
                f"{nonce.signer} has sent a request with this nonce before: sign each one anew",
                [nonce.signer],
            )

    async def _take(self, batch: list[Nonce]) -> list[bool]:
        """For each, whether it is new."""
        first = {(each.signer, each.nonce): each for each in reversed(batch)}
        async with self._database.transaction() as connection:
            if self._now() >= self._forgotten_s + FORGET_EVERY_S:
                self._forgotten_s = self._now()
                await self._forget(connection)
            # In order, so that two processes that are sent the same ones don't wait for each other.
            rows = [vars(each) for _, each in sorted(first.items())]
            fresh = await self._database.add_all(connection, nonces, rows)
        # A nonce that came twice within the batch is the first one's.
        keys = [(each.signer, each.nonce) for each in batch]
        return [key in fresh and first[key] is each for key, each in zip(keys, batch, strict=True)]

    async def _forget(self, connection: AsyncConnection) -> None:
        old = (
            select(nonces.c.signer, nonces.c.nonce)
            .where(nonces.c.expires_s < self._forgotten_s - CLOCKS_S)
            .with_for_update(skip_locked=True)  # another process may be at them, in another order
        )
        await connection.execute(delete(nonces).where(tuple_(nonces.c.signer, nonces.c.nonce).in_(old)))
