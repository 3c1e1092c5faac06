"""M2 and M3: freezing the survivors, certificates, reveals, and how an attempt is closed (protocol §4.6–4.9)."""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Bytes, Digest, Fixed, Id, Many, Name, Nested, Shared, Signature, Struct
from protocol.errors import PeerFault
from protocol.merkle import Tree
from protocol.messages.base import MAX_DECRYPTORS, MAX_MEMBERS, SHARE_BYTES, Kind, Message, Signed
from protocol.messages.opening import MAX_LINKS
from protocol.messages.upload import Tag8, UploadHeader
from protocol.tags import Tag, hash_fields

NO_REASON = "none"
LOST_REASON = "lost"
ERASED_REASON = "erased"
NOT_VOTED_FOR = frozenset({NO_REASON, LOST_REASON, ERASED_REASON})
"""Reasons that no vote on VOID has."""


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


def closing_hash(context: bytes, reason: str, outcomes: Iterable[bytes]) -> Digest:
    """How an attempt was closed, as the federation's chain names it.

    Args:
        context: the attempt's.
        reason: "none" for a sum, "lost", or why it is VOID.
        outcomes: `survivors_hash` of the certified set, if there is one.
    """
    return hash_fields(Tag.CLOSING, context, reason.encode(), *outcomes)


class SurvivorSet(Struct):
    """Members whose sum was certified."""

    survivors: Annotated[tuple[Survivor, ...], Many(Nested(Survivor), MAX_MEMBERS, ascending=True)]

    def validate(self) -> None:
        """Refuse the empty set: without survivors there is no sum."""
        if not self.survivors:
            raise PeerFault(Cause.MALFORMED, "a set of survivors has none")


class Past(Shared):
    """How an earlier attempt was closed, and which sets of members it opened (protocol §8)."""

    context: Digest
    reason: Id
    sets: Annotated[tuple[SurvivorSet, ...], Many(Nested(SurvivorSet), 1)]

    def validate(self) -> None:
        """Refuse sets that its reason does not leave: one for a sum, none otherwise."""
        if len(self.sets) != (self.reason == NO_REASON):
            raise PeerFault(Cause.MALFORMED, f"{len(self.sets)} sets do not go with the reason {self.reason}")

    @cached_property
    def outcomes(self) -> tuple[bytes, ...]:
        """`survivors_hash` of each set."""
        return tuple(survivors_hash(self.context, opened.survivors) for opened in self.sets)

    @property
    def closing(self) -> bytes:
        """What the chain's link must carry."""
        return closing_hash(self.context, self.reason, self.outcomes)


class Freeze(Message):
    """M2, to every decryptor: the proposed survivors, each by its upload's header, and what was opened before.

    Attributes:
        history: one entry for each link of the opening, in order.
    """

    kind: ClassVar[int] = Kind.FREEZE

    context: Digest
    headers: Annotated[tuple[UploadHeader, ...], Many(Nested(UploadHeader), MAX_MEMBERS)]
    history: Annotated[tuple[Past, ...], Many(Nested(Past), MAX_LINKS)]


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
    """M2, from a decryptor: it signs nothing, and says why.

    Attributes:
        group: the members whose columns the sum would expose, where the ledger forbids it.
        rounds: contexts of the opened rounds that, with this one, would expose them.
    """

    kind: ClassVar[int] = Kind.REFUSAL
    tag: ClassVar[Tag] = Tag.REFUSAL

    context: Digest
    member: Id
    cause: Id
    group: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
    rounds: Annotated[tuple[bytes, ...], Many(Fixed(32), MAX_LINKS)]
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

    @cached_property
    def past(self) -> Past:
        """What the chain keeps of it. The votes stand outside: any threshold of them will do."""
        return Past(self.context, self.reason, () if self.void else (SurvivorSet(self.survivors),))


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
