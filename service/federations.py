"""Federations: all their rosters, and the chain of their attempts."""

import asyncio
from collections.abc import Sequence

from sqlalchemy import insert, select

from service.cache import Recent
from service.problems import not_found
from service.rosters import Rosters, names_of
from service.storage.database import Database
from service.storage.tables import cohorts, links, rosters, rounds
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Reader
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Chain, Link, Roster
from veilsum.protocol.rest import FederationView

MAX_NUMBER = 1 << 48
"""Highest number of a roster: readers of JSON know whole numbers up to 2⁵³."""
KEPT_LINKS = 1 << 18
"""Links of all federations' chains that stay decoded."""


class Federations:
    """All federations of one coordinator.

    Args:
        database: their rows.
        coordinator: the coordinator's public key, which every roster must name.

    Attributes:
        rosters: of all federations.
    """

    def __init__(self, database: Database, coordinator: bytes) -> None:
        self._database, self._coordinator = database, coordinator
        self.rosters = Rosters(database)
        self._links = Recent[str, tuple[Link, ...]](KEPT_LINKS)
        self._lock = asyncio.Lock()

    async def put_roster(self, federation: str, roster: Roster) -> bool:
        """Store a roster; whether it is new.

        Raises:
            PeerFault: wrong-federation, bad-signature; malformed where it names another coordinator's key, or a number above `MAX_NUMBER`;
                roster-rollback or conflict against those already stored.
        """
        await asyncio.to_thread(roster.verify_admin, bytes.fromhex(federation))
        if roster.coordinator != self._coordinator:
            raise PeerFault(
                Cause.MALFORMED,
                f"the roster names another coordinator's key; this one's is {self._coordinator.hex()}",
            )
        body, number = await asyncio.to_thread(roster.to_bytes), roster.number
        if number > MAX_NUMBER:
            raise PeerFault(Cause.MALFORMED, f"roster {number}: the highest number is {MAX_NUMBER}")
        async with self._lock, self._database.transaction() as connection:
            newest = (
                await connection.execute(
                    select(rosters.c.number, rosters.c.body)
                    .where(rosters.c.federation == federation)
                    .order_by(rosters.c.number.desc())
                    .limit(1)
                )
            ).one_or_none()
            if newest is not None:
                if newest.body == body:
                    return False
                _refuse_rollback(newest.number, number)
            await connection.execute(insert(rosters).values(federation=federation, number=number, body=body))
        return True

    async def check_known(self, federation: str) -> None:
        """Refuse a federation that no operator has made (unauthorised): anybody can draw its key."""
        query = select(rosters.c.number).where(rosters.c.federation == federation).limit(1)
        async with self._database.reading() as connection:
            if (await connection.execute(query)).first() is None:
                raise PeerFault(Cause.UNAUTHORISED, "a new federation takes the operator's token")

    async def roster(self, federation: str, number: int | None = None) -> Roster:
        """The newest roster, or the one of this number; PeerFault(not-found)."""
        if number is None:
            return await self.newest(federation)
        found = await self.rosters.numbered(federation, number)
        if found is None:
            raise not_found("federation")
        return found

    async def newest(self, federation: str) -> Roster:
        """The newest roster; PeerFault(not-found)."""
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
        return FederationView(
            federation=federation,
            name=roster.name,
            roster=roster.number,
            members=names_of(roster),
            cohorts=tuple(cohort_ids.scalars()),
            rounds=tuple(round_ids.scalars()),
        )

    async def links(self, federation: str) -> tuple[Link, ...]:
        """The chain: a link for every attempt that was closed, oldest first. Only new links are read."""
        known = self._links.get(federation) or ()
        if new := await self._stored(federation, len(known)):
            decoded = await asyncio.to_thread(lambda: [Link.decode_fields(Reader(body)) for body in new])
            known = (*known, *decoded)
            self._links.put(federation, known, len(known) + 1)
        return known

    async def chain(self, federation: str) -> bytes:
        """The Chain message, made without decoding: links are stored as they go over the wire."""
        stored = await self._stored(federation)
        beginning = Chain(bytes.fromhex(federation), ()).to_bytes()[:-4]
        return b"".join((beginning, len(stored).to_bytes(4, "little"), *stored))

    async def _stored(self, federation: str, known: int = 0) -> Sequence[bytes]:
        query = select(links.c.body).where(links.c.federation == federation, links.c.position >= known)
        async with self._database.reading() as connection:
            return (await connection.execute(query.order_by(links.c.position))).scalars().all()


def _refuse_rollback(known: int, offered: int) -> None:
    if offered < known:
        raise PeerFault(Cause.ROSTER_ROLLBACK, f"roster {known} is published; roster {offered} is older")
    if offered == known:
        raise PeerFault(Cause.CONFLICT, f"another roster is published under number {known}: raise the number")
