import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.errors import Misuse, PeerFault
from protocol.messages import EMPTY_CHAIN, Link, Message, Opening, Terms, extend_chain
from protocol.messages.upload import MAX_CHUNKS

LINK = Link(cohort=b"\xcc" * 32, sequence=1, attempt=2, context=b"\xc7" * 32, outcome=b"\x0c" * 32)
LINK_HEX = "".join(
    (
        "cc" * 32,  # cohort
        "0100000000000000",  # sequence
        "02",  # attempt
        "c7" * 32,  # context
        "0c" * 32,  # outcome
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
        "80841e0000000000",  # latest_end_s
    )
)

OPENING = Opening(
    cohort=b"\xcc" * 32, sequence=2, attempt=3, links=(LINK,), terms=TERMS, signature=b"\x5e" * 64
)
WIRE = bytes.fromhex(
    "".join(
        (
            "01",  # version
            "04",  # kind: opening
            "cc" * 32,  # cohort
            "0200000000000000",  # sequence
            "03",  # attempt
            "01000000" + LINK_HEX,  # links: one
            TERMS_HEX,  # terms
            "5e" * 64,  # signature
        )
    )
)


def reopened(**changes: Any) -> Opening:
    """The opening with other terms, through its bytes."""
    return Opening.from_bytes(replace(OPENING, terms=replace(TERMS, **changes)).to_bytes())


def test_on_the_wire(strict: Callable[[Message, bytes], None]) -> None:
    strict(OPENING, WIRE)


def test_known_hashes() -> None:
    assert TERMS.hash.hex() == "b90c6c08be9d49a2bbfc5ad6e499a30f6c4d3bb5479c8476536013813588f5dc"
    assert TERMS.layout_hash.hex() == "8a95025231d49597c8f9af72d17467cf7c3033188982d5b63606c891f81ffd68"
    assert OPENING.digest.hex() == "a1c23ddca6f606bba769567893e6df94219e9a59745e800363e0272e002b3757"


def test_the_chain_folds_links_in_order() -> None:
    def fold(head: bytes, link: bytes) -> bytes:
        lengths = [len(field).to_bytes(8, "little") + field for field in (head, link)]
        return hashlib.sha256(b"veilsum/1/link\0" + b"".join(lengths)).digest()

    other = replace(LINK, attempt=3)
    once = fold(bytes(32), LINK.encode_fields())
    assert extend_chain(EMPTY_CHAIN, ()) == bytes(32)
    assert extend_chain(EMPTY_CHAIN, (LINK,)) == once
    assert extend_chain(EMPTY_CHAIN, (LINK, other)) == fold(once, other.encode_fields())
    assert extend_chain(EMPTY_CHAIN, (other, LINK)) != extend_chain(EMPTY_CHAIN, (LINK, other))


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
    with pytest.raises(PeerFault, match=r"^wrong-sequence: attempt 8"):
        Opening.from_bytes(replace(OPENING, links=(replace(LINK, attempt=8),)).to_bytes())


def test_a_history_longer_than_its_limit_is_refused_before_it_is_read() -> None:
    at = 2 + 32 + 8 + 1
    with pytest.raises(PeerFault, match=r"^oversized: a list of 65537 items"):
        Opening.from_bytes(WIRE[:at] + (65_537).to_bytes(4, "little") + WIRE[at + 4 :])
