"""The roster of members and keys, and studies, as the admin signs them (protocol §4.1)."""

from functools import cached_property
from typing import Annotated, ClassVar

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import (
    U64,
    Bytes,
    Digest,
    Fixed,
    Id,
    Key,
    Many,
    Name,
    Nested,
    Signature,
    Struct,
    Text,
)
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages.base import MAX_DECRYPTORS, MAX_MEMBERS, Kind, Signed
from veilsum.protocol.tags import Tag, hash_fields

MAX_CONTENT = 1 << 20


class Study(Signed):
    """A signed study; `veilsum.study` reads and checks its content.

    Attributes:
        federation: the admin's public key, so that a study is valid in one federation only.
        content: canonical JSON (RFC 8785).
    """

    kind: ClassVar[int] = Kind.STUDY
    tag: ClassVar[Tag] = Tag.STUDY

    federation: Key
    content: Annotated[bytes, Bytes(MAX_CONTENT)]
    signature: Signature

    @cached_property
    def hash(self) -> bytes:
        """Id of the study: the signed hash, so that a second signature does not make a second study."""
        return self.digest


PARTIES = frozenset({"admin", "coordinator", "operator"})
"""Reserved names: a fault that names one of these parties must not seem to name a member."""
MAX_NAME = 64
MAX_REVOKED = 1_024


class Entry(Struct):
    """A member's id and its Ed25519 public key."""

    member: Id
    key: Key


class Roster(Signed):
    """The consortium, signed by its admin. A member refuses a lower number than it has seen.

    Attributes:
        number: increases with every change.
        name: the federation's display name.
        federation: the admin's Ed25519 public key, which identifies the federation and which every member pins.
        coordinator: the coordinator's Ed25519 public key, which signs openings and results.
        study_key: the Ed25519 public key that signs studies.
        members: sorted by id; ids and keys are unique.
        decryptors: nominated ids. Without nominees all members of a small cohort decrypt; a large one draws a committee.
        readers: ids that may read the sums beside the head.
        revoked: sorted digests of studies that members no longer join.
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
        """Hash of the roster, part of cohort ids and contexts."""
        return hash_fields(Tag.ROSTER, self.to_bytes())

    def key_of(self, member: str) -> bytes:
        """Look up a member's public key; PeerFault(unknown-member) if absent."""
        key = self._keys.get(member)
        if key is None:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{member} is not in roster {self.number}", [member])
        return key

    @cached_property
    def _keys(self) -> dict[str, bytes]:
        return {entry.member: entry.key for entry in self.members}

    def verify_admin(self, federation: bytes, *, seen: "Roster | None" = None) -> None:
        """Refuse a roster that is from another federation, badly signed or rolled back (protocol §4.1).

        Args:
            federation: the admin's key, as pinned.
            seen: the newest roster that the caller has accepted.
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
    """Compute a cohort's id (protocol §4.2).

    Args:
        roster_hash: hash of the cohort's roster.
        counter: distinguishes the cohorts of a roster.
        study: the study's hash.
        period: the period's name.
        repeats: context of the attempt that the run repeats; `NO_CONTEXT` for fresh records.
    """
    return hash_fields(
        Tag.COHORT, roster_hash, counter.to_bytes(8, "little"), study, period.encode(), repeats
    )
