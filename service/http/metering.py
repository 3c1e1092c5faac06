"""Measure the processor time of each request, on the event loop and in threads, and charge it to the caller."""

import asyncio
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.callers import ANONYMOUS_CALLER

T = TypeVar("T")


class Meter:
    """One request's processor time. Time spent before the caller is known is charged once it is."""

    def __init__(self) -> None:
        self.account: Callable[[float], None] | None = None
        self._waiting_s = 0.0
        self._in_threads = deque[float]()

    def add_time(self, seconds: float) -> None:
        """Add time on the event loop, and the time of threads that have finished."""
        while self._in_threads:
            seconds += self._in_threads.popleft()
        if self.account is None:
            self._waiting_s += seconds
        else:
            self.account(seconds)

    def add_thread(self, seconds: float) -> None:
        """Add a thread's time; called in that thread."""
        self._in_threads.append(seconds)

    def bill_account(self, account: Callable[[float], None]) -> None:
        """Set the account to charge, and charge what has been spent."""
        self.account = account
        self.account(self._waiting_s)


_METER = ContextVar[Meter]("meter")


class Metering:
    """ASGI middleware that measures each request. A request that no guard has billed is charged to its address."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        meter = Meter()
        _METER.set(meter)
        try:
            await _measure_steps(self.app(scope, receive, send), meter.add_time)  # type: ignore[arg-type]  # apps are coroutines
        finally:
            if meter.account is None:
                meter.bill_account(scope["app"].state.limits.account_for(ANONYMOUS_CALLER, Request(scope)))


def bill_request(account: Callable[[float], None]) -> None:
    """Charge the current request to an account."""
    _METER.get().bill_account(account)


@types.coroutine
def _measure_steps(work: Coroutine[Any, Any, T], spend: Callable[[float], None]) -> Generator[Any, Any, T]:
    """Await a coroutine, and report the processor time of each step."""
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


async def charge_task(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine in a task of its own, charged to the request that began the task."""
    meter = _METER.get(None)
    return await (work if meter is None else _measure_steps(work, meter.add_time))


async def in_thread(work: Callable[..., T], *arguments: Any, threads: Executor | None = None) -> T:
    """Run work in a thread, by default one of the event loop's own, and charge its time to the waiting request."""
    meter = _METER.get(None)

    def run_measured() -> T:
        begun_s = time.thread_time()
        try:
            return work(*arguments)
        finally:
            if meter is not None:
                meter.add_thread(time.thread_time() - begun_s)

    return await asyncio.get_running_loop().run_in_executor(threads, copy_context().run, run_measured)
