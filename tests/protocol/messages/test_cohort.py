from collections.abc import Callable
from dataclasses import replace

import pytest

from protocol.errors import Misuse, PeerFault
from protocol.identity import SigningKey
from protocol.messages import KeyCard, Manifest, Message

KEY = SigningKey(b"\x0a" * 32)


def card(member: str, fill: int) -> KeyCard:
    one = bytes([fill])
    return KeyCard(
        cohort=b"\xcc" * 32,
        member=member,
        mask_key=one * 32,
        box_key=b"\xb0" * 32,
        nonce=b"\x17" * 32,
        expires_s=1_000_000,
        signature=b"\x5e" * 64,
    )


def card_hex(member: str, fill: str) -> str:
    return "".join(
        (
            "cc" * 32,  # cohort
            f"{len(member):02x}" + member.encode().hex(),  # member
            fill * 32,  # mask_key
            "b0" * 32,  # box_key
            "17" * 32,  # nonce
            "40420f0000000000",  # expires_s
            "5e" * 64,  # signature
        )
    )


CARD = card("ann", 0xA1)
CARD_WIRE = bytes.fromhex("01" + "02" + card_hex("ann", "a1"))  # version, kind: card, fields

MANIFEST = Manifest(
    cohort=b"\xcc" * 32,
    roster_hash=b"\x0f" * 32,
    counter=5,
    cards=(CARD, card("bob", 0xB2)),
    colluders=1,
    decryptor_colluders=2,
    honest_min=3,
    survivors_min=4,
    threshold=5,
    degree=6,
    window_dropped_max=7,
    decryptors=("bob",),
    caps=(8, 9),
)
MANIFEST_WIRE = bytes.fromhex(
    "".join(
        (
            "01",  # version
            "03",  # kind: manifest
            "cc" * 32,  # cohort
            "0f" * 32,  # roster_hash
            "0500000000000000",  # counter
            "02000000",  # cards: two
            card_hex("ann", "a1"),
            card_hex("bob", "b2"),
            "01000000",  # colluders
            "02000000",  # decryptor_colluders
            "03000000",  # honest_min
            "04000000",  # survivors_min
            "05000000",  # threshold
            "06000000",  # degree
            "07000000",  # window_dropped_max
            "01000000" + "03626f62",  # decryptors: "bob"
            "02000000" + "0800000000000000" + "0900000000000000",  # caps
        )
    )
)


@pytest.mark.parametrize(("message", "wire"), [(CARD, CARD_WIRE), (MANIFEST, MANIFEST_WIRE)])
def test_on_the_wire(message: Message, wire: bytes, strict: Callable[[Message, bytes], None]) -> None:
    strict(message, wire)


def test_known_hash_and_signature() -> None:
    assert MANIFEST.hash.hex() == "f583a0f26a79ca9a0bf37f46a5f5bb80438652af92e613e157cd9236ed535874"
    assert CARD.digest.hex() == "0b97ca60d0efeea96353aca80a8473d8d3fd42fef586f54491fd295402a0334e"
    values = {name: getattr(CARD, name) for name in vars(CARD) if name != "signature"}
    assert KeyCard.make(KEY, **values).signature.hex() == (
        "70a36829369844a432e8e6527d1225d8b13e5c7c8b96c6dabd04d867b6d5a693"
        "418657eb5a9ef4224914528a9c5d3dcfb45321668219ca11cbd939aa6c09080c"
    )


def test_members_are_the_cards_in_order() -> None:
    assert MANIFEST.members == ("ann", "bob")


def test_a_card_that_stands_twice_is_refused() -> None:
    wire = MANIFEST_WIRE.replace(b"\x03bob" + b"\xb2" * 32, b"\x03ann" + b"\xb2" * 32)
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Manifest.from_bytes(wire)
    with pytest.raises(Misuse, match="ascending"):
        replace(MANIFEST, cards=(CARD, CARD)).to_bytes()


@pytest.mark.parametrize("caps", [(), (8,), (8, 9, 10)])
def test_caps_are_as_many_as_cards(caps: tuple[int, ...]) -> None:
    with pytest.raises(PeerFault, match=rf"^malformed: {len(caps)} caps for 2 cards"):
        Manifest.from_bytes(replace(MANIFEST, caps=caps).to_bytes())


def test_a_decryptor_without_a_card_is_refused() -> None:
    with pytest.raises(PeerFault, match=r"^malformed: a decryptor has no card"):
        Manifest.from_bytes(replace(MANIFEST, decryptors=("eve",)).to_bytes())
