"""Whether this process can do its work: what /readyz looks at, at most once in a while however often it is asked."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import structlog

from protocol.causes import Cause
from protocol.errors import PeerFault
from service.telemetry.logs import LOGGER, where
from service.telemetry.metrics import READY

log = structlog.get_logger(LOGGER)
Check = Callable[[], Awaitable[None]]

KEPT_S = 2.0
PATIENCE_S = 5.0


class NotReady(Exception):  # noqa: N818 - a state, not an error
    """What a check found missing, in words for whoever runs the coordinator."""


class Readiness:
    """The checks, each by the name of what it looks at.

    Args:
        checks: each raises NotReady with the reason, or anything else where looking itself failed.
        kept_s: how long an answer stands, so that asking costs nothing.
        patience_s: how long one check may take.
    """

    def __init__(
        self, checks: Mapping[str, Check], kept_s: float = KEPT_S, patience_s: float = PATIENCE_S
    ) -> None:
        self._checks, self._kept_s, self._patience_s = checks, kept_s, patience_s
        self._lock = asyncio.Lock()
        self._until = -1.0
        self._missing: dict[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What is looked at."""
        return tuple(self._checks)

    async def missing(self) -> dict[str, str]:
        """What is not as it should be, and why; empty where all is well."""
        async with self._lock:
            if time.monotonic() >= self._until:
                reasons = await asyncio.gather(*map(self._look, self._checks))
                self._missing = {name: why for name, why in zip(self._checks, reasons, strict=True) if why}
                self._until = time.monotonic() + self._kept_s
                READY.set(not self._missing)
            return self._missing

    async def check(self) -> tuple[str, ...]:
        """What was looked at; PeerFault(unavailable) with every reason where something is missing."""
        if missing := await self.missing():
            raise PeerFault(Cause.UNAVAILABLE, "; ".join(f"{name}: {why}" for name, why in missing.items()))
        return self.names

    async def _look(self, name: str) -> str:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._checks[name]()
        except NotReady as reason:
            return str(reason)
        except TimeoutError:
            return f"no answer within {self._patience_s:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is why this process is not ready
            log.warning("not ready", of=name, **where(error))
            return f"{type(error).__name__}: the log says where"
        return ""
