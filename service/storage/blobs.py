"""Large bytes in files: on disk, folder entry included, before `put` returns."""

import os
import shutil
from pathlib import Path

from protocol.errors import Misuse


class FileBlobs:
    """Immutable blobs under a folder, named by short paths of our own making such as `round/member/3`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, name: str, data: bytes) -> None:
        """Store a blob whole or not at all: temporary file, fsync, rename, fsync of every folder on the way."""
        path = self._path(name)
        made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        for folder in {path.parent, *(folder.parent for folder in made)}:
            _fsync_folder(folder)

    def get(self, name: str) -> bytes:
        """The blob's bytes; FileNotFoundError if it was never stored."""
        return self._path(name).read_bytes()

    def delete(self, name: str) -> None:
        """Remove a blob, or every blob under a folder; nothing happens if there is none."""
        path = self._path(name)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if not all(part and part.strip(".") == part for part in parts):
            raise Misuse(f"{name!r} is not the name of a blob")
        return self._folder.joinpath(*parts)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
