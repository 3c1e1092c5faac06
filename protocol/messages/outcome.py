"""M2 and M3: freezing the survivors, certificates, reveals, and how an attempt is closed (protocol §4.6–4.9)."""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Bytes, Digest, Id, Many, Name, Nested, Signature, Struct
from protocol.errors import PeerFault
from protocol.merkle import Tree
from protocol.messages.base import MAX_DECRYPTORS, MAX_MEMBERS, SHARE_BYTES, Kind, Message, Signed
from protocol.messages.opening import ERASED_REASON, LOST_REASON, NO_CONTEXT, NO_REASON
from protocol.messages.upload import UploadHeader
from protocol.tags import Tag, hash_fields

NOT_VOTED_FOR = frozenset({NO_REASON, LOST_REASON, ERASED_REASON})
"""Reasons that no vote on VOID has."""


class Survivor(Struct):
    """A survivor as the certificate names it."""

    member: Id
    digest: Digest

    @classmethod
    def of(cls, header: UploadHeader) -> "Survivor":
        """The survivor that an upload's header describes."""
        return cls(header.member, header.digest)


def survivors_hash(context: bytes, survivors: tuple[Survivor, ...]) -> Digest:
    """H = H(ctx, sorted (u, dg_u)): what a decryptor signs for a sum."""
    return hash_fields(Tag.SURVIVORS, context, *(s.encode_fields() for s in survivors))


def void_hash(context: bytes, reason: str) -> Digest:
    """What a decryptor signs for an attempt that ends without a sum."""
    return hash_fields(Tag.VOID, context, reason.encode())


class SurvivorSet(Struct):
    """Members whose sum was certified."""

    survivors: Annotated[tuple[Survivor, ...], Many(Nested(Survivor), MAX_MEMBERS, ascending=True)]

    def validate(self) -> None:
        """Refuse the empty set: without survivors there is no sum."""
        if not self.survivors:
            raise PeerFault(Cause.MALFORMED, "a set of survivors has none")


class Freeze(Message):
    """M2, to every decryptor: the proposed survivors, each by its upload's header.

    Attributes:
        earlier: the certified set that this attempt rests on: the repeated attempt's, else the indicator's; none without either.
    """

    kind: ClassVar[int] = Kind.FREEZE

    context: Digest
    headers: Annotated[tuple[UploadHeader, ...], Many(Nested(UploadHeader), MAX_MEMBERS)]
    earlier: Annotated[tuple[SurvivorSet, ...], Many(Nested(SurvivorSet), 1)]


class VoidRequest(Message):
    """M2, to every decryptor that has not signed: end the attempt without a sum, for this reason."""

    kind: ClassVar[int] = Kind.VOID_REQUEST

    context: Digest
    reason: Id

    def validate(self) -> None:
        """Refuse "none", "erased" and "lost": no certificate could carry them, so whoever signed one could end nothing."""
        if self.reason in NOT_VOTED_FOR:
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
    votes: Annotated[tuple[Vote, ...], Many(Nested(Vote), MAX_DECRYPTORS, ascending=True)]

    def validate(self) -> None:
        """Refuse survivors beside a reason for VOID, and neither."""
        if self.reason in NOT_VOTED_FOR if self.void else self.reason != NO_REASON:
            raise PeerFault(Cause.MALFORMED, "a certificate has survivors, or a reason for VOID")

    @property
    def void(self) -> bool:
        """Whether the attempt ends without a sum."""
        return not self.survivors

    def names(self, header: UploadHeader) -> bool:
        """Whether it certifies this very upload."""
        return Survivor.of(header) in self._named

    @cached_property
    def _named(self) -> frozenset[Survivor]:
        return frozenset(self.survivors)

    @cached_property
    def outcome(self) -> bytes:
        """The hash that every vote must carry."""
        if self.void:
            return void_hash(self.context, self.reason)
        return survivors_hash(self.context, self.survivors)

    @property
    def survivors_hash(self) -> bytes:
        """What the chain keeps of it beside the reason. The votes stand outside: any threshold of them will do."""
        return NO_CONTEXT if self.void else self.outcome


def reveal_digest(
    context: bytes, member: str, outcome: bytes, evicted: tuple[str, ...], root: bytes
) -> bytes:
    """What a decryptor signs for a reveal: its runs by their root, so that one of them can be shown alone."""
    names = _root(name.encode() for name in evicted)
    return hash_fields(Tag.REVEAL, context, member.encode(), outcome, names, root)


def _root(leaves: Iterable[bytes]) -> bytes:
    return Tree.of(list(leaves) or [b""]).root


class Reveal(Signed):
    """M3, from a decryptor: its shares of what the certified set needs, and nothing else.

    Attributes:
        evicted: dealers proved false, who count as lost.
        runs: for each other survivor whose shares it holds, in order: its share of b_u, then of r_uw for each w that
            is lost or evicted, ascending; 36 bytes each.
    """

    kind: ClassVar[int] = Kind.REVEAL
    tag: ClassVar[Tag] = Tag.REVEAL

    context: Digest
    member: Id
    outcome: Digest
    evicted: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
    runs: Annotated[tuple[bytes, ...], Many(Bytes(SHARE_BYTES * MAX_MEMBERS, secret=True), MAX_MEMBERS)]
    signature: Signature

    @cached_property
    def runs_root(self) -> bytes:
        """Merkle root over the runs."""
        return _root(self.runs)

    @property
    def digest(self) -> bytes:
        """`reveal_digest` of its fields."""
        return reveal_digest(self.context, self.member, self.outcome, self.evicted, self.runs_root)

    @property
    def summary(self) -> "RevealSummary":
        """What a transcript keeps of it: no share."""
        return RevealSummary(
            context=self.context,
            member=self.member,
            outcome=self.outcome,
            evicted=self.evicted,
            runs_root=self.runs_root,
            signature=self.signature,
        )


class RevealSummary(Signed):
    """A reveal without its shares, under the same signature."""

    kind: ClassVar[int] = Kind.REVEAL_SUMMARY
    tag: ClassVar[Tag] = Tag.REVEAL

    context: Digest
    member: Id
    outcome: Digest
    evicted: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
    runs_root: Digest
    signature: Signature

    @property
    def digest(self) -> bytes:
        """`reveal_digest` of its fields."""
        return reveal_digest(self.context, self.member, self.outcome, self.evicted, self.runs_root)
