"""Bytes that every decoder must refuse, in any phase."""

from collections.abc import Callable
from dataclasses import replace

from assurance.attacks.base import ENROLMENT, Attack, Decoded, Forger, patched
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import (
    Ciphertexts,
    Enrolment,
    ErasureRequest,
    KeyCard,
    Link,
    Message,
    Pairing,
    Receipt,
    Roster,
    Upload,
    VoidRequest,
    Vote,
)
from veilsum.protocol.tags import PROTOCOL_VERSION

# fmt: off
# The table is easier to read with one row to a line.
OTHER = b"\x66" * 32
LEFT, OVER, PATHS = "left-over bytes", "oversized anything", "path tricks in ids"
DOWNGRADE = "downgrade to keys without ML-KEM"
RULES = {
    Cause.UNKNOWN_VERSION: "DECODE-1",
    Cause.UNKNOWN_MESSAGE: "DECODE-2",
    Cause.TRUNCATED: "DECODE-3",
    Cause.OVERSIZED: "DECODE-4",
    Cause.MALFORMED: "DECODE-5",
    Cause.LEFT_OVER_BYTES: "DECODE-6",
    Cause.DUPLICATE: "DECODE-7",
    Cause.UNKNOWN_MEMBER: "DECODE-8",
    Cause.WRONG_SEQUENCE: "DECODE-9",
}
"""A decoder has one rule for each cause."""


def said(form: type[Message], source: str = "member-1", to: str = "coordinator") -> Message:
    """Return a message of the first round."""
    found: Message = Forger("complete", 0).said(form, source, to)
    return found


def forming(form: type[Message], source: str = "member-1", to: str = "coordinator") -> Message:
    """Return a message of the round's cohort while it forms."""
    found: Message = Forger("complete", ENROLMENT).said(form, source, to)
    return found


def roster() -> Roster:
    """Return the round's roster."""
    return Forger("complete", 0).federation.roster


def counted(message: Callable[[], bytes], at: int, count: int) -> Callable[[], bytes]:
    """Change the count at the beginning of a list or field."""

    def data() -> bytes:
        whole = message()
        return whole[:at] + count.to_bytes(4, "little") + whole[at + 4 :]

    return data


def vote_by(name: bytes) -> Callable[[], bytes]:
    """Make a vote whose member id consists of these bytes."""
    return lambda: patched(said(Vote), b"\x08member-1", bytes([len(name)]) + name)


