"""A live round's announcements on disk: a decryptor is delivered one box and one row of each, a megabyte or two of all that is kept.

The file is a cache that a restart makes anew from the round's events. It has no name, so that it is gone with the process.
"""

import os
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

from veilsum.protocol.codec import Reader
from veilsum.protocol.messages import Delivery, Upload
from veilsum.protocol.shelf import Committed, Trees


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a dealer's announcement lies: its commitments' path, its commitments, then a record for each decryptor.

    Attributes:
        start: the first byte.
        path_bytes: length of the path.
        committed_bytes: length of path and commitments.
        record_bytes: length of each record, padded.
    """

    start: int
    path_bytes: int
    committed_bytes: int
    record_bytes: int


class FileShelf:
    """A `Shelf` in a file without a name.

    Args:
        folder: on the disk that takes it.
    """

    def __init__(self, folder: Path) -> None:
        with tempfile.TemporaryFile(dir=folder) as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._places = dict[str, _Place]()
        self._end = 0

    def put(self, upload: Upload, trees: Trees) -> None:
        """Keep an announcement; the dealer's last one counts."""
        committed = trees.committed(upload)
        path = b"".join(committed.path)
        records = [trees.delivery(upload, place).encode() for place in range(len(upload.boxes))]
        # A dealer that decrypts has no box of its own, and paths differ in length.
        place = _Place(
            self._end, len(path), len(path) + len(committed.commitments), max(map(len, records), default=0)
        )
        padded = (record.ljust(place.record_bytes, b"\0") for record in records)
        data = b"".join((path, committed.commitments, *padded))
        written = 0
        while written < len(data):
            written += os.pwrite(self._file, memoryview(data)[written:], self._end + written)
        self._end += len(data)
        self._places[upload.header.member] = place

    def committed(self, dealer: str) -> Committed:
        """The dealer's commitments."""
        place = self._places[dealer]
        read = self._read(place.start, place.committed_bytes)
        path = tuple(read[at : at + 32] for at in range(0, place.path_bytes, 32))
        return Committed(read[place.path_bytes :], path)

    def delivery(self, dealer: str, place: int) -> Delivery:
        """The dealer's box and row for the decryptor at this place, with their paths."""
        at = self._places[dealer]
        record = self._read(at.start + at.committed_bytes + place * at.record_bytes, at.record_bytes)
        return Delivery.decode(Reader(record))

    def row(self, dealer: str, place: int) -> bytes:
        """Return the dealer's row of share commitments, without its path."""
        return self.delivery(dealer, place).row

    def _read(self, start: int, size: int) -> bytes:
        return os.pread(self._file, size, start)
