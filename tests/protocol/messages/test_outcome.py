import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from protocol.codec import SecretBytes
from protocol.errors import PeerFault
from protocol.messages import (
    Certificate,
    Freeze,
    Message,
    Refusal,
    Reveal,
    Survivor,
    UploadHeader,
    VoidRequest,
    Vote,
    survivors_hash,
    void_hash,
)

CONTEXT = b"\xc7" * 32

HEADER = UploadHeader(
    context=CONTEXT,
    member="ann",
    lineage=b"\x11" * 8,
    records=b"\x4e" * 8,
    salt=b"\x5a" * 32,
    chunk_root=b"\x01" * 32,
    commitment_root=b"\x02" * 32,
    box_root=b"\x03" * 32,
    signature=b"\x5e" * 64,
)

FREEZE = Freeze(context=CONTEXT, headers=(HEADER,))
FREEZE_WIRE = bytes.fromhex(
    "".join(
        (
            "01",  # version
            "08",  # kind: freeze
            "c7" * 32,  # context
            "01000000",  # headers: one
            "c7" * 32,  # its context
            "03616e6e",  # member: "ann"
            "11" * 8,  # lineage
            "4e" * 8,  # records
            "5a" * 32,  # salt
            "01" * 32 + "02" * 32 + "03" * 32,  # roots of chunks, commitments, boxes
            "5e" * 64,  # signature
        )
    )
)

VOID_REQUEST = VoidRequest(context=CONTEXT, reason="cancelled")
VOID_REQUEST_WIRE = bytes.fromhex(
    "".join(
        (
            "01",  # version
            "09",  # kind: void request
            "c7" * 32,  # context
            "09" + "63616e63656c6c6564",  # reason: "cancelled"
        )
    )
)

VOTE = Vote(context=CONTEXT, member="bob", outcome=b"\x0c" * 32, signature=b"\x5e" * 64)
VOTE_HEX = "".join(
    (
        "c7" * 32,  # context
        "03626f62",  # member: "bob"
        "0c" * 32,  # outcome
        "5e" * 64,  # signature
    )
)
VOTE_WIRE = bytes.fromhex("01" + "0a" + VOTE_HEX)  # version, kind: vote, fields

REFUSAL = Refusal(context=CONTEXT, member="bob", cause="cancelled", signature=b"\x5e" * 64)
REFUSAL_WIRE = bytes.fromhex(
    "".join(
        (
            "01",  # version
            "0b",  # kind: refusal
            "c7" * 32,  # context
            "03626f62",  # member: "bob"
            "09" + "63616e63656c6c6564",  # cause: "cancelled"
            "5e" * 64,  # signature
        )
    )
)

SURVIVOR = Survivor(member="ann", lineage=b"\x11" * 8, records=b"\x4e" * 8, digest=b"\xd9" * 32)
CERTIFICATE = Certificate(context=CONTEXT, survivors=(SURVIVOR,), reason="none", votes=(VOTE,))
CERTIFICATE_WIRE = bytes.fromhex(
    "".join(
        (
            "01",  # version
            "0c",  # kind: certificate
            "c7" * 32,  # context
            "01000000",  # survivors: one
            "03616e6e" + "11" * 8 + "4e" * 8 + "d9" * 32,  # "ann", lineage, records, digest
            "04" + "6e6f6e65",  # reason: "none"
            "01000000" + VOTE_HEX,  # votes: one
        )
    )
)
VOID = Certificate(context=CONTEXT, survivors=(), reason="cancelled", votes=())
VOID_WIRE = bytes.fromhex(
    "".join(
        (
            "01",  # version
            "0c",  # kind: certificate
            "c7" * 32,  # context
            "00000000",  # survivors: none, it is VOID
            "09" + "63616e63656c6c6564",  # reason: "cancelled"
            "00000000",  # votes: none
        )
    )
)

REVEAL = Reveal(
    context=CONTEXT,
    member="bob",
    outcome=b"\x0c" * 32,
    shares=SecretBytes(b"\x5f" * 36),
    signature=b"\x5e" * 64,
)
REVEAL_WIRE = bytes.fromhex(
    "".join(
        (
            "01",  # version
            "0d",  # kind: reveal
            "c7" * 32,  # context
            "03626f62",  # member: "bob"
            "0c" * 32,  # outcome
            "24000000" + "5f" * 36,  # shares: 36 bytes
            "5e" * 64,  # signature
        )
    )
)


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (FREEZE, FREEZE_WIRE),
        (VOID_REQUEST, VOID_REQUEST_WIRE),
        (VOTE, VOTE_WIRE),
        (REFUSAL, REFUSAL_WIRE),
        (CERTIFICATE, CERTIFICATE_WIRE),
        (VOID, VOID_WIRE),
        (REVEAL, REVEAL_WIRE),
    ],
    ids=["freeze", "void-request", "vote", "refusal", "certificate", "void", "reveal"],
)
def test_on_the_wire(message: Message, wire: bytes, strict: Callable[[Message, bytes], None]) -> None:
    strict(message, wire)


