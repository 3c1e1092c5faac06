"""M0: key cards and the manifest that lists them (protocol §4.2)."""

from functools import cached_property
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import U32, U64, Digest, Id, Key, Many, Name, Nested, Signature, UInt
from protocol.errors import PeerFault
from protocol.messages.base import MAX_MEMBERS, Kind, Message, Signed
from protocol.tags import Tag, hash_fields


class KeyCard(Signed):
    """A member's two X25519 public keys for one cohort, signed by its identity.

    Attributes:
        mask_key: makes the pairwise mask seeds.
        box_key: makes the keys of the share boxes.
        nonce: 32 fresh bytes, so that no two cards are alike.
        expires_s: Unix time in seconds after which no round may open on it.
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
    """The cohort's cards in order of member id, and the numbers that follow from how many there are.

    Attributes:
        colluders: `a`, how many members may collude with the coordinator.
        decryptor_colluders: `a_D`, how many of those may be decryptors.
        honest_min: `h_min`, how many honest members a sum must hide among.
        survivors_min: `n_min`, the fewest survivors an attempt may be certified with.
        threshold: `t`, of shares and of certificate signatures.
        degree: `k`, neighbours of a member; all others on the complete graph.
        window_dropped_max: `D_max`, for sparse graphs; zero on the complete graph.
        decryptors: ids that hold shares, in order.
        caps: most records each member may contribute, by position.
    """

    kind: ClassVar[int] = Kind.MANIFEST

    cohort: Digest
    roster_hash: Digest
    counter: U64
    cards: Annotated[tuple[KeyCard, ...], Many(Nested(KeyCard), MAX_MEMBERS, ascending=True)]
    colluders: U32
    decryptor_colluders: U32
    honest_min: U32
    survivors_min: U32
    threshold: U32
    degree: U32
    window_dropped_max: U32
    decryptors: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
    caps: Annotated[tuple[int, ...], Many(UInt(8), MAX_MEMBERS)]

    def validate(self) -> None:
        """Refuse lists of other lengths and decryptors without a card."""
        if len(self.caps) != len(self.cards):
            raise PeerFault(Cause.MALFORMED, f"{len(self.caps)} caps for {len(self.cards)} cards")
        if not set(self.decryptors) <= set(self.members):
            raise PeerFault(Cause.MALFORMED, "a decryptor has no card")

    @cached_property
    def members(self) -> tuple[str, ...]:
        """Member ids in order; a member's place here is its index in masks and shares."""
        return tuple(card.member for card in self.cards)

    @cached_property
    def hash(self) -> bytes:
        """Names the cohort as this manifest shows it."""
        return hash_fields(Tag.MANIFEST, self.to_bytes())
