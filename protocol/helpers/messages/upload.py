"""A client's one upload, what helpers get of it, and their receipts (helpers H5, H6)."""

from typing import Annotated, ClassVar

from protocol.codec import Digest, Fixed, Id, Key, Many, Name, Nested, Signature, Struct
from protocol.helpers.messages.base import BOX_BYTES, HELPERS, MAX_CLIENTS, HelperKind
from protocol.identity import SigningKey, verify_signature
from protocol.merkle import Tree
from protocol.messages.base import Message, Signed
from protocol.messages.outcome import Survivor
from protocol.messages.upload import MAX_CHUNKS
from protocol.tags import Tag, hash_fields

Tag8 = Annotated[bytes, Fixed(8)]
Commitments = Annotated[tuple[bytes, ...], Many(Fixed(32), HELPERS)]
Path = Annotated[tuple[bytes, ...], Many(Fixed(32), 64)]


class HelperHeader(Struct):
    """The preimage of an upload's digest dg_u, and the client's signature over it.

    Attributes:
        lineage: the data set's name under the client's key, 8 bytes.
        records: the same over lineage and records, 8 bytes; changes when the records change.
        sender_key: an X25519 public key made for this upload alone: it makes the keys of its boxes.
        chunk_root: Merkle root of the chunks' SHA-256 digests.
        seed_root: Merkle root of the commitments to the four seeds.
        box_root: Merkle root of the boxes, one a card.
    """

    context: Digest
    member: Id
    lineage: Tag8
    records: Tag8
    sender_key: Key
    chunk_root: Digest
    seed_root: Digest
    box_root: Digest
    signature: Signature

    @property
    def digest(self) -> bytes:
        """dg_u = H(ctx, u, lin_u, ver_u, E_u, roots)."""
        return hash_fields(
            Tag.HELPER_DIGEST,
            self.context,
            self.member.encode(),
            self.lineage,
            self.records,
            self.sender_key,
            self.chunk_root,
            self.seed_root,
            self.box_root,
        )

    @property
    def _signed(self) -> bytes:
        return hash_fields(
            Tag.HELPER_UPLOAD, self.context, self.member.encode(), self.lineage, self.records, self.digest
        )

    @property
    def survivor(self) -> Survivor:
        """The client as a certificate names it."""
        return Survivor(self.member, self.lineage, self.records, self.digest)

    @classmethod
    def make(cls, key: SigningKey, **values: bytes | str) -> "HelperHeader":
        """Build the header and sign it."""
        unsigned = cls(**values, signature=bytes(64))  # type: ignore[arg-type]  # checked by the encoder
        return cls(**values, signature=key.sign(unsigned._signed))  # type: ignore[arg-type]  # as above

    def verify(self, public: bytes) -> None:
        """Raise PeerFault(bad-signature) unless the client's key signed this."""
        verify_signature(public, self.signature, self._signed, self.member)


class HelperUpload(Message):
    """All that a client ever says in an attempt but the chunks themselves, which follow one by one.

    Attributes:
        chunk_digests: SHA-256 of each packed chunk.
        commitments: to the seeds s_0 … s_3.
        boxes: a sealed box a card, in the manifest's order.
    """

    kind: ClassVar[int] = HelperKind.UPLOAD

    header: Annotated[HelperHeader, Nested(HelperHeader)]
    chunk_digests: Annotated[tuple[bytes, ...], Many(Fixed(32), MAX_CHUNKS)]
    commitments: Commitments
    boxes: Annotated[tuple[bytes, ...], Many(Fixed(BOX_BYTES), HELPERS)]

    @property
    def member(self) -> str:
        """Whose upload it is."""
        return self.header.member

    def delivery(self, place: int) -> "HelperDelivery":
        """What the helper whose card stands at `place` is sent of it."""
        path = tuple(Tree.of(self.boxes).path(place))
        return HelperDelivery(self.header, self.commitments, self.boxes[place], path)


class HelperDelivery(Struct):
    """One client's box for one helper, with the commitments that its seeds are checked against."""

    header: Annotated[HelperHeader, Nested(HelperHeader)]
    commitments: Commitments
    box: Annotated[bytes, Fixed(BOX_BYTES)]
    path: Path

    @property
    def member(self) -> str:
        """The client."""
        return self.header.member


class HelperDeliveries(Message):
    """To one helper: its box of every whole upload, in order of client."""

    kind: ClassVar[int] = HelperKind.DELIVERIES

    context: Digest
    deliveries: Annotated[
        tuple[HelperDelivery, ...], Many(Nested(HelperDelivery), MAX_CLIENTS, ascending=True)
    ]


class HelperReceipt(Signed):
    """From a helper: whose seeds it holds, and whose box failed. A complaint discloses nothing."""

    kind: ClassVar[int] = HelperKind.RECEIPT
    tag: ClassVar[Tag] = Tag.HELPER_RECEIPT

    context: Digest
    member: Id
    dealers: Annotated[tuple[str, ...], Many(Name(), MAX_CLIENTS, ascending=True)]
    complaints: Annotated[tuple[str, ...], Many(Name(), MAX_CLIENTS, ascending=True)]
    signature: Signature
