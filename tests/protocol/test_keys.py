import re
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.forging import mlkem_key_above_q
from tests.support.refusals import refused
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.keys import (
    AgreementKey,
    DecapsulationKey,
    PairKey,
    PairSecret,
    check_order,
    encapsulate,
    hash_ciphertext,
    hash_mlkem_key,
)
from veilsum.protocol.tags import PROTOCOL_VERSION, Tag

P = 2**255 - 19
# Every u-coordinate of low order on Curve25519 and its twist, with both encodings of those below 19 (cr.yp.to/ecdh.html).
LOW_ORDER = (
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
    P,
    P + 1,
)
COHORT, MANIFEST, CONTEXT, SALT = b"\xcc" * 32, b"\x3a" * 32, b"\xc7" * 32, b"\x5a" * 32


ANN, BOB = AgreementKey(b"\x01" * 32), AgreementKey(b"\x03" * 32)
BOBS = DecapsulationKey(bytes(range(64)))
SECRET, CIPHERTEXT = encapsulate(BOBS.public, "bob")
PAIR = PairSecret(
    "ann",
    "bob",
    ANN.agree_secret(BOB.public, "bob"),
    SECRET,
    hash_mlkem_key(BOBS.public),
    hash_ciphertext(CIPHERTEXT),
)


def root(
    tag: Tag = Tag.PAIR_MASK, cohort: bytes = COHORT, manifest: bytes = MANIFEST, **changes: Any
) -> bytes:
    """Return K_0 of ann and bob, with some of what it is made of changed."""
    return PAIR._replace(**changes).derive_root(tag, cohort, manifest)


@pytest.mark.parametrize("high_bit", [0, 1 << 255])
@pytest.mark.parametrize("u", LOW_ORDER)
def test_low_order_points_are_refused_and_their_owner_named(u: int, high_bit: int) -> None:
    public = (u | high_bit).to_bytes(32, "little")
    for refuse in (check_order, AgreementKey(b"\x01" * 32).agree_secret):
        with refused("low-order-point", "eve"):
            refuse(public, "eve")


@given(st.binary(min_size=32, max_size=32))
def test_the_table_refuses_exactly_what_makes_no_secret(public: bytes) -> None:
    assert refuses(check_order, public) == refuses(AgreementKey(b"\x01" * 32).agree_secret, public)


def refuses(check: Callable[[bytes, str], object], public: bytes) -> bool:
    try:
        check(public, "eve")
    except PeerFault as fault:
        return fault.cause is Cause.LOW_ORDER_POINT
    return False


def test_both_ends_derive_one_key_and_the_sender_s_name_comes_first() -> None:
    decapsulated = BOBS.decapsulate(CIPHERTEXT)
    agreed = BOB.agree_secret(ANN.public, "ann")
    assert root(x25519=agreed, mlkem=decapsulated) == root()
    assert root(sender="bob", recipient="ann") != root()


def test_every_secret_is_for_one_purpose() -> None:
    ann = PairKey("bob", SecretBytes(root()))
    changes: tuple[dict[str, Any], ...] = (
        {"tag": Tag.PAIR_BOX},
        {"cohort": bytes(32)},
        {"manifest": bytes(32)},
        {"sender": "amy"},
        {"recipient": "bab"},
        {"x25519": SecretBytes(bytes(32))},
        {"mlkem": SecretBytes(bytes(32))},
        {"x25519": PAIR.mlkem, "mlkem": PAIR.x25519},
        {"mlkem_key_hash": bytes(32)},
        {"ciphertext_hash": bytes(32)},
    )
    derived = [
        ann.key,
        *(root(**change) for change in changes),
        ann.mask_seed("ann", CONTEXT),
        ann.mask_seed("ann", bytes(32)),
        ann.box_key("ann", "bob", CONTEXT, SALT),
        ann.box_key("bob", "ann", CONTEXT, SALT),
        ann.box_key("ann", "bob", bytes(32), SALT),
        ann.box_key("ann", "bob", CONTEXT, bytes(32)),
        ann.ratchet_to(COHORT, 1).key,
    ]
    assert len(set(derived)) == len(derived)


def test_a_wrong_ciphertext_leads_to_another_secret_and_to_no_error() -> None:
    wrong = CIPHERTEXT[:-1] + bytes([CIPHERTEXT[-1] ^ 1])
    found = BOBS.decapsulate(wrong)
    assert len(found) == 32
    assert found == BOBS.decapsulate(wrong) != SECRET


def test_each_encapsulation_draws_a_secret_of_its_own() -> None:
    made = [encapsulate(BOBS.public, "bob") for _ in range(3)]
    assert len({each.secret for each in made}) == len({each.ciphertext for each in made}) == 3


def test_nothing_is_encapsulated_to_a_key_that_fails_the_check_of_fips_203() -> None:
    for mlkem_key in (mlkem_key_above_q(BOBS.public), BOBS.public[:-1], b""):
        with refused("mlkem-key-invalid", "eve"):
            encapsulate(mlkem_key, "eve")


def test_keys_hide_what_they_hold() -> None:
    assert repr(ANN) == f"<AgreementKey {ANN.public.hex()[:16]}>"
    assert repr(BOBS) == f"<DecapsulationKey {hash_mlkem_key(BOBS.public).hex()[:16]}>"
    assert repr(PairKey("bob", SecretBytes(root()))) == "PairKey(peer='bob', key=<SecretBytes 32 B>)"
    assert "x25519=<SecretBytes 32 B>, mlkem=<SecretBytes 32 B>" in repr(PAIR)
    assert repr(encapsulate(BOBS.public, "bob")).startswith("Encapsulated(secret=<SecretBytes 32 B>, ")


def test_no_tag_begins_another_and_all_name_the_version() -> None:
    assert not any(other.value.startswith(tag.value) for tag, other in permutations(Tag, 2))
    assert all(tag.value.startswith(f"veilsum/{PROTOCOL_VERSION}/".encode()) for tag in Tag)


def test_the_pages_tags_are_in_the_table() -> None:
    folder = Path(__file__).parents[2] / "docs" / "protocol"
    page = "".join(each.read_text("utf-8") for each in folder.glob("*.md"))
    said = set(re.findall(r'(?:(?<=H\()|(?<=info\()|(?<=tag )|(?<=" or ))"([a-z-]+)"', page))
    assert {"ctx", "roster", "pair-mask", "pair-box", "merkle-root", "transcript"} <= said
    assert {f"veilsum/4/{name}\0".encode() for name in said} <= {tag.value for tag in Tag}
