"""Private files that survive a crash, in folders that one process uses."""

import fcntl
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self, TypeVar

from pydantic import ValidationError

from client_sdk.errors import IdentityError, Misuse, PeerFault, StateError, first_fault

T = TypeVar("T")

LOSS = (
    "Don't repair it and don't restore a backup: with old keys this member could mask or vote twice. State loss "
    "is a new identity: make one with Identity.create (ledger= this identity's folder, so that no record is summed "
    "twice), give its public key to the admin, and enrol it in the next cohort"
)

ANEW = (
    "Fetch the result again into another folder. If the folder is a member's own, move its record.json "
    "away and run the same command again"
)

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_LOCK = "identity.json"
"""What is locked: not a file of its own, which could be removed in the belief that it is stale."""


def make_folder(folder: Path) -> None:
    """Make a folder of mode 0700, and its parents, durably; one that exists stays as it is."""
    fresh = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    for each in fresh:
        sync_folder(each.parent)


def make_private(folder: Path) -> Path:
    """`make_folder`, and mode 0700 for one that exists too."""
    make_folder(folder)
    folder.chmod(FOLDER_MODE)  # mkdir's mode is subject to the umask, and an older folder has its own
    return folder


def write_durably(path: Path, data: bytes | memoryview) -> None:
    """Replace a file of mode 0600 as a whole: after a crash it holds the old bytes or the new ones.

    One writer at a time: the identity's lock sees to that.

    Raises:
        OSError: the disk is full, or refuses.
    """
    _replace(path.parent, {path.name: data})


def write_together(folder: Path, files: Mapping[str, bytes | None]) -> None:
    """Replace files of mode 0600 in a folder, and remove those of None; the last one is there only once all others are.

    What is there with these bytes already stays as it is: every file got its name after its bytes were on the disk.

    Raises:
        OSError: the disk is full, or refuses.
    """
    changed = {name: data for name, data in files.items() if data is None or not _holds(folder / name, data)}
    last = list(files)[-1]
    _replace(folder, {name: data for name, data in changed.items() if name != last})
    if last in changed:
        _replace(folder, {last: changed[last]})


def _holds(path: Path, data: bytes) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    alike = found.st_mode == stat.S_IFREG | FILE_MODE and found.st_size == len(data)
    return alike and path.read_bytes() == data


def _replace(folder: Path, files: Mapping[str, bytes | memoryview | None]) -> None:
    """One sync of the folder, whatever the number of files."""
    fresh = {}
    for name, data in files.items():
        path = folder / name
        if data is None:
            path.unlink(missing_ok=True)
        else:
            fresh[path] = path.with_name(f".{name}.new")
            write_synced(fresh[path], data)
    for path, written in fresh.items():
        written.replace(path)
    sync_folder(folder)


def write_synced(path: Path, data: bytes | memoryview) -> None:
    """Write a file of mode 0600 to the disk itself; its name is durable after `sync_folder`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, FILE_MODE)  # what a crash left behind keeps its old mode
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_part(path: Path, load: Callable[[bytes], T], of: str) -> T:
    """A file of a round's evidence or result, parsed by `load`.

    Args:
        path: of the file, which bears no checksum.
        load: raises PeerFault, Misuse, ValueError or what comes of reading JSON of another form.
        of: what the folder should hold, such as "result".

    Raises:
        StateError: the file is missing or can't be parsed.
    """
    try:
        return load(path.read_bytes())
    except FileNotFoundError as error:
        raise StateError(_absent(path, of)) from error
    except (OSError, PeerFault, Misuse, ValueError, TypeError, LookupError, AttributeError) as error:
        why = first_fault(error) if isinstance(error, ValidationError) else error
        raise StateError(f"{path.parent} holds no complete {of} ({path.name}: {why}). {ANEW}") from error


def _absent(path: Path, of: str) -> str:
    expected = "expected a saved result's folder, such as hospital-a/results/STUDY/PERIOD"
    if not path.parent.exists():
        return f"no folder {path.parent}: {expected}"
    return f"{path.parent} holds no complete {of}: {path.name} is missing; {expected}. {ANEW}"


class FolderLock:
    """Exclusive use of an identity's folder, until `release` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        # Two processes that move one identity's keys would mask or vote twice in one context.
        self._descriptor: int | None = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise IdentityError(
                f"another process (or another Member of this one) uses {folder}: close it first; one identity "
                "speaks with one voice"
            ) from error
        sync_folder(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the folder back; again is harmless."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
