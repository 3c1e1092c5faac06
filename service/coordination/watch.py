"""Long-polls: wait until something's version passes the one a client has seen."""

import asyncio
from collections.abc import Callable, Iterable

POLLS_PER_S = 20.0
"""Limit on requests per second by all waiting callers together, for changes that ask nothing of them: the more callers wait, the
later they hear of such changes."""
UNPACED_WATCHERS, PACED_WATCHERS_PER_S = 16, 500.0
"""How many watchers are notified at once, and per second beyond that."""


def calm_s(waiting: int) -> float:
    """Return how long, in seconds, to hold back a change that asks nothing of a member, by the number of waiters."""
    return waiting / POLLS_PER_S


class Watch:
    """Wakes the callers that wait for a change of one thing.

    Args:
        version: grows with every change.
        urgent: the version of the last change that asks a member something; None if every change does.
    """

    def __init__(self, version: Callable[[], int], urgent: Callable[[], int] | None = None) -> None:
        self._any = _Bell(version)
        self._urgent = _Bell(urgent or version)
        self._waiting = 0

    def notify_waiters(self) -> None:
        """Wake the waiters if the version has changed."""
        self._any.ring_bell()
        self._urgent.ring_bell()

    def stop(self) -> None:
        """End every wait, before the process stops."""
        self._any.stop()
        self._urgent.stop()

    async def wait_urgently(self, after: int, wait_s: float) -> None:
        """Wait up to `wait_s` seconds for an urgent change above `after`."""
        await self._urgent.wait_beyond(after, wait_s)

    async def wait_beyond(self, after: int, wait_s: float, calm_s: float = 0.0) -> int:
        """Wait until the version is above `after`, for at most `wait_s` seconds, and return it.

        Args:
            after: the version that the caller knows.
            wait_s: seconds.
            calm_s: for how many of them changes that are not urgent are held back; longer if many wait.
        """
        calm_s = min(max(calm_s, (self._waiting - UNPACED_WATCHERS) / PACED_WATCHERS_PER_S), wait_s)
        self._waiting += 1
        try:
            if calm_s > 0:
                await self._urgent.wait_beyond(after, calm_s)
            return await self._any.wait_beyond(after, wait_s - max(calm_s, 0.0))
        finally:
            self._waiting -= 1


class LongPolls:
    """Holds requests until something changes.

    Args:
        max_wait_s: longest time.

    Attributes:
        stopping: the process is about to end, and holds no request any more.
    """

    def __init__(self, max_wait_s: float) -> None:
        self.stopping, self._max_wait_s = False, max_wait_s

    async def wait_change(self, watch: Watch, after: int, wait_s: float, waiting: int = 0) -> int:
        """Wait until a version is above `after`, the time is over or the process ends, and return the version.

        With many `waiting`, changes that are not urgent are announced later.
        """
        return await watch.wait_beyond(after, self._limit_s(wait_s), calm_s(waiting))

    async def wait_request(self, watch: Watch, after: int, wait_s: float) -> None:
        """Wait until members are asked something new since `after`; otherwise as `wait_change`."""
        await watch.wait_urgently(after, self._limit_s(wait_s))

    def _limit_s(self, wait_s: float) -> float:
        return 0.0 if self.stopping else min(wait_s, self._max_wait_s)

    def stop(self, watches: Iterable[Watch]) -> None:
        """End every wait."""
        self.stopping = True
        for watch in watches:
            watch.stop()


class _Bell:
    def __init__(self, version: Callable[[], int]) -> None:
        self.version, self._rung_for = version, -1
        self._changed = asyncio.Event()
        self._stopped = False

    def ring_bell(self) -> None:
        """Wake the waiters, unless they were already woken for this version."""
        if self._stopped or self._rung_for != (version := self.version()):
            self._rung_for = -1 if self._stopped else version
            self._changed.set()
            self._changed = asyncio.Event()

    def stop(self) -> None:
        self._stopped = True
        self.ring_bell()

    async def wait_beyond(self, after: int, wait_s: float) -> int:
        try:
            async with asyncio.timeout(wait_s):
                while self.version() <= after and not self._stopped:
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.version()
