"""M3 again: a dealer is proved false, or a decryptor (protocol §4.7, §11)."""

from typing import Annotated, ClassVar

from protocol.codec import U32, Bytes, Digest, Fixed, Id, Many, Nested, Struct
from protocol.messages.base import MAX_DECRYPTORS, MAX_MEMBERS, SHARE_BYTES, Kind, Message
from protocol.messages.cohort import Path
from protocol.messages.outcome import RevealSummary
from protocol.messages.upload import MAX_ROW_BYTES, UploadHeader

Row = Annotated[bytes, Bytes(MAX_ROW_BYTES)]


class Holder(Struct):
    """One decryptor's share of the secret in question, with the row that the dealer committed to for it."""

    member: Id
    share: Annotated[bytes, Fixed(SHARE_BYTES)]
    row: Row
    path: Path


class Proof(Struct):
    """That a dealer's own shares do not make the secret it committed to.

    Attributes:
        commitments: the dealer's joined secret commitments, leaf 0 under its commitment root.
        path: theirs.
        index: which of its secrets.
        holders: a threshold of decryptors.
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
    """M3, to every decryptor: reveal again, as if these dealers were not among the survivors."""

    kind: ClassVar[int] = Kind.EVICTIONS

    context: Digest
    proofs: Annotated[tuple[Proof, ...], Many(Nested(Proof), MAX_MEMBERS, ascending=True)]

    @property
    def evicted(self) -> tuple[str, ...]:
        """The dealers."""
        return tuple(proof.member for proof in self.proofs)


class BadRun(Message):
    """A decryptor's signed run whose shares are not those that the dealer committed to (protocol §11).

    Attributes:
        reveal: under the decryptor's signature.
        header: the dealer's upload.
        place: of the run among the reveal's `count`.
        run_path: to the reveal's runs root.
        row: the dealer's commitments to that decryptor's shares.
        row_path: to the dealer's commitment root.
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
