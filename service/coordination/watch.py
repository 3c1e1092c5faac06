"""Long-polls: wait until something's version passes the one a client has seen."""

import asyncio
from collections.abc import Callable

POLLS_PER_S = 20.0
"""Limit on requests per second by all waiting callers together, for changes that ask nothing of them: the more callers wait, the
later they hear of such changes."""
FEW, LOOKS_PER_S = 16, 500.0
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

    def notify(self) -> None:
        """Wake the waiters if the version has changed."""
        self._any.ring()
        self._urgent.ring()

    def stop(self) -> None:
        """End every wait, before the process stops."""
        self._any.stop()
        self._urgent.stop()

    async def urgently(self, after: int, wait_s: float) -> int:
        """Wait up to `wait_s` seconds for an urgent change above `after`, and return the version."""
        await self._urgent.beyond(after, wait_s)
        return self._any.version()

    async def beyond(self, after: int, wait_s: float, calm_s: float = 0.0) -> int:
        """Wait until the version is above `after`, for at most `wait_s` seconds, and return it.

        Args:
            after: the version that the caller knows.
            wait_s: seconds.
            calm_s: for how many of them changes that are not urgent are held back; longer if many wait.
        """
        calm_s = min(max(calm_s, (self._waiting - FEW) / LOOKS_PER_S), wait_s)
        self._waiting += 1
        try:
            if calm_s > 0:
                await self._urgent.beyond(after, calm_s)
            return await self._any.beyond(after, wait_s - max(calm_s, 0.0))
        finally:
            self._waiting -= 1


class _Bell:
    def __init__(self, version: Callable[[], int]) -> None:
        self.version, self._rung_for = version, -1
        self._changed = asyncio.Event()
        self._stopped = False

    def ring(self) -> None:
        """Wake the waiters, unless they were already woken for this version."""
        if self._stopped or self._rung_for != (version := self.version()):
            self._rung_for = -1 if self._stopped else version
            self._changed.set()
            self._changed = asyncio.Event()

    def stop(self) -> None:
        self._stopped = True
        self.ring()

    async def beyond(self, after: int, wait_s: float) -> int:
        try:
            async with asyncio.timeout(wait_s):
                while self.version() <= after and not self._stopped:
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.version()
