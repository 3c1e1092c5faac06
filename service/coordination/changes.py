"""Changes by other processes of one database: notifications as they commit, and a poll from time to time in case one was missed."""

import asyncio

from sqlalchemy import func, select

from service.coordination.catalogue import Catalogue
from service.coordination.cohorts import Cohort
from service.coordination.rounds import Round
from service.storage.database import Database
from service.storage.faults import log_errors
from service.storage.tables import rounds
from service.telemetry.logs import describe_error, log

CHANGES_POLL_S = 5.0
"""Interval of polling for changes by other processes, if no notification came."""
CHANGE_TURN_S = 1.0
"""How long other changes wait for the refresh after one: it may read blobs, and their store may stall."""


class ChangeFeed:
    """Brings a catalogue up to date with other processes, which wakes long polls."""

    def __init__(self, database: Database, catalogue: Catalogue) -> None:
        self._database, self._catalogue = database, catalogue

    async def follow_changes(self) -> None:
        """Follow other processes' changes until cancelled."""
        await asyncio.gather(self._listen_for_changes(), self._poll_changes())

    async def refresh_all(self) -> None:
        """Bring everything that is open or cached up to date."""
        if not self._database.shared:
            return
        for federation in sorted({*await self._catalogue.active_federations(), *await self._list_behind()}):
            with self._database.quarantine.skip_errors(f"federation {federation}"):
                await self._catalogue.refresh_federation(federation)

    async def _list_behind(self) -> set[str]:
        """Return the federations with more rounds in storage than in the cached cohorts."""
        here = self._catalogue.cohorts.snapshot()
        counted = (
            select(rounds.c.cohort, func.count().label("many"))
            .where(rounds.c.cohort.in_(here))
            .group_by(rounds.c.cohort)
        )
        rows = await self._database.read_rows(counted)
        return {here[row.cohort].federation for row in rows if row.many != len(here[row.cohort].rounds)}

    async def _poll_changes(self) -> None:
        while self._database.shared:
            await asyncio.sleep(CHANGES_POLL_S)
            await log_errors(self.refresh_all())

    async def _listen_for_changes(self) -> None:
        """Refresh what notifications name."""
        changed: asyncio.Queue[str] = asyncio.Queue()
        refreshing = asyncio.create_task(self._refresh_changed(changed))
        try:
            while True:
                try:
                    await self._database.listen_for_changes(changed.put_nowait)
                except Exception as error:  # noqa: BLE001 - as in `log_errors`
                    log.warning(
                        "no word of others' changes", again_in_s=CHANGES_POLL_S, **describe_error(error)
                    )
                    await asyncio.sleep(CHANGES_POLL_S)
        finally:
            refreshing.cancel()

    async def _refresh_changed(self, changed: asyncio.Queue[str]) -> None:
        catalogue = self._catalogue
        async with asyncio.TaskGroup() as group:
            while True:
                topics = [await changed.get()]
                while not changed.empty():
                    topics.append(changed.get_nowait())
                for topic in dict.fromkeys(topics):  # in the order in which it happened
                    thing: Cohort | Round | None = catalogue.cohorts.get(topic) or catalogue.rounds.get(topic)
                    refreshing = thing.refresh() if thing is not None else catalogue.refresh_federation(topic)
                    await asyncio.wait([group.create_task(log_errors(refreshing))], timeout=CHANGE_TURN_S)
