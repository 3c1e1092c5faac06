"""Rosters from storage, where none ever changes."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from weakref import WeakValueDictionary

from sqlalchemy import func, select

from service.cache import Recent
from service.storage.database import Database
from service.storage.tables import rosters
from veilsum.protocol.messages import Roster

KEPT_BYTES = 16 << 20
"""Rosters that stay parsed, as stored; parsed, they take seven times that. One of 10,000 members has 400 KB and is parsed in 0.1 s."""
KEPT_FORMER = 10_000
"""How many former members of each federation are remembered, those who left last."""
_EACH_BYTES = 2048
"""What a roster weighs beside its bytes."""


@dataclass(frozen=True)
class Gone:
    """A former member.

    Attributes:
        removed_in: number of the first roster without it.
        key: its last public key.
    """

    removed_in: int
    key: bytes


@dataclass(frozen=True)
class Former:
    """The former members of a federation.

    Attributes:
        number: of the roster up to which this goes.
        gone: by id, in the order in which they left.
        more: whether there may be others.
    """

    number: int = -1
    gone: Mapping[str, Gone] = field(default_factory=dict)
    more: bool = False

    def after(self, before: Roster | None, roster: Roster) -> "Former":
        """Go on to the roster that followed on `before`, which is None for the first."""
        members = frozenset(names_of(roster))
        gone = {member: each for member, each in self.gone.items() if member not in members}
        if before is not None:
            left = (member for member in names_of(before) if member not in members)
            gone.update((member, Gone(roster.number, before.key_of(member))) for member in left)
        over = max(0, len(gone) - KEPT_FORMER)
        return Former(roster.number, dict(islice(gone.items(), over, None)), more=self.more or over > 0)


def names_of(roster: Roster) -> tuple[str, ...]:
    """Return a roster's members' ids, in order."""
    return tuple(entry.member for entry in roster.members)


class Rosters:
    """All rosters of every federation.

    Args:
        database: their rows.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._former = dict[str, Former]()
        # Rosters that cohorts and rounds hold are shared, too.
        self._parsed = WeakValueDictionary[tuple[str, int], Roster]()
        self._used = Recent[tuple[str, int], Roster](KEPT_BYTES)
        self._locks = WeakValueDictionary[tuple[str, int | str], asyncio.Lock]()

    async def newest(self, federation: str) -> Roster | None:
        """Return the roster of the highest number; None for an unknown federation."""
        query = select(func.max(rosters.c.number)).where(rosters.c.federation == federation)
        async with self._database.reading() as connection:
            number = (await connection.execute(query)).scalar_one()
        return None if number is None else await self.numbered(federation, number)

    async def numbered(self, federation: str, number: int) -> Roster | None:
        """Return one roster; None where there is none of that number."""
        key = federation, number
        async with self._lock(*key):  # those who ask for it at the same time wait for the first
            found = self._parsed.get(key)
            if found is None:
                body = await self.body(*key)
                if body is None:
                    return None
                found = self._parsed[key] = await asyncio.to_thread(Roster.from_bytes, body)
                self._used.put(key, found, len(body) + _EACH_BYTES)
            else:
                self._used.get(key)
            return found

    async def body(self, federation: str, number: int | None = None) -> bytes | None:
        """Return a roster as it was sent, the newest without a number; None where there is none."""
        query = select(rosters.c.body).where(rosters.c.federation == federation)
        if number is not None:
            query = query.where(rosters.c.number == number)
        async with self._database.reading() as connection:
            newest = await connection.execute(query.order_by(rosters.c.number.desc()).limit(1))
            body: bytes | None = newest.scalar_one_or_none()
            return body

    async def former(self, federation: str) -> Former:
        """Return a federation's former members. Each roster is looked at once."""
        async with self._lock(federation, "former"):
            found = self._former.get(federation, Former())
            newer = select(rosters.c.number).where(
                rosters.c.federation == federation, rosters.c.number > found.number
            )
            async with self._database.reading() as connection:
                numbers = sorted((await connection.execute(newer)).scalars())
            before = await self.numbered(federation, found.number) if numbers else None
            for number in numbers:
                roster = await self.numbered(federation, number)
                assert roster is not None
                found = self._former[federation] = await asyncio.to_thread(found.after, before, roster)
                before = roster
            return found

    def _lock(self, federation: str, what: int | str) -> asyncio.Lock:
        return self._locks.setdefault((federation, what), asyncio.Lock())
