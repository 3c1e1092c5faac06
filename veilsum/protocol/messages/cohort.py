"""M0: key cards, and the manifest that binds them (protocol §4.2)."""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, ClassVar

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import U32, U64, Digest, Fixed, Id, Key, Many, Name, Nested, Signature, Struct
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.graph import Graph
from veilsum.protocol.merkle import Tree, verify
from veilsum.protocol.messages.base import MAX_DECRYPTORS, MAX_MEMBERS, Kind, Message, Signed
from veilsum.protocol.tags import Tag, hash_fields

Path = Annotated[tuple[bytes, ...], Many(Fixed(32), 64)]


class KeyCard(Signed):
    """A member's two X25519 public keys for one cohort, signed by its identity.

    Attributes:
        mask_key: public key for pairwise mask seeds.
        box_key: public key for share boxes.
        nonce: 32 fresh bytes, so that no two cards are alike.
        expires_s: Unix time in seconds after which no round may open with this card.
    """

    kind: ClassVar[int] = Kind.CARD
    tag: ClassVar[Tag] = Tag.CARD

    cohort: Digest
    member: Id
    mask_key: Key
    box_key: Key
    nonce: Digest
    expires_s: U64
    signature: Signature


class Manifest(Message):
    """A cohort: its study, its members, the root of their cards, and the derived sizes (protocol §4.2).

    Attributes:
        counter: distinguishes the cohorts of a roster.
        study: hash of the run's study.
        period: the records that the run sums; each period takes new ones.
        repeats: context of the attempt that the run repeats; `NO_CONTEXT` for fresh records.
        members: ids in order; a member's place is its index in masks and shares.
        cards_root: Merkle root over the members' cards, in their order.
        decryptor_colluders: `a_D`, the bound on colluding decryptors.
        survivors_min: `n_min`, the fewest survivors of a certified attempt.
        threshold: `t`, of shares and of certificate signatures.
        degree: `k`, neighbours per member; all others on the complete graph.
        window_dropped_max: `D_max`, for sparse graphs; zero on the complete graph.
        decryptors: ids that hold shares, in order.
    """

    kind: ClassVar[int] = Kind.MANIFEST

    cohort: Digest
    roster_hash: Digest
    counter: U64
    study: Digest
    period: Id
    repeats: Digest
    members: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
    cards_root: Digest
    decryptor_colluders: U32
    survivors_min: U32
    threshold: U32
    degree: U32
    window_dropped_max: U32
    decryptors: Annotated[tuple[str, ...], Many(Name(), MAX_DECRYPTORS, ascending=True)]

    def validate(self) -> None:
        """Refuse decryptors that are not members."""
        if not set(self.decryptors) <= set(self.members):
            raise PeerFault(Cause.MALFORMED, "a decryptor is not a member")

    @cached_property
    def hash(self) -> bytes:
        """Hash of the manifest."""
        return hash_fields(Tag.MANIFEST, self.to_bytes())

    @cached_property
    def beacon(self) -> bytes:
        """Seed that orders the ring and draws the committee; unknown until the last card arrives."""
        return cards_beacon(self.cohort, self.cards_root)

    @cached_property
    def place(self) -> dict[str, int]:
        """Each member's index in cohort order."""
        return {member: place for place, member in enumerate(self.members)}

    @cached_property
    def graph(self) -> Graph:
        """The mask graph, cached because sorting the ring is expensive."""
        return Graph(self.members, self.degree, self.beacon)


class Shown(Struct):
    """A card with its path to the manifest's root; the path is empty if all cards are sent."""

    card: Annotated[KeyCard, Nested(KeyCard)]
    path: Path

    @property
    def member(self) -> str:
        """The card's member."""
        return self.card.member


class Cards(Message):
    """M0, to one member: the manifest and the cards it needs."""

    kind: ClassVar[int] = Kind.CARDS

    manifest: Annotated[Manifest, Nested(Manifest)]
    shown: Annotated[tuple[Shown, ...], Many(Nested(Shown), MAX_MEMBERS, ascending=True)]

    @cached_property
    def by_member(self) -> dict[str, KeyCard]:
        """The sent cards by member."""
        return {shown.member: shown.card for shown in self.shown}

    def check_bound(self) -> None:
        """Refuse a card that the manifest's root does not bind (manifest-mismatch)."""
        manifest = self.manifest
        if tuple(self.by_member) == manifest.members:
            bound = cards_tree(card.card for card in self.shown).root == manifest.cards_root
            strangers = [shown.member for shown in self.shown if shown.path]
        else:
            bound = True
            strangers = [
                shown.member
                for shown in self.shown
                if shown.member not in manifest.place
                or not verify(
                    manifest.cards_root,
                    shown.card.to_bytes(),
                    manifest.place[shown.member],
                    len(manifest.members),
                    shown.path,
                )
            ]
        if not bound or strangers:
            raise PeerFault(
                Cause.MANIFEST_MISMATCH,
                f"the manifest's root does not bind the cards shown: {', '.join(strangers) or 'all'}",
                ["coordinator"],
            )


def cards_tree(cards: Iterable[KeyCard]) -> Tree:
    """Build the tree under `cards_root`, over the cards' bytes in member order."""
    return Tree.of([card.to_bytes() for card in cards] or [b""])


def cards_beacon(cohort: bytes, cards_root: bytes) -> bytes:
    """H(cards tag, cohort, cards root)."""
    return hash_fields(Tag.CARDS, cohort, cards_root)
