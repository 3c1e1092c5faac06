"""A member's machine: the files that a process holds open, and stops at durable writes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from client_sdk.database import StateDatabase
from tests.support.consortium import Stopped

LIFE = 17
"""Durable writes from one stop to the next: enough to get further than before."""


def files_open_in(folder: Path) -> list[Path]:
    """List the files in a folder that this process has open, one for each descriptor."""
    opened = list[Path]()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of this listing
            opened.append(descriptor.readlink())
    return [each for each in opened if each.is_relative_to(folder)]


class Machine:
    """Stop a member at its n-th durable write in each life: at a file's fsync or a transaction, before or after it takes effect."""

    def __init__(self, home: Path, first: int, *, early: bool) -> None:
        # Not the identity's own folder, which is synced as it is locked.
        self.home = f"{home}/"
        self.left, self.early, self.stops = first, early, 0

    def strike(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.left, self.stops = LIFE, self.stops + 1
            raise Stopped

    @contextmanager
    def on(self, patched: pytest.MonkeyPatch) -> Iterator[None]:
        real, transaction = os.fsync, StateDatabase.write

        def fsync(descriptor: int) -> None:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            mine = path.startswith(self.home)
            if mine and self.early:
                self.strike()
            real(descriptor)
            if mine and not self.early:
                self.strike()

        @contextmanager
        def write(database: StateDatabase) -> Iterator[Any]:
            mine = str(database.path).startswith(self.home)
            with transaction(database) as opened:
                yield opened
                if mine and self.early:
                    self.strike()
            if mine and not self.early:
                self.strike()

        with patched.context() as here:
            here.setattr(os, "fsync", fsync)
            here.setattr(StateDatabase, "write", write)
            yield
