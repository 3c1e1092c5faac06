"""Long-polls: wait until something's version passes the one a client has seen."""

import asyncio
from collections.abc import Callable


class Watch:
    """Wakes everybody who waits for a change of one thing."""

    def __init__(self, version: Callable[[], int]) -> None:
        self._version = version
        self._changed = asyncio.Event()
        self._stopped = False

    def notify(self) -> None:
        """The version has grown."""
        self._changed.set()
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """Let nobody wait any more: the process is to end."""
        self._stopped = True
        self.notify()

    async def beyond(self, after: int, wait_s: float) -> int:
        """The version as soon as it is above `after`, or as it stands when `wait_s` seconds are over."""
        try:
            async with asyncio.timeout(wait_s):
                while self._version() <= after and not self._stopped:
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self._version()