def attacks() -> list[Attack]:
    """Return all attacks of this module."""
    found: list[Attack] = []

    def add(name: str, survives: str, cause: Cause, data: Callable[[], bytes], *parties: str) -> None:
        found.append(Decoded(name, RULES[cause], survives, cause, parties, data))

    add("nothing at all", "truncated or extra chunk", Cause.TRUNCATED, lambda: b"")
    add("a version alone", "truncated or extra chunk", Cause.TRUNCATED, lambda: bytes((PROTOCOL_VERSION,)))
    add("the version before this one", "replay across attempts, rounds, cohorts, federations", Cause.UNKNOWN_VERSION, lambda: b"\x02" + said(Vote).to_bytes()[1:])
    add("a version to come", "replay across attempts, rounds, cohorts, federations", Cause.UNKNOWN_VERSION, lambda: bytes((PROTOCOL_VERSION + 1,)) + said(Vote).to_bytes()[1:])
    add("a kind that is none", LEFT, Cause.UNKNOWN_MESSAGE, lambda: bytes((PROTOCOL_VERSION, 0)) + said(Vote).to_bytes()[2:])
    add("a kind beyond the last", LEFT, Cause.UNKNOWN_MESSAGE, lambda: bytes((PROTOCOL_VERSION, 255)) + said(Vote).to_bytes()[2:])
    add("one kind's bytes under another's number", LEFT, Cause.LEFT_OVER_BYTES, lambda: bytes((PROTOCOL_VERSION, ErasureRequest.kind)) + said(Vote).to_bytes()[2:])
    for form in (Vote, Receipt, Upload):
        add(f"a byte after a {form.__name__}", LEFT, Cause.LEFT_OVER_BYTES, lambda form=form: said(form).to_bytes() + b"\0")  # type: ignore[misc]  # bound now
        add(f"a {form.__name__} without its last byte", "truncated or extra chunk", Cause.TRUNCATED, lambda form=form: said(form).to_bytes()[:-1])  # type: ignore[misc]  # bound now
    for early in (Enrolment, Pairing):
        add(f"a byte after a {early.__name__}", LEFT, Cause.LEFT_OVER_BYTES, lambda early=early: forming(early).to_bytes() + b"\0")  # type: ignore[misc]  # bound now
        add(f"a {early.__name__} without its last byte", "truncated or extra chunk", Cause.TRUNCATED, lambda early=early: forming(early).to_bytes()[:-1])  # type: ignore[misc]  # bound now
    add("a card of the version before, with two X25519 keys", DOWNGRADE, Cause.UNKNOWN_VERSION,
        lambda: bytes((PROTOCOL_VERSION - 1, KeyCard.kind)) + forming(Enrolment).card.encode())  # type: ignore[attr-defined]  # an enrolment
    add("a card without an ML-KEM key", DOWNGRADE, Cause.TRUNCATED,
        lambda: bytes((PROTOCOL_VERSION, Enrolment.kind)) + forming(Enrolment).card.encode())  # type: ignore[attr-defined]  # an enrolment
    add("a pairing of 10,001 ciphertexts", OVER, Cause.OVERSIZED, counted(lambda: forming(Pairing).to_bytes(), 2 + 32 + 9, 10_001))
    add("ciphertexts of 10,001 members", OVER, Cause.OVERSIZED, counted(lambda: forming(Ciphertexts, "coordinator", "member-1").to_bytes(), 2 + 32, 10_001))
    add("a ciphertext with a path of 65 siblings", OVER, Cause.OVERSIZED,
        counted(lambda: forming(Ciphertexts, "coordinator", "member-1").to_bytes(), 2 + 32 + 4 + 9 + 1088, 65))
    add("a sender's id that is a path", PATHS, Cause.MALFORMED,
        lambda: patched(forming(Ciphertexts, "coordinator", "member-1"), b"\x08member-0", b"\x08../../m0"))
    add("a message after the message", LEFT, Cause.LEFT_OVER_BYTES, lambda: said(Vote).to_bytes() * 2)

    for name, raw in (
        ("a path in an id", b"../../x1"), ("a slash in an id", b"member/1"), ("a dot in an id", b"member.1"),
        ("a NUL in an id", b"member\x001"), ("a capital in an id", b"Member-1"), ("a space in an id", b"member 1"),
        ("a line break in an id", b"member-\n"), ("an id that looks like another", "mеmber1".encode()),
        ("no id", b""), ("an id of 65 bytes", b"m" * 65), ("a percent sign in an id", b"member%2"), ("a backslash in an id", b"member\\1"),
    ):
        add(name, PATHS, Cause.MALFORMED, vote_by(raw))

    receipt, upload = (lambda: said(Receipt).to_bytes()), (lambda: said(Upload).to_bytes())
    add("more dealers than a cohort has members", OVER, Cause.OVERSIZED, counted(receipt, 75, 10_001))
    add("four milliard dealers", OVER, Cause.OVERSIZED, counted(receipt, 75, 2**32 - 1))
    add("as many dealers as may be, in a few bytes", OVER, Cause.MALFORMED, counted(receipt, 75, 10_000))
    add("more chunks than may be", OVER, Cause.OVERSIZED, counted(upload, 2 + 32 + 9 + 32 * 4 + 64, 2**20 + 1))
    add("a reveal of more runs than members", OVER, Cause.OVERSIZED,
        lambda: bytes((PROTOCOL_VERSION, 13)) + OTHER + b"\x01a" + OTHER + bytes(4) + (10_001).to_bytes(4, "little"))
    add("a run longer than may be", OVER, Cause.OVERSIZED,
        lambda: bytes((PROTOCOL_VERSION, 13)) + OTHER + b"\x01a" + OTHER + bytes(4) + b"\1\0\0\0" + (360_001).to_bytes(4, "little"))
    add("a chunk longer than may be", OVER, Cause.OVERSIZED,
        lambda: bytes((PROTOCOL_VERSION, 20)) + OTHER + b"\1\0\0\0" + said(Upload).header.encode()  # type: ignore[attr-defined]  # an upload
        + bytes(8) + bytes(4) + b"\1\0\0\0" + (2**25 + 1).to_bytes(4, "little"))

    add("a member of the roster twice", "duplicate indices", Cause.MALFORMED, lambda: patched(roster(), b"\x08member-1", b"\x08member-0"))
    add("two members with one key", "Sybil", Cause.DUPLICATE,
        lambda: patched(roster(), roster().members[1].key, roster().members[0].key), "admin")
    add("a nominee whom the roster does not list", "Sybil", Cause.UNKNOWN_MEMBER,
        lambda: replace(roster(), decryptors=("sybil",)).to_bytes(), "sybil")
    add("a reader whom the roster does not list", "Sybil", Cause.UNKNOWN_MEMBER, lambda: replace(roster(), readers=("sybil",)).to_bytes(), "sybil")
    add("a set without a survivor", "padded S", Cause.MALFORMED,
        lambda: bytes((PROTOCOL_VERSION, 8)) + OTHER + bytes(4) + b"\1\0\0\0" + bytes(4))
    add("three sets that a proposal rests on", OVER, Cause.OVERSIZED, lambda: bytes((PROTOCOL_VERSION, 8)) + OTHER + bytes(4) + b"\3\0\0\0")
    add("a sum without a set in the chain", "two attempts, two sets", Cause.MALFORMED, lambda: linked("none", bytes(32)))
    add("VOID with a set in the chain", "two attempts, two sets", Cause.MALFORMED, lambda: linked("cancelled"))
    add("LOST with a set in the chain", "LOST abuse", Cause.MALFORMED, lambda: linked("lost"))
    add("VOID by erasure with a set in the chain", "erasure abuse", Cause.MALFORMED, lambda: linked("erased"))
    add("a study longer than may be", "study abuse", Cause.OVERSIZED, lambda: bytes((PROTOCOL_VERSION, 25)) + OTHER + (2**20 + 1).to_bytes(4, "little"))
    add("a period that is a path", PATHS, Cause.MALFORMED, lambda: patched(Forger("complete", 0).federation.manifest, b"\x08period-0", b"\x08../../p0"))
    add("a link to a ninth attempt", "two attempts, two sets", Cause.WRONG_SEQUENCE, lambda: linked(attempt=8))
    add("a certificate of nothing, for no reason", "both secrets of one member", Cause.MALFORMED,
        lambda: bytes((PROTOCOL_VERSION, 12)) + OTHER + bytes(4) + b"\x04none" + bytes(4))
    add("a certificate of an erasure", "erasure abuse", Cause.MALFORMED, lambda: bytes((PROTOCOL_VERSION, 12)) + OTHER + bytes(4) + b"\x06erased" + bytes(4))
    add("a certificate of LOST", "LOST abuse", Cause.MALFORMED, lambda: bytes((PROTOCOL_VERSION, 12)) + OTHER + bytes(4) + b"\x04lost" + bytes(4))
    add("a request to void in an unknown script", PATHS, Cause.MALFORMED, lambda: patched(VoidRequest(OTHER, "cancelled"), b"cancelled", b"\xd0\xb0ncelled"))
    return found


def linked(reason: str = "none", survivors: bytes = OTHER, *, attempt: int = 0) -> bytes:
    """Make a Chain with this one Link."""
    link = Link(OTHER, 0, attempt, OTHER, "period-0", "sum", bytes(32), OTHER, reason, survivors)
    return bytes((PROTOCOL_VERSION, 23)) + OTHER + b"\1\0\0\0" + link.encode()
