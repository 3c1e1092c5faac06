from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.errors import Misuse, PeerFault
from protocol.identity import SigningKey
from protocol.merkle import Tree
from protocol.messages import Cards, KeyCard, Manifest, Message, Shown, cards_beacon, cards_tree
from tests.protocol.messages.wire import h

KEY = SigningKey(b"\x0a" * 32)
MISMATCH = r"^manifest-mismatch: .*\[coordinator\]$"


def card(member: str, fill: int) -> KeyCard:
    return KeyCard(
        cohort=b"\xcc" * 32,
        member=member,
        mask_key=bytes([fill]) * 32,
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
CARD_WIRE = bytes.fromhex("03" + "02" + card_hex("ann", "a1"))  # version, kind: card, fields

MANIFEST = Manifest(
    cohort=b"\xcc" * 32,
    roster_hash=b"\x0f" * 32,
    counter=5,
    members=("ann", "bob"),
    cards_root=b"\xca" * 32,
    colluders=1,
    decryptor_colluders=2,
    honest_min=3,
    survivors_min=4,
    threshold=5,
    degree=6,
    window_dropped_max=7,
    loss=100,
    decryptors=("bob",),
    caps=(8, 9),
)
MANIFEST_HEX = "".join(
    (
        "cc" * 32,  # cohort
        "0f" * 32,  # roster_hash
        "0500000000000000",  # counter
        "02000000" + "03616e6e" + "03626f62",  # members: "ann", "bob"
        "ca" * 32,  # cards_root
        "01000000",  # colluders
        "02000000",  # decryptor_colluders
        "03000000",  # honest_min
        "04000000",  # survivors_min
        "05000000",  # threshold
        "06000000",  # degree
        "07000000",  # window_dropped_max
        "64000000",  # loss: 100 in a thousand
        "01000000" + "03626f62",  # decryptors: "bob"
        "02000000" + "0800000000000000" + "0900000000000000",  # caps
    )
)
MANIFEST_WIRE = bytes.fromhex("03" + "03" + MANIFEST_HEX)  # version, kind: manifest, fields

CARDS = Cards(manifest=MANIFEST, shown=(Shown(CARD, ()), Shown(card("bob", 0xB2), (b"\x70" * 32,))))
CARDS_WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "0e",  # kind: cards
            MANIFEST_HEX,  # manifest
            "02000000",  # shown: two
            card_hex("ann", "a1") + "00000000",  # hers, no path
            card_hex("bob", "b2") + "01000000" + "70" * 32,  # his, a path of one
        )
    )
)


@pytest.mark.parametrize(
    ("message", "wire"),
    [(CARD, CARD_WIRE), (MANIFEST, MANIFEST_WIRE), (CARDS, CARDS_WIRE)],
    ids=["card", "manifest", "cards"],
)
def test_on_the_wire(message: Message, wire: bytes, strict: Callable[[Message, bytes], None]) -> None:
    strict(message, wire)


def test_known_hash_beacon_and_signature() -> None:
    assert MANIFEST.hash == h(b"manifest", MANIFEST_WIRE)
    assert MANIFEST.hash.hex() == "297681f8e747acfb91f6dfe3fd9bb1560bbe9f4bd402a84f53f7122a0763b3f1"
    assert (
        MANIFEST.beacon == cards_beacon(b"\xcc" * 32, b"\xca" * 32) == h(b"cards", b"\xcc" * 32, b"\xca" * 32)
    )
    assert MANIFEST.beacon.hex() == "9e0ad875fd655111ffc064eb0fc5c51786264f950a30abe0f87d43ce870a64f3"
    assert CARD.digest == h(b"card", CARD_WIRE[:-64])
    values = {name: getattr(CARD, name) for name in vars(CARD) if name != "signature"}
    assert KeyCard.make(KEY, **values).signature.hex() == (
        "fd6d0a09f48d2ab5f83237537e8ec1961c0de35cdcfa1194d6a27e1b30b152dd"
        "f7febb0e55d6a44939a2a4325ac6edfcffb4f91bd1453b1041719deed99a5108"
    )


def test_a_member_s_place_is_its_index_in_cohort_order() -> None:
    assert MANIFEST.place == {"ann": 0, "bob": 1}


