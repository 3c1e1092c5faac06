"""Rosters from storage, where none ever changes.

Whoever asks for one member, or a page of them, makes nobody parse a roster: the newest of each federation is kept as it is stored.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from sqlalchemy import func, select

from protocol.messages import Roster
from service.listed import Listed
from service.storage.database import Database
from service.storage.tables import rosters

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
KEPT_BYTES = 64 << 20
"""Of newest rosters: of a hundred federations of 10,000 members. One that is not among them costs its read, and a look at each length."""
PARSED_BYTES = 16 << 20
"""Of rosters that stay parsed, as they are stored, seven times that in memory: whoever asks for what ended under one has it parsed once."""
KEPT_FORMER = 10_000
"""Of those who are no members any more, in each federation: who left last."""
_EACH_BYTES = 2048
"""What any roster takes beside its bytes."""


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
class Gone:
    """Somebody who is no member any more.

    Attributes:
        removed_in: the number of the roster that left it out.
        key: its last public key.
    """

    removed_in: int
    key: bytes


@dataclass(frozen=True)
class Former:
    """Who was a member of a federation, and is none any more.

    Attributes:
        number: of the roster, up to which it goes.
        gone: who left last, `KEPT_FORMER` of them.
        more: whether there may be others.
    """

    number: int = -1
    gone: Mapping[str, Gone] = field(default_factory=dict)
    more: bool = False

    def after(self, before: Listed | None, roster: Listed) -> "Former":
        """With the one that followed on `before`, which is None for the first."""
        members = frozenset(roster.members)
        gone = {member: each for member, each in self.gone.items() if member not in members}
        if before is not None:
            left = (member for member in before.members if member not in members)
            gone.update((member, Gone(roster.number, before.key_of(member))) for member in left)
        over = max(0, len(gone) - KEPT_FORMER)
        return Former(roster.number, dict(islice(gone.items(), over, None)), more=self.more or over > 0)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Sorted."""
        return tuple(sorted(self.gone))


class Rosters:
    """All rosters of every federation.

    Args:
        database: their rows.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._newest = Recent[str, Listed](KEPT_BYTES)
        self._former = dict[str, Former]()
        # What cohorts and rounds hold is there for others too.
        self._parsed = WeakValueDictionary[tuple[str, int], Roster]()
        self._used = Recent[tuple[str, int], Roster](PARSED_BYTES)
        self._locks = WeakValueDictionary[tuple[str, int | str], asyncio.Lock]()

    async def newest(self, federation: str) -> Listed | None:
        """The one of the highest number; None for no federation."""
        query = select(func.max(rosters.c.number)).where(rosters.c.federation == federation)
        async with self._database.reading() as connection:
            number = (await connection.execute(query)).scalar_one()
        if number is None:
            return None
        if (known := self._known(federation, number)) is not None:
            return known
        async with self._lock(federation, "newest"):
            if (known := self._known(federation, number)) is not None:
                return known
            found = await self._listed(federation, number)
            self._newest.put(federation, found, len(found.body) + _EACH_BYTES)
            return found

    async def numbered(self, federation: str, number: int) -> Roster | None:
        """One of them, parsed; None where there is none."""
        key = federation, number
        async with self._lock(*key):  # those who ask for it at the same time wait for the first
            if (known := self._parsed.get(key)) is not None:
                return known
            body = await self._body(*key)
            if body is None:
                return None
            roster = self._parsed[key] = await asyncio.to_thread(Roster.from_bytes, body)
            self._used.put(key, roster, len(body) + _EACH_BYTES)
            return roster

    async def body(self, federation: str) -> bytes | None:
        """The newest as it was sent; None for no federation."""
        found = await self.newest(federation)
        return None if found is None else found.body

    async def numbers(self, federation: str, above: int = -1) -> list[int]:
        """The numbers of those above one, in order."""
        query = select(rosters.c.number).where(rosters.c.federation == federation, rosters.c.number > above)
        async with self._database.reading() as connection:
            return sorted((await connection.execute(query)).scalars())

    async def former(self, federation: str) -> Former:
        """Every id that a roster of the federation has listed; none for an unknown federation. Each roster is read once."""
        known = self._former.get(federation, Former())
        if not await self.numbers(federation, known.number):
            return known
        async with self._lock(federation, "former"):
            found = self._former.get(federation, Former())
            new = await self.numbers(federation, found.number)
            before = await self._listed(federation, found.number) if new and found.number >= 0 else None
            for number in new:
                roster = await self._listed(federation, number)
                found = self._former[federation] = await asyncio.to_thread(found.after, before, roster)
                before = roster
            return found

    def _known(self, federation: str, number: int) -> Listed | None:
        known = self._newest.get(federation)
        return known if known is not None and known.number >= number else None

    def _lock(self, federation: str, what: int | str) -> asyncio.Lock:
        return self._locks.setdefault((federation, what), asyncio.Lock())

    async def _listed(self, federation: str, number: int) -> Listed:
        body = await self._body(federation, number)
        assert body is not None
        return await asyncio.to_thread(Listed, body)

    async def _body(self, federation: str, number: int) -> bytes | None:
        query = select(rosters.c.body).where(rosters.c.federation == federation, rosters.c.number == number)
        async with self._database.reading() as connection:
            body: bytes | None = (await connection.execute(query)).scalar_one_or_none()
            return body
