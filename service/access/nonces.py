"""Nonces of signed requests: each is taken once, by whichever process, until its request has expired.

A clock that is set ahead makes them look expired, and once it is set back their requests would be taken again. So one is forgotten only by a
clock that has run evenly for as long as a request can live, and has expired by the database's clock as well.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.request_signature import MAX_LIFETIME_S
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


class Evenness:
    """How long the clock of days has gone on as the steady one has, and was not set.

    Args:
        now: Unix time in seconds.
        steady: seconds that only ever grow.
    """

    def __init__(self, now: Callable[[], float], steady: Callable[[], float]) -> None:
        self._now, self._steady = now, steady
        self._apart_s, self._since_s = now() - steady(), steady()

    def seconds(self) -> float:
        """Since the start, or since it was last seen to be set."""
        steady_s = self._steady()
        before, self._apart_s = self._apart_s, self._now() - steady_s
        if abs(self._apart_s - before) > CLOCKS_S:
            self._since_s = steady_s
        return steady_s - self._since_s


class Nonces:
    """The nonces that were used, in the database.

    Args:
        database: shared by all processes of one coordinator.
        now: Unix time in seconds.
        skew_s: how far a signer's clock may be off.
        steady: seconds that only ever grow.
    """

    def __init__(
        self,
        database: Database,
        now: Callable[[], float],
        skew_s: float = 0.0,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database, self._now, self._steady = database, now, steady
        # A request may be signed `skew_s` ahead of this clock, and is taken for as long after it has expired.
        self._lives_s, self._even = MAX_LIFETIME_S + 2 * skew_s, Evenness(now, steady)
        self._batches = Batches(self._take)
        self._looked_s = steady()

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
            if self._steady() >= self._looked_s + FORGET_EVERY_S:
                self._looked_s = self._steady()
                if self._even.seconds() > self._lives_s:
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
            .where(*(nonces.c.expires_s < clock - CLOCKS_S for clock in (self._now(), self._database.clock)))
            .with_for_update(skip_locked=True)  # another process may be at them, in another order
        )
        await connection.execute(delete(nonces).where(tuple_(nonces.c.signer, nonces.c.nonce).in_(old)))
