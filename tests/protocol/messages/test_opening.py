import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.errors import Misuse, PeerFault
from protocol.identity import SigningKey
from protocol.messages import (
    EMPTY_CHAIN,
    NO_INDICATOR,
    Family,
    Ledger,
    LedgerException,
    Link,
    Message,
    Opening,
    Terms,
    extend_chain,
)
from protocol.messages.upload import MAX_CHUNKS
from tests.protocol.messages.wire import h

ADMIN = SigningKey(b"\xad" * 32)

LINK = Link(
    cohort=b"\xcc" * 32,
    sequence=1,
    attempt=2,
    family="exact",
    floor=7,
    context=b"\xc7" * 32,
    closing=b"\x0c" * 32,
)
LINK_HEX = "".join(
    (
        "cc" * 32,  # cohort
        "0100000000000000",  # sequence
        "02",  # attempt
        "05" + "6578616374",  # family: "exact"
        "07000000",  # floor
        "c7" * 32,  # context
        "0c" * 32,  # closing
    )
)

TERMS = Terms(
    statistic="ffc",
    layout=b"{}",
    elements=100,
    ring_bits=48,
    lattice="sums",
    lattice_bits=31,
    chunk_elements=64,
    records_max=65_535,
    extractor=b"\xe1" * 32,
    ridges=(0.5,),
    noise=b"",
    indicator=b"\x1d" * 32,
    margin=2,
    withheld=(3, 258),
    evicted=("ann",),
    latest_end_s=2_000_000,
)
TERMS_HEX = "".join(
    (
        "03666663",  # statistic: "ffc"
        "02000000" + "7b7d",  # layout
        "6400000000000000",  # elements
        "30",  # ring_bits
        "0473756d73",  # lattice: "sums"
        "1f",  # lattice_bits
        "40000000",  # chunk_elements
        "ffff000000000000",  # records_max
        "e1" * 32,  # extractor
        "01000000" + "000000000000e03f",  # ridges: 0.5
        "00000000",  # noise: none
        "1d" * 32,  # indicator
        "02000000",  # margin
        "02000000" + "03000000" + "02010000",  # withheld: 3, 258
        "01000000" + "03616e6e",  # evicted: "ann"
        "80841e0000000000",  # latest_end_s
    )
)

EXCEPTION = LedgerException(
    federation=b"\xf0" * 32,
    cohort=b"\xcc" * 32,
    sequence=2,
    members=("ann", "bob"),
    reason="bob leßt los",
    signature=b"\x5e" * 64,
)
EXCEPTION_HEX = "".join(
    (
        "f0" * 32,  # federation
        "cc" * 32,  # cohort
        "0200000000000000",  # sequence
        "02000000" + "03616e6e" + "03626f62",  # members: "ann", "bob"
        "0d000000" + "626f62206c65c39f74206c6f73",  # reason: 12 letters in 13 bytes of UTF-8
        "5e" * 64,  # signature
    )
)
EXCEPTION_WIRE = bytes.fromhex("03" + "13" + EXCEPTION_HEX)  # version, kind: exception, fields

OPENING = Opening(
    cohort=b"\xcc" * 32,
    sequence=2,
    attempt=3,
    links=(LINK,),
    terms=TERMS,
    exceptions=(EXCEPTION,),
    signature=b"\x5e" * 64,
)
WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "04",  # kind: opening
            "cc" * 32,  # cohort
            "0200000000000000",  # sequence
            "03",  # attempt
            "01000000" + LINK_HEX,  # links: one
            TERMS_HEX,  # terms
            "01000000" + EXCEPTION_HEX,  # exceptions: one
            "5e" * 64,  # signature
        )
    )
)


def reopened(**changes: Any) -> Opening:
    """The opening with other terms, through its bytes."""
    return Opening.from_bytes(replace(OPENING, terms=replace(TERMS, **changes)).to_bytes())


@pytest.mark.parametrize(
    ("message", "wire"), [(OPENING, WIRE), (EXCEPTION, EXCEPTION_WIRE)], ids=["opening", "exception"]
)
def test_on_the_wire(message: Message, wire: bytes, strict: Callable[[Message, bytes], None]) -> None:
    strict(message, wire)


