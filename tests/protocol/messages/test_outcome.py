from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.codec import SecretBytes
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.merkle import Tree
from protocol.messages import (
    Certificate,
    Freeze,
    Message,
    Past,
    Refusal,
    Reveal,
    RevealSummary,
    Survivor,
    SurvivorSet,
    VoidRequest,
    Vote,
    closing_hash,
    survivors_hash,
    void_hash,
)
from tests.protocol.messages.wire import CONTEXT, HEADER, HEADER_HEX, SURVIVOR, SURVIVOR_HEX, h

KEY = SigningKey(b"\x0b" * 32)

PAST = Past(context=b"\xc6" * 32, reason="none", sets=(SurvivorSet((SURVIVOR,)),))
PAST_HEX = "".join(
    (
        "c6" * 32,  # context
        "04" + "6e6f6e65",  # reason: "none"
        "01000000",  # sets: one
        "01000000" + SURVIVOR_HEX,  # its survivors: one
    )
)

FREEZE = Freeze(context=CONTEXT, headers=(HEADER,), history=(PAST,))
FREEZE_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "08",  # kind: freeze
            "c7" * 32,  # context
            "01000000" + HEADER_HEX,  # headers: one
            "01000000" + PAST_HEX,  # history: one
        )
    )
)

VOID_REQUEST = VoidRequest(context=CONTEXT, reason="cancelled")
VOID_REQUEST_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
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
VOTE_WIRE = bytes.fromhex("03" + "0a" + VOTE_HEX)  # version, kind: vote, fields

REFUSAL = Refusal(
    context=CONTEXT,
    member="bob",
    cause="ledger-refused",
    group=("ann", "eve"),
    rounds=(b"\xc6" * 32,),
    signature=b"\x5e" * 64,
)
REFUSAL_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "0b",  # kind: refusal
            "c7" * 32,  # context
            "03626f62",  # member: "bob"
            "0e" + "6c65646765722d72656675736564",  # cause: "ledger-refused"
            "02000000" + "03616e6e" + "03657665",  # group: "ann", "eve"
            "01000000" + "c6" * 32,  # rounds: one
            "5e" * 64,  # signature
        )
    )
)

CERTIFICATE = Certificate(context=CONTEXT, survivors=(SURVIVOR,), reason="none", votes=(VOTE,))
CERTIFICATE_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "0c",  # kind: certificate
            "c7" * 32,  # context
            "01000000" + SURVIVOR_HEX,  # survivors: one
            "04" + "6e6f6e65",  # reason: "none"
            "01000000" + VOTE_HEX,  # votes: one
        )
    )
)
VOID = Certificate(context=CONTEXT, survivors=(), reason="cancelled", votes=())
VOID_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
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
    evicted=("cat", "dan"),
    runs=(SecretBytes(b"\x5f" * 36), SecretBytes(b"\x60" * 72)),
    signature=b"\x5e" * 64,
)
REVEAL_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "0d",  # kind: reveal
            "c7" * 32,  # context
            "03626f62",  # member: "bob"
            "0c" * 32,  # outcome
            "02000000" + "03636174" + "0364616e",  # evicted: "cat", "dan"
            "02000000",  # runs: two
            "24000000" + "5f" * 36,  # 36 bytes
            "48000000" + "60" * 72,  # 72 bytes
            "5e" * 64,  # signature
        )
    )
)
RUNS_ROOT = Tree.of([b"\x5f" * 36, b"\x60" * 72]).root
SUMMARY = RevealSummary(
    context=CONTEXT,
    member="bob",
    outcome=b"\x0c" * 32,
    evicted=("cat", "dan"),
    runs_root=b"\x40" * 32,
    signature=b"\x5e" * 64,
)
SUMMARY_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "16",  # kind: reveal summary
            "c7" * 32,  # context
            "03626f62",  # member: "bob"
            "0c" * 32,  # outcome
            "02000000" + "03636174" + "0364616e",  # evicted: "cat", "dan"
            "40" * 32,  # runs_root
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
        (SUMMARY, SUMMARY_WIRE),
    ],
    ids=["freeze", "void-request", "vote", "refusal", "certificate", "void", "reveal", "reveal-summary"],
)
def test_on_the_wire(message: Message, wire: bytes, strict: Callable[[Message, bytes], None]) -> None:
    strict(message, wire)


