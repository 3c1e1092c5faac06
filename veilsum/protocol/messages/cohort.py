"""The roster and studies that the admin signs, and M0: key cards and the manifest that binds them (wire: Studies, wire: Cohorts)."""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import (
    U32,
    U64,
    Bytes,
    Digest,
    Fixed,
    Id,
    Key,
    Many,
    Name,
    Repeated,
    Shared,
    Signature,
    Struct,
    Text,
)
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.graph import Graph
from veilsum.protocol.merkle import Tree, verify_path
from veilsum.protocol.messages.base import MAX_DECRYPTORS, MAX_MEMBERS, Message, Names, Path, Signed
from veilsum.protocol.tags import Tag, hash_fields

MAX_CONTENT = 1 << 20

MLKEM_KEY_BYTES = 1_184
"""One ML-KEM-768 encapsulation key (FIPS 203)."""

CIPHERTEXT_BYTES = 1_088
"""One ML-KEM-768 ciphertext (FIPS 203)."""


class Study(Shared, Signed, kind=25, tag=Tag.STUDY):
    """A signed study; `veilsum.study` reads and checks its content.

    Attributes:
        federation: the admin's public key, so that a study is valid in one federation only.
        content: canonical JSON (RFC 8785).
    """

    federation: Key
    content: Annotated[bytes, Bytes(MAX_CONTENT)]
    signature: Signature

    @cached_property
    def hash(self) -> bytes:
        """Id of the study. It excludes the signature, so signing again does not make a second study."""
        return self.digest


RESERVED_NAMES = frozenset({"admin", "coordinator", "operator"})
"""Reserved names: a fault that names one of these parties must not seem to name a member."""
MAX_NAME = 64
REVOKED_STUDIES_MAX = 1_024


class Entry(Struct):
    """A member's id and its Ed25519 public key."""

    member: Id
    key: Key


class Roster(Shared, Signed, kind=1, tag=Tag.ROSTER):
    """The consortium, signed by its admin. A member refuses a number lower than one that it has seen.

    Attributes:
        number: increases with every change.
        name: the federation's display name.
        federation: the admin's Ed25519 public key, which identifies the federation and which every member pins.
        coordinator: the coordinator's Ed25519 public key, which signs openings and results.
        study_key: the Ed25519 public key that signs studies.
        members: sorted by id; ids and keys are unique.
        decryptors: nominated ids. Without nominees, all members of a small cohort decrypt; a large cohort draws a committee.
        readers: ids that may read the sums as well as the head.
        revoked: sorted digests of studies that members no longer join.
    """

    number: U64
    name: Annotated[str, Text(MAX_NAME)]
    federation: Key
    coordinator: Key
    study_key: Key
    members: Annotated[tuple[Entry, ...], Many(Entry, MAX_MEMBERS, ascending=True)]
    decryptors: Annotated[tuple[str, ...], Many(Name(), MAX_DECRYPTORS, ascending=True)]
    readers: Names
    revoked: Annotated[tuple[bytes, ...], Many(Fixed(32), REVOKED_STUDIES_MAX, ascending=True)]
    signature: Signature

    def check_fields(self) -> None:
        """Refuse repeated keys, reserved names, and decryptors or readers that are not members."""
        if len({entry.key for entry in self.members}) != len(self.members):
            raise PeerFault(Cause.DUPLICATE, "two members of the roster share a key", ["admin"])
        if taken := RESERVED_NAMES.intersection(entry.member for entry in self.members):
            raise PeerFault(Cause.MALFORMED, f"no member can be called {', '.join(sorted(taken))}", ["admin"])
        named = {*self.decryptors, *self.readers}
        if strangers := named - {entry.member for entry in self.members}:
            raise PeerFault(
                Cause.UNKNOWN_MEMBER, "decryptors or readers that are not members", sorted(strangers)
            )

    @cached_property
    def hash(self) -> bytes:
        """Hash of the roster, part of cohort ids and contexts."""
        return hash_fields(Tag.ROSTER, self.to_bytes())

    def key_of(self, member: str) -> bytes:
        """Look up a member's public key. Raises PeerFault(unknown-member) if absent."""
        key = self._keys_by_member.get(member)
        if key is None:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{member} is not in roster {self.number}", [member])
        return key

    @cached_property
    def _keys_by_member(self) -> dict[str, bytes]:
        return {entry.member: entry.key for entry in self.members}

    def verify_admin(self, federation: bytes) -> None:
        """Refuse a roster of another federation than `federation`, the admin's key, or with a bad signature (ROSTER-1, ROSTER-2)."""
        if self.federation != federation:
            raise PeerFault(Cause.WRONG_FEDERATION, "the roster names another admin key than the one pinned")
        self.verify(federation, "admin")

    def check_after(self, seen: "Roster") -> None:
        """Refuse a verified roster that is older than `seen`, or differs from it under one number (ROSTER-3, ROSTER-4)."""
        if self.number < seen.number:
            raise PeerFault(
                Cause.ROSTER_ROLLBACK,
                f"roster {self.number} is shown, and roster {seen.number} was seen",
                ["coordinator"],
            )
        if self.number == seen.number and self.hash != seen.hash:
            raise PeerFault(
                Cause.ROSTER_ROLLBACK, f"there are two rosters of number {seen.number}", ["admin"]
            )


