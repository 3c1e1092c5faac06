"""The data folder, and a lock for one coordinator at a time."""

import fcntl
import os
from pathlib import Path
from typing import Self

from veilsum.protocol.errors import Misuse

DATABASE = "coordinator.sqlite3"


def check_there(folder: Path) -> None:
    """Raise Misuse for a folder without a coordinator's database."""
    if not (folder / DATABASE).is_file():
        raise Misuse(f"{folder} is not a coordinator's data folder: it has no {DATABASE}")


class DataFolderLock:
    """Held from construction to `release`, which `with` calls, or to the end of the process.

    Raises:
        Misuse: another process holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / "coordinator.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._descriptor)
            raise Misuse(
                f"another coordinator (process {holder}) runs on {folder.absolute()}: stop it, or give this one "
                "another folder by VEILSUM_DATA_DIR; SQLite takes one worker, several need VEILSUM_DATABASE_URL"
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
