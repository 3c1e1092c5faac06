"""Storage of announcements, which are large and read one box or row at a time."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import accumulate
from struct import unpack
from typing import Protocol

from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import Delivery, Upload, UploadHeader, commitment_at
from veilsum.protocol.sealing import commitment_tree


@dataclass(frozen=True, slots=True)
class Committed:
    """A dealer's joined commitments to its secrets, leaf 0 under its commitment root, and their Merkle path."""

    commitments: bytes
    path: tuple[bytes, ...]

    def commitment_to(self, index: int) -> bytes:
        return commitment_at(self.commitments, index)


class Commitments(Protocol):
    """Storage of dealers' commitments."""

    def read_commitments(self, dealer: str) -> Committed:
        """Read the dealer's commitments to its secrets."""
        ...


@dataclass(frozen=True, slots=True)
class Announced:
    """The part of an announcement that a coordinator keeps in memory, about 1 KiB for 15 chunks. The rest is on the shelf."""

    header: UploadHeader
    chunk_digests: bytes
    shelf: Commitments

    @property
    def commitments(self) -> Committed:
        """The commitments to its secrets, read from the shelf."""
        return self.shelf.read_commitments(self.header.member)

    def chunk_digest(self, index: int) -> bytes:
        """Return the SHA-256 of one chunk."""
        return self.chunk_digests[32 * index : 32 * (index + 1)]


@dataclass(frozen=True, slots=True)
class Trees:
    """The trees under an upload's box root and commitment root, built once when the upload is admitted."""

    boxes: Tree
    commitments: Tree

    @classmethod
    def from_upload(cls, upload: Upload) -> "Trees":
        return cls(Tree(upload.boxes), commitment_tree(upload.secret_commitments, upload.share_rows))

    def commitments_of(self, upload: Upload) -> Committed:
        """Return the dealer's commitments with their path."""
        return Committed(b"".join(upload.secret_commitments), tuple(self.commitments.path_to(0)))

    def delivery_to(self, upload: Upload, place: int) -> Delivery:
        return Delivery(
            upload.header,
            upload.boxes[place],
            tuple(self.boxes.path_to(place)),
            upload.share_rows[place],
            tuple(self.commitments.path_to(1 + place)),
        )


class Shelf(ABC):
    """Stores announcements in the parts that are read: commitments, and for each decryptor a row and an encoded `Delivery`.

    A table precedes an announcement's parts: the start of each part and the end of the last, in 8 bytes each.
    """

    def __init__(self) -> None:
        self._places, self._end = dict[str, tuple[int, int]](), 0
        """Where each dealer's announcement begins, and how much room it has there; the end of the last one."""

    def store_announcement(self, upload: Upload, trees: Trees) -> None:
        """Store an announcement, durably if the shelf is durable; it replaces the dealer's earlier one, in its place if it fits."""
        committed = trees.commitments_of(upload)
        parts = [b"".join(committed.path), committed.commitments]
        for place, row in enumerate(upload.share_rows):
            parts += row, trees.delivery_to(upload, place).encode()
        table = accumulate(map(len, parts), initial=8 * (1 + len(parts)))
        begins = (at.to_bytes(8, "little") for at in table)
        content, dealer = b"".join((*begins, *parts)), upload.header.member
        at, room = self._places.get(dealer, (self._end, 0))
        if room < len(content):
            at, room = self._end, len(content)
        self._write(at, content)
        self._places[dealer], self._end = (at, room), max(self._end, at + room)

    def read_commitments(self, dealer: str) -> Committed:
        """Read the dealer's commitments to its secrets."""
        path = self._read_part(dealer, 0)
        return Committed(
            self._read_part(dealer, 1), tuple(path[at : at + 32] for at in range(0, len(path), 32))
        )

    def read_row(self, dealer: str, place: int) -> bytes:
        """Read the dealer's commitments to its shares for the decryptor at this place."""
        return self._read_part(dealer, 2 + 2 * place)

    def read_delivery(self, dealer: str, place: int) -> bytes:
        """Read the encoded `Delivery` to the decryptor at this place."""
        return self._read_part(dealer, 3 + 2 * place)

    def _read_part(self, dealer: str, number: int) -> bytes:
        start, _ = self._places[dealer]
        begin, end = unpack("<QQ", self._read(start + 8 * number, 16))
        return self._read(start + begin, end - begin)

    @abstractmethod
    def _write(self, at: int, data: bytes) -> None:
        """Write `data` at a position: over what is there, or at its end."""

    @abstractmethod
    def _read(self, at: int, size: int) -> bytes:
        """Read `size` bytes at a position."""


class MemoryShelf(Shelf):
    """A shelf in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._data = bytearray()

    def _write(self, at: int, data: bytes) -> None:
        self._data[at : at + len(data)] = data

    def _read(self, at: int, size: int) -> bytes:
        return bytes(self._data[at : at + size])
