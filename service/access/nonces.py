"""Nonces of signed requests: each is taken once, by whichever process, until its request has expired.

What has expired is forgotten, and a clock that is set may be wrong about that: ahead, and it forgets what is still taken once it is right
again; behind, and it takes what was forgotten long ago. So of each signer it is remembered until when its nonces were forgotten,
and what had to be sent by then is refused, whatever the clock says.
"""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from protocol.causes import Cause
from protocol.errors import PeerFault
from service.batches import Batches
from service.storage.database import Database
from service.storage.tables import nonces

FORGET_EVERY_S = 60.0
CLOCKS_S = 60.0
"""A nonce outlives its request by as much: the clock of another process may be behind this one's."""
_FORGOTTEN = ""
"""In place of a nonce, in the row that says until when a signer's were forgotten."""


@dataclass(frozen=True)
class Nonce:
    """One signer's nonce, and the Unix time in seconds from which its request is refused by its age."""

    signer: str
    nonce: str
    expires_s: float


def signer_of(federation: str, keyid: str) -> str:
    """What a federation's member, or admin, is called in `Nonce.signer`."""
    return f"{federation}/{keyid}"


async def newest(database: Database, signers: Collection[str]) -> dict[str, float]:
    """When the last to expire of each one's requests does, or did, in Unix time; without those who had none let in.

    Forgotten ones count: of each signer the newest's time is remembered.
    """
    last = func.max(nonces.c.expires_s).label("last_s")
    query = select(nonces.c.signer, last).where(nonces.c.signer.in_(signers)).group_by(nonces.c.signer)
    async with database.reading() as connection:
        return {row.signer: row.last_s for row in await connection.execute(query)}


class Nonces:
    """The nonces that were used, in the database.

    Args:
        database: shared by all processes of one coordinator.
        now: Unix time in seconds.
        steady: seconds that only ever grow.
    """

    def __init__(
        self,
        database: Database,
        now: Callable[[], float],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database, self._now, self._steady = database, now, steady
        self._batches = Batches(self._take)
        self._looked_s = steady()

    async def use(self, nonce: Nonce) -> None:
        """Remember a nonce; PeerFault: request-replayed where it was used before, clock-skew where that is forgotten."""
        if (fault := await self._batches.put(nonce)) is not None:
            raise fault

    async def _take(self, batch: list[Nonce]) -> list[PeerFault | None]:
        """For each, why it is refused; None where it is new."""
        first = {(each.signer, each.nonce): each for each in reversed(batch)}
        async with self._database.transaction() as connection:
            if self._steady() >= self._looked_s + FORGET_EVERY_S:
                self._looked_s = self._steady()
                await self._forget(connection)
            # In order, so that two processes that are sent the same ones don't wait for each other.
            rows = [vars(each) for _, each in sorted(first.items())]
            fresh = await self._database.add_all(connection, nonces, rows)
            # Only now: what another process forgets meanwhile has made room for them.
            until_s = await self._forgotten(connection, {each.signer for each in batch})
        # A nonce that came twice within the batch is the first one's.
        keys = [(each.signer, each.nonce) for each in batch]
        return [
            _late(each)
            if each.expires_s <= until_s.get(each.signer, -math.inf)
            else None
            if key in fresh and first[key] is each
            else _replayed(each)
            for key, each in zip(keys, batch, strict=True)
        ]

    async def _forgotten(self, connection: AsyncConnection, signers: set[str]) -> dict[str, float]:
        """Until when each signer's were forgotten, as their requests expired; Unix time in seconds."""
        rows = select(nonces.c.signer, nonces.c.expires_s).where(
            nonces.c.nonce == _FORGOTTEN, nonces.c.signer.in_(signers)
        )
        return {row.signer: row.expires_s for row in await connection.execute(rows)}

    async def _forget(self, connection: AsyncConnection) -> None:
        await self._database.alone(connection, "nonces")
        clock_s = (await connection.execute(select(self._database.clock))).scalar_one()
        expired = nonces.c.expires_s < min(self._now(), clock_s) - CLOCKS_S
        of = select(nonces.c.signer).where(expired, nonces.c.nonce != _FORGOTTEN)
        gone = delete(nonces).where(expired, nonces.c.signer.in_(of))
        until_s = dict[str, float]()
        for row in await connection.execute(gone.returning(nonces.c.signer, nonces.c.expires_s)):
            until_s[row.signer] = max(row.expires_s, until_s.get(row.signer, -math.inf))
        if until_s:
            rows = [vars(Nonce(signer, _FORGOTTEN, expires_s)) for signer, expires_s in until_s.items()]
            await self._database.add_all(connection, nonces, rows)


def _replayed(nonce: Nonce) -> PeerFault:
    return PeerFault(
        Cause.REQUEST_REPLAYED,
        f"{nonce.signer} has sent a request with this nonce before: sign each one anew",
        [nonce.signer],
    )


def _late(nonce: Nonce) -> PeerFault:
    return PeerFault(
        Cause.CLOCK_SKEW,
        f"requests of {nonce.signer} that were signed no earlier than this one have long expired and are forgotten, so this may be one of "
        "them: this coordinator's clock, or the signing machine's, is behind; set both by NTP, and sign it anew",
        [nonce.signer],
    )
