from collections.abc import Callable

import pytest

from protocol.codec import SecretBytes
from protocol.errors import PeerFault
from protocol.messages import Disclosed, Disclosure, Message, Seed
from tests.protocol.messages.wire import CONTEXT, HEADER, HEADER_HEX

DISCLOSURE = Disclosure(
    context=CONTEXT,
    entries=(
        Disclosed(
            header=HEADER,
            commitments=b"\x51" * 32,
            path=(b"\x70" * 32,),
            chunk_digests=(b"\xcd" * 32,),
            chunks=(b"\x0c\x0d\x0e",),
            seeds=(Seed(0, SecretBytes(b"\x5d" * 32)), Seed(258, SecretBytes(b"\x5e" * 32))),
        ),
    ),
)
ENTRY_HEX = "".join(
    (
        HEADER_HEX,  # header
        "20000000" + "51" * 32,  # commitments: 32 bytes
        "01000000" + "70" * 32,  # path: one
        "01000000" + "cd" * 32,  # chunk_digests: one
        "01000000" + "03000000" + "0c0d0e",  # chunks: one of 3 bytes
        "02000000",  # seeds: two
        "00000000" + "5d" * 32,  # b_u
        "02010000" + "5e" * 32,  # the 258th
    )
)
WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "14",  # kind: disclosure
            "c7" * 32,  # context
            "01000000" + ENTRY_HEX,  # entries: one
        )
    )
)


def test_on_the_wire(strict: Callable[[Message, bytes], None]) -> None:
    strict(DISCLOSURE, WIRE)


def test_a_survivor_that_is_disclosed_twice_is_refused() -> None:
    entry = bytes.fromhex(ENTRY_HEX)
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Disclosure.from_bytes(WIRE.replace(b"\x01\0\0\0" + entry, b"\x02\0\0\0" + entry + entry))


def test_seeds_are_not_shown() -> None:
    shown = repr(Disclosure.from_bytes(WIRE).entries[0].seeds)
    assert "5d5d" not in shown
    assert "Seed(index=258, seed=<SecretBytes 32 B>)" in shown
