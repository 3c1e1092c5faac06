"""The data folder, and a lock for one coordinator at a time."""

import fcntl
import os
from pathlib import Path
from typing import Self

from veilsum.protocol.errors import Misuse

DATABASE_FILE = "coordinator.sqlite3"


def check_there(folder: Path) -> None:
    """Raise Misuse for a folder without a coordinator's database."""
    if not (folder / DATABASE_FILE).is_file():
        raise Misuse(f"{folder} is not a coordinator's data folder: it has no {DATABASE_FILE}")


class DataFolderLock:
    """Held from construction to `release`, which `with` calls, or to the end of the process.

    Raises:
        Misuse: another process holds it.
    """

    def __init__(self, folder: Path) -> None:
        # The folder itself is locked: a file in it could be removed, and the next process would make and lock another.
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        note = folder / "coordinator.lock"
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            note.touch(0o600)
            note.write_text(f"{os.getpid()}\n")
        except BlockingIOError:
            os.close(self._descriptor)
            holder = note.read_text(errors="replace").strip() if note.exists() else "unknown"
            raise Misuse(
                f"another coordinator (process {holder}) is running on {folder.absolute()}: stop it, or set VEILSUM_DATA_DIR "
                "to another folder. SQLite takes one worker; several need VEILSUM_DATABASE_URL"
            ) from None
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
