"""A live round's announcements on disk. Each decryptor gets one box and one row of each, a megabyte or two of the whole.

The file is a cache: a restart rebuilds it from the round's events. It is unlinked, so it disappears with the process.
"""

import os
import tempfile
import weakref
from pathlib import Path

from veilsum.protocol.shelf import Shelf


class FileShelf(Shelf):
    """A `Shelf` in an unlinked temporary file.

    Args:
        folder: where the file is created.
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