def cohort_id(roster_hash: bytes, counter: int, study: bytes, period: str, repeats: bytes) -> Digest:
    """Compute a cohort's id (wire: Cohorts).

    `counter` distinguishes the cohorts of a roster. `repeats` is the context of the attempt that the run repeats, or `NO_CONTEXT` for
    fresh records.
    """
    return hash_fields(
        Tag.COHORT, roster_hash, counter.to_bytes(8, "little"), study, period.encode(), repeats
    )


class KeyCard(Repeated, Signed, kind=2, tag=Tag.CARD):
    """A member's public keys for one cohort, signed by its identity.

    Attributes:
        x25519_key: public key from which, with an encapsulated secret, all keys of its pairs are derived.
        mlkem_key_hash: `hash_mlkem_key` of its ML-KEM-768 encapsulation key, which travels beside the card, to those who need it.
        nonce: 32 fresh bytes, so that no two cards are alike.
        expires_s: Unix time in seconds after which no round may open with this card.
        serial: how many cards this member's signing key has ever signed, this one included. It shows a restored copy of an older
            folder that cards were signed since (RESTORE-2).
    """

    cohort: Digest
    member: Id
    x25519_key: Key
    mlkem_key_hash: Digest
    nonce: Digest
    expires_s: U64
    serial: U64
    signature: Signature


class Enrolment(Message, kind=26):
    """M0, from a member: its card, with the ML-KEM key whose hash the card holds."""

    card: KeyCard
    mlkem_key: Annotated[bytes, Fixed(MLKEM_KEY_BYTES)]


class Manifest(Shared, Message, kind=3):
    """A cohort: its study, its members, the root of their cards, and the derived sizes (wire: Cohorts).

    Attributes:
        counter: distinguishes the cohorts of a roster.
        study: hash of the run's study.
        period: the records that the run sums; each period sums new records.
        repeats: context of the attempt that the run repeats; `NO_CONTEXT` for fresh records.
        members: ids in order; a member's index is its place in masks and shares.
        cards_root: Merkle root over the members' cards, in their order.
        decryptor_colluders: `a_D`, the bound on colluding decryptors.
        survivors_min: `n_min`, minimum survivors of a certified attempt.
        threshold: `t`, number of shares to recover a secret, and of votes in a certificate.
        degree: `k`, neighbours per member; n − 1 on the complete graph.
        window_dropped_max: `D_max`, for sparse graphs; zero on the complete graph.
        decryptors: ids that hold shares, in order.
    """

    cohort: Digest
    roster_hash: Digest
    counter: U64
    study: Digest
    period: Id
    repeats: Digest
    members: Names
    cards_root: Digest
    decryptor_colluders: U32
    survivors_min: U32
    threshold: U32
    degree: U32
    window_dropped_max: U32
    decryptors: Annotated[tuple[str, ...], Many(Name(), MAX_DECRYPTORS, ascending=True)]

    def check_fields(self) -> None:
        """Refuse decryptors that are not members."""
        if not set(self.decryptors) <= set(self.members):
            raise PeerFault(Cause.MALFORMED, "a decryptor is not a member")

    @cached_property
    def hash(self) -> bytes:
        return hash_fields(Tag.MANIFEST, self.to_bytes())

    @cached_property
    def beacon(self) -> bytes:
        """Seed that orders the ring and draws the committee; unknown until the last card arrives."""
        return cards_beacon(self.cohort, self.cards_root)

    @cached_property
    def member_places(self) -> dict[str, int]:
        """Each member's index in cohort order."""
        return {member: place for place, member in enumerate(self.members)}

    @cached_property
    def decryptor_set(self) -> frozenset[str]:
        return frozenset(self.decryptors)

    @cached_property
    def graph(self) -> Graph:
        """The mask graph, cached because sorting the ring is expensive."""
        return Graph(self.members, self.degree, self.beacon)


