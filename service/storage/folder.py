"""The data folder: files that survive a power cut, and a lock for one coordinator at a time."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from veilsum.protocol.errors import Misuse

DATABASE = "coordinator.sqlite3"


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


def make_folder(folder: Path) -> None:
    """Make a private folder and the ones above it, durably."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
        fsync_folder(each.parent)


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: temporary file, fsync, rename, fsync of its folder."""
    temporary = _written_beside(path, data)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def make_durably(path: Path, data: bytes) -> None:
    """Write a file unless it exists, whole or not at all; the first of several writers wins."""
    temporary = _written_beside(path, data)
    try:
        with suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        temporary.unlink()
    fsync_folder(path.parent)


def _written_beside(path: Path, data: bytes) -> Path:
    """Return a temporary file after its bytes are on the disk."""
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def is_unfinished(name: str) -> bool:
    """Whether a file is a temporary one of `write_durably`."""
    return name.startswith(".")