def h(tag: bytes, *fields: bytes) -> bytes:
    """H(tag, fields) by hand."""
    return hashlib.sha256(
        b"veilsum/1/" + tag + b"\0" + b"".join(len(f).to_bytes(8, "little") + f for f in fields)
    ).digest()


def test_a_survivor_is_what_the_header_says_of_the_upload() -> None:
    assert Survivor.of(HEADER) == replace(SURVIVOR, digest=HEADER.digest)


def test_outcomes_are_hashes_of_the_context_and_what_ends_it() -> None:
    named = b"\x03ann" + b"\x11" * 8 + b"\x4e" * 8 + b"\xd9" * 32
    assert survivors_hash(CONTEXT, (SURVIVOR,)) == h(b"survivors", CONTEXT, named)
    assert void_hash(CONTEXT, "cancelled") == h(b"void", CONTEXT, b"cancelled")
    assert CERTIFICATE.outcome == survivors_hash(CONTEXT, (SURVIVOR,))
    assert VOID.outcome == void_hash(CONTEXT, "cancelled")
    assert CERTIFICATE.outcome.hex() == "07c6bf439713957940c196bff4928d29cce1fb4fe717450adcbd440926ccc8b8"
    assert VOID.outcome.hex() == "7877b2773e6c4ae9f93d32cec5a7f3c6b41cbff8b8f63962f957020d5c2dc64b"


def test_a_certificates_name_in_the_chain_does_not_depend_on_whose_votes_it_shows() -> None:
    assert CERTIFICATE.hash == h(b"certificate", CONTEXT, CERTIFICATE.outcome)
    assert CERTIFICATE.hash == replace(CERTIFICATE, votes=()).hash
    assert CERTIFICATE.hash != VOID.hash


def test_what_survivors_show_changes_what_is_signed() -> None:
    other = (
        replace(SURVIVOR, member="bob"),
        replace(SURVIVOR, lineage=bytes(8)),
        replace(SURVIVOR, records=bytes(8)),
        replace(SURVIVOR, digest=bytes(32)),
    )
    outcomes = {survivors_hash(CONTEXT, (s,)) for s in (SURVIVOR, *other)}
    outcomes |= {survivors_hash(bytes(32), (SURVIVOR,)), survivors_hash(CONTEXT, (SURVIVOR, other[0]))}
    assert len(outcomes) == 7


def test_survivors_beside_a_reason_for_void_are_refused() -> None:
    with pytest.raises(PeerFault, match=r"^malformed: a certificate has survivors, or a reason"):
        Certificate.from_bytes(replace(CERTIFICATE, reason="cancelled").to_bytes())


def test_neither_survivors_nor_a_reason_is_refused() -> None:
    with pytest.raises(PeerFault, match=r"^malformed: a certificate has survivors, or a reason"):
        Certificate.from_bytes(replace(VOID, reason="none").to_bytes())


def test_a_request_to_void_without_a_reason_is_refused() -> None:
    with pytest.raises(PeerFault, match=r"^malformed: a request to void"):
        VoidRequest.from_bytes(replace(VOID_REQUEST, reason="none").to_bytes())


def test_a_decryptor_that_votes_twice_in_a_certificate_is_refused() -> None:
    twice = CERTIFICATE_WIRE.replace(
        b"\x01\0\0\0" + VOTE_WIRE[2:], b"\x02\0\0\0" + VOTE_WIRE[2:] + VOTE_WIRE[2:]
    )
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Certificate.from_bytes(twice)


def test_a_survivor_that_stands_twice_in_a_certificate_is_refused() -> None:
    named = bytes.fromhex("03616e6e" + "11" * 8 + "4e" * 8 + "d9" * 32)
    twice = CERTIFICATE_WIRE.replace(b"\x01\0\0\0" + named, b"\x02\0\0\0" + named + named)
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Certificate.from_bytes(twice)


def test_revealed_shares_are_not_shown() -> None:
    assert "5f5f" not in repr(REVEAL)
    assert "shares=<SecretBytes 36 B>" in repr(Reveal.from_bytes(REVEAL_WIRE))
