import pytest

from veilsum.protocol.errors import PeerFault
from veilsum.protocol.sealing import seal, unseal

KEY, CONTEXT = b"\x0b" * 32, b"\xc7" * 32


def test_known_answer() -> None:
    # AES-256-GCM, nonce of twelve zero bytes, the context as associated data
    assert seal(KEY, b"shares", CONTEXT).hex() == "5bb22081e4e8e4756577054553c83d02f02b38c2b6c7"


def test_a_box_opens_for_its_key_and_context() -> None:
    assert unseal(KEY, seal(KEY, b"shares", CONTEXT), CONTEXT, "ann") == b"shares"
    assert len(seal(KEY, bytes(72), CONTEXT)) == 72 + 16


BOX = seal(KEY, b"shares", CONTEXT)


@pytest.mark.parametrize(
    ("key", "box", "context"),
    [
        (b"\x0c" * 32, BOX, CONTEXT),
        (KEY, BOX, bytes(32)),
        (KEY, BOX[:-1], CONTEXT),
        (KEY, BOX + b"\0", CONTEXT),
        (KEY, bytes([BOX[0] ^ 1]) + BOX[1:], CONTEXT),
        (KEY, BOX[:-1] + bytes([BOX[-1] ^ 1]), CONTEXT),
        (KEY, b"", CONTEXT),
    ],
    ids=["other key", "other context", "short", "long", "changed", "tag changed", "empty"],
)
def test_any_other_is_refused_and_its_dealer_named(key: bytes, box: bytes, context: bytes) -> None:
    with pytest.raises(PeerFault, match=r"^box-refused: the box from ann does not open \[ann\]$"):
        unseal(key, box, context, "ann")