def test_a_survivor_is_what_the_header_says_of_the_upload() -> None:
    assert Survivor.of(HEADER) == replace(SURVIVOR, digest=HEADER.digest)


def test_outcomes_are_hashes_of_the_context_and_what_ends_it() -> None:
    named = bytes.fromhex(SURVIVOR_HEX)
    assert survivors_hash(CONTEXT, (SURVIVOR,)) == h(b"survivors", CONTEXT, named)
    assert void_hash(CONTEXT, "cancelled") == h(b"void", CONTEXT, b"cancelled")
    assert CERTIFICATE.outcome == survivors_hash(CONTEXT, (SURVIVOR,))
    assert VOID.outcome == void_hash(CONTEXT, "cancelled")
    assert CERTIFICATE.outcome.hex() == "1c768e4dec127a4d454ae6a17f3aaa4d24235f37aba3234bf9c70bb4cc83c119"
    assert VOID.outcome.hex() == "1e8741775cf3b4e2738404a67926ac6e13dab0fb05ad4744038dce7987299db4"


def test_a_closing_names_context_reason_and_every_set() -> None:
    assert closing_hash(CONTEXT, "lost", [b"1" * 32, b"2" * 32]) == (
        h(b"closing", CONTEXT, b"lost", b"1" * 32, b"2" * 32)
    )
    assert CERTIFICATE.past == Past(CONTEXT, "none", (SurvivorSet((SURVIVOR,)),))
    assert CERTIFICATE.past.closing == h(b"closing", CONTEXT, b"none", CERTIFICATE.outcome)
    assert (
        CERTIFICATE.past.closing.hex() == "931da1956f38e3aaec895f69159102504bd2c4afda65f261d97ab97983332baa"
    )
    assert VOID.past == Past(CONTEXT, "cancelled", ())
    assert VOID.past.closing == h(b"closing", CONTEXT, b"cancelled")
    assert VOID.past.closing.hex() == "5d8da1223be6182939dd642bcacefc369bd610a2e07df4e9e8b99b6e79ed734b"


def test_how_a_certificate_closes_an_attempt_does_not_depend_on_whose_votes_it_shows() -> None:
    assert CERTIFICATE.past.closing == replace(CERTIFICATE, votes=()).past.closing
    assert CERTIFICATE.past.closing != VOID.past.closing


OTHERS = tuple(SurvivorSet((replace(SURVIVOR, member=name),)) for name in ("ann", "bob", "cat"))


def frozen(past: Past) -> Freeze:
    """A freeze with that history, through its bytes."""
    return Freeze.from_bytes(replace(FREEZE, history=(past,)).to_bytes())


@pytest.mark.parametrize(
    ("reason", "sets"),
    [("none", OTHERS[:1]), ("cancelled", ()), ("erased", ()), ("lost", ())],
)
def test_sets_that_a_reason_leaves_are_taken(reason: str, sets: tuple[SurvivorSet, ...]) -> None:
    past = Past(CONTEXT, reason, sets)
    assert frozen(past).history == (past,)


@pytest.mark.parametrize(
    ("reason", "sets"),
    [
        ("none", ()),
        ("cancelled", OTHERS[:1]),
        ("lost", OTHERS[:1]),
        ("erased", OTHERS[:1]),
    ],
    ids=["none-without", "void-with", "lost-with", "erased-with"],
)
def test_other_sets_are_refused(reason: str, sets: tuple[SurvivorSet, ...]) -> None:
    with pytest.raises(PeerFault, match=rf"^malformed: {len(sets)} sets do not go with the reason {reason}"):
        frozen(Past(CONTEXT, reason, sets))


def test_a_set_of_nobody_is_refused() -> None:
    with pytest.raises(PeerFault, match=r"^malformed: a set of survivors has none"):
        frozen(Past(CONTEXT, "none", (SurvivorSet(()),)))


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


@pytest.mark.parametrize("reason", ["none", "erased", "lost"])
def test_a_request_to_void_without_a_reason_is_refused(reason: str) -> None:
    with pytest.raises(PeerFault, match=r"^malformed: a request to void"):
        VoidRequest.from_bytes(replace(VOID_REQUEST, reason=reason).to_bytes())


