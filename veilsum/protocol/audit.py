"""The audit log: entries chained by SHA-256, with heads signed by the coordinator.

    head(n) = SHA-256("veilsum/audit/1" 0x00 || canonical(entry n without its head, with `previous` = head(n - 1)))

Entries are numbered from 1, and head(0) is 64 zeros. Canonical form is ASCII JSON with sorted keys and no spaces. A signed
head commits to every earlier entry: any change, removal, reordering or truncation is detected and located.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Annotated, NamedTuple

from pydantic import Field

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import Hex32
from veilsum.protocol.identity import SigningKey, verify_signature
from veilsum.protocol.rest import Listed, Model, View
from veilsum.protocol.tags import Tag, hash_fields

PAGE_MAX = 1000
_HASH_PREFIX = b"veilsum/audit/1\0"


class AuditEntry(Model):
    """One action: its actor, objects and outcome. Holds no value, norm, body or secret.

    Attributes:
        number: position in the log, from 1, without gaps.
        at_ms: Unix time in milliseconds.
        who: "member ID", "admin", "operator TOKEN", or "coordinator".
        action: a route, or an action of the coordinator itself.
        on: ids of the objects concerned.
        outcome: "done", or the cause of a refusal.
        head: chain head including this entry.
    """

    number: Annotated[int, Field(ge=1)]
    at_ms: int
    who: str
    action: str
    on: str
    outcome: str
    head: Hex32


class AuditHead(Model):
    """The end of the log, signed by the coordinator.

    Attributes:
        number: number of the last entry; 0 for an empty log.
        signature: Ed25519, in hexadecimal, over H("audit", number, head).
    """

    number: Annotated[int, Field(ge=0)]
    head: Hex32
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]

    @classmethod
    def sign_end(cls, key: SigningKey, end: "End") -> "AuditHead":
        """Sign the log's end."""
        return cls(number=end.number, head=end.head, signature=key.sign(_head_digest(end)).hex())

    def verify(self, coordinator: bytes) -> None:
        """Verify the coordinator's signature (bad-signature)."""
        verify_signature(coordinator, bytes.fromhex(self.signature), _head_digest(self.end), "coordinator")

    @property
    def end(self) -> "End":
        """The signed position."""
        return End(self.number, self.head)


class AuditPage(View):
    """Consecutive entries and the log's head when they were read.

    Attributes:
        start: where the log was pruned: its entries follow this signed position. None if every entry is kept.
    """

    entries: Listed[AuditEntry]
    head: AuditHead
    start: AuditHead | None = None

    @property
    def first_end(self) -> "End":
        """The position that the first entry kept follows."""
        return EMPTY_LOG_END if self.start is None else self.start.end


class End(NamedTuple):
    """The number and head of the last entry."""

    number: int
    head: str


EMPTY_LOG_END = End(0, "0" * 64)


def chain_entry(previous: End, at_ms: int, who: str, action: str, on: str, outcome: str) -> AuditEntry:
    """Build the entry that follows `previous`."""
    fields = {"at_ms": at_ms, "who": who, "action": action, "on": on, "outcome": outcome}
    return AuditEntry.model_validate(
        {
            **fields,
            "number": previous.number + 1,
            "head": _hash_entry(previous.number + 1, previous.head, fields),
        }
    )


def follow_entries(entries: Iterable[AuditEntry], after: End = EMPTY_LOG_END) -> End:
    """Check that entries continue the log from `after`, and return its new end.

    Raises:
        PeerFault: audit-broken, naming the first entry that does not fit.
    """
    end = after
    for entry in entries:
        if entry.number != end.number + 1:
            raise _audit_fault(
                f"entry {entry.number} stands where entry {end.number + 1} belongs: entries were removed, repeated or put "
                "in another order"
            )
        fields = entry.model_dump(include={"at_ms", "who", "action", "on", "outcome"})
        if entry.head != _hash_entry(entry.number, end.head, fields):
            raise _audit_fault(
                f"entry {entry.number} is not what was written: it, or one before it, was changed"
            )
        end = End(entry.number, entry.head)
    return end


def check_end(found: End, known: End) -> None:
    """Refuse a log whose end differs from a known head (audit-broken)."""
    if found.number < known.number:
        raise _audit_fault(
            f"the log ends at entry {found.number}, and had {known.number}: its end was cut off"
        )
    if found != known:
        raise _audit_fault(
            f"entry {known.number} has another head than the one known: the log was written anew"
        )


def _hash_entry(number: int, previous: str, fields: dict[str, object]) -> str:
    canonical = json.dumps(
        {**fields, "number": number, "previous": previous}, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(_HASH_PREFIX + canonical.encode("ascii")).hexdigest()


def _head_digest(end: End) -> bytes:
    return hash_fields(Tag.AUDIT, end.number.to_bytes(8, "little"), bytes.fromhex(end.head))


def _audit_fault(why: str) -> PeerFault:
    return PeerFault(Cause.AUDIT_BROKEN, why, ["coordinator"])