def test_known_hashes() -> None:
    assert TERMS.hash == h(b"terms", bytes.fromhex(TERMS_HEX))
    assert TERMS.hash.hex() == "48fd9ece9bc2ba0edf05e8664242a7c5ed74a352ae7e4dbf160292c5ae913f0d"
    assert TERMS.layout_hash == h(b"layout", b"{}")
    assert TERMS.layout_hash.hex() == "b4eb28625d5899e340ecf63637d70521013a51d62fa8a8afe1f30df0871d5962"
    assert OPENING.digest == h(b"opening", WIRE[:-64])
    assert OPENING.digest.hex() == "359c49b5e86ced0d2b85ae68bf6f70711d56875a2017d754db6a3af2a32128ae"


def test_exceptions_are_named_by_all_their_bytes_in_order() -> None:
    other = replace(EXCEPTION, reason="")
    assert OPENING.exceptions_hash == h(b"exception", EXCEPTION_WIRE)
    assert OPENING.exceptions_hash.hex() == "d02d443e878a1a3c2bf2042563cc703f10449be880de1ac50e17aa4caf8faa32"
    assert replace(OPENING, exceptions=()).exceptions_hash == h(b"exception")
    both = replace(OPENING, exceptions=(EXCEPTION, other)).exceptions_hash
    assert both == h(b"exception", EXCEPTION_WIRE, other.to_bytes())
    assert both != replace(OPENING, exceptions=(other, EXCEPTION)).exceptions_hash


@pytest.mark.parametrize(
    "change",
    [
        {"federation": bytes(32)},
        {"cohort": bytes(32)},
        {"sequence": 3},
        {"members": ("ann",)},
        {"members": ("ann", "bob", "eve")},
        {"reason": "bob"},
    ],
)
def test_an_exception_is_the_admin_s_in_every_field(change: dict[str, Any]) -> None:
    values = {name: getattr(EXCEPTION, name) for name in vars(EXCEPTION) if name != "signature"}
    made = LedgerException.make(ADMIN, **values)
    made.verify(ADMIN.public, "admin")
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[admin\]$"):
        replace(made, **change).verify(ADMIN.public, "admin")


def test_the_chain_folds_links_in_order() -> None:
    other = replace(LINK, attempt=3)
    once = h(b"link", bytes(32), bytes.fromhex(LINK_HEX))
    assert extend_chain(EMPTY_CHAIN, ()) == bytes(32)
    assert extend_chain(EMPTY_CHAIN, (LINK,)) == once
    assert extend_chain(EMPTY_CHAIN, (LINK, other)) == h(b"link", once, other.encode_fields())
    assert extend_chain(EMPTY_CHAIN, (other, LINK)) != extend_chain(EMPTY_CHAIN, (LINK, other))


@pytest.mark.parametrize(
    "change",
    [
        {"cohort": bytes(32)},
        {"sequence": 2},
        {"attempt": 3},
        {"family": "noisy"},
        {"context": bytes(32)},
        {"closing": bytes(32)},
    ],
)
def test_the_chain_holds_every_field_of_a_link(change: dict[str, Any]) -> None:
    assert extend_chain(EMPTY_CHAIN, (replace(LINK, **change),)) != extend_chain(EMPTY_CHAIN, (LINK,))


@pytest.mark.parametrize("family", ["indicator", "noisy", "exact"])
def test_a_link_is_of_one_of_three_families(family: str) -> None:
    link = replace(LINK, family=family)
    assert Opening.from_bytes(replace(OPENING, links=(link,)).to_bytes()).links == (link,)


def test_a_link_of_another_family_would_be_counted_nowhere_and_is_refused() -> None:
    links = (replace(LINK, family="exakt"),)
    for message in (replace(OPENING, links=links), Ledger(b"\xf0" * 32, links, ())):
        with pytest.raises(PeerFault, match=r"^malformed: exakt is no family of rounds \[coordinator\]$"):
            type(message).from_bytes(message.to_bytes())


