"""How much processor time a request takes, on the event loop and in threads, and whose account that goes to."""

import asyncio
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.access.callers import STRANGER

T = TypeVar("T")


class Meter:
    """One request's processor time. What is spent before its account is known is put on it then."""

    def __init__(self) -> None:
        self._account: Callable[[float], None] | None = None
        self._waiting_s = 0.0
        self._in_threads = deque[float]()

    @property
    def billed(self) -> bool:
        return self._account is not None

    def add(self, seconds: float) -> None:
        """Count what the event loop took, and what threads have taken by now."""
        while self._in_threads:
            seconds += self._in_threads.popleft()
        if self._account is None:
            self._waiting_s += seconds
        else:
            self._account(seconds)

    def add_thread(self, seconds: float) -> None:
        """Count what a thread took, from there."""
        self._in_threads.append(seconds)

    def bill(self, account: Callable[[float], None]) -> None:
        """Name whose account all of it goes to."""
        self._account = account
        self._account(self._waiting_s)


_METER = ContextVar[Meter]("meter")


class Metering:
    """ASGI middleware that measures each request. One that no guard has billed is its address's."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        meter = Meter()
        _METER.set(meter)
        try:
            await _measured(self.app(scope, receive, send), meter.add)  # type: ignore[arg-type]  # apps are coroutines
        finally:
            if not meter.billed:
                meter.bill(scope["app"].state.limits.account(STRANGER, Request(scope)))


def bill(account: Callable[[float], None]) -> None:
    """Put the present request on an account."""
    _METER.get().bill(account)


@types.coroutine
def _measured(work: Coroutine[Any, Any, T], spend: Callable[[float], None]) -> Generator[Any, Any, T]:
    """Await a coroutine, and tell the processor time of each of its steps."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        begun_s = time.thread_time()
        try:
            awaited = step(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            spend(time.thread_time() - begun_s)
        try:
            value = yield awaited
            step = work.send
        except BaseException as error:  # noqa: BLE001 - the coroutine's to handle
            step, value = work.throw, error


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """`asyncio.to_thread`, on the account of the request that waits for it."""
    meter = _METER.get(None)
    if meter is None:
        return await asyncio.to_thread(work, *arguments)

    def measured() -> T:
        begun_s = time.thread_time()
        try:
            return work(*arguments)
        finally:
            meter.add_thread(time.thread_time() - begun_s)

    return await asyncio.to_thread(measured)
