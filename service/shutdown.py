"""Hear of the end early: the server waits for open requests before it ends the lifespan, and polls are open long."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def on_stop_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the event loop at SIGTERM and SIGINT, before whoever handles these already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    previous = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        handler = signal.getsignal(number)
        # Only beside a server that ends the process in its own time; the defaults end it on the spot.
        if callable(handler) and handler is not signal.default_int_handler:
            previous[number] = handler

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)
        previous[signal.Signals(number)](number, frame)

    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