def test_members_out_of_order_or_twice_are_refused() -> None:
    for first in (b"\x03cat", b"\x03bob"):
        with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
            Manifest.from_bytes(MANIFEST_WIRE.replace(b"\x03ann", first))
    with pytest.raises(Misuse, match="ascending"):
        replace(MANIFEST, members=("bob", "ann")).to_bytes()


def test_a_card_that_is_shown_twice_is_refused() -> None:
    wire = CARDS_WIRE.replace(b"\x03bob" + b"\xb2" * 32, b"\x03ann" + b"\xb2" * 32)
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Cards.from_bytes(wire)


@pytest.mark.parametrize("caps", [(), (8,), (8, 9, 10)])
def test_caps_are_as_many_as_members(caps: tuple[int, ...]) -> None:
    with pytest.raises(PeerFault, match=rf"^malformed: {len(caps)} caps for 2 members"):
        Manifest.from_bytes(replace(MANIFEST, caps=caps).to_bytes())


def test_a_decryptor_who_is_no_member_is_refused() -> None:
    with pytest.raises(PeerFault, match=r"^malformed: a decryptor is no member"):
        Manifest.from_bytes(replace(MANIFEST, decryptors=("eve",)).to_bytes())


def test_the_manifest_inside_cards_is_held_to_its_rules() -> None:
    with pytest.raises(PeerFault, match=r"^malformed: 0 caps for 2 members"):
        Cards.from_bytes(replace(CARDS, manifest=replace(MANIFEST, caps=())).to_bytes())


MEMBERS = ("ann", "bob", "cat", "dan", "eve")
ALL = {member: card(member, 0xA0 + place) for place, member in enumerate(MEMBERS)}
TREE = cards_tree(ALL.values())
BOUND = replace(MANIFEST, members=MEMBERS, cards_root=TREE.root, caps=(9,) * 5)


def show(*members: str, paths: bool = True, **changes: Any) -> Cards:
    """Those members' cards with their paths, or all cards without."""
    at = BOUND.place
    return Cards(
        replace(BOUND, **changes),
        tuple(Shown(ALL[member], tuple(TREE.path(at[member])) if paths else ()) for member in members),
    )


def test_the_root_is_over_the_cards_bytes_in_order() -> None:
    assert TREE.root == Tree.of(ALL[member].to_bytes() for member in MEMBERS).root


@pytest.mark.parametrize("cards", [show(*MEMBERS, paths=False), show("bob", "eve"), show("cat"), show()])
def test_cards_shown_all_without_paths_or_some_with_theirs_are_bound(cards: Cards) -> None:
    cards.check_bound()
    assert cards.by_member == {shown.member: ALL[shown.member] for shown in cards.shown}


@pytest.mark.parametrize(
    "cards",
    [
        show(*MEMBERS, paths=False, cards_root=bytes(32)),
        show(*MEMBERS),
        show("bob", "eve", paths=False),
        show("bob", cards_root=bytes(32)),
        show("bob", members=("ann", "bob", "cat", "dan")),
        show("eve", members=("ann", "bob", "cat", "dan")),
        show("bob", members=("bob", "cat", "dan", "eve")),
    ],
    ids=["other-root", "paths-beside-all", "no-paths", "path-to-another-root", "count", "stranger", "place"],
)
def test_cards_that_the_root_does_not_bind_are_the_coordinator_s_fault(cards: Cards) -> None:
    with pytest.raises(PeerFault, match=MISMATCH):
        cards.check_bound()


@pytest.mark.parametrize("field", ["mask_key", "box_key", "nonce", "signature"])
def test_one_changed_card_is_seen_however_it_is_shown(field: str) -> None:
    for cards in (show(*MEMBERS, paths=False), show("ann", "cat")):
        first = cards.shown[0]
        changed: dict[str, Any] = {field: bytes(len(getattr(first.card, field)))}
        shown = (replace(first, card=replace(first.card, **changed)), *cards.shown[1:])
        with pytest.raises(PeerFault, match=MISMATCH):
            replace(cards, shown=shown).check_bound()


def test_a_cohort_of_nobody_raises_nothing_but_the_fault() -> None:
    empty: dict[str, Any] = {"members": (), "decryptors": (), "caps": ()}
    show(paths=False, **empty, cards_root=Tree.of([b""]).root).check_bound()
    with pytest.raises(PeerFault, match=MISMATCH):
        show(paths=False, **empty).check_bound()
