from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import NOTHING_REVEALED, Erased, Erasure, ErasureRequest, Lost, Message, Past
from tests.protocol.messages.wire import CONTEXT, h

KEY = SigningKey(b"\xad" * 32)

REQUEST = ErasureRequest(context=CONTEXT)
REQUEST_WIRE = bytes.fromhex("03" + "10" + "c7" * 32)  # version, kind: erasure request, context

SILENT = Erased(context=CONTEXT, member="bob", revealed=NOTHING_REVEALED, signature=b"\x5e" * 64)
SILENT_HEX = "".join(
    (
        "c7" * 32,  # context
        "03626f62",  # member: "bob"
        "00" * 32,  # revealed: nothing
        "5e" * 64,  # signature
    )
)
SILENT_WIRE = bytes.fromhex("03" + "11" + SILENT_HEX)  # version, kind: erased, fields

REVEALED = Erased(context=CONTEXT, member="cat", revealed=b"\x0c" * 32, signature=b"\x5f" * 64)
REVEALED_HEX = "".join(
    (
        "c7" * 32,  # context
        "03636174",  # member: "cat"
        "0c" * 32,  # revealed: for this outcome
        "5f" * 64,  # signature
    )
)
REVEALED_WIRE = bytes.fromhex("03" + "11" + REVEALED_HEX)

ERASURE = Erasure(context=CONTEXT, reports=(SILENT, REVEALED))
ERASURE_WIRE = bytes.fromhex("03" + "12" + "c7" * 32 + "02000000" + SILENT_HEX + REVEALED_HEX)

LOST = Lost(context=CONTEXT, signature=b"\x60" * 64)
LOST_WIRE = bytes.fromhex("03" + "1a" + "c7" * 32 + "60" * 64)  # version, kind: lost, context, signature


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (REQUEST, REQUEST_WIRE),
        (SILENT, SILENT_WIRE),
        (REVEALED, REVEALED_WIRE),
        (ERASURE, ERASURE_WIRE),
        (LOST, LOST_WIRE),
    ],
    ids=["erasure-request", "erased", "erased-after-a-reveal", "erasure", "lost"],
)
def test_on_the_wire(message: Message, wire: bytes, strict: Callable[[Message, bytes], None]) -> None:
    strict(message, wire)


def test_a_decryptor_that_stands_twice_in_an_erasure_is_refused() -> None:
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Erasure.from_bytes(ERASURE_WIRE.replace(b"\x03cat", b"\x03bob"))


def test_report_and_loss_are_signed_in_every_field() -> None:
    assert SILENT.digest == h(b"erased", SILENT_WIRE[:-64])
    assert LOST.digest == h(b"lost", LOST_WIRE[:-64])
    made = Erased.make(KEY, context=CONTEXT, member="bob", revealed=NOTHING_REVEALED)
    made.verify(KEY.public, "bob")
    changes: list[dict[str, Any]] = [{"context": bytes(32)}, {"member": "cat"}, {"revealed": b"\x0c" * 32}]
    for change in changes:
        with pytest.raises(PeerFault, match=r"^bad-signature: .*\[bob\]$"):
            replace(made, **change).verify(KEY.public, "bob")


def test_the_chain_names_both_ends_by_their_reason_alone() -> None:
    assert ERASURE.past == Past(CONTEXT, "erased", ())
    assert ERASURE.past.closing == h(b"closing", CONTEXT, b"erased")
    assert LOST.past == Past(CONTEXT, "lost", ())
    assert LOST.past.closing == h(b"closing", CONTEXT, b"lost")
