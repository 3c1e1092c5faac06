"""Proofs against false parties, and disclosures of indicators (protocol §4.7, §8.3, §11)."""

from typing import Annotated, ClassVar

from veilsum.protocol.codec import U32, Bytes, Digest, Fixed, Id, Many, Nested, Secret, Struct
from veilsum.protocol.messages.base import MAX_DECRYPTORS, MAX_MEMBERS, SHARE_BYTES, Kind, Message
from veilsum.protocol.messages.cohort import Path
from veilsum.protocol.messages.outcome import RevealSummary
from veilsum.protocol.messages.upload import MAX_CHUNKS, MAX_ROW_BYTES, UploadHeader

MAX_CHUNK_BYTES = 1 << 25


class Seed(Struct):
    """A rebuilt secret of a dealer."""

    index: U32
    seed: Secret


class Disclosed(Struct):
    """A survivor's complete upload and every seed that the sum needed from it.

    Attributes:
        commitments: its joined secret commitments, leaf 0 under its commitment root.
        path: the commitments' Merkle path.
        seeds: b_u, then r_uw for each dropout w, ascending by index.
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
    """To all members: the vectors behind the sum of an indicator round."""

    kind: ClassVar[int] = Kind.DISCLOSURE

    context: Digest
    entries: Annotated[tuple[Disclosed, ...], Many(Nested(Disclosed), MAX_MEMBERS, ascending=True)]


Row = Annotated[bytes, Bytes(MAX_ROW_BYTES)]


class Holder(Struct):
    """One decryptor's share of the secret, with the dealer's row of commitments for that decryptor."""

    member: Id
    share: Annotated[bytes, Fixed(SHARE_BYTES)]
    row: Row
    path: Path


class Proof(Struct):
    """Proof that a dealer's shares do not recover its committed secret.

    Attributes:
        commitments: the dealer's joined secret commitments, leaf 0 under its commitment root.
        path: the commitments' Merkle path.
        index: the secret's index.
        holders: a threshold of decryptors with their shares.
    """

    header: Annotated[UploadHeader, Nested(UploadHeader)]
    commitments: Row
    path: Path
    index: U32
    holders: Annotated[tuple[Holder, ...], Many(Nested(Holder), MAX_DECRYPTORS, ascending=True)]

    @property
    def member(self) -> str:
        """The dealer."""
        return self.header.member


class Evictions(Message):
    """M3, to every decryptor: reveal again without these dealers among the survivors."""

    kind: ClassVar[int] = Kind.EVICTIONS

    context: Digest
    proofs: Annotated[tuple[Proof, ...], Many(Nested(Proof), MAX_MEMBERS, ascending=True)]

    @property
    def evicted(self) -> tuple[str, ...]:
        """The evicted dealers."""
        return tuple(proof.member for proof in self.proofs)


class BadRun(Message):
    """A decryptor's signed run whose shares do not match the dealer's commitments (protocol §11).

    Attributes:
        reveal: the decryptor's signed reveal.
        header: the dealer's upload header.
        place: the run's index among the reveal's `count`.
        run_path: Merkle path to the reveal's runs root.
        row: the dealer's commitments to that decryptor's shares.
        row_path: Merkle path to the dealer's commitment root.
    """

    kind: ClassVar[int] = Kind.BAD_RUN

    reveal: Annotated[RevealSummary, Nested(RevealSummary)]
    header: Annotated[UploadHeader, Nested(UploadHeader)]
    place: U32
    count: U32
    run: Annotated[bytes, Bytes(SHARE_BYTES * MAX_MEMBERS)]
    run_path: Path
    row: Row
    row_path: Path
