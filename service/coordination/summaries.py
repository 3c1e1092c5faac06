"""Summaries of many rounds, for metrics and pages."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from sqlalchemy import func, select

from service.coordination.catalogue import Catalogue
from service.coordination.changes import CHANGES_POLL_S, ChangeFeed
from service.coordination.standing import read_view
from service.http.metering import in_thread
from service.storage.database import Database
from service.storage.faults import log_errors
from service.storage.tables import rounds

COUNTS_KEPT_S = 1.0
"""How long the counts of rounds are cached."""
VIEWS_AT_ONCE = 100
"""How many views of ended rounds are read at a time."""


@dataclass(frozen=True)
class RoundHistory:
    """A summary of a federation's ended rounds.

    Attributes:
        number: of the last one, in storage.
        uploaded: by member, the newest round that has its upload, and when that was opened in Unix time.
    """

    number: int = 0
    uploaded: Mapping[str, tuple[str, float]] = field(default_factory=dict)


class Summaries:
    """Reads them, and caches what it has read."""

    def __init__(self, database: Database, catalogue: Catalogue, feed: ChangeFeed) -> None:
        self._database, self._catalogue, self._feed = database, catalogue, feed
        self._counting, self._counted_s = asyncio.Lock(), -COUNTS_KEPT_S
        self._ended: dict[str, int] = {}
        self._histories = dict[str, RoundHistory]()
        self._reading = WeakValueDictionary[str, asyncio.Lock]()

    async def count_states(self) -> Counter[str]:
        """Return the number of all processes' rounds in each state.

        Callers have no rate limit: it counts again at most once every `COUNTS_KEPT_S`, and takes at most `CHANGES_POLL_S`.
        """
        async with self._counting:
            if time.monotonic() >= self._counted_s + COUNTS_KEPT_S:
                await log_errors(asyncio.wait_for(self._count_ended(), CHANGES_POLL_S))
                self._counted_s = time.monotonic()
        return Counter(self._ended) + Counter(
            round_.current_view().state for round_ in self._catalogue.live_rounds()
        )

    async def _count_ended(self) -> None:
        await self._feed.refresh_all()
        counted = select(rounds.c.state, func.count()).where(rounds.c.state.is_not(None))
        self._ended = dict(await self._database.read_rows(counted.group_by(rounds.c.state)))

    async def read_history(self, federation: str) -> RoundHistory:
        """Summarise a federation's ended rounds, each of which is read once; at most one live round follows them."""
        async with self._reading.setdefault(federation, asyncio.Lock()):
            past = self._histories.get(federation, RoundHistory())
            while found := await self._read_after(federation, past):
                past = self._histories[federation] = found
            return past

    async def _read_after(self, federation: str, past: RoundHistory) -> RoundHistory | None:
        query = (
            select(rounds.c.number, rounds.c.id, rounds.c.final, rounds.c.opened_s)
            .where(rounds.c.federation == federation, rounds.c.number > past.number)
            .where(rounds.c.final.is_not(None))
            .order_by(rounds.c.number)
            .limit(VIEWS_AT_ONCE)
        )
        rows = await self._database.read_rows(query)

        def read() -> RoundHistory:
            uploaded = dict(past.uploaded)
            for row in rows:
                with self._database.quarantine.skip_errors(f"round {row.id}"):
                    view = read_view(row.id, row.final)
                    uploaded |= dict.fromkeys(view.uploaded, (view.round, row.opened_s))
            return RoundHistory(rows[-1].number, uploaded)

        return await in_thread(read) if rows else None
