"""The time that all processes of one coordinator agree on: the database's."""

import asyncio
import time
from collections.abc import Callable

from sqlalchemy import select

from service.storage.database import Database
from service.storage.faults import log_errors
from service.telemetry.logs import log
from service.telemetry.metrics import CLOCK_DIFFERENCE

CLOCK_READING_S = 10.0
"""Seconds between two readings of the database's clock."""
CLOCK_STEP_MAX_S = 10.0
"""The largest step of the database's clock that is followed at once."""
CLOCK_STEP_STANDS_S = 300.0
"""How long a larger step must stand before it is followed."""
CLOCK_DIFFERENCE_MAX_S = 30.0
"""The largest tolerated difference between this machine's clock and the database's."""


def read_elapsed() -> float:
    """Return the monotonic clock, which goes on while the machine sleeps where the system has such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Clock:
    """Unix time in seconds by the database's clock: the machine's for SQLite, the server's for PostgreSQL.

    Between readings it advances by the monotonic clock, so that a machine with the wrong time ends no round. A step of the database's
    clock is followed only once it has stood for a while: a clock that jumps ahead for seconds would end rounds for good.

    Args:
        machine: this machine's own Unix time in seconds.
        elapsed: seconds that no one sets.

    Attributes:
        difference_s: how far the machine's clock was ahead of the database's at the last look.
        step_s: by how much the database's clock has stepped, as long as that is not followed; else 0.
    """

    def __init__(
        self, machine: Callable[[], float] = time.time, elapsed: Callable[[], float] = read_elapsed
    ) -> None:
        self._machine, self._elapsed, self.difference_s, self.step_s = machine, elapsed, 0.0, 0.0
        self._start_s = machine() - elapsed()
        self._was_read, self._stepped_at_s = False, 0.0

    def __call__(self) -> float:
        return self._start_s + self._elapsed()

    async def read_clock(self, database: Database) -> None:
        """Read the database's clock. The delay of the answer can make ours late, but never early."""
        read_s = await database.read_value(select(database.clock))
        self.difference_s = self._machine() - read_s
        CLOCK_DIFFERENCE.set(self.difference_s)
        elapsed_s = self._elapsed()
        step_s = read_s - elapsed_s - self._start_s
        if self._was_read and abs(step_s - self.step_s) > CLOCK_STEP_MAX_S:
            self._stepped_at_s = elapsed_s
            log.error("the clock stepped", by_s=round(step_s))
        stands = elapsed_s - self._stepped_at_s >= CLOCK_STEP_STANDS_S
        if not self._was_read or abs(step_s) <= CLOCK_STEP_MAX_S or stands:
            self._start_s, self.step_s, self._was_read = read_s - elapsed_s, 0.0, True
        else:
            self.step_s = step_s

    async def follow_clock(self, database: Database) -> None:
        """Read it at intervals until cancelled."""
        while True:
            await asyncio.sleep(CLOCK_READING_S)
            await log_errors(self.read_clock(database))
