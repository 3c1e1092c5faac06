"""Rounds that have ended, by their stored views."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from sqlalchemy import func, select

from service.storage.database import Database
from service.storage.tables import rounds
from veilsum.protocol.rest import RoundView

READ = 100
"""How many views are read at once."""


@dataclass(frozen=True)
class Brief:
    """What a cohort knows of one of its rounds.

    Attributes:
        place: sequence and attempt.
    """

    id: str
    state: str
    place: tuple[int, int]
    step: str

    @classmethod
    def of(cls, view: RoundView) -> "Brief":
        """Sum up a round's view."""
        return cls(view.round, view.state, (view.sequence, view.attempt), view.spec.step)


@dataclass(frozen=True)
class RoundHistory:
    """The ended rounds of a federation, summed up.

    Attributes:
        number: of the last one, in storage.
        uploaded: by member, the newest round that has its upload, and when that was opened in Unix time.
    """

    number: int = 0
    uploaded: Mapping[str, tuple[str, float]] = field(default_factory=dict)

    def after(self, number: int, view: RoundView, opened_s: float) -> "RoundHistory":
        """Add the next round."""
        return RoundHistory(number, {**self.uploaded, **dict.fromkeys(view.uploaded, (view.round, opened_s))})


class RoundHistories:
    """The history of each federation that somebody has asked for. Each round is read once: an ended one does not change."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read = dict[str, RoundHistory]()
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    async def of(self, federation: str) -> RoundHistory:
        """Sum up a federation's ended rounds; at most one live round follows them."""
        lock = self._locks.setdefault(federation, asyncio.Lock())
        async with lock:
            past = self._read.get(federation, RoundHistory())
            while found := await self._after(federation, past):
                past = self._read[federation] = found
            return past

    async def _after(self, federation: str, past: RoundHistory) -> RoundHistory | None:
        query = (
            select(rounds.c.number, rounds.c.final, rounds.c.opened_s)
            .where(rounds.c.federation == federation, rounds.c.number > past.number)
            .where(rounds.c.final.is_not(None))
            .order_by(rounds.c.number)
            .limit(READ)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()

        def read() -> RoundHistory:
            found = past
            for row in rows:
                found = found.after(row.number, RoundView.model_validate_json(row.final), row.opened_s)
            return found

        return await asyncio.to_thread(read) if rows else None

    async def states(self) -> dict[str, int]:
        """Count all federations' ended rounds by state."""
        query = (
            select(rounds.c.state, func.count()).where(rounds.c.state.is_not(None)).group_by(rounds.c.state)
        )
        async with self._database.reading() as connection:
            return {row[0]: row[1] for row in await connection.execute(query)}
