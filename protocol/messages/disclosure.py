"""The indicator round is opened to all members, who recount it for themselves (protocol §9)."""

from typing import Annotated, ClassVar

from protocol.codec import U32, Bytes, Digest, Fixed, Many, Nested, Secret, Struct
from protocol.messages.base import MAX_MEMBERS, Kind, Message
from protocol.messages.cohort import Path
from protocol.messages.upload import MAX_CHUNKS, MAX_ROW_BYTES, UploadHeader

MAX_CHUNK_BYTES = 1 << 25


class Seed(Struct):
    """One of the dealer's secrets, rebuilt."""

    index: U32
    seed: Secret


class Disclosed(Struct):
    """A survivor's whole upload with every seed that the sum needed of it.

    Attributes:
        commitments: its joined secret commitments, leaf 0 under its commitment root.
        path: theirs.
        seeds: b_u, then r_uw for each lost w, ascending by index.
    """

    header: Annotated[UploadHeader, Nested(UploadHeader)]
    commitments: Annotated[bytes, Bytes(MAX_ROW_BYTES)]
    path: Path
    chunk_digests: Annotated[tuple[bytes, ...], Many(Fixed(32), MAX_CHUNKS)]
    chunks: Annotated[tuple[bytes, ...], Many(Bytes(MAX_CHUNK_BYTES), MAX_CHUNKS)]
    seeds: Annotated[tuple[Seed, ...], Many(Nested(Seed), MAX_MEMBERS)]

    @property
    def member(self) -> str:
        """The survivor."""
        return self.header.member


class Disclosure(Message):
    """To all members: what the sum of an indicator round was made of."""

    kind: ClassVar[int] = Kind.DISCLOSURE

    context: Digest
    entries: Annotated[tuple[Disclosed, ...], Many(Nested(Disclosed), MAX_MEMBERS, ascending=True)]