@pytest.mark.parametrize(
    ("changes", "family"),
    [
        ({}, Family.EXACT),
        ({"noise": b"\0"}, Family.NOISY),
        ({"statistic": "indicator"}, Family.INDICATOR),
        ({"statistic": "indicator", "noise": b"\0"}, Family.INDICATOR),
        ({"statistic": "noisy"}, Family.EXACT),
    ],
)
def test_the_family_follows_from_statistic_and_noise(changes: dict[str, Any], family: Family) -> None:
    assert replace(TERMS, **changes).family is family


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ring_bits": 7}, "a ring of 7 bits"),
        ({"ring_bits": 65}, "a ring of 65 bits"),
        ({"elements": 0}, "0 elements"),
        ({"elements": (1 << 32) + 1}, "4294967297 elements: 1 to"),
        ({"chunk_elements": 0}, "chunks of 0 elements"),
        ({"chunk_elements": 12}, "chunks of 12 elements"),
        ({"chunk_elements": (1 << 22) + 8}, "chunks of 4194312 elements"),
        (
            {"chunk_elements": 8, "elements": 8 * MAX_CHUNKS + 1},
            "8388609 elements in chunks of 8: at most 1048576 chunks",
        ),
        ({"ridges": (0.0,)}, "a ridge parameter"),
        ({"ridges": (1.0, -1.0)}, "a ridge parameter"),
        ({"ridges": (-0.0,)}, "a ridge parameter"),
        ({"indicator": NO_INDICATOR}, "classes withheld without an indicator"),
        ({"indicator": NO_INDICATOR, "withheld": ()}, "members evicted without an indicator"),
    ],
)
def test_terms_outside_their_domain_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PeerFault, match=rf"^terms-refused: {words}"):
        reopened(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"ring_bits": 8},
        {"ring_bits": 64},
        {"elements": 1},
        {"elements": 1 << 32, "chunk_elements": 1 << 22},
        {"chunk_elements": 8, "elements": 8 * MAX_CHUNKS},
        {"ridges": ()},
        {"withheld": ()},
        {"evicted": ()},
        {"withheld": (), "evicted": (), "indicator": NO_INDICATOR},
        {"withheld": (0, (1 << 32) - 1)},
    ],
)
def test_terms_at_the_edge_of_their_domain_are_taken(changes: dict[str, Any]) -> None:
    assert reopened(**changes).terms == replace(TERMS, **changes)


@pytest.mark.parametrize("ridge", [float("nan"), float("inf"), -float("inf")])
def test_a_ridge_that_is_not_finite_is_refused(ridge: float) -> None:
    wire = WIRE.replace(bytes.fromhex("000000000000e03f"), struct.pack("<d", ridge))
    with pytest.raises(PeerFault, match=r"^malformed: a number is not finite"):
        Opening.from_bytes(wire)
    with pytest.raises(Misuse, match="not a finite number"):
        replace(TERMS, ridges=(ridge,)).encode_fields()


def test_a_round_has_eight_attempts() -> None:
    assert Opening.from_bytes(replace(OPENING, attempt=7).to_bytes()).place == (2, 7)
    with pytest.raises(PeerFault, match=r"^wrong-sequence: attempt 8"):
        Opening.from_bytes(replace(OPENING, attempt=8).to_bytes())


def test_a_history_with_a_ninth_attempt_is_refused() -> None:
    links = (LINK, replace(LINK, attempt=8))
    for message in (replace(OPENING, links=links), Ledger(b"\xf0" * 32, links, ())):
        with pytest.raises(PeerFault, match=r"^wrong-sequence: attempt 8"):
            type(message).from_bytes(message.to_bytes())


@pytest.mark.parametrize("classes", [(2, 1), (3, 3)])
def test_withheld_classes_ascend(classes: tuple[int, int]) -> None:
    low, high = (number.to_bytes(4, "little") for number in classes)
    wire = WIRE.replace(bytes.fromhex("02000000" + "03000000" + "02010000"), b"\x02\0\0\0" + low + high)
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Opening.from_bytes(wire)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"bob le\xdft los!", "a text is not UTF-8"),
        (b"bob le\xc1\x9ft los", "a text is not UTF-8"),
        (b"bob le\x1bst los!", "a text has control characters"),
        (b"bob le\xc2\x9bt los", "a text has control characters"),
    ],
    ids=["latin-1", "overlong", "escape", "c1"],
)
def test_an_admin_s_words_are_plain_text(raw: bytes, words: str) -> None:
    wire = EXCEPTION_WIRE.replace("bob leßt los".encode(), raw)
    with pytest.raises(PeerFault, match=rf"^malformed: {words}"):
        LedgerException.from_bytes(wire)


def test_a_history_longer_than_its_limit_is_refused_before_it_is_read() -> None:
    at = 2 + 32 + 8 + 1
    with pytest.raises(PeerFault, match=r"^oversized: a list of 65537 items"):
        Opening.from_bytes(WIRE[:at] + (65_537).to_bytes(4, "little") + WIRE[at + 4 :])
