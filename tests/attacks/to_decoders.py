"""Bytes that nobody's decoder takes, whatever the phase."""

from collections.abc import Callable
from dataclasses import replace

from protocol.causes import Cause
from protocol.messages import (
    ErasureRequest,
    Link,
    Message,
    Opening,
    Past,
    Receipt,
    Roster,
    Survivor,
    SurvivorSet,
    Upload,
    VoidRequest,
    Vote,
)
from tests.attacks.base import Attack, Decoded, Forger, patched

# fmt: off
# A table reads by its rows.
OTHER = b"\x66" * 32
LEFT, OVER, PATHS = "left-over bytes", "oversized anything", "path tricks in ids"


def said(form: type[Message], source: str = "member-1", to: str = "coordinator") -> Message:
    """A message of the first round."""
    found: Message = Forger("complete", 0).said(form, source, to)
    return found


def roster() -> Roster:
    """The round's roster."""
    return Forger("complete", 0).federation.roster


def counted(message: Callable[[], bytes], at: int, count: int) -> Callable[[], bytes]:
    """The message with another count where a list or a field begins."""

    def data() -> bytes:
        whole = message()
        return whole[:at] + count.to_bytes(4, "little") + whole[at + 4 :]

    return data


def vote_by(name: bytes) -> Callable[[], bytes]:
    """A vote by somebody whose id is these bytes."""
    return lambda: patched(said(Vote), b"\x08member-1", bytes([len(name)]) + name)


