"""Supervise worker processes: replace those that die, and end all of them with this process.

uvicorn's own supervisor starts all workers at once on an empty database, keeps replacing workers that can't start, and leaves them running
if it is killed.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from veilsum.system.intervals import WORKER_RESTART_S

Work = Callable[[Callable[[], None]], object]


def keep_workers(count: int, work: Work, started: Callable[[], None]) -> bool:
    """Keep `count` workers running until SIGTERM or SIGINT.

    The first worker starts alone, so that it creates tables and keys, and its errors are shown once.

    Each worker runs `work`, an importable function that runs until SIGTERM and calls its argument when it is ready. `started` is called
    when the first worker is ready.

    Returns:
        Whether the first worker became ready.
    """
    context = multiprocessing.get_context("spawn")
    heard, tell = context.Pipe(duplex=False)
    running: list[SpawnProcess] = []

    def start(tell: Connection | None = None) -> None:
        process = context.Process(target=_run_worker, args=(work, tell), daemon=True)
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
            time.sleep(WORKER_RESTART_S)
            for process in [each for each in running if not each.is_alive()]:
                running.remove(process)
                start()
    except KeyboardInterrupt:
        return True
    finally:
        # A second signal would interrupt the cleanup and leave workers running.
        before = [(stop, signal.signal(stop, signal.SIG_IGN)) for stop in (signal.SIGTERM, signal.SIGINT)]
        for process in running:
            process.terminate()
        for process in running:
            process.join()
        for stop, handler in before:
            signal.signal(stop, handler)


def _run_worker(work: Work, tell: Connection | None) -> None:
    end_with_parent()
    work((lambda: None) if tell is None else (lambda: tell.send(None)))


def end_with_parent() -> None:
    """End this process by SIGTERM when its parent ends, even if the parent is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


def run_command(
    module: str, words: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path
) -> None:
    """Make this process `python -m module words` in a folder, with this environment alone; `log` takes stdout and stderr.

    It leaves its parent's session, so that a terminal's Ctrl-C doesn't reach it, and ends with its parent.
    """
    os.setsid()
    with log.open("ab") as printed:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(printed.fileno(), stream.fileno())
    end_with_parent()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
