"""The data folder, and a lock for one coordinator at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veilsum.protocol.errors import Misuse

DATABASE_FILE = "coordinator.sqlite3"


def check_there(folder: Path) -> None:
    """Raise Misuse for a folder without a coordinator's database."""
    if not (folder / DATABASE_FILE).is_file():
        raise Misuse(f"{folder} is not a coordinator's data folder: it has no {DATABASE_FILE}")


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a data folder during the block. Raises Misuse if another process holds it."""
    # The folder itself is locked: a file in it could be removed, and the next process would make and lock another.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    note = folder / "coordinator.lock"
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = note.read_text(errors="replace").strip() if note.exists() else "unknown"
            raise Misuse(
                f"another coordinator (process {holder}) is running on {folder.absolute()}: stop it, or set VEILSUM_DATA_DIR "
                "to another folder. SQLite takes one worker; several need VEILSUM_DATABASE_URL"
            ) from None
        note.touch(0o600)
        note.write_text(f"{os.getpid()}\n")
        yield
    finally:
        os.close(descriptor)
