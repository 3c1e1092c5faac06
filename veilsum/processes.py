"""Several processes that do the same: one that dies is replaced, and all end with this one.

uvicorn's own supervisor starts all at once, each of them to meet an empty database, goes on replacing those that cannot start, and leaves
them behind where it is killed itself.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

PAUSE_S = 1.0
"""Before a dead one is replaced, so that what kills each of them keeps no core busy."""

Work = Callable[[Callable[[], None]], object]


def keep(count: int, work: Work, started: Callable[[], None]) -> bool:
    """Keep so many processes at work until SIGTERM or SIGINT.

    The first starts alone: a first start makes tables and keys, and its errors need saying once.

    Args:
        count: one at least.
        work: what each does until SIGTERM, importable; it calls what it is given once it works.
        started: called once the first works.

    Returns:
        Whether the first came so far.
    """
    context = multiprocessing.get_context("spawn")
    heard, tell = context.Pipe(duplex=False)
    running: list[SpawnProcess] = []

    def start(tell: Connection | None = None) -> None:
        process = context.Process(target=_work, args=(work, tell), daemon=True)
        process.start()
        running.append(process)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        start(tell)
        if heard not in wait([heard, running[0].sentinel]):
            return False
        for _ in range(count - 1):
            start()
        started()
        while True:
            wait([process.sentinel for process in running])
            time.sleep(PAUSE_S)
            for process in [each for each in running if not each.is_alive()]:
                running.remove(process)
                start()
    except KeyboardInterrupt:
        return True
    finally:
        # Another signal would leave some of them at work, and this process waiting for them.
        before = [(stop, signal.signal(stop, signal.SIG_IGN)) for stop in (signal.SIGTERM, signal.SIGINT)]
        for process in running:
            process.terminate()
        for process in running:
            process.join()
        for stop, handler in before:
            signal.signal(stop, handler)


def _work(work: Work, tell: Connection | None) -> None:
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    work((lambda: None) if tell is None else (lambda: tell.send(None)))


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
