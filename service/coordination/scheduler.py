"""Background work: one process runs each job when it is due, and retries failed ones."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from service.storage.database import Database
from service.storage.tables import leases
from service.telemetry.logs import describe_error, log
from service.telemetry.metrics import JOB_FAILURES

CLOCK_POLL_S = 15.0
"""Longest sleep before the clock is read again: it may be set while the machine sleeps."""
HELD_JOB_POLL_S = 1.0
"""Pause before a job that another process has is tried again."""
HEAVY_AT_ONCE = 2
"""Heavy jobs that one process runs at once: requests wait for its few threads too."""
FAILURE_PAUSE_S, FAILURE_PAUSE_MAX_S = 0.5, 60.0
"""Pause after a first failure, doubled with every further one up to the maximum."""


LEASE_S = 15.0
"""Lease time: how long a process that hangs, or whose machine is gone, keeps its work while its connections stay open."""


@dataclass(frozen=True)
class Job:
    """Work for one cohort or round, keyed by its id; one job at a time for each key.

    Attributes:
        due_s: Unix time in seconds.
        heavy: it keeps a thread busy, and there are many of its kind; at most `HEAVY_AT_ONCE` run or wait for a lease.
    """

    key: str
    due_s: float
    work: Callable[[], Awaitable[None]]
    heavy: bool = False


class Leases:
    """This process's leases. They only save work: doing a job twice is harmless.

    Args:
        database: its clock times the leases.
        lease_s: how long a lease lasts unless it is renewed, as it is after each third of that.
    """

    def __init__(self, database: Database, lease_s: float = LEASE_S) -> None:
        self._database, self.lease_s = database, lease_s

    @asynccontextmanager
    async def hold_lease(self, key: str) -> AsyncIterator[bool]:
        """Try to hold the lease during the block. Yields whether this process holds it."""
        if not self._database.shared:
            yield True
            return
        fence = await self._take_lease(key)
        if fence is None:
            yield False
            return
        renewing = asyncio.create_task(self._renew_lease(key, fence))
        try:
            yield True
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(OSError, SQLAlchemyError):  # it will run out
                given_back = delete(leases).where(*self._own_lease(key, fence))
                await self._database.write(lambda connection: connection.execute(given_back))

    async def _take_lease(self, key: str) -> int | None:
        def take(connection: Connection) -> int | None:
            free = {"key": key, "holder": "", "until_s": 0.0, "fence": 0}
            self._database.add_row(connection, leases, free)
            found = connection.execute(
                select(leases.c.fence)
                .where(leases.c.key == key)
                .where(
                    or_(leases.c.until_s < self._database.clock, self._database.process_gone(leases.c.holder))
                )
                .with_for_update(skip_locked=True)
            )
            fence = found.scalar_one_or_none()
            if fence is None:
                return None
            connection.execute(
                update(leases)
                .where(leases.c.key == key)
                .values(
                    holder=self._database.process_name,
                    until_s=self._database.clock + self.lease_s,
                    fence=fence + 1,
                )
            )
            return int(fence) + 1

        return await self._database.write(take)

    async def _renew_lease(self, key: str, fence: int) -> None:
        until_s = self._database.clock + self.lease_s
        renewed = update(leases).where(*self._own_lease(key, fence)).values(until_s=until_s)
        while True:
            await asyncio.sleep(self.lease_s / 3)
            with suppress(OSError, SQLAlchemyError):
                await self._database.write(lambda connection: connection.execute(renewed))

    def _own_lease(self, key: str, fence: int) -> tuple[ColumnElement[bool], ...]:
        """Whether no other process has taken it over."""
        return leases.c.key == key, leases.c.holder == self._database.process_name, leases.c.fence == fence


class Scheduler:
    """Runs jobs side by side, so that a failing or slow one delays no other.

    Args:
        jobs: lists the jobs, due now or later; called again after every `wake_up`.
        now: Unix time in seconds.
        pause_s: pause after a job's first failure.
        leases: decide which of several processes runs a job; None for one process.
    """

    def __init__(
        self,
        jobs: Callable[[], Iterable[Job]],
        now: Callable[[], float] = time.time,
        pause_s: float = FAILURE_PAUSE_S,
        leases: Leases | None = None,
    ) -> None:
        self._jobs, self._now, self._pause_s, self._leases = jobs, now, pause_s, leases
        self._wakeup, self._heavy = asyncio.Event(), asyncio.Semaphore(HEAVY_AT_ONCE)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, tuple[int, float]] = {}

    def wake_up(self) -> None:
        """List the jobs again: something changed."""
        self._wakeup.set()

    async def run(self) -> None:
        """Run jobs until cancelled."""
        try:
            while True:
                self._wakeup.clear()
                wait_s = self._start_due()
                try:
                    async with asyncio.timeout(min(wait_s, CLOCK_POLL_S)):
                        await self._wakeup.wait()
                except TimeoutError:
                    pass
        finally:
            tasks = tuple(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start_due(self) -> float:
        """Start the jobs that are due. Returns seconds until the next look."""
        try:
            jobs = list(self._jobs())
            known = self._running.keys() | {job.key for job in jobs}
            # A job that another process has done is not listed any more.
            self._failures = {key: each for key, each in self._failures.items() if key in known}
            return min(map(self._start_job, jobs), default=CLOCK_POLL_S)
        except Exception as error:  # noqa: BLE001 - there is a next look
            self._count_failure(error, "looking", self._pause_s)
            return self._pause_s

    def _start_job(self, job: Job) -> float:
        """Start a job if it is due. Returns seconds until the next look at it."""
        if job.key in self._running:
            return CLOCK_POLL_S
        _, not_before = self._failures.get(job.key, (0, 0.0))
        wait_s = max(job.due_s - self._now(), not_before - time.monotonic())
        if wait_s > 0:
            return wait_s
        self._running[job.key] = asyncio.create_task(self._run_job(job))
        return CLOCK_POLL_S

    async def _run_job(self, job: Job) -> None:
        try:
            async with (
                self._heavy if job.heavy else nullcontext(),
                self._leases.hold_lease(job.key) if self._leases else nullcontext(True) as mine,
            ):
                if not mine:
                    self._failures[job.key] = 0, time.monotonic() + HELD_JOB_POLL_S
                    return
                await job.work()
        except Exception as error:  # noqa: BLE001 - one round's bug must not stop the others' deadlines
            self._note_failure(job, error)
        else:
            self._failures.pop(job.key, None)
        finally:
            del self._running[job.key]
            self.wake_up()

    def _note_failure(self, job: Job, error: Exception) -> None:
        times, _ = self._failures.get(job.key, (0, 0.0))
        pause_s = min(FAILURE_PAUSE_MAX_S, self._pause_s * 2 ** min(times, 16))
        self._failures[job.key] = times + 1, time.monotonic() + pause_s
        self._count_failure(error, job.key, pause_s)

    def _count_failure(self, error: Exception, of: str, pause_s: float) -> None:
        JOB_FAILURES.inc()
        log.error("job failed", of=of, again_in_s=pause_s, **describe_error(error))
