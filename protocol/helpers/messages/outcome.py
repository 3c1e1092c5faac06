"""Freezing the survivors, certificates, the helpers' sums, and how an attempt is closed (helpers H7–H10)."""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import U32, Digest, Fixed, Id, Many, Nested, Signature, Struct
from protocol.errors import Misuse, PeerFault
from protocol.helpers.messages.base import HELPERS, MAX_CLIENTS, HelperKind
from protocol.helpers.messages.upload import Path
from protocol.ledger import Opened
from protocol.merkle import Tree
from protocol.messages.base import Message, Signed
from protocol.messages.outcome import LOST_REASON, NO_REASON, Survivor, closing_hash, void_hash
from protocol.messages.upload import MAX_CHUNKS
from protocol.tags import Tag, hash_fields

Survivors = Annotated[tuple[Survivor, ...], Many(Nested(Survivor), MAX_CLIENTS, ascending=True)]


def survivors_tree(survivors: tuple[Survivor, ...]) -> Tree:
    """The tree over a set: a path in it shows one client that it was counted, without the others."""
    return Tree.of(survivor.encode_fields() for survivor in survivors)


def root_outcome(context: bytes, family: str, floor: int, root: bytes) -> Digest:
    """What a helper signs for a sum over the set under this root.

    The context pins family and g already; named here, they reach helpers who have not seen the attempt's opening.
    """
    return hash_fields(Tag.SURVIVORS, context, family.encode(), floor.to_bytes(4, "little"), root)


def set_outcome(context: bytes, family: str, floor: int, survivors: tuple[Survivor, ...]) -> Digest:
    """`root_outcome` of the set's own root."""
    return root_outcome(context, family, floor, survivors_tree(survivors).root)


class ClientSet(Struct):
    """Clients whose sum was opened, or may have been."""

    survivors: Survivors

    def validate(self) -> None:
        """Refuse a set of nobody: it has no root, and opens nothing."""
        if not self.survivors:
            raise PeerFault(Cause.MALFORMED, "a set that was opened has clients in it")


class Ended(Struct):
    """How an attempt was closed: an entry of a helper's history, and a link of the chain.

    Attributes:
        family: which sums its sum can be combined with.
        floor: g of its manifest.
        reason: "none" for a sum, "lost", or why it is VOID.
        sets: the certified set; what was signed in a lost attempt; none after VOID.
    """

    context: Digest
    family: Id
    floor: U32
    reason: Id
    sets: Annotated[tuple[ClientSet, ...], Many(Nested(ClientSet), HELPERS)]

    @cached_property
    def closing(self) -> bytes:
        """Binds context, reason and sets, and these their family and floor."""
        outcomes = [
            set_outcome(self.context, self.family, self.floor, opened.survivors) for opened in self.sets
        ]
        return closing_hash(self.context, self.reason, outcomes)

    def extend(self, chain: bytes) -> bytes:
        """The chain with this link: chain' = H("link", chain, closing)."""
        return hash_fields(Tag.LINK, chain, self.closing)


def opened_in(history: Iterable[Ended]) -> tuple[Opened, ...]:
    """Every set that was opened, as the ledger reads it."""
    return tuple(
        Opened(ended.context, ended.family, ended.floor, opened.survivors)
        for ended in history
        for opened in ended.sets
    )


class HelperFreeze(Message):
    """To every helper with a receipt: the proposed survivors."""

    kind: ClassVar[int] = HelperKind.FREEZE

    context: Digest
    survivors: Survivors


class HelperVoidRequest(Message):
    """To every helper that has not signed: end the attempt without a sum, for this reason."""

    kind: ClassVar[int] = HelperKind.VOID_REQUEST

    context: Digest
    reason: Id

    def validate(self) -> None:
        """Refuse "none" and "lost": no certificate could carry them."""
        if self.reason in {NO_REASON, LOST_REASON}:
            raise PeerFault(Cause.MALFORMED, "a request to void an attempt gives a reason")