class Shown(Struct):
    """A card with its Merkle path to the manifest's root; the path is empty if all cards are sent.

    Attributes:
        mlkem_key: the card's ML-KEM key if the receiver encapsulates to it; else no bytes.
    """

    card: KeyCard
    mlkem_key: Annotated[bytes, Bytes(MLKEM_KEY_BYTES)]
    path: Path

    @property
    def member(self) -> str:
        return self.card.member


class Cards(Repeated, Message, kind=14):
    """M0, to one member: the manifest and the cards it needs."""

    manifest: Manifest
    shown: Annotated[tuple[Shown, ...], Many(Shown, MAX_MEMBERS, ascending=True)]

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
                if shown.member not in manifest.member_places
                or not verify_path(
                    manifest.cards_root,
                    shown.card.to_bytes(),
                    manifest.member_places[shown.member],
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


class Pairing(Signed, kind=27, tag=Tag.PAIRING):
    """A member's ciphertexts for those that it encapsulates to, in ascending order of their ids (wire: Cohorts).

    Attributes:
        manifest: hash of the manifest.
    """

    manifest: Digest
    member: Id
    ciphertexts: Annotated[tuple[bytes, ...], Many(Fixed(CIPHERTEXT_BYTES), MAX_MEMBERS)]
    signature: Signature

    @cached_property
    def tree(self) -> Tree:
        """The tree over the ciphertexts."""
        return Tree(self.ciphertexts)

    @property
    def digest(self) -> bytes:
        """The signed digest. It includes the root of the ciphertexts, so that a single one can be shown."""
        return pairing_digest(self.manifest, self.member, self.tree.root)


def pairing_digest(manifest: bytes, member: str, root: bytes) -> bytes:
    """Compute what a member signs for its pairing: H("pairing", manifest, member, root of the ciphertexts)."""
    return hash_fields(Tag.PAIRING, manifest, member.encode(), root)


class ShownCiphertext(Struct):
    """One ciphertext of a member's pairing, with its path to the root that the signature is over."""

    member: Id
    ciphertext: Annotated[bytes, Fixed(CIPHERTEXT_BYTES)]
    path: Path
    signature: Signature


class Ciphertexts(Message, kind=28):
    """The ciphertexts for one member, once all members have paired.

    Attributes:
        manifest: hash of the manifest.
    """

    manifest: Digest
    shown: Annotated[tuple[ShownCiphertext, ...], Many(ShownCiphertext, MAX_MEMBERS, ascending=True)]


def cards_tree(cards: Iterable[KeyCard]) -> Tree:
    """Build the tree under `cards_root`, over the cards' bytes in member order."""
    return Tree(card.to_bytes() for card in cards)


def cards_beacon(cohort: bytes, cards_root: bytes) -> bytes:
    """Compute H(cards tag, cohort, cards root)."""
    return hash_fields(Tag.CARDS, cohort, cards_root)
