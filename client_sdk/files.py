"""Lock a member's folder, read its files, and explain what to do if they are missing or damaged."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from filelock import lock_descriptor, unlock_descriptor
from pydantic import ValidationError

from client_sdk.errors import IdentityError, Misuse, PeerFault, StateError
from veilsum.protocol.forms import first_fault
from veilsum.system.files import IS_POSIX, sync_folder
from veilsum.system.key_files import IDENTITY_CARD

T = TypeVar("T")

_LOCKED_FILE = IDENTITY_CARD if IS_POSIX else "member.lock"
"""A file of its own could be mistaken for stale and removed. Windows refuses that while it is locked, but would also refuse to read the card."""

LOST_STATE_HELP = (
    "Don't repair it and don't restore a backup: with old keys this member could mask or vote twice. Make "
    "a new identity with Identity.create (ledger= this identity's folder, so that no record is summed "
    "twice), give its public key to the admin, and enrol it in the next cohort"
)

FETCH_AGAIN_HELP = (
    "Fetch the result again into another folder. If the folder is a member's own, move its record.json "
    "away and run the same command again"
)


def read_part(path: Path, load: Callable[[bytes], T], of: str) -> T:
    """A file of a round's evidence or result, parsed by `load`.

    Args:
        path: of the file, which has no checksum.
        load: raises PeerFault, Misuse, ValueError or what comes of reading JSON of another form.
        of: what the folder should hold, such as "result".

    Raises:
        StateError: the file is missing or can't be parsed.
        OSError: it can't be read.
    """
    try:
        return load(path.read_bytes())
    except FileNotFoundError as error:
        raise StateError(_absent_message(path, of)) from error
    except (PeerFault, Misuse, ValueError, TypeError, LookupError, AttributeError) as error:
        why = first_fault(error) if isinstance(error, ValidationError) else error
        raise StateError(
            f"{path.parent} holds no complete {of} ({path.name}: {why}). {FETCH_AGAIN_HELP}"
        ) from error


def _absent_message(path: Path, of: str) -> str:
    expected = "expected a saved result's folder, such as hospital-a/results/STUDY/PERIOD"
    if not path.parent.exists():
        return f"no folder {path.parent}: {expected}"
    return f"{path.parent} holds no complete {of}: {path.name} is missing; {expected}. {FETCH_AGAIN_HELP}"


class FolderLock:
    """Exclusive use of an identity's folder, until `release` or the end of the process. Forked processes do not share it."""

    _descriptor: int | None = None

    def __init__(self, folder: Path) -> None:
        self._process, self._path = os.getpid(), folder / _LOCKED_FILE
        # Two processes that move one identity's keys would mask or vote twice in one context.
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        if not lock_descriptor(self._descriptor, blocking=False):
            os.close(self._descriptor)
            self._descriptor = None
            raise IdentityError(
                f"another process, or another Member of this one, uses {folder}: close it first"
            )
        sync_folder(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()  # a notebook's cell may have overwritten the member before it was closed

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one that took the folder."""
        return self._process != os.getpid()

    def check_lock(self) -> None:
        """Raise IdentityError if the locked file was removed or replaced: another process may have locked the new one."""
        assert self._descriptor is not None
        if not (self._path.exists() and os.path.samestat(self._path.stat(), os.fstat(self._descriptor))):
            raise IdentityError(
                f"{self._path} was removed or replaced while it was in use: end all other processes that use "
                f"{self._path.parent}, then run the same command again"
            )

    def release(self) -> None:
        """Release the folder; idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            if not self.is_forked:
                # Forks, such as workers that load data, have it open too.
                unlock_descriptor(descriptor)
            os.close(descriptor)
