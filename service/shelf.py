"""A live round's announcements on disk: a decryptor is delivered one box and one row of each, a megabyte or two of all that is kept.

The file is a cache that a restart makes anew from the round's events. It has no name, so that it is gone with the process.
"""

import os
import tempfile
import weakref
from pathlib import Path

from veilsum.protocol.shelf import Shelf


class FileShelf(Shelf):
    """A `Shelf` in a file without a name.

    Args:
        folder: on the disk that takes it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        with tempfile.TemporaryFile(dir=folder) as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._end = 0

    def _write(self, data: bytes) -> int:
        at, written = self._end, 0
        while written < len(data):
            written += os.pwrite(self._file, memoryview(data)[written:], at + written)
        self._end += len(data)
        return at

    def _read(self, at: int, size: int) -> bytes:
        return os.pread(self._file, size, at)
