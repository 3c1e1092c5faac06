"""Child processes of a test."""

import time
from collections.abc import Callable
from pathlib import Path


def children(of: int) -> list[int]:
    """Return the pids of multiprocessing's workers, without its helper processes."""
    numbers = Path(f"/proc/{of}/task/{of}/children").read_text().split()
    return [int(each) for each in numbers if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]


def until(holds: Callable[[], object]) -> None:
    end_s = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)
