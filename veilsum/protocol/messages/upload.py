"""M1 and M1b: masked uploads, deliveries to decryptors, and receipts (wire: Uploads, wire: Survivors)."""

from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256
from typing import Annotated

from veilsum.protocol.codec import Bytes, Commitment, Digest, Fixed, Id, Many, Repeated, Signature, Struct
from veilsum.protocol.identity import SigningKey, verify_signature
from veilsum.protocol.messages.base import (
    MAX_DECRYPTORS,
    MAX_MEMBERS,
    SHARE_BYTES,
    Message,
    Names,
    Path,
    Signed,
)
from veilsum.protocol.tags import Tag, hash_fields, info

MAX_CHUNKS = 1 << 20
MAX_BOX_BYTES = 36 * MAX_MEMBERS + 16
COMMITMENT_BYTES = 16
MAX_ROW_BYTES = COMMITMENT_BYTES * MAX_MEMBERS
_INDEX_LENGTH, _SHARE_LENGTH = (4).to_bytes(8, "little"), SHARE_BYTES.to_bytes(8, "little")


class UploadHeader(Repeated):
    """The preimage of an upload's digest dg_u, and the member's signature over it.

    Attributes:
        salt: 32 fresh bytes, an input to the keys of this upload's boxes.
        chunk_root: Merkle root of the chunks' SHA-256 digests.
        commitment_root: Merkle root of the secrets' commitments, then one row of share commitments per decryptor.
        box_root: Merkle root of the boxes, one per decryptor.
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
    def _signed_digest(self) -> bytes:
        return hash_fields(Tag.UPLOAD, self.context, self.member.encode(), self.digest)

    @classmethod
    def make_signed(cls, key: SigningKey, **values: bytes | str) -> "UploadHeader":
        """Build the header and sign it."""
        unsigned = cls(**values, signature=bytes(64))  # type: ignore[arg-type]  # checked by the encoder
        return cls(**values, signature=key.sign(unsigned._signed_digest))  # type: ignore[arg-type]  # as above

    def verify(self, public: bytes) -> None:
        """Verify the member's signature. Raises PeerFault(bad-signature)."""
        verify_signature(public, self.signature, self._signed_digest, self.member)


class Upload(Message, kind=5):
    """The announcement of a member's upload; the chunks follow one by one.

    Attributes:
        header: the signed header.
        chunk_digests: SHA-256 of each packed chunk.
        secret_commitments: commitments to b_u, then to r_uv by ascending neighbour; 16 bytes each.
        share_rows: one row per decryptor: 16-byte commitments to its shares of those secrets, in the same order.
        boxes: one sealed box per decryptor; the dealer's own is empty.
    """

    header: UploadHeader
    chunk_digests: Annotated[tuple[bytes, ...], Many(Fixed(32), MAX_CHUNKS)]
    secret_commitments: Annotated[tuple[bytes, ...], Many(Fixed(16), MAX_MEMBERS)]
    share_rows: Annotated[tuple[bytes, ...], Many(Bytes(MAX_ROW_BYTES), MAX_DECRYPTORS)]
    boxes: Annotated[tuple[bytes, ...], Many(Bytes(MAX_BOX_BYTES), MAX_DECRYPTORS)]


class UploadSummary(Message, kind=21):
    """The part of an announcement that a transcript holds; its commitments show disputes.

    The Merkle path proves that the joined commitments are leaf 0 under the commitment root.
    """

    header: UploadHeader
    secret_commitments: Annotated[tuple[bytes, ...], Many(Fixed(16), MAX_MEMBERS)]
    path: Path


class Delivery(Struct):
    """One dealer's box for one decryptor, with the commitments to its shares."""

    header: UploadHeader
    box: Annotated[bytes, Bytes(MAX_BOX_BYTES)]
    box_path: Path
    row: Annotated[bytes, Bytes(MAX_ROW_BYTES)]
    row_path: Path

    @property
    def member(self) -> str:
        """The dealer."""
        return self.header.member


class Deliveries(Message, kind=6):
    """M1b, to one decryptor: its box from every complete upload, ordered by dealer."""

    context: Digest
    deliveries: Annotated[tuple[Delivery, ...], Many(Delivery, MAX_MEMBERS, ascending=True)]


class Receipt(Signed, kind=7, tag=Tag.RECEIPT):
    """M1b, from a decryptor: dealers with valid boxes, and complaints about the others. A complaint discloses nothing.

    Attributes:
        uploads: `deliveries_hash` of the deliveries, so that a dealer that signed two uploads cannot swap them.
    """

    context: Digest
    member: Id
    uploads: Digest
    dealers: Names
    complaints: Names
    signature: Signature


def deliveries_hash(context: bytes, digests: Iterable[bytes]) -> Digest:
    """Compute H(deliveries tag, ctx, dg_u of each delivered upload, ordered by dealer)."""
    return hash_fields(Tag.DELIVERIES, context, *digests)


def commitment_at(joined: bytes, index: int) -> bytes:
    """Return commitment `index` of the joined commitments; shorter, or empty, past their end."""
    return joined[index * COMMITMENT_BYTES : (index + 1) * COMMITMENT_BYTES]


def share_commitment(context: bytes, dealer: str, decryptor: str, index: int, share: bytes) -> Commitment:
    """Commit to one share in 16 bytes; `index` counts the dealer's secrets, b_u first."""
    return hash_fields(
        Tag.COMMIT_SHARE, context, dealer.encode(), decryptor.encode(), index.to_bytes(4, "little"), share
    )[:COMMITMENT_BYTES]


def share_commitments(
    context: bytes, dealer: str, decryptor: str, indices: Iterable[int], shares: bytes
) -> bytes:
    """Concatenate `share_commitment` of each of a dealer's shares for one decryptor."""
    # Hash the common prefix once: a member commits to n² shares and opens as many.
    begun = sha256(info(Tag.COMMIT_SHARE, context, dealer.encode(), decryptor.encode()) + _INDEX_LENGTH)
    commitments = []
    for at, index in zip(range(0, len(shares), SHARE_BYTES), indices, strict=True):
        share = shares[at : at + SHARE_BYTES]
        commitment = begun.copy()
        commitment.update(index.to_bytes(4, "little") + _SHARE_LENGTH + share)
        commitments.append(commitment.digest()[:COMMITMENT_BYTES])
    return b"".join(commitments)


def self_commitment(context: bytes, member: str, seed: bytes) -> Commitment:
    """Commit to b_u in 16 bytes."""
    return hash_fields(Tag.COMMIT_SELF, context, member.encode(), seed)[:COMMITMENT_BYTES]


def edge_commitment(context: bytes, member: str, neighbour: str, seed: bytes) -> Commitment:
    """Commit to r_uv in 16 bytes; the ids are hashed in cohort order, so both ends compute the same commitment."""
    low, high = sorted((member, neighbour))
    return hash_fields(Tag.COMMIT_EDGE, context, low.encode(), high.encode(), seed)[:COMMITMENT_BYTES]