class HelperVote(Signed):
    """From a helper: its one signature for this context, on a survivor set or on VOID."""

    kind: ClassVar[int] = HelperKind.VOTE
    tag: ClassVar[Tag] = Tag.HELPER_VOTE

    context: Digest
    member: Id
    outcome: Digest
    signature: Signature


class HelperRefusal(Signed):
    """From a helper: it signs nothing, and says why."""

    kind: ClassVar[int] = HelperKind.REFUSAL
    tag: ClassVar[Tag] = Tag.REFUSAL

    context: Digest
    member: Id
    cause: Id
    signature: Signature


class HelperCertificate(Message):
    """Three helpers' votes on one outcome.

    Attributes:
        family: of the attempt's terms.
        floor: g of its manifest.
        survivors: the certified set in order; empty means VOID.
        reason: why the attempt is VOID; "none" beside survivors.
        votes: in order of helper.
    """

    kind: ClassVar[int] = HelperKind.CERTIFICATE

    context: Digest
    family: Id
    floor: U32
    survivors: Survivors
    reason: Id
    votes: Annotated[tuple[HelperVote, ...], Many(Nested(HelperVote), HELPERS, ascending=True)]

    def validate(self) -> None:
        """Refuse survivors beside a reason for VOID, and neither."""
        if self.void == (self.reason == NO_REASON) or self.reason == LOST_REASON:
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
        return root_outcome(self.context, self.family, self.floor, self._tree.root)

    @cached_property
    def _tree(self) -> Tree:
        return survivors_tree(self.survivors)

    @cached_property
    def places(self) -> dict[str, int]:
        """Each survivor's place among them."""
        return {survivor.member: place for place, survivor in enumerate(self.survivors)}

    def counted(self, client: str) -> "HelperCounted":
        """The proof that a client's upload is in the sum; Misuse for one that is not."""
        place = self.places.get(client)
        if place is None:
            raise Misuse(f"{client} is no survivor")
        return HelperCounted(
            context=self.context,
            survivor=self.survivors[place],
            root=self._tree.root,
            place=place,
            count=self._tree.count,
            path=tuple(self._tree.path(place)),
            votes=self.votes,
        )

    @property
    def ended(self) -> Ended:
        """What the history keeps of it."""
        sets = () if self.void else (ClientSet(self.survivors),)
        return Ended(self.context, self.family, self.floor, self.reason, sets)


class HelperLost(Signed):
    """The admin closes an attempt that can have no certificate; every set that a helper signed in it counts as opened."""

    kind: ClassVar[int] = HelperKind.LOST
    tag: ClassVar[Tag] = Tag.LOST

    context: Digest
    family: Id
    floor: U32
    sets: Annotated[tuple[ClientSet, ...], Many(Nested(ClientSet), HELPERS)]
    signature: Signature

    @property
    def ended(self) -> Ended:
        """What the history keeps of it."""
        return Ended(self.context, self.family, self.floor, LOST_REASON, self.sets)


class HelperSums(Signed):
    """From a helper: digests of Σ_{u∈S} G(s_{u,j}) for the three j that it holds.

    Attributes:
        digests: for each of those j in order, SHA-256 of every packed chunk of the sum; the chunks themselves follow.
    """

    kind: ClassVar[int] = HelperKind.SUMS
    tag: ClassVar[Tag] = Tag.HELPER_SUMS

    context: Digest
    member: Id
    outcome: Digest
    digests: Annotated[tuple[tuple[bytes, ...], ...], Many(Many(Fixed(32), MAX_CHUNKS), HELPERS - 1)]
    signature: Signature


class HelperCounted(Message):
    """To one client: three votes, and the path by which its upload stands in the set that they certify.

    Attributes:
        survivor: the client's entry, leaf `place` of the `count` under `root`.
    """

    kind: ClassVar[int] = HelperKind.COUNTED

    context: Digest
    survivor: Annotated[Survivor, Nested(Survivor)]
    root: Digest
    place: U32
    count: U32
    path: Path
    votes: Annotated[tuple[HelperVote, ...], Many(Nested(HelperVote), HELPERS, ascending=True)]
