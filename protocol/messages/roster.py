"""The roster: who is a member, by the admin's signature (protocol §4.1)."""

from functools import cached_property
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import U8, U64, Digest, Fixed, Id, Key, Many, Name, Nested, Signature, Struct
from protocol.errors import PeerFault
from protocol.messages.base import MAX_DECRYPTORS, Kind, Signed
from protocol.tags import Tag, hash_fields

PARTIES = frozenset({"admin", "coordinator", "operator"})
"""Names of parties that are no members: a fault that names one of them must not seem to name a member."""


class Entry(Struct):
    """A member's id and its Ed25519 public key."""

    member: Id
    key: Key


class Roster(Signed):
    """The consortium as its admin signed it; a member refuses a lower version than one it has seen.

    Attributes:
        version_number: grows with every change.
        federation: the admin's Ed25519 public key, pinned by every member: it is the federation's name.
        coordinator: the coordinator's Ed25519 public key, which signs openings and results.
        members: sorted by id; ids and keys are unique.
        decryptors: nominated ids; with none, everyone is a decryptor in a small cohort, and in a large one some are drawn.
        extractors: digests of the approved feature extractors.
        readers: ids that may read the sums themselves beside the solution.
        withhold: 1 where classes that few members hold are withheld (protocol §9), 0 where the admin waives it.
    """

    kind: ClassVar[int] = Kind.ROSTER
    tag: ClassVar[Tag] = Tag.ROSTER

    version_number: U64
    federation: Key
    coordinator: Key
    members: Annotated[tuple[Entry, ...], Many(Nested(Entry), 100_000, ascending=True)]
    decryptors: Annotated[tuple[str, ...], Many(Name(), MAX_DECRYPTORS, ascending=True)]
    extractors: Annotated[tuple[bytes, ...], Many(Fixed(32), 256, ascending=True)]
    readers: Annotated[tuple[str, ...], Many(Name(), 100_000, ascending=True)]
    withhold: U8
    signature: Signature

    def validate(self) -> None:
        """Refuse a key that stands twice, and decryptors or readers that are no members."""
        if len({entry.key for entry in self.members}) != len(self.members):
            raise PeerFault(Cause.DUPLICATE, "two members of the roster share a key", ["admin"])
        if taken := PARTIES.intersection(entry.member for entry in self.members):
            raise PeerFault(Cause.MALFORMED, f"no member can be called {', '.join(sorted(taken))}", ["admin"])
        named = {*self.decryptors, *self.readers}
        if strangers := named - {entry.member for entry in self.members}:
            raise PeerFault(
                Cause.UNKNOWN_MEMBER, "decryptors or readers that are no members", sorted(strangers)
            )
        if self.withhold > 1:
            raise PeerFault(Cause.MALFORMED, f"withhold is {self.withhold}: 0 or 1", ["admin"])

    @cached_property
    def hash(self) -> bytes:
        """Names this roster in cohort ids and contexts."""
        return hash_fields(Tag.ROSTER, self.to_bytes())

    def key_of(self, member: str) -> bytes:
        """The member's public key; PeerFault(unknown-member) for a stranger."""
        key = self._keys.get(member)
        if key is None:
            raise PeerFault(
                Cause.UNKNOWN_MEMBER, f"{member} is not in roster version {self.version_number}", [member]
            )
        return key

    @cached_property
    def _keys(self) -> dict[str, bytes]:
        return {entry.member: entry.key for entry in self.members}

    def verify_admin(self, federation: bytes, *, version_seen: int = 0) -> None:
        """Refuse a roster of another federation, a signature that is not the admin's, then a version rolled back.

        Args:
            federation: the admin's key, as pinned.
            version_seen: the highest version that the caller has accepted before.
        """
        if self.federation != federation:
            raise PeerFault(Cause.WRONG_FEDERATION, "the roster names another admin key than the one pinned")
        self.verify(federation, "admin")
        if self.version_number < version_seen:
            raise PeerFault(
                Cause.ROSTER_ROLLBACK,
                f"roster version {self.version_number}, version {version_seen} was seen before",
                ["coordinator"],
            )


def cohort_id(roster_hash: bytes, counter: int) -> Digest:
    """The cohort's id: the roster it draws on and a counter (protocol §4.2)."""
    return hash_fields(Tag.COHORT, roster_hash, counter.to_bytes(8, "little"))
