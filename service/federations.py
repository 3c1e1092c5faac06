"""Federations: their rosters, each version kept, and what the coordinator knows of them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, insert, select

from protocol.causes import Cause
from protocol.codec import Reader
from protocol.errors import PeerFault
from protocol.messages import Ledger, Link, Past, Roster
from protocol.rest import FederationView
from service.listed import Listed
from service.problems import not_found
from service.rosters import Rosters
from service.storage.database import Database
from service.storage.tables import cohorts, links, rosters, rounds

MAX_VERSION = 1 << 48
"""Of a roster: views count in it, and JSON's readers know whole numbers up to 2⁵³."""


class Federations:
    """All federations of one coordinator.

    Args:
        database: their rows.
        coordinator: the coordinator's public key, which every roster must name.

    Attributes:
        rosters: as they are stored.
    """

    def __init__(self, database: Database, coordinator: bytes) -> None:
        self._database, self._coordinator = database, coordinator
        self.rosters = Rosters(database)
        self._lock = asyncio.Lock()

    async def put_roster(self, federation: str, roster: Roster) -> bool:
        """Store a roster; whether it is new.

        Raises:
            PeerFault: wrong-federation, bad-signature; malformed where it names another coordinator's key, or a version above `MAX_VERSION`;
                roster-rollback or conflict against those already stored.
        """
        await asyncio.to_thread(roster.verify_admin, bytes.fromhex(federation))
        if roster.coordinator != self._coordinator:
            raise PeerFault(
                Cause.MALFORMED,
                f"the roster names another coordinator's key; this one's is {self._coordinator.hex()}",
            )
        body, version = await asyncio.to_thread(roster.to_bytes), roster.version_number
        if version > MAX_VERSION:
            raise PeerFault(Cause.MALFORMED, f"roster version {version}: the highest is {MAX_VERSION}")
        async with self._lock, self._database.transaction() as connection:
            newest = (
                await connection.execute(
                    select(rosters.c.version, rosters.c.body)
                    .where(rosters.c.federation == federation)
                    .order_by(rosters.c.version.desc())
                    .limit(1)
                )
            ).one_or_none()
            if newest is not None:
                if newest.body == body:
                    return False
                _refuse_rollback(newest.version, version)
            await connection.execute(
                insert(rosters).values(federation=federation, version=version, body=body)
            )
        return True

    async def check_known(self, federation: str) -> None:
        """PeerFault(unauthorised) for one that no operator has made: its key is anybody's."""
        query = select(rosters.c.version).where(rosters.c.federation == federation).limit(1)
        async with self._database.reading() as connection:
            if (await connection.execute(query)).first() is None:
                raise PeerFault(Cause.UNAUTHORISED, "a new federation takes the operator's token")

    async def roster(self, federation: str, version: int | None = None) -> Roster:
        """The newest roster, or one version of it, parsed; PeerFault(not-found). Nothing that strangers ask for takes it."""
        if version is None:
            version = (await self.newest(federation)).version_number
        found = await self.rosters.version(federation, version)
        if found is None:
            raise not_found("federation")
        return found

    async def newest(self, federation: str) -> Listed:
        """The newest roster as it is stored; PeerFault(not-found)."""
        found = await self.rosters.newest(federation)
        if found is None:
            raise not_found("federation")
        return found

    async def view(self, federation: str) -> FederationView:
        """What anybody may see."""
        roster = await self.newest(federation)
        async with self._database.reading() as connection:
            cohort_ids = await connection.execute(
                select(cohorts.c.id).where(cohorts.c.federation == federation).order_by(cohorts.c.counter)
            )
            round_ids = await connection.execute(
                select(rounds.c.id).where(rounds.c.federation == federation).order_by(rounds.c.number)
            )
        known = tuple(cohort_ids.scalars()), tuple(round_ids.scalars())
        # In a thread: there may be 100,000 members.
        return await asyncio.to_thread(_view, federation, roster, *known)

    async def ledger(self, federation: str) -> Ledger:
        """The chain of all attempts that were closed, each with what it opened."""
        return await asyncio.to_thread(_ledger, federation, await self._chain(federation))

    async def ledger_bytes(self, federation: str) -> bytes:
        """The same as a message. For strangers: nothing is decoded, its parts stand in storage as they go over the wire."""
        chain = await self._chain(federation)
        beginning = Ledger(bytes.fromhex(federation), (), ()).to_bytes()[:-8]
        count = len(chain).to_bytes(4, "little")
        return b"".join((beginning, count, *(row.body for row in chain), count, *(row.past for row in chain)))

    async def _chain(self, federation: str) -> Sequence[Row[Any, Any]]:
        query = select(links.c.body, links.c.past).where(links.c.federation == federation)
        async with self._database.reading() as connection:
            return (await connection.execute(query.order_by(links.c.position))).all()


def _ledger(federation: str, chain: Sequence[Row[Any, Any]]) -> Ledger:
    return Ledger(
        bytes.fromhex(federation),
        tuple(Link.decode_fields(Reader(row.body)) for row in chain),
        tuple(Past.decode_fields(Reader(row.past)) for row in chain),
    )


def _view(
    federation: str, roster: Listed, cohort_ids: tuple[str, ...], round_ids: tuple[str, ...]
) -> FederationView:
    return FederationView(
        federation=federation,
        roster_version=roster.version_number,
        members=tuple(roster.members),
        cohorts=cohort_ids,
        rounds=round_ids,
    )


def _refuse_rollback(known: int, offered: int) -> None:
    if offered < known:
        raise PeerFault(Cause.ROSTER_ROLLBACK, f"version {known} stands, {offered} was sent")
    if offered == known:
        raise PeerFault(Cause.CONFLICT, f"another roster stands under version {known}: raise the version")
