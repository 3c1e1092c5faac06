"""Private files and folders, written durably."""

import errno
import mmap
import os
import stat
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

with suppress(ImportError):  # Windows has none
    import fcntl

FILE_MODE, FOLDER_MODE = 0o600, 0o700
_LONG_FILE_BYTES = 1 << 20
_DISK_BLOCK_BYTES = 4096
_DIRECT_FLAG = getattr(os, "O_DIRECT", 0) if "fcntl" in globals() else 0
_CREATE_FLAGS = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)
IS_POSIX = os.name == "posix"
"""Whether files have modes and folders can be synced. Windows has neither: a new folder's access list is its owner's, and NTFS logs names."""
_THREAD_LOCALS = threading.local()
"""Holds each thread's aligned buffer, because mapping one for each file costs a quarter of the time to write it."""


def make_folder(folder: Path) -> None:
    """Make a folder and its parents durably, with mode 0700; existing folders stay unchanged. Raises FileExistsError for a file."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=FOLDER_MODE, exist_ok=True)
        sync_folder(each.parent)
    folder.mkdir(exist_ok=True)


def make_private(folder: Path) -> Path:
    """Make a folder as `make_folder` does, and set mode 0700 if it exists. Raises FileExistsError for a file, whose mode is unchanged."""
    make_folder(folder)
    folder.chmod(FOLDER_MODE)  # mkdir's mode is subject to the umask, and an older folder has its own
    return folder


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where that takes a call."""
    if not IS_POSIX:
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes | memoryview) -> None:
    """Replace a file atomically, with mode 0600: after a crash it holds either the old or the new bytes.

    Raises:
        OSError: the disk is full, or the write fails.
    """
    _replace_files(path.parent, {path.name: data})


def write_together(folder: Path, files: Mapping[str, bytes | None]) -> None:
    """Replace files in a folder, as `write_durably` does, and remove those given as None. The last file is written after all others.

    Files that hold the given bytes already are skipped: a file gets its name only after its bytes are on the disk.
    """
    changed = {
        name: data for name, data in files.items() if data is None or not _has_content(folder / name, data)
    }
    last = list(files)[-1]
    _replace_files(folder, {name: data for name, data in changed.items() if name != last})
    if last in changed:
        _replace_files(folder, {last: changed[last]})


def make_durably(path: Path, data: bytes) -> bool:
    """Write a file atomically unless it exists, and return whether it was written; the first of several writers wins."""
    temporary = _written_beside(path, data)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
        sync_folder(path.parent)
    return True


def is_unfinished(name: str) -> bool:
    """Whether a name is that of a temporary file of these functions."""
    return name.startswith(".")


def _has_content(path: Path, data: bytes) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    mode = stat.S_IFREG | FILE_MODE if IS_POSIX else found.st_mode
    return (found.st_mode, found.st_size) == (mode, len(data)) and path.read_bytes() == data


def _replace_files(folder: Path, files: Mapping[str, bytes | memoryview | None]) -> None:
    """Replace or remove files, with a single sync of the folder."""
    fresh = dict[Path, Path]()
    try:
        for name, data in files.items():
            if data is None:
                (folder / name).unlink(missing_ok=True)
            else:
                fresh[folder / name] = _written_beside(folder / name, data)
        for path, written in fresh.items():
            written.replace(path)
    except BaseException:
        for written in fresh.values():
            written.unlink(missing_ok=True)
        raise
    sync_folder(folder)


def _written_beside(path: Path, data: bytes | memoryview) -> Path:
    """Write a temporary file, and return its path once the bytes are on the disk."""
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    descriptor = os.open(temporary, _CREATE_FLAGS, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            content = memoryview(data).cast("B")
            file.write(content[_written_directly(descriptor, content) :])
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.strerror and not error.filename:
            error.filename = str(path)  # which disk is full
        raise
    return temporary


def _written_directly(descriptor: int, content: memoryview) -> int:
    """Write the whole blocks of a long file without the page cache. Returns the number of bytes written; 0 if the file system can't.

    Such a file is rarely read again, and caching it costs more than writing it, above all on a virtual machine, whose host has to provide
    memory for every page.
    """
    whole, written = len(content) // _DISK_BLOCK_BYTES * _DISK_BLOCK_BYTES, 0
    if len(content) < _LONG_FILE_BYTES or not _DIRECT_FLAG:
        return 0
    if (aligned := getattr(_THREAD_LOCALS, "aligned", None)) is None:
        aligned = _THREAD_LOCALS.aligned = memoryview(
            mmap.mmap(-1, _LONG_FILE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        )
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT_FLAG)
        while written < whole:
            part = content[written : min(written + _LONG_FILE_BYTES, whole)]
            aligned[: len(part)] = part
            written += os.write(descriptor, aligned[: len(part)])
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return written
