"""Storage for announcements, which are large and read one box or row at a time."""

from dataclasses import dataclass
from typing import Protocol

from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import Delivery, Upload, UploadHeader, commitment_at
from veilsum.protocol.sealing import commitment_tree


@dataclass(frozen=True, slots=True)
class Committed:
    """A dealer's commitments to its secrets.

    Attributes:
        commitments: to its secrets, joined: leaf 0 under the commitment root.
        path: theirs.
    """

    commitments: bytes
    path: tuple[bytes, ...]

    def entry(self, index: int) -> bytes:
        """The commitment to one secret."""
        return commitment_at(self.commitments, index)


class Commitments(Protocol):
    """Storage of dealers' commitments."""

    def committed(self, dealer: str) -> Committed:
        """The dealer's commitments to its secrets."""
        ...


@dataclass(frozen=True, slots=True)
class Announced:
    """What a coordinator keeps of an announcement in memory: about 1 KiB at 15 chunks. The rest lies on the shelf.

    Attributes:
        header: as signed.
        chunk_digests: SHA-256 of each chunk, joined.
        shelf: where its commitments are.
    """

    header: UploadHeader
    chunk_digests: bytes
    shelf: Commitments

    @property
    def committed(self) -> Committed:
        """The commitments to its secrets, read anew."""
        return self.shelf.committed(self.header.member)

    def chunk_digest(self, index: int) -> bytes:
        """SHA-256 of one chunk."""
        return self.chunk_digests[32 * index : 32 * (index + 1)]


@dataclass(frozen=True, slots=True)
class Trees:
    """The trees under an upload's box root and commitment root, built once when it is admitted."""

    boxes: Tree
    commitments: Tree

    @classmethod
    def of(cls, upload: Upload) -> "Trees":
        """Hash what the upload carries."""
        return cls(Tree(upload.boxes), commitment_tree(upload.secret_commitments, upload.share_rows))

    def committed(self, upload: Upload) -> Committed:
        """What its dealer committed to."""
        return Committed(b"".join(upload.secret_commitments), tuple(self.commitments.path(0)))

    def delivery(self, upload: Upload, place: int) -> Delivery:
        """The part of the decryptor at this place."""
        return Delivery(
            upload.header,
            upload.boxes[place],
            tuple(self.boxes.path(place)),
            upload.share_rows[place],
            tuple(self.commitments.path(1 + place)),
        )


class Shelf(Commitments, Protocol):
    """Keeps what an announcement holds: commitments, and for each decryptor a box and a row."""

    def put(self, upload: Upload, trees: Trees) -> None:
        """Keep an announcement, durably where the shelf is; the same again changes nothing."""
        ...

    def delivery(self, dealer: str, place: int) -> Delivery:
        """The dealer's box and row for the decryptor at this place, with their paths."""
        ...

    def row(self, dealer: str, place: int) -> bytes:
        """Return the dealer's row of share commitments, without its path."""
        ...


class MemoryShelf:
    """Announcements in memory, with their trees."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Upload, Trees]] = {}

    def put(self, upload: Upload, trees: Trees) -> None:
        self._kept[upload.header.member] = upload, trees

    def committed(self, dealer: str) -> Committed:
        upload, trees = self._kept[dealer]
        return trees.committed(upload)

    def delivery(self, dealer: str, place: int) -> Delivery:
        upload, trees = self._kept[dealer]
        return trees.delivery(upload, place)

    def row(self, dealer: str, place: int) -> bytes:
        return self._kept[dealer][0].share_rows[place]
