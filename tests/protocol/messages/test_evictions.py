from collections.abc import Callable
from dataclasses import replace

import pytest

from protocol.errors import PeerFault
from protocol.messages import BadRun, Evictions, Holder, Message, Proof, RevealSummary
from tests.protocol.messages.wire import CONTEXT, HEADER, HEADER_HEX

HOLDER = Holder(member="bob", share=b"\x5f" * 36, row=b"\x61" * 16, path=(b"\x70" * 32,))
HOLDER_HEX = "".join(
    (
        "03626f62",  # member: "bob"
        "5f" * 36,  # share
        "10000000" + "61" * 16,  # row: 16 bytes
        "01000000" + "70" * 32,  # path: one
    )
)
PROOF = Proof(header=HEADER, commitments=b"\x51" * 32, path=(b"\x71" * 32,), index=258, holders=(HOLDER,))
PROOF_HEX = "".join(
    (
        HEADER_HEX,  # header
        "20000000" + "51" * 32,  # commitments: 32 bytes
        "01000000" + "71" * 32,  # path: one
        "02010000",  # index: 258
        "01000000" + HOLDER_HEX,  # holders: one
    )
)
EVICTIONS = Evictions(context=CONTEXT, proofs=(PROOF,))
WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "0f",  # kind: evictions
            "c7" * 32,  # context
            "01000000" + PROOF_HEX,  # proofs: one
        )
    )
)


BAD_RUN = BadRun(
    reveal=RevealSummary(
        context=CONTEXT,
        member="bob",
        outcome=b"\x0c" * 32,
        evicted=("cat",),
        runs_root=b"\x40" * 32,
        signature=b"\x5e" * 64,
    ),
    header=HEADER,
    place=1,
    count=258,
    run=b"\x5f" * 36,
    run_path=(b"\x70" * 32,),
    row=b"\x61" * 16,
    row_path=(b"\x71" * 32, b"\x72" * 32),
)
BAD_RUN_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "18",  # kind: bad run
            "c7" * 32,  # reveal: its context
            "03626f62",  # member: "bob"
            "0c" * 32,  # outcome
            "01000000" + "03636174",  # evicted: "cat"
            "40" * 32,  # runs_root
            "5e" * 64,  # signature
            HEADER_HEX,  # header
            "01000000",  # place
            "02010000",  # count: 258
            "24000000" + "5f" * 36,  # run: 36 bytes
            "01000000" + "70" * 32,  # run_path: one
            "10000000" + "61" * 16,  # row: 16 bytes
            "02000000" + "71" * 32 + "72" * 32,  # row_path: two
        )
    )
)


@pytest.mark.parametrize(
    ("message", "wire"), [(EVICTIONS, WIRE), (BAD_RUN, BAD_RUN_WIRE)], ids=["evictions", "bad-run"]
)
def test_on_the_wire(message: Message, wire: bytes, strict: Callable[[Message, bytes], None]) -> None:
    strict(message, wire)


def test_the_evicted_are_the_dealers() -> None:
    second = replace(PROOF, header=replace(HEADER, member="cat"))
    both = Evictions.from_bytes(replace(EVICTIONS, proofs=(PROOF, second)).to_bytes())
    assert both.evicted == ("ann", "cat")


def test_a_holder_that_stands_twice_is_refused() -> None:
    holder = bytes.fromhex(HOLDER_HEX)
    twice = WIRE.replace(b"\x01\0\0\0" + holder, b"\x02\0\0\0" + holder + holder)
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Evictions.from_bytes(twice)


def test_a_dealer_that_is_evicted_twice_is_refused() -> None:
    proof = bytes.fromhex(PROOF_HEX)
    twice = WIRE.replace(b"\x01\0\0\0" + proof, b"\x02\0\0\0" + proof + proof)
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Evictions.from_bytes(twice)
