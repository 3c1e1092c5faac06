"""What goes on by itself: each chore when it is due, and again, later, where it failed."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import structlog

from service.storage.leases import Leases
from service.telemetry.logs import LOGGER, where
from service.telemetry.metrics import CHORE_FAILURES

log = structlog.get_logger(LOGGER)

LOOK_S = 15.0
"""Longest pause between two looks at the clock: it may be set, and a machine may sleep."""
ELSEWHERE_S = 1.0
"""Before another look at what another process is doing."""
HEAVY_AT_ONCE = 2
"""Of a process: its threads are few, and requests wait for them."""
PAUSE_S, PAUSE_MAX_S = 0.5, 60.0
"""After a first failure, doubled at every further one, up to the second."""


@dataclass(frozen=True)
class Chore:
    """Something to do for one cohort or round, whose id is the key; one at a time for each key.

    Attributes:
        due_s: Unix time in seconds.
        heavy: it keeps a thread busy, and there are many of its kind: `HEAVY_AT_ONCE` are done at once, and wait for their lease no sooner.
    """

    key: str
    due_s: float
    work: Callable[[], Awaitable[None]]
    heavy: bool = False


class Keeper:
    """Does chores side by side, so that a failing or slow one keeps no other from its deadline.

    Args:
        chores: what there is to do now or later; asked again after every `wake`.
        now: Unix time in seconds.
        pause_s: after a chore's first failure.
        leases: by which one process of several does a chore; None where there is one.
    """

    def __init__(
        self,
        chores: Callable[[], Iterable[Chore]],
        now: Callable[[], float] = time.time,
        pause_s: float = PAUSE_S,
        leases: Leases | None = None,
    ) -> None:
        self._chores, self._now, self._pause_s, self._leases = chores, now, pause_s, leases
        self._wakeup, self._heavy = asyncio.Event(), asyncio.Semaphore(HEAVY_AT_ONCE)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, tuple[int, float]] = {}

    def wake(self) -> None:
        """Something changed: look at the chores again."""
        self._wakeup.set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._wakeup.clear()
                wait_s = self._look()
                try:
                    async with asyncio.timeout(min(wait_s, LOOK_S)):
                        await self._wakeup.wait()
                except TimeoutError:
                    pass
        finally:
            tasks = tuple(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _look(self) -> float:
        """Begin what is due; seconds until the next look."""
        try:
            chores = list(self._chores())
            known = self._running.keys() | {chore.key for chore in chores}
            # Of what another process has done there is no chore any more.
            self._failures = {key: each for key, each in self._failures.items() if key in known}
            return min(map(self._begin, chores), default=LOOK_S)
        except Exception as error:  # noqa: BLE001 - there is a next look
            self._count(error, "looking", self._pause_s)
            return self._pause_s

    def _begin(self, chore: Chore) -> float:
        """Begin a chore that is due; seconds until it is to be looked at again."""
        if chore.key in self._running:
            return LOOK_S
        _, not_before = self._failures.get(chore.key, (0, 0.0))
        wait_s = max(chore.due_s - self._now(), not_before - time.monotonic())
        if wait_s > 0:
            return wait_s
        self._running[chore.key] = asyncio.create_task(self._do(chore))
        return LOOK_S

    async def _do(self, chore: Chore) -> None:
        try:
            async with (
                self._heavy if chore.heavy else nullcontext(),
                self._leases.held(chore.key) if self._leases else nullcontext(True) as mine,
            ):
                if not mine:
                    self._failures[chore.key] = 0, time.monotonic() + ELSEWHERE_S
                    return
                await chore.work()
        except Exception as error:  # noqa: BLE001 - one round's bug must not stop the others' deadlines
            self._failed(chore, error)
        else:
            self._failures.pop(chore.key, None)
        finally:
            del self._running[chore.key]
            self.wake()

    def _failed(self, chore: Chore, error: Exception) -> None:
        times, _ = self._failures.get(chore.key, (0, 0.0))
        pause_s = min(PAUSE_MAX_S, self._pause_s * 2 ** min(times, 16))
        self._failures[chore.key] = times + 1, time.monotonic() + pause_s
        self._count(error, chore.key, pause_s)

    def _count(self, error: Exception, of: str, pause_s: float) -> None:
        CHORE_FAILURES.inc()
        log.error("chore failed", of=of, again_in_s=pause_s, **where(error))
