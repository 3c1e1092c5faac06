"""Large bytes: what every store of them does, and the store on disk."""

import errno
import hashlib
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import filterfalse
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar

from service.http.metering import in_thread
from service.telemetry.logs import log
from service.telemetry.metrics import DAMAGED_COUNT, measure_operation
from veilsum.protocol.errors import Misuse
from veilsum.system.files import is_unfinished, make_folder, sync_folder, write_durably

_NAME_PART = re.compile(r"[0-9A-Za-z-]{1,128}")
READ_PIECE_BYTES = 1 << 20
"""Size of the pieces that `read` yields."""
_BLOB_THREADS = ThreadPoolExecutor(thread_name_prefix="veilsum-blobs")
"""Apart from the event loop's own threads, so that a store that stalls blocks only what needs blobs."""
T = TypeVar("T")


async def in_blob_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Run work that calls `Blobs` in a thread, and charge its time to the waiting request."""
    return await in_thread(work, *arguments, threads=_BLOB_THREADS)


class DamagedBlobError(Exception):
    """Storage has changed a blob."""


class RemovedFolderError(OSError):
    """The folder of all blobs is not the one of the start: they may come back with it."""


class Blobs(ABC):
    """Immutable blobs, named by short paths of our own making such as `round/member/3`.

    Every call blocks: make it by `in_blob_thread`. It raises OSError where storage fails, FileNotFoundError for a blob that was never stored,
    and Misuse for another kind of name.
    """

    def put(self, name: str, data: bytes) -> None:
        """Store a blob durably, whole or not at all."""
        with measure_operation("put"):
            self._put(check_name(name), data)

    def get(self, name: str) -> bytes:
        """Read a blob."""
        with measure_operation("get"):
            return self._get(check_name(name))

    def read(self, name: str) -> tuple[int, Iterator[bytes]]:
        """Return a blob's length, and its bytes piece by piece."""
        return self._read(check_name(name))

    def read_checked(self, name: str, digest: str) -> tuple[int, Iterator[bytes]]:
        """As `read`. Raises DamagedBlobError if the blob has another SHA-256. A long one is read twice."""
        size, pieces = self.read(name)
        if size <= READ_PIECE_BYTES:
            content = b"".join(pieces)
            self._compare_digest(name, digest, (content,))
            return size, iter((content,))
        self._compare_digest(name, digest, pieces)
        return self.read(name)

    def check_digest(self, name: str, digest: str) -> int:
        """Return a blob's length. Raises DamagedBlobError if it has another SHA-256."""
        size, pieces = self.read(name)
        self._compare_digest(name, digest, pieces)
        return size

    def _compare_digest(self, name: str, digest: str, pieces: Iterable[bytes]) -> None:
        found = hashlib.sha256()
        for piece in pieces:
            found.update(piece)
        if found.hexdigest() != digest:
            self.note_damage(name)
            raise DamagedBlobError(name)
        self.damaged.pop(name, None)  # it was restored

    def note_damage(self, name: str) -> None:
        """Remember the name of a blob that is damaged or lost; log and count it once."""
        if name not in self.damaged:
            DAMAGED_COUNT.labels("document").inc()
            log.error("storage damaged", what="document", of=name)
        self.damaged[name] = None

    @cached_property
    def damaged(self) -> dict[str, None]:
        """Names of the blobs that were found damaged or lost, and are not yet sound again or deleted."""
        return {}

    def delete(self, name: str) -> None:
        """Remove a blob, or all blobs in a folder without writers; a missing one is fine."""
        with measure_operation("delete"):
            self._delete(check_name(name))
        for each in tuple(self.damaged):
            if f"{each}/".startswith(f"{name}/"):
                self.damaged.pop(each, None)

    def list_names(self, folder: str) -> tuple[str, ...]:
        """List what lies directly in a folder."""
        return tuple(sorted(self._names(check_name(folder))))

    def clear_up(self) -> None:  # noqa: B027 - a bucket has nothing to clear up
        """Remove what interrupted calls of `put` have left, and nothing that is being written."""

    def free_bytes(self) -> int | None:
        """Return how much more can be stored; None where the store cannot tell."""
        return None

    @abstractmethod
    def _put(self, name: str, data: bytes) -> None: ...
    @abstractmethod
    def _get(self, name: str) -> bytes: ...
    @abstractmethod
    def _read(self, name: str) -> tuple[int, Iterator[bytes]]: ...
    @abstractmethod
    def _delete(self, name: str) -> None: ...
    @abstractmethod
    def _names(self, folder: str) -> Iterator[str]: ...


def check_name(name: str) -> str:
    """Return a blob's name; Misuse for anything else."""
    if not all(_NAME_PART.fullmatch(part) for part in name.split("/")):
        raise Misuse(f"{name!r} is not the name of a blob")
    return name


class FileBlobs(Blobs):
    """Blobs in files under a folder. The folders' own entries are durable too before `put` returns."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._unfinished = folder, set[Path]()
        self._durable = set[str]()  # folders with names that are durable
        make_folder(folder)
        self._place = folder.stat()

    def _find_path(self, name: str) -> Path:
        """Return where a blob or folder belongs. Raises RemovedFolderError: a disk that is away has neither lost nor deleted anything."""
        if not (self._folder.exists() and os.path.samestat(self._folder.stat(), self._place)):
            raise RemovedFolderError(errno.ENOENT, "another folder than at the start", str(self._folder))
        return self._folder / name

    def _put(self, name: str, data: bytes) -> None:
        path = self._find_path(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(path, data)
        # A thread that made one of these folders at the same moment may not have reached its fsync.
        folders = [str(folder) for folder in PurePosixPath(name).parents[:-1]]
        made = [folder for folder in folders if folder not in self._durable]
        for folder in made:
            sync_folder((self._folder / folder).parent)
        self._durable.update(made)

    def _get(self, name: str) -> bytes:
        return self._find_path(name).read_bytes()

    def _read(self, name: str) -> tuple[int, Iterator[bytes]]:
        path = self._find_path(name)
        return path.stat().st_size, _read_pieces(path.open("rb"))

    def _delete(self, name: str) -> None:
        path = self._find_path(name)
        if path.is_dir():
            self._durable -= {each for each in tuple(self._durable) if f"{each}/".startswith(f"{name}/")}
            shutil.rmtree(path)
        elif path.exists():
            path.unlink(missing_ok=True)
        else:
            return
        # What is erased stays erased: the log is about to say so.
        sync_folder(path.parent)

    def _names(self, folder: str) -> Iterator[str]:
        path = self._find_path(folder)
        return filterfalse(is_unfinished, (child.name for child in path.iterdir()) if path.is_dir() else ())

    def clear_up(self) -> None:
        """Remove each unfinished file that already lay there at the last call."""
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
        """Return what the folder's disk has left for this process."""
        return shutil.disk_usage(self._folder).free


def _read_pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(READ_PIECE_BYTES):
            yield piece
