"""Blobs, measured."""

from collections.abc import Iterator

from service.storage.blobs import Blobs
from service.telemetry.metrics import timed


class TimedBlobs:
    """Any blobs, each operation measured (`veilsum_storage_seconds`)."""

    def __init__(self, inner: Blobs) -> None:
        self._inner = inner

    def put(self, name: str, data: bytes) -> None:
        """Store a blob."""
        with timed("put"):
            self._inner.put(name, data)

    def get(self, name: str) -> bytes:
        """The blob's bytes."""
        with timed("get"):
            return self._inner.get(name)

    def read(self, name: str) -> tuple[int, Iterator[bytes]]:
        """The blob's length and its bytes, whose arrival is the reader's time and not measured."""
        return self._inner.read(name)

    def delete(self, name: str) -> None:
        """Remove a blob, or every blob under a folder."""
        with timed("delete"):
            self._inner.delete(name)

    def names(self, folder: str) -> tuple[str, ...]:
        """What lies directly under a folder."""
        return self._inner.names(folder)

    def clear_up(self) -> None:
        """Remove what interrupted calls of `put` have left."""
        self._inner.clear_up()

    def free_bytes(self) -> int | None:
        """How much more can be stored; None where nobody can say."""
        return self._inner.free_bytes()
