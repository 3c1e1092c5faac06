"""Large bytes in files: on disk, folder entries included, before `put` returns."""

import re
import shutil
from pathlib import Path

from protocol.errors import Misuse
from service.storage.folder import fsync_folder, make_folder, write_durably

_PART = re.compile(r"[0-9A-Za-z-]{1,128}")


class FileBlobs:
    """Immutable blobs under a folder, named by short paths of our own making such as `round/member/3`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_folder(folder)

    def put(self, name: str, data: bytes) -> None:
        """Store a blob whole or not at all, and durably."""
        path = self.path(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(path, data)
        # Every time: whoever made one of these folders at the same moment may not have come to its fsync.
        for folder in path.parent.parents:
            fsync_folder(folder)
            if folder == self._folder:
                break

    def get(self, name: str) -> bytes:
        """The blob's bytes; FileNotFoundError if it was never stored."""
        return self.path(name).read_bytes()

    def delete(self, name: str) -> None:
        """Remove a blob, or every blob under a folder; nothing happens if there is none."""
        path = self.path(name)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def names(self, folder: str) -> tuple[str, ...]:
        """What lies directly under a folder."""
        path = self.path(folder)
        return tuple(sorted(child.name for child in path.iterdir())) if path.is_dir() else ()

    def path(self, name: str) -> Path:
        """Where a blob or a folder of them lies, whether it was stored or not."""
        parts = name.split("/")
        if not all(_PART.fullmatch(part) for part in parts):
            raise Misuse(f"{name!r} is not the name of a blob")
        return self._folder.joinpath(*parts)
