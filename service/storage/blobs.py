"""Large bytes: the interface, and its files on disk, whose folder entries are durable too before `put` returns."""

import os
import re
import shutil
from collections.abc import Iterator
from itertools import filterfalse
from pathlib import Path
from typing import BinaryIO, Protocol

from protocol.errors import Misuse
from service.storage.folder import fsync_folder, is_unfinished, make_folder, write_durably

_PART = re.compile(r"[0-9A-Za-z-]{1,128}")
PIECE_BYTES = 1 << 20
"""Of what `read` gives at a time."""


class Blobs(Protocol):
    """Immutable blobs, named by short paths of our own making such as `round/member/3`. Each call blocks: make it in a thread.

    Every one raises OSError where storage fails.
    """

    def put(self, name: str, data: bytes) -> None:
        """Store a blob whole or not at all, and durably."""
        ...

    def get(self, name: str) -> bytes:
        """The blob's bytes; FileNotFoundError if it was never stored."""
        ...

    def read(self, name: str) -> tuple[int, Iterator[bytes]]:
        """The blob's length and its bytes, piece by piece; FileNotFoundError if it was never stored."""
        ...

    def delete(self, name: str) -> None:
        """Remove a blob, or every blob under a folder; nothing happens if there is none."""
        ...

    def names(self, folder: str) -> tuple[str, ...]:
        """What lies directly under a folder."""
        ...

    def clear_up(self) -> None:
        """Remove what interrupted calls of `put` have left; those that are under way are not disturbed."""
        ...

    def free_bytes(self) -> int | None:
        """How much more can be stored; None where nobody can say."""
        ...


def checked(name: str) -> str:
    """The name itself; Misuse where it is none of a blob."""
    if not all(_PART.fullmatch(part) for part in name.split("/")):
        raise Misuse(f"{name!r} is not the name of a blob")
    return name


class FileBlobs:
    """Blobs in files under a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._unfinished = folder, set[Path]()
        self._durable = set[Path]()
        """Folders whose own names, and all above, are on the disk."""
        make_folder(folder)

    def put(self, name: str, data: bytes) -> None:
        """Store a blob whole or not at all, and durably."""
        path = self.path(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(path, data)
        # Whoever made one of these folders at the same moment may not have come to its fsync.
        if path.parent not in self._durable:
            for folder in path.parent.parents:
                fsync_folder(folder)
                if folder == self._folder:
                    break
            self._durable.add(path.parent)

    def get(self, name: str) -> bytes:
        """The blob's bytes; FileNotFoundError if it was never stored."""
        return self.path(name).read_bytes()

    def read(self, name: str) -> tuple[int, Iterator[bytes]]:
        """The blob's length and its bytes, piece by piece; FileNotFoundError if it was never stored."""
        path = self.path(name)
        return path.stat().st_size, _pieces(path.open("rb"))

    def delete(self, name: str) -> None:
        """Remove a blob, or every blob under a folder, into which nobody puts any at the same time; nothing happens if there is none."""
        path = self.path(name)
        if path.is_dir():
            self._durable.difference_update([f for f in tuple(self._durable) if path in {f, *f.parents}])
            shutil.rmtree(path)
        elif path.exists():
            path.unlink(missing_ok=True)
        else:
            return
        # What is erased stays erased: the log is about to say so.
        fsync_folder(path.parent)

    def names(self, folder: str) -> tuple[str, ...]:
        """What lies directly under a folder."""
        path = self.path(folder)
        lying = (child.name for child in path.iterdir()) if path.is_dir() else ()
        return tuple(sorted(filterfalse(is_unfinished, lying)))

    def clear_up(self) -> None:
        """Remove what interrupted calls of `put` have left: whatever already lay there at the last call, and still does."""
        lying = {
            Path(folder, name)
            for folder, _, files in os.walk(self._folder)
            for name in files
            if is_unfinished(name)
        }
        for path in lying & self._unfinished:
            path.unlink(missing_ok=True)
        self._unfinished = lying

    def free_bytes(self) -> int:
        """What the folder's disk has left for this process."""
        return shutil.disk_usage(self._folder).free

    def path(self, name: str) -> Path:
        """Where a blob or a folder of them lies, whether it was stored or not."""
        return self._folder.joinpath(*checked(name).split("/"))


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece
