"""M2 and M3: freezing the survivors, certificates, reveals, proofs, and closing an attempt (wire: Votes, wire: Reveals, wire: Ends)."""

from functools import cached_property
from typing import Annotated, ClassVar

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import U32, Bytes, Digest, Fixed, Id, Many, Repeated, Secret, Signature, Struct
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages.base import (
    MAX_DECRYPTORS,
    MAX_MEMBERS,
    SHARE_BYTES,
    Message,
    Names,
    Path,
    Signed,
)
from veilsum.protocol.messages.opening import ERASED_REASON, LOST_REASON, NO_CONTEXT, NO_REASON
from veilsum.protocol.messages.upload import MAX_CHUNKS, MAX_ROW_BYTES, UploadHeader
from veilsum.protocol.tags import Tag, hash_fields

REASONS_WITHOUT_VOTE = frozenset({NO_REASON, LOST_REASON, ERASED_REASON})
"""Reasons that a vote on VOID cannot have."""


class Survivor(Repeated):
    """A survivor's entry in a certificate."""

    member: Id
    digest: Digest

    @classmethod
    def from_header(cls, header: UploadHeader) -> "Survivor":
        """Make the survivor of an upload's header."""
        return cls(header.member, header.digest)


Survivors = Annotated[tuple[Survivor, ...], Many(Survivor, MAX_MEMBERS, ascending=True)]


def survivors_hash(context: bytes, survivors: tuple[Survivor, ...]) -> Digest:
    """Compute H(ctx, sorted (u, dg_u)), which a decryptor signs for a sum."""
    return hash_fields(Tag.SURVIVORS, context, *(s.encode() for s in survivors))


def void_hash(context: bytes, reason: str) -> Digest:
    """Compute the hash that a decryptor signs to void an attempt."""
    return hash_fields(Tag.VOID, context, reason.encode())


class SurvivorSet(Struct):
    """A certified set of survivors."""

    survivors: Survivors

    def check_fields(self) -> None:
        """Refuse an empty set."""
        if not self.survivors:
            raise PeerFault(Cause.MALFORMED, "a set of survivors has none")


class Freeze(Message, kind=8):
    """M2, to every decryptor: the proposed survivors, each by its upload's header.

    Attributes:
        earlier: the certified sets of the attempts that this one rests on, oldest first: the repeated one's, else those of the counts.
    """

    context: Digest
    headers: Annotated[tuple[UploadHeader, ...], Many(UploadHeader, MAX_MEMBERS)]
    earlier: Annotated[tuple[SurvivorSet, ...], Many(SurvivorSet, 2)]


class VoidRequest(Message, kind=9):
    """M2, to every decryptor that has not voted: void the attempt for this reason."""

    context: Digest
    reason: Id

    def check_fields(self) -> None:
        """Refuse "none", "erased" and "lost": no certificate can carry them, so votes for them could not end the attempt."""
        if self.reason in REASONS_WITHOUT_VOTE:
            raise PeerFault(Cause.MALFORMED, "a request to void an attempt gives a reason")


class Vote(Repeated, Signed, kind=10, tag=Tag.VOTE):
    """M2, from a decryptor: its only signature in this context, on a survivor set or on VOID."""

    context: Digest
    member: Id
    outcome: Digest
    signature: Signature


class Refusal(Signed, kind=11, tag=Tag.REFUSAL):
    """M2, from a decryptor: the cause for which it refuses to sign."""

    context: Digest
    member: Id
    cause: Id
    signature: Signature


class Certificate(Message, kind=12):
    """A threshold of decryptors' votes on one outcome.

    Attributes:
        survivors: the certified set in order; empty means VOID.
        reason: the reason for VOID; "none" with survivors.
        votes: ordered by decryptor.
    """

    context: Digest
    survivors: Survivors
    reason: Id
    votes: Annotated[tuple[Vote, ...], Many(Vote, MAX_DECRYPTORS, ascending=True)]

    def check_fields(self) -> None:
        """Require either survivors or a reason for VOID."""
        if self.reason in REASONS_WITHOUT_VOTE if self.is_void else self.reason != NO_REASON:
            raise PeerFault(Cause.MALFORMED, "a certificate has survivors, or a reason for VOID")

    @property
    def is_void(self) -> bool:
        """Whether the attempt ends without a sum."""
        return not self.survivors

    def names_upload(self, header: UploadHeader) -> bool:
        """Whether the certificate covers this exact upload."""
        return Survivor.from_header(header) in self._survivor_set

    @cached_property
    def _survivor_set(self) -> frozenset[Survivor]:
        return frozenset(self.survivors)

    @cached_property
    def outcome(self) -> bytes:
        """The hash that every vote must carry."""
        if self.is_void:
            return void_hash(self.context, self.reason)
        return survivors_hash(self.context, self.survivors)

    @property
    def survivors_hash(self) -> bytes:
        """The survivors' hash in the chain; excludes the votes, because any threshold of them suffices."""
        return NO_CONTEXT if self.is_void else self.outcome


class Reveal(Signed, kind=13, tag=Tag.REVEAL):
    """M3, from a decryptor: exactly the shares that the certified set needs.

    Attributes:
        evicted: dealers proved false, treated as dropouts.
        runs: for each other survivor whose shares it holds, in order: its share of b_u, then of r_uw for each dropout or
            evicted w, ascending; 36 bytes each.
    """

    context: Digest
    member: Id
    outcome: Digest
    evicted: Names
    runs: Annotated[tuple[bytes, ...], Many(Bytes(SHARE_BYTES * MAX_MEMBERS, secret=True), MAX_MEMBERS)]
    signature: Signature

    @property
    def digest(self) -> bytes:
        return self.summary.digest

    @cached_property
    def summary(self) -> "RevealSummary":
        """The reveal without shares, for the transcript."""
        return RevealSummary(
            context=self.context,
            member=self.member,
            outcome=self.outcome,
            evicted=self.evicted,
            runs_root=Tree(self.runs).root,
            signature=self.signature,
        )


class RevealSummary(Signed, kind=22, tag=Tag.REVEAL):
    """A reveal without its shares, under the same signature."""

    context: Digest
    member: Id
    outcome: Digest
    evicted: Names
    runs_root: Digest
    signature: Signature

    @property
    def digest(self) -> bytes:
        """The signed digest. It includes the root of the runs, so that a single run can be proved (wire: Reveals)."""
        evicted = Tree(name.encode() for name in self.evicted).root
        return hash_fields(
            Tag.REVEAL, self.context, self.member.encode(), self.outcome, evicted, self.runs_root
        )


NOTHING_REVEALED = bytes(32)
"""Outcome in the Erased of a decryptor that never sent a Reveal."""


class ErasureRequest(Message, kind=16):
    """To every decryptor, after the latest end: report the erasure of the attempt's shares and keys."""

    context: Digest


class Erased(Signed, kind=17, tag=Tag.ERASED):
    """From a decryptor: it has erased its shares and keys of this attempt and will reveal nothing more in it.

    Attributes:
        revealed: the outcome of the Reveal that it sent; zero for none.
    """

    context: Digest
    member: Id
    revealed: Digest
    signature: Signature


class Erasure(Message, kind=18):
    """Reports of enough decryptors that revealed nothing: the attempt is VOID, for the reason `erased`."""

    context: Digest
    reports: Annotated[tuple[Erased, ...], Many(Erased, MAX_DECRYPTORS, ascending=True)]

    reason: ClassVar[str] = ERASED_REASON
    survivors_hash: ClassVar[bytes] = NO_CONTEXT


class Lost(Signed, kind=19, tag=Tag.LOST):
    """The admin's closing of an attempt for which too few decryptors report."""

    context: Digest
    signature: Signature

    reason: ClassVar[str] = LOST_REASON
    survivors_hash: ClassVar[bytes] = NO_CONTEXT


MAX_CHUNK_BYTES = 1 << 25
Row = Annotated[bytes, Bytes(MAX_ROW_BYTES)]


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

    header: UploadHeader
    commitments: Row
    path: Path
    chunk_digests: Annotated[tuple[bytes, ...], Many(Fixed(32), MAX_CHUNKS)]
    chunks: Annotated[tuple[bytes, ...], Many(Bytes(MAX_CHUNK_BYTES), MAX_CHUNKS)]
    seeds: Annotated[tuple[Seed, ...], Many(Seed, MAX_MEMBERS)]

    @property
    def member(self) -> str:
        """The survivor."""
        return self.header.member


class Disclosure(Message, kind=20):
    """To all members: the vectors behind the sum of a count."""

    context: Digest
    entries: Annotated[tuple[Disclosed, ...], Many(Disclosed, MAX_MEMBERS, ascending=True)]


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

    header: UploadHeader
    commitments: Row
    path: Path
    index: U32
    holders: Annotated[tuple[Holder, ...], Many(Holder, MAX_DECRYPTORS, ascending=True)]

    @property
    def member(self) -> str:
        """The dealer."""
        return self.header.member


class Evictions(Message, kind=15):
    """M3, to every decryptor: reveal again without these dealers among the survivors."""

    context: Digest
    proofs: Annotated[tuple[Proof, ...], Many(Proof, MAX_MEMBERS, ascending=True)]

    @property
    def evicted(self) -> tuple[str, ...]:
        return tuple(proof.member for proof in self.proofs)


class BadRun(Message, kind=24):
    """A decryptor's signed run whose shares do not match the dealer's commitments (analysis: Transcripts).

    Attributes:
        reveal: the decryptor's signed reveal.
        header: the dealer's upload header.
        place: the run's index among the reveal's `count`.
        run_path: Merkle path to the reveal's runs root.
        row: the dealer's commitments to that decryptor's shares.
        row_path: Merkle path to the dealer's commitment root.
    """

    reveal: RevealSummary
    header: UploadHeader
    place: U32
    count: U32
    run: Annotated[bytes, Bytes(SHARE_BYTES * MAX_MEMBERS)]
    run_path: Path
    row: Row
    row_path: Path
