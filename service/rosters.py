"""Rosters from storage, where no version ever changes: each is parsed once, for as long as it is among the last that were asked for."""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from sqlalchemy import func, select

from protocol.messages import Roster
from service.storage.database import Database
from service.storage.tables import rosters

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
KEPT_BYTES = 4 << 20
"""Of messages whose rosters are kept, 100,000 members; parsed they are some ten times as much."""
KEPT_NAMES = 100_000
"""Of those whom `Everybody` names, over all federations."""


class Recent(Generic[K, V]):
    """What was used last, up to so much weight in all, or one alone.

    Args:
        most: weight.
    """

    def __init__(self, most: int) -> None:
        self._most, self._weight = most, 0
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """What is kept under a key."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: K, value: V, weight: int) -> None:
        """Keep a value, and let go of those that were not used for longest."""
        self._weight += weight - self._kept.pop(key, (None, 0))[1]
        self._kept[key] = value, weight
        while self._weight > self._most and len(self._kept) > 1:
            _, (_, lighter) = self._kept.popitem(last=False)
            self._weight -= lighter


@dataclass(frozen=True)
class Everybody:
    """Everybody whom any version of a federation's roster has named.

    Attributes:
        version: up to which it goes.
        keys: the newest public key of each.
        removed_in: the version that left somebody out who is no member any more.
    """

    version: int = -1
    keys: Mapping[str, bytes] = field(default_factory=dict)
    removed_in: Mapping[str, int] = field(default_factory=dict)

    def after(self, roster: Roster) -> "Everybody":
        """With the next version."""
        members = {entry.member: entry.key for entry in roster.members}
        removed = dict.fromkeys(self.keys, roster.version_number) | dict(self.removed_in)
        return Everybody(
            roster.version_number,
            {**self.keys, **members},
            {member: version for member, version in removed.items() if member not in members},
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Members first."""
        return tuple(sorted(self.keys, key=lambda member: (member in self.removed_in, member)))


class Rosters:
    """Every version of every federation's.

    Args:
        database: their rows.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._parsed = Recent[tuple[str, int], Roster](KEPT_BYTES)
        self._everybody = Recent[str, Everybody](KEPT_NAMES)
        self._parsing = asyncio.Lock()

    async def newest(self, federation: str) -> Roster | None:
        """The one of the highest version; None for no federation."""
        query = select(func.max(rosters.c.version)).where(rosters.c.federation == federation)
        async with self._database.reading() as connection:
            version = (await connection.execute(query)).scalar_one()
        return None if version is None else await self.version(federation, version)

    async def version(self, federation: str, version: int) -> Roster | None:
        """One version; None where there is none."""
        key = federation, version
        if (known := self._parsed.get(key)) is not None:
            return known
        async with self._parsing:  # those who ask for it at the same time wait for the first
            if (known := self._parsed.get(key)) is not None:
                return known
            query = select(rosters.c.body).where(
                rosters.c.federation == federation, rosters.c.version == version
            )
            async with self._database.reading() as connection:
                body = (await connection.execute(query)).scalar_one_or_none()
            if body is None:
                return None
            roster = await asyncio.to_thread(Roster.from_bytes, body)
            self._parsed.put(key, roster, len(body))
            return roster

    async def body(self, federation: str) -> bytes | None:
        """The newest as it was sent; None for no federation."""
        query = select(rosters.c.body).where(rosters.c.federation == federation)
        async with self._database.reading() as connection:
            newest = await connection.execute(query.order_by(rosters.c.version.desc()).limit(1))
            return newest.scalar_one_or_none()

    async def versions(self, federation: str, above: int = -1) -> list[int]:
        """The numbers of those above one, in order."""
        query = select(rosters.c.version).where(rosters.c.federation == federation, rosters.c.version > above)
        async with self._database.reading() as connection:
            return sorted((await connection.execute(query)).scalars())

    async def everybody(self, federation: str) -> Everybody:
        """Members, and those who were; nobody for no federation."""
        found = self._everybody.get(federation) or Everybody()
        for version in await self.versions(federation, found.version):
            roster = await self.version(federation, version)
            assert roster is not None
            found = found.after(roster)
            self._everybody.put(federation, found, len(found.keys))
        return found
