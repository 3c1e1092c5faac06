"""M1 and M1b: masked uploads, what decryptors get of them, and their receipts (protocol §4.4, §4.5)."""

from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256
from typing import Annotated, ClassVar

from protocol.codec import Bytes, Commitment, Digest, Fixed, Id, Many, Name, Nested, Signature, Struct
from protocol.identity import SigningKey, verify_signature
from protocol.messages.base import MAX_DECRYPTORS, MAX_MEMBERS, SHARE_BYTES, Kind, Message, Signed
from protocol.messages.cohort import Path
from protocol.tags import Tag, hash_fields, info

MAX_CHUNKS = 1 << 20
MAX_BOX_BYTES = 36 * MAX_MEMBERS + 16
COMMITMENT_BYTES = 16
MAX_ROW_BYTES = COMMITMENT_BYTES * MAX_MEMBERS
_INDEX_LENGTH, _SHARE_LENGTH = (4).to_bytes(8, "little"), SHARE_BYTES.to_bytes(8, "little")


class UploadHeader(Struct):
    """The preimage of an upload's digest dg_u, and the member's signature over it.

    Attributes:
        salt: 32 fresh bytes that make the keys of this upload's boxes.
        chunk_root: Merkle root of the chunks' SHA-256 digests.
        commitment_root: Merkle root of the secrets' commitments, then one row of share commitments a decryptor.
        box_root: Merkle root of the boxes, one a decryptor.
    """

    context: Digest
    member: Id
    salt: Digest
    chunk_root: Digest
    commitment_root: Digest
    box_root: Digest
    signature: Signature

    @cached_property
    def digest(self) -> bytes:
        """dg_u = H(ctx, u, salt_u, roots)."""
        return hash_fields(
            Tag.DIGEST,
            self.context,
            self.member.encode(),
            self.salt,
            self.chunk_root,
            self.commitment_root,
            self.box_root,
        )

    @property
    def _signed(self) -> bytes:
        return hash_fields(Tag.UPLOAD, self.context, self.member.encode(), self.digest)

    @classmethod
    def make(cls, key: SigningKey, **values: bytes | str) -> "UploadHeader":
        """Build the header and sign it."""
        unsigned = cls(**values, signature=bytes(64))  # type: ignore[arg-type]  # checked by the encoder
        return cls(**values, signature=key.sign(unsigned._signed))  # type: ignore[arg-type]  # as above

    def verify(self, public: bytes) -> None:
        """Raise PeerFault(bad-signature) unless the member's key signed this."""
        verify_signature(public, self.signature, self._signed, self.member)


class Upload(Message):
    """Everything of a member's upload but the chunks themselves, which follow one by one.

    Attributes:
        header: what the member signs.
        chunk_digests: SHA-256 of each packed chunk.
        secret_commitments: of b_u, then of r_uv by ascending neighbour; 16 bytes each.
        share_rows: a row a decryptor: 16-byte commitments to its shares of those secrets, in the same order.
        boxes: a sealed box a decryptor; empty where the dealer is that decryptor.
    """

    kind: ClassVar[int] = Kind.UPLOAD

    header: Annotated[UploadHeader, Nested(UploadHeader)]
    chunk_digests: Annotated[tuple[bytes, ...], Many(Fixed(32), MAX_CHUNKS)]
    secret_commitments: Annotated[tuple[bytes, ...], Many(Fixed(16), MAX_MEMBERS)]
    share_rows: Annotated[tuple[bytes, ...], Many(Bytes(MAX_ROW_BYTES), MAX_DECRYPTORS)]
    boxes: Annotated[tuple[bytes, ...], Many(Bytes(MAX_BOX_BYTES), MAX_DECRYPTORS)]


class UploadSummary(Message):
    """What a transcript keeps of an announcement: whom it disputes with shows in the commitments.

    Attributes:
        path: of the joined commitments, leaf 0 under the commitment root.
    """

    kind: ClassVar[int] = Kind.UPLOAD_SUMMARY

    header: Annotated[UploadHeader, Nested(UploadHeader)]
    secret_commitments: Annotated[tuple[bytes, ...], Many(Fixed(16), MAX_MEMBERS)]
    path: Path


class Delivery(Struct):
    """One dealer's box for one decryptor, with the row its shares are checked against."""

    header: Annotated[UploadHeader, Nested(UploadHeader)]
    box: Annotated[bytes, Bytes(MAX_BOX_BYTES)]
    box_path: Path
    row: Annotated[bytes, Bytes(MAX_ROW_BYTES)]
    row_path: Path

    @property
    def member(self) -> str:
        """The dealer."""
        return self.header.member


class Deliveries(Message):
    """M1b, to one decryptor: every complete upload's box for it, in order of dealer."""

    kind: ClassVar[int] = Kind.DELIVERIES

    context: Digest
    deliveries: Annotated[tuple[Delivery, ...], Many(Nested(Delivery), MAX_MEMBERS, ascending=True)]


class Receipt(Signed):
    """M1b, from a decryptor: whose boxes it holds, and whose failed. A complaint discloses nothing.

    Attributes:
        uploads: `deliveries_hash` of what was delivered: whoever signed two uploads cannot pass one off for the other.
    """

    kind: ClassVar[int] = Kind.RECEIPT
    tag: ClassVar[Tag] = Tag.RECEIPT

    context: Digest
    member: Id
    uploads: Digest
    dealers: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
    complaints: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
    signature: Signature


def deliveries_hash(context: bytes, digests: Iterable[bytes]) -> Digest:
    """H(deliveries tag, ctx, dg_u of each upload that was delivered, in order of dealer)."""
    return hash_fields(Tag.DELIVERIES, context, *digests)


def share_commitment(context: bytes, dealer: str, decryptor: str, index: int, share: bytes) -> Commitment:
    """16 bytes over one share; `index` counts the dealer's secrets, b_u first."""
    return hash_fields(
        Tag.COMMIT_SHARE, context, dealer.encode(), decryptor.encode(), index.to_bytes(4, "little"), share
    )[:COMMITMENT_BYTES]


def share_commitments(
    context: bytes, dealer: str, decryptor: str, indices: Iterable[int], shares: bytes
) -> bytes:
    """`share_commitment` of each of a dealer's shares for one decryptor, one after the other."""
    # What they have in common is encoded and hashed once: a member commits to n² shares and opens as many.
    begun = sha256(info(Tag.COMMIT_SHARE, context, dealer.encode(), decryptor.encode()) + _INDEX_LENGTH)
    commitments = []
    for at, index in zip(range(0, len(shares), SHARE_BYTES), indices, strict=True):
        share = shares[at : at + SHARE_BYTES]
        commitment = begun.copy()
        commitment.update(index.to_bytes(4, "little") + _SHARE_LENGTH + share)
        commitments.append(commitment.digest()[:COMMITMENT_BYTES])
    return b"".join(commitments)


def self_commitment(context: bytes, member: str, seed: bytes) -> Commitment:
    """16 bytes over b_u."""
    return hash_fields(Tag.COMMIT_SELF, context, member.encode(), seed)[:COMMITMENT_BYTES]


def edge_commitment(context: bytes, low: str, high: str, seed: bytes) -> Commitment:
    """16 bytes over r_uv, the ids in cohort order: both ends commit to the same."""
    return hash_fields(Tag.COMMIT_EDGE, context, low.encode(), high.encode(), seed)[:COMMITMENT_BYTES]
