"""Where a coordinator puts announcements: they are large, and looked at again one box or row at a time."""

from dataclasses import dataclass
from typing import Protocol

from protocol.merkle import Tree
from protocol.messages import COMMITMENT_BYTES, Delivery, Upload, UploadHeader
from protocol.sealing import commitment_tree


@dataclass(frozen=True, slots=True)
class Announced:
    """What a coordinator keeps of an announcement in memory: about 3 KiB at 120 neighbours and 15 chunks.

    Attributes:
        header: as signed.
        commitments: the secrets' commitments, joined: leaf 0 under the commitment root.
        path: theirs.
        chunk_digests: SHA-256 of each chunk, joined.
    """

    header: UploadHeader
    commitments: bytes
    path: tuple[bytes, ...]
    chunk_digests: bytes

    @classmethod
    def of(cls, upload: Upload, commitments: Tree) -> "Announced":
        """Keep what is needed of an upload with this commitment tree."""
        return cls(
            upload.header,
            b"".join(upload.secret_commitments),
            tuple(commitments.path(0)),
            b"".join(upload.chunk_digests),
        )

    def commitment(self, index: int) -> bytes:
        """The commitment to one secret."""
        return self.commitments[index * COMMITMENT_BYTES : (index + 1) * COMMITMENT_BYTES]

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
        return cls(Tree.of(upload.boxes), commitment_tree(upload.secret_commitments, upload.share_rows))

    def delivery(self, upload: Upload, place: int) -> Delivery:
        """The part of the decryptor at this place."""
        return Delivery(
            upload.header,
            upload.boxes[place],
            tuple(self.boxes.path(place)),
            upload.share_rows[place],
            tuple(self.commitments.path(1 + place)),
        )


class Shelf(Protocol):
    """Keeps what an announcement holds for each decryptor."""

    def put(self, upload: Upload, trees: Trees) -> None:
        """Keep an announcement, durably where the shelf is; the same again changes nothing."""
        ...

    def delivery(self, dealer: str, place: int) -> Delivery:
        """The dealer's box and row for the decryptor at this place, with their paths."""
        ...

    def row(self, dealer: str, place: int) -> bytes:
        """The row alone."""
        ...


class MemoryShelf:
    """Announcements in memory, with their trees."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Upload, Trees]] = {}

    def put(self, upload: Upload, trees: Trees) -> None:
        """Keep an announcement."""
        self._kept[upload.header.member] = upload, trees

    def delivery(self, dealer: str, place: int) -> Delivery:
        """The dealer's box and row for the decryptor at this place, with their paths."""
        upload, trees = self._kept[dealer]
        return trees.delivery(upload, place)

    def row(self, dealer: str, place: int) -> bytes:
        """The row alone."""
        return self._kept[dealer][0].share_rows[place]
