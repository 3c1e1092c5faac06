"""The masked chunks of one attempt, kept until it closes so that a restarted member resends the same bytes."""

import hashlib
from pathlib import Path

from client_sdk.errors import StateError
from client_sdk.files import make_private, sync_folder, write_synced


class Spool:
    """A folder of chunks; they are masked, so they are what the coordinator gets to see anyway."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def exists(self) -> bool:
        """Whether anything is kept here."""
        return self._folder.exists()

    def begin(self) -> None:
        """Make room for a new upload; what an interrupted one left is dropped with its masks."""
        self.clear()
        make_private(self._folder)

    def write(self, index: int, packed: bytes | memoryview) -> None:
        """Keep a chunk; it is durable after `seal`."""
        write_synced(self._path(index), packed)

    def seal(self) -> None:
        """Make every chunk durable: the upload may be stored and announced after this."""
        sync_folder(self._folder)

    def read(self, index: int, digest: bytes) -> bytes:
        """A chunk as it was written.

        Args:
            index: which chunk.
            digest: SHA-256 that the upload announced.

        Raises:
            StateError: it is missing or damaged; it can't be made again, since its masks are gone.
        """
        try:
            packed = self._path(index).read_bytes()
        except FileNotFoundError:
            packed = b""
        if hashlib.sha256(packed).digest() != digest:
            raise StateError(
                f"{self._path(index)} is damaged or missing: this upload can't be completed. Take part in the "
                "next round"
            )
        return packed

    def clear(self) -> None:
        """Delete all chunks, and the folder."""
        if self._folder.exists():
            for path in self._folder.iterdir():
                path.unlink()
            self._folder.rmdir()

    def _path(self, index: int) -> Path:
        return self._folder / f"{index:07d}"
