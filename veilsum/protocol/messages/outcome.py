"""M2 and M3: freezing the survivors, certificates, reveals, and closing an attempt (protocol §4.6–4.9)."""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, ClassVar

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Bytes, Digest, Id, Many, Name, Nested, Signature, Struct
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages.base import MAX_DECRYPTORS, MAX_MEMBERS, SHARE_BYTES, Kind, Message, Signed
from veilsum.protocol.messages.opening import ERASED_REASON, LOST_REASON, NO_CONTEXT, NO_REASON
from veilsum.protocol.messages.upload import UploadHeader
from veilsum.protocol.tags import Tag, hash_fields

NOT_VOTED_FOR = frozenset({NO_REASON, LOST_REASON, ERASED_REASON})
"""Reasons that a vote on VOID cannot have."""


class Survivor(Struct):
    """A survivor's entry in a certificate."""

    member: Id
    digest: Digest

    @classmethod
    def of(cls, header: UploadHeader) -> "Survivor":
        """Make the survivor of an upload's header."""
        return cls(header.member, header.digest)


def survivors_hash(context: bytes, survivors: tuple[Survivor, ...]) -> Digest:
    """H = H(ctx, sorted (u, dg_u)), which a decryptor signs for a sum."""
    return hash_fields(Tag.SURVIVORS, context, *(s.encode_fields() for s in survivors))


def void_hash(context: bytes, reason: str) -> Digest:
    """Hash that a decryptor signs to void an attempt."""
    return hash_fields(Tag.VOID, context, reason.encode())


class SurvivorSet(Struct):
    """A certified set of survivors."""

    survivors: Annotated[tuple[Survivor, ...], Many(Nested(Survivor), MAX_MEMBERS, ascending=True)]

    def validate(self) -> None:
        """Refuse an empty set."""
        if not self.survivors:
            raise PeerFault(Cause.MALFORMED, "a set of survivors has none")


class Freeze(Message):
    """M2, to every decryptor: the proposed survivors, each by its upload's header.

    Attributes:
        earlier: the certified set of the repeated attempt, else of the indicator; empty without either.
    """

    kind: ClassVar[int] = Kind.FREEZE

    context: Digest
    headers: Annotated[tuple[UploadHeader, ...], Many(Nested(UploadHeader), MAX_MEMBERS)]
    earlier: Annotated[tuple[SurvivorSet, ...], Many(Nested(SurvivorSet), 1)]


class VoidRequest(Message):
    """M2, to every decryptor that has not signed: void the attempt, for this reason."""

    kind: ClassVar[int] = Kind.VOID_REQUEST

    context: Digest
    reason: Id

    def validate(self) -> None:
        """Refuse "none", "erased" and "lost", which no certificate can carry: such votes could not end the attempt."""
        if self.reason in NOT_VOTED_FOR:
            raise PeerFault(Cause.MALFORMED, "a request to void an attempt gives a reason")


class Vote(Signed):
    """M2, from a decryptor: its only signature in this context, on a survivor set or on VOID."""

    kind: ClassVar[int] = Kind.VOTE
    tag: ClassVar[Tag] = Tag.VOTE

    context: Digest
    member: Id
    outcome: Digest
    signature: Signature


class Refusal(Signed):
    """M2, from a decryptor: why it does not sign."""

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
        reason: why the attempt is VOID; "none" with survivors.
        votes: ordered by decryptor.
    """

    kind: ClassVar[int] = Kind.CERTIFICATE

    context: Digest
    survivors: Annotated[tuple[Survivor, ...], Many(Nested(Survivor), MAX_MEMBERS, ascending=True)]
    reason: Id
    votes: Annotated[tuple[Vote, ...], Many(Nested(Vote), MAX_DECRYPTORS, ascending=True)]

    def validate(self) -> None:
        """Require either survivors or a reason for VOID."""
        if self.reason in NOT_VOTED_FOR if self.void else self.reason != NO_REASON:
            raise PeerFault(Cause.MALFORMED, "a certificate has survivors, or a reason for VOID")

    @property
    def void(self) -> bool:
        """Whether the attempt ends without a sum."""
        return not self.survivors

    def names(self, header: UploadHeader) -> bool:
        """Whether the certificate covers this exact upload."""
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
        """The survivors' hash in the chain; excludes the votes, because any threshold of them suffices."""
        return NO_CONTEXT if self.void else self.outcome


def reveal_digest(
    context: bytes, member: str, outcome: bytes, evicted: tuple[str, ...], root: bytes
) -> bytes:
    """Digest that signs a reveal; it contains the root of the runs, so that a single run can be proved."""
    names = _root(name.encode() for name in evicted)
    return hash_fields(Tag.REVEAL, context, member.encode(), outcome, names, root)


def _root(leaves: Iterable[bytes]) -> bytes:
    return Tree.of(list(leaves) or [b""]).root


class Reveal(Signed):
    """M3, from a decryptor: exactly the shares that the certified set needs.

    Attributes:
        evicted: dealers proved false, treated as dropouts.
        runs: for each other survivor whose shares it holds, in order: its share of b_u, then of r_uw for each dropout or
            evicted w, ascending; 36 bytes each.
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
        """The reveal without shares, for the transcript."""
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


NOTHING_REVEALED = bytes(32)
"""Outcome in the Erased of a decryptor that never sent a Reveal."""


class ErasureRequest(Message):
    """To every decryptor, after the latest end: report the erasure of the attempt's shares and keys."""

    kind: ClassVar[int] = Kind.ERASURE_REQUEST

    context: Digest


class Erased(Signed):
    """From a decryptor: it has erased its shares and keys of this attempt and will reveal nothing more in it.

    Attributes:
        revealed: the outcome of the Reveal that it sent; zero for none.
    """

    kind: ClassVar[int] = Kind.ERASED
    tag: ClassVar[Tag] = Tag.ERASED

    context: Digest
    member: Id
    revealed: Digest
    signature: Signature


class Erasure(Message):
    """Reports of enough decryptors that revealed nothing: the attempt is VOID, for the reason `erased`."""

    kind: ClassVar[int] = Kind.ERASURE

    context: Digest
    reports: Annotated[tuple[Erased, ...], Many(Nested(Erased), MAX_DECRYPTORS, ascending=True)]

    reason: ClassVar[str] = ERASED_REASON
    survivors_hash: ClassVar[bytes] = NO_CONTEXT


class Lost(Signed):
    """The admin closes an attempt for which too few decryptors report."""

    kind: ClassVar[int] = Kind.LOST
    tag: ClassVar[Tag] = Tag.LOST

    context: Digest
    signature: Signature

    reason: ClassVar[str] = LOST_REASON
    survivors_hash: ClassVar[bytes] = NO_CONTEXT
