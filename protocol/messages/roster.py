"""The roster: who is a member, and whose key signs studies, by the admin's signature (protocol §4.1)."""

from functools import cached_property
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import U64, Digest, Fixed, Id, Key, Many, Name, Nested, Signature, Struct, Text
from protocol.errors import PeerFault
from protocol.messages.base import MAX_DECRYPTORS, MAX_MEMBERS, Kind, Signed
from protocol.tags import Tag, hash_fields

PARTIES = frozenset({"admin", "coordinator", "operator"})
"""Names that no member may have: a fault that names one of these parties must not seem to name a member."""
MAX_NAME = 64
MAX_REVOKED = 1_024


class Entry(Struct):
    """A member's id and its Ed25519 public key."""

    member: Id
    key: Key


class Roster(Signed):
    """The consortium as its admin signed it. A member refuses a lower number than it has seen.

    Attributes:
        number: grows with every change.
        name: of the federation, for people.
        federation: the admin's Ed25519 public key, which every member pins: it identifies the federation.
        coordinator: the coordinator's Ed25519 public key, which signs openings and results.
        study_key: the Ed25519 public key that signs studies.
        members: sorted by id; ids and keys are unique.
        decryptors: nominated ids. Without nominees everyone decrypts in a small cohort, and in a large one some are drawn.
        readers: ids that may read the sums beside the head.
        revoked: digests of studies that no member takes part in any more, sorted.
    """

    kind: ClassVar[int] = Kind.ROSTER
    tag: ClassVar[Tag] = Tag.ROSTER

    number: U64
    name: Annotated[str, Text(MAX_NAME)]
    federation: Key
    coordinator: Key
    study_key: Key
    members: Annotated[tuple[Entry, ...], Many(Nested(Entry), MAX_MEMBERS, ascending=True)]
    decryptors: Annotated[tuple[str, ...], Many(Name(), MAX_DECRYPTORS, ascending=True)]
    readers: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
    revoked: Annotated[tuple[bytes, ...], Many(Fixed(32), MAX_REVOKED, ascending=True)]
    signature: Signature

    def validate(self) -> None:
        """Refuse repeated keys, reserved names, and decryptors or readers that are not members."""
        if len({entry.key for entry in self.members}) != len(self.members):
            raise PeerFault(Cause.DUPLICATE, "two members of the roster share a key", ["admin"])
        if taken := PARTIES.intersection(entry.member for entry in self.members):
            raise PeerFault(Cause.MALFORMED, f"no member can be called {', '.join(sorted(taken))}", ["admin"])
        named = {*self.decryptors, *self.readers}
        if strangers := named - {entry.member for entry in self.members}:
            raise PeerFault(
                Cause.UNKNOWN_MEMBER, "decryptors or readers that are not members", sorted(strangers)
            )

    @cached_property
    def hash(self) -> bytes:
        """Names this roster in cohort ids and contexts."""
        return hash_fields(Tag.ROSTER, self.to_bytes())

    def key_of(self, member: str) -> bytes:
        """The member's public key; PeerFault(unknown-member) for a stranger."""
        key = self._keys.get(member)
        if key is None:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{member} is not in roster {self.number}", [member])
        return key

    @cached_property
    def _keys(self) -> dict[str, bytes]:
        return {entry.member: entry.key for entry in self.members}

    def verify_admin(self, federation: bytes, *, seen: "Roster | None" = None) -> None:
        """Refuse a roster of another federation, without the admin's signature, or rolled back (protocol §4.1).

        Args:
            federation: the admin's key, as pinned.
            seen: the newest roster that the caller has accepted before.
        """
        if self.federation != federation:
            raise PeerFault(Cause.WRONG_FEDERATION, "the roster names another admin key than the one pinned")
        self.verify(federation, "admin")
        if seen is not None and (
            self.number < seen.number or (self.number == seen.number and self.digest != seen.digest)
        ):
            raise PeerFault(
                Cause.ROSTER_ROLLBACK,
                f"roster {self.number} is shown, and roster {seen.number} was seen with other content",
                ["coordinator"],
            )


def cohort_id(roster_hash: bytes, counter: int, study: bytes, period: str, repeats: bytes) -> Digest:
    """The cohort's id (protocol §4.2).

    Args:
        roster_hash: of the roster it draws on.
        counter: tells cohorts of one roster apart.
        study: the study's hash.
        period: its name.
        repeats: context of the attempt whose records the run sums again; `NO_CONTEXT` for fresh records.
    """
    return hash_fields(
        Tag.COHORT, roster_hash, counter.to_bytes(8, "little"), study, period.encode(), repeats
    )
