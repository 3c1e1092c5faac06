"""The time that all processes of one coordinator agree on: the database's."""

import asyncio
import time
from collections.abc import Callable

from sqlalchemy import select

from service.storage.database import Database
from service.storage.faults import log_errors
from service.telemetry.metrics import CLOCK_DIFFERENCE

CLOCK_READING_S = 10.0
"""Seconds between two readings of the database's clock."""
CLOCK_DIFFERENCE_MAX_S = 30.0
"""The largest tolerated difference between this machine's clock and the database's."""


class Clock:
    """Unix time in seconds by the database's clock: the machine's for SQLite, the server's for PostgreSQL.

    Between readings it advances by the monotonic clock, so that a machine with the wrong time ends no round.

    Args:
        machine: this machine's own Unix time in seconds.

    Attributes:
        difference_s: how far the machine's clock was ahead of the database's at the last look.
    """

    def __init__(self, machine: Callable[[], float] = time.time) -> None:
        self._machine, self.difference_s = machine, 0.0
        self._start_s = machine() - time.monotonic()

    def __call__(self) -> float:
        return self._start_s + time.monotonic()

    async def read_clock(self, database: Database) -> None:
        """Read the database's clock. The delay of the answer can make ours late, but never early."""
        read_s = await database.read_value(select(database.clock))
        self._start_s, self.difference_s = read_s - time.monotonic(), self._machine() - read_s
        CLOCK_DIFFERENCE.set(self.difference_s)

    async def follow_clock(self, database: Database) -> None:
        """Read it at intervals until cancelled."""
        while True:
            await asyncio.sleep(CLOCK_READING_S)
            await log_errors(self.read_clock(database))
