"""Child processes of a test."""

import socket
import time
from collections.abc import Callable
from pathlib import Path


def children(of: int) -> list[int]:
    """Return the pids of multiprocessing's workers, without its helper processes."""
    numbers = Path(f"/proc/{of}/task/{of}/children").read_text().split()
    return [int(each) for each in numbers if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]


def listens(port: int) -> bool:
    """Return whether something answers on a port of this machine."""
    with socket.socket() as asks:
        return asks.connect_ex(("127.0.0.1", port)) == 0


def until(holds: Callable[[], object]) -> None:
    end_s = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)
