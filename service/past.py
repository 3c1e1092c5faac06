"""What is told of rounds that have ended, without the rounds: by their views, as storage keeps them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from sqlalchemy import func, select

from protocol.rest import RoundView
from service.storage.database import Database
from service.storage.tables import rounds

READ = 100
"""Views that are read at once."""


@dataclass(frozen=True)
class Brief:
    """What a cohort has to know of one of its rounds.

    Attributes:
        place: sequence and attempt.
    """

    id: str
    state: str
    place: tuple[int, int]

    @classmethod
    def of(cls, view: RoundView) -> "Brief":
        """A round as it stands."""
        return cls(view.round, view.state, (view.sequence, view.attempt))


@dataclass(frozen=True)
class Past:
    """What the ended rounds of a federation come to, oldest first.

    Attributes:
        number: of the last one, in storage.
        uploaded: by member, the newest round that its upload was in, and when that was opened in Unix time.
    """

    number: int = 0
    uploaded: Mapping[str, tuple[str, float]] = field(default_factory=dict)

    def after(self, number: int, view: RoundView, opened_s: float) -> "Past":
        """With one more."""
        return Past(number, {**self.uploaded, **dict.fromkeys(view.uploaded, (view.round, opened_s))})


class Pasts:
    """Every federation's that somebody has asked for. Each round is read once, after those before it: what has ended does not change."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known = dict[str, Past]()
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    async def of(self, federation: str) -> Past:
        """All rounds of a federation that have ended: one after the other, so that there is a live one behind them at the most."""
        lock = self._locks.setdefault(federation, asyncio.Lock())
        async with lock:
            past = self._known.get(federation, Past())
            while found := await self._after(federation, past):
                past = self._known[federation] = found
            return past

    async def _after(self, federation: str, past: Past) -> Past | None:
        query = (
            select(rounds.c.number, rounds.c.final, rounds.c.opened_s)
            .where(rounds.c.federation == federation, rounds.c.number > past.number)
            .where(rounds.c.final.is_not(None))
            .order_by(rounds.c.number)
            .limit(READ)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()

        def read() -> Past:
            found = past
            for row in rows:
                found = found.after(row.number, RoundView.model_validate_json(row.final), row.opened_s)
            return found

        return await asyncio.to_thread(read) if rows else None

    async def states(self) -> dict[str, int]:
        """How many rounds have ended in each state, of all federations."""
        query = (
            select(rounds.c.state, func.count()).where(rounds.c.state.is_not(None)).group_by(rounds.c.state)
        )
        async with self._database.reading() as connection:
            return {row[0]: row[1] for row in await connection.execute(query)}