def attacks() -> list[Attack]:
    """All of them."""
    found: list[Attack] = []

    def add(name: str, survives: str, cause: Cause, data: Callable[[], bytes], *parties: str) -> None:
        found.append(Decoded(name, "§3", survives, cause, parties, data))

    add("nothing at all", "truncated or extra chunk", Cause.TRUNCATED, lambda: b"")
    add("a version alone", "truncated or extra chunk", Cause.TRUNCATED, lambda: b"\x03")
    add("the version before this one", "replay across attempts, rounds, cohorts, federations", Cause.UNKNOWN_VERSION, lambda: b"\x02" + said(Vote).to_bytes()[1:])
    add("a version to come", "replay across attempts, rounds, cohorts, federations", Cause.UNKNOWN_VERSION, lambda: b"\x04" + said(Vote).to_bytes()[1:])
    add("a kind that is none", LEFT, Cause.UNKNOWN_MESSAGE, lambda: b"\x03\x00" + said(Vote).to_bytes()[2:])
    add("a kind beyond the last", LEFT, Cause.UNKNOWN_MESSAGE, lambda: b"\x03\xff" + said(Vote).to_bytes()[2:])
    add("one kind's bytes under another's number", LEFT, Cause.LEFT_OVER_BYTES, lambda: bytes((3, ErasureRequest.kind)) + said(Vote).to_bytes()[2:])
    for form in (Vote, Receipt, Upload):
        add(f"a byte after a {form.__name__}", LEFT, Cause.LEFT_OVER_BYTES, lambda form=form: said(form).to_bytes() + b"\0")  # type: ignore[misc]  # bound now
        add(f"a {form.__name__} without its last byte", "truncated or extra chunk", Cause.TRUNCATED, lambda form=form: said(form).to_bytes()[:-1])  # type: ignore[misc]  # bound now
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
    add("more chunks than may be", OVER, Cause.OVERSIZED, counted(upload, 2 + 32 + 9 + 8 + 8 + 32 * 4 + 64, 2**20 + 1))
    add("a reveal of more runs than members", OVER, Cause.OVERSIZED,
        lambda: bytes((3, 13)) + OTHER + b"\x01a" + OTHER + bytes(4) + (10_001).to_bytes(4, "little"))
    add("a run longer than may be", OVER, Cause.OVERSIZED,
        lambda: bytes((3, 13)) + OTHER + b"\x01a" + OTHER + bytes(4) + b"\1\0\0\0" + (360_001).to_bytes(4, "little"))
    add("a chunk longer than may be", OVER, Cause.OVERSIZED,
        lambda: bytes((3, 20)) + OTHER + b"\1\0\0\0" + said(Upload).header.encode_fields()  # type: ignore[attr-defined]  # an upload
        + bytes(8) + bytes(4) + b"\1\0\0\0" + (2**25 + 1).to_bytes(4, "little"))
    add("seventeen exceptions", OVER, Cause.OVERSIZED, lambda: opening_with(17))

    add("a member of the roster twice", "duplicate indices", Cause.MALFORMED, lambda: patched(roster(), b"\x08member-1", b"\x08member-0"))
    add("two members with one key", "Sybil", Cause.DUPLICATE,
        lambda: patched(roster(), roster().members[1].key, roster().members[0].key), "admin")
    add("a nominee whom the roster does not list", "Sybil", Cause.UNKNOWN_MEMBER,
        lambda: replace(roster(), decryptors=("sybil",)).to_bytes(), "sybil")
    add("a reader whom the roster does not list", "Sybil", Cause.UNKNOWN_MEMBER, lambda: replace(roster(), readers=("sybil",)).to_bytes(), "sybil")
    add("rare classes withheld by half", "indicator abuse", Cause.MALFORMED, lambda: replace(roster(), withhold=2).to_bytes(), "admin")
    add("a set without a survivor", "padded S", Cause.MALFORMED, lambda: ledger(OTHER + b"\x04none" + b"\1\0\0\0" + bytes(4)))
    add("a sum without a set", "two attempts, two sets", Cause.MALFORMED, lambda: ledger(past("none", 0)))
    add("VOID with a set", "two attempts, two sets", Cause.MALFORMED, lambda: ledger(past("cancelled", 1)))
    add("LOST with a set", "LOST abuse", Cause.MALFORMED, lambda: ledger(past("lost", 1)))
    add("VOID by erasure with a set", "erasure abuse", Cause.MALFORMED, lambda: ledger(past("erased", 1)))
    add("a link of a family that the ledger would count nowhere", "overlapping rounds, three rounds", Cause.MALFORMED, lambda: linked(family="none"), "coordinator")
    add("a link to a ninth attempt", "two attempts, two sets", Cause.WRONG_SEQUENCE, lambda: linked(attempt=8))
    add("a certificate of nothing, for no reason", "both secrets of one member", Cause.MALFORMED,
        lambda: bytes((3, 12)) + OTHER + bytes(4) + b"\x04none" + bytes(4))
    add("a certificate of an erasure", "erasure abuse", Cause.MALFORMED, lambda: bytes((3, 12)) + OTHER + bytes(4) + b"\x06erased" + bytes(4))
    add("a certificate of LOST", "LOST abuse", Cause.MALFORMED, lambda: bytes((3, 12)) + OTHER + bytes(4) + b"\x04lost" + bytes(4))
    add("a request to void in an unknown script", PATHS, Cause.MALFORMED, lambda: patched(VoidRequest(OTHER, "cancelled"), b"cancelled", b"\xd0\xb0ncelled"))
    return found


def survivors() -> SurvivorSet:
    """One that might have been."""
    return SurvivorSet((Survivor("member-1", bytes(8), bytes(8), OTHER),))


def past(reason: str, sets: int) -> bytes:
    """A Past that holds so many sets, all alike."""
    return Past(OTHER, reason, (survivors(),) * sets).encode_fields()


def ledger(entry: bytes) -> bytes:
    """A Ledger with this one Past."""
    return bytes((3, 23)) + OTHER + bytes(4) + b"\1\0\0\0" + entry


def linked(*, family: str = "exact", attempt: int = 0) -> bytes:
    """A Ledger with this one Link."""
    return bytes((3, 23)) + OTHER + b"\1\0\0\0" + Link(OTHER, 0, attempt, family, 3, OTHER, OTHER).encode_fields() + bytes(4)


def opening_with(exceptions: int) -> bytes:
    """An opening that counts so many exceptions."""
    opening = said(Opening, "coordinator", "member-1")
    whole = opening.to_bytes()
    return whole[:-68] + exceptions.to_bytes(4, "little") + whole[-64:]
