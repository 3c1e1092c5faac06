"""M2 and M3: freezing the survivors, certificates, and the reveal (protocol §4.6, §4.7)."""

from functools import cached_property
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Bytes, Digest, Id, Many, Nested, Signature, Struct
from protocol.errors import PeerFault
from protocol.messages.base import MAX_MEMBERS, SHARE_BYTES, Kind, Message, Signed
from protocol.messages.upload import Tag8, UploadHeader
from protocol.tags import Tag, hash_fields

NO_REASON = "none"


class Survivor(Struct):
    """A survivor as the certificate names it."""

    member: Id
    lineage: Tag8
    records: Tag8
    digest: Digest

    @classmethod
    def of(cls, header: UploadHeader) -> "Survivor":
        """The survivor that an upload's header describes."""
        return cls(header.member, header.lineage, header.records, header.digest)


def survivors_hash(context: bytes, survivors: tuple[Survivor, ...]) -> Digest:
    """H = H(ctx, sorted (u, lin_u, ver_u, dg_u)): what a decryptor signs for a sum."""
    return hash_fields(Tag.SURVIVORS, context, *(s.encode_fields() for s in survivors))


def void_hash(context: bytes, reason: str) -> Digest:
    """What a decryptor signs for an attempt that ends without a sum."""
    return hash_fields(Tag.VOID, context, reason.encode())


class Freeze(Message):
    """M2, to every decryptor: the proposed survivors, each by its upload's header."""

    kind: ClassVar[int] = Kind.FREEZE

    context: Digest
    headers: Annotated[tuple[UploadHeader, ...], Many(Nested(UploadHeader), MAX_MEMBERS)]


class VoidRequest(Message):
    """M2, to every decryptor that has not signed: end the attempt without a sum, for this reason."""

    kind: ClassVar[int] = Kind.VOID_REQUEST

    context: Digest
    reason: Id

    def validate(self) -> None:
        """Refuse "none": no certificate could carry it, so whoever signed it could end the attempt in no way."""
        if self.reason == NO_REASON:
            raise PeerFault(Cause.MALFORMED, "a request to void an attempt gives a reason")


class Vote(Signed):
    """M2, from a decryptor: its one signature for this context, on a survivor set or on VOID."""

    kind: ClassVar[int] = Kind.VOTE
    tag: ClassVar[Tag] = Tag.VOTE

    context: Digest
    member: Id
    outcome: Digest
    signature: Signature


class Refusal(Signed):
    """M2, from a decryptor: it signs nothing, and says why."""

    kind: ClassVar[int] = Kind.REFUSAL
    tag: ClassVar[Tag] = Tag.REFUSAL

    context: Digest
    member: Id
    cause: Id
    signature: Signature


class Certificate(Message):
    """A threshold of decryptors' votes on one outcome.

    Attributes:
        survivors: the certified set in order; empty means VOID.
        reason: why the attempt is VOID; "none" beside survivors.
        votes: in order of decryptor.
    """

    kind: ClassVar[int] = Kind.CERTIFICATE

    context: Digest
    survivors: Annotated[tuple[Survivor, ...], Many(Nested(Survivor), MAX_MEMBERS, ascending=True)]
    reason: Id
    votes: Annotated[tuple[Vote, ...], Many(Nested(Vote), MAX_MEMBERS, ascending=True)]

    def validate(self) -> None:
        """Refuse survivors beside a reason for VOID, and neither."""
        if self.void == (self.reason == NO_REASON):
            raise PeerFault(Cause.MALFORMED, "a certificate has survivors, or a reason for VOID")

    @property
    def void(self) -> bool:
        """Whether the attempt ends without a sum."""
        return not self.survivors

    @cached_property
    def outcome(self) -> bytes:
        """The hash that every vote must carry."""
        if self.void:
            return void_hash(self.context, self.reason)
        return survivors_hash(self.context, self.survivors)

    @property
    def hash(self) -> bytes:
        """Names the outcome in the federation's chain. The votes stand outside: any threshold of them will do."""
        return hash_fields(Tag.CERTIFICATE, self.context, self.outcome)


class Reveal(Signed):
    """M3, from a decryptor: its shares of what the certified set needs, and nothing else.

    Attributes:
        shares: for each survivor in order: its share of b_u, then of r_uw for each lost w in order; 36 bytes each.
    """

    kind: ClassVar[int] = Kind.REVEAL
    tag: ClassVar[Tag] = Tag.REVEAL

    context: Digest
    member: Id
    outcome: Digest
    shares: Annotated[bytes, Bytes(SHARE_BYTES * MAX_MEMBERS * MAX_MEMBERS, secret=True)]
    signature: Signature