@pytest.mark.parametrize("reason", ["erased", "lost"])
@pytest.mark.parametrize("certificate", [CERTIFICATE, VOID], ids=["survivors", "void"])
def test_no_certificate_says_erased_or_lost(certificate: Certificate, reason: str) -> None:
    with pytest.raises(PeerFault, match=r"^malformed: a certificate has survivors, or a reason"):
        Certificate.from_bytes(replace(certificate, reason=reason).to_bytes())


def test_a_decryptor_that_votes_twice_in_a_certificate_is_refused() -> None:
    twice = CERTIFICATE_WIRE.replace(
        b"\x01\0\0\0" + VOTE_WIRE[2:], b"\x02\0\0\0" + VOTE_WIRE[2:] + VOTE_WIRE[2:]
    )
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Certificate.from_bytes(twice)


def test_a_survivor_that_stands_twice_in_a_certificate_is_refused() -> None:
    named = bytes.fromhex(SURVIVOR_HEX)
    twice = CERTIFICATE_WIRE.replace(b"\x01\0\0\0" + named, b"\x02\0\0\0" + named + named)
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Certificate.from_bytes(twice)


def test_survivors_of_the_past_stand_in_order() -> None:
    twice = SurvivorSet((SURVIVOR, replace(SURVIVOR, member="bob")))
    wire = replace(FREEZE, history=(replace(PAST, sets=(twice,)),)).to_bytes()
    assert Freeze.from_bytes(wire).history[0].sets == (twice,)
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Freeze.from_bytes(wire.replace(b"\x03bob", b"\x03ann"))


def test_the_order_of_headers_is_for_the_decryptor_to_judge() -> None:
    headers = (replace(HEADER, member="bob"), HEADER, HEADER)
    assert Freeze.from_bytes(replace(FREEZE, headers=headers).to_bytes()).headers == headers


def test_a_reveal_is_signed_by_the_roots_of_what_it_reveals() -> None:
    names = Tree.of([b"cat", b"dan"]).root
    assert REVEAL.runs_root == RUNS_ROOT
    assert REVEAL.digest == h(b"reveal", CONTEXT, b"bob", b"\x0c" * 32, names, RUNS_ROOT)
    assert REVEAL.digest.hex() == "a0067c6768ec99310f3f1e69d426d81c7d396e8e9525bf0dac184ee75299d8bc"
    bare = replace(REVEAL, evicted=(), runs=())
    nothing = Tree.of([b""]).root
    assert bare.digest == h(b"reveal", CONTEXT, b"bob", b"\x0c" * 32, nothing, nothing)


@pytest.mark.parametrize(
    "change",
    [
        {"context": bytes(32)},
        {"member": "ann"},
        {"outcome": bytes(32)},
        {"evicted": ("cat",)},
        {"runs": REVEAL.runs[::-1]},
        {"runs": (REVEAL.runs[0] + REVEAL.runs[1],)},
        {"runs": (*REVEAL.runs, b"")},
    ],
    ids=["context", "member", "outcome", "evicted", "order", "joined", "one-more"],
)
def test_every_field_of_a_reveal_is_signed(change: dict[str, Any]) -> None:
    values = {name: getattr(REVEAL, name) for name, _ in Reveal.codecs() if name != "signature"}
    made = Reveal.make(KEY, **values)
    made.verify(KEY.public, "bob")
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[bob\]$"):
        replace(made, **change).verify(KEY.public, "bob")


def test_a_reveal_s_summary_stands_under_the_same_signature_and_holds_no_share() -> None:
    values = {name: getattr(REVEAL, name) for name, _ in Reveal.codecs() if name != "signature"}
    summary = Reveal.make(KEY, **values).summary
    assert (summary.evicted, summary.runs_root) == (("cat", "dan"), RUNS_ROOT)
    assert summary.digest == REVEAL.digest
    summary.verify(KEY.public, "bob")
    wire = summary.to_bytes()
    assert len(wire) == len(SUMMARY_WIRE)
    assert not any(run[:8] in wire for run in REVEAL.runs)
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[bob\]$"):
        replace(summary, runs_root=bytes(32)).verify(KEY.public, "bob")


def test_revealed_shares_are_not_shown() -> None:
    assert "5f5f" not in repr(REVEAL)
    assert "runs=(<SecretBytes 36 B>, <SecretBytes 72 B>)" in repr(Reveal.from_bytes(REVEAL_WIRE))
