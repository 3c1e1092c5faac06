import re
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.keys import AgreementKey, PairKey, canonical_public, check_order
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


def both_ends(tag: Tag = Tag.PAIR_MASK, manifest: bytes = MANIFEST) -> tuple[PairKey, PairKey]:
    ann, bob = AgreementKey(b"\x01" * 32), AgreementKey(b"\x03" * 32)
    return (
        PairKey.from_shared_secret(tag, "ann", "bob", ann.agree_secret(bob.public, "bob"), COHORT, manifest),
        PairKey.from_shared_secret(tag, "bob", "ann", bob.agree_secret(ann.public, "ann"), COHORT, manifest),
    )


@pytest.mark.parametrize("high_bit", [0, 1 << 255])
@pytest.mark.parametrize("u", LOW_ORDER)
def test_low_order_points_are_refused_and_their_owner_named(u: int, high_bit: int) -> None:
    public = (u | high_bit).to_bytes(32, "little")
    for refuse in (check_order, AgreementKey(b"\x01" * 32).agree_secret):
        with pytest.raises(PeerFault, match=r"^low-order-point: a key of eve is of low order \[eve\]$"):
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


def test_every_secret_is_for_one_purpose() -> None:
    ann, _ = both_ends()
    derived = [
        ann.key,
        both_ends(Tag.PAIR_BOX)[0].key,
        ann.mask_seed("ann", CONTEXT),
        ann.mask_seed("ann", bytes(32)),
        ann.box_key("ann", "bob", CONTEXT, SALT),
        ann.box_key("bob", "ann", CONTEXT, SALT),
        ann.box_key("ann", "bob", bytes(32), SALT),
        ann.box_key("ann", "bob", CONTEXT, bytes(32)),
        ann.ratchet_to(COHORT, 1).key,
        both_ends(manifest=bytes(32))[0].key,
    ]
    assert len(set(derived)) == len(derived)


def test_a_keys_canonical_encoding_ignores_the_top_bit_and_reduces() -> None:
    key = AgreementKey(bytes(32)).public
    assert canonical_public(key) == key
    assert canonical_public(key[:31] + bytes([key[31] | 0x80])) == key
    assert canonical_public((P + 9).to_bytes(32, "little")) == (9).to_bytes(32, "little")


def test_keys_hide_what_they_hold() -> None:
    key = AgreementKey(b"\x01" * 32)
    assert repr(key) == f"<AgreementKey {key.public.hex()[:16]}>"
    ann, _ = both_ends()
    assert repr(ann) == "PairKey(peer='bob', key=<SecretBytes 32 B>)"


def test_tags_are_unique() -> None:
    assert len({tag.value for tag in Tag}) == len(Tag.__members__)


def test_no_tag_begins_another() -> None:
    assert not any(other.value.startswith(tag.value) for tag, other in permutations(Tag, 2))


def test_every_tag_names_the_protocols_version() -> None:
    assert all(tag.value.startswith(f"veilsum/{PROTOCOL_VERSION}/".encode()) for tag in Tag)


def test_the_page_s_tags_are_in_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
    said = set(re.findall(r'(?:(?<=H\()|(?<=info\()|(?<=tag )|(?<=" or ))"([a-z-]+)"', page))
    assert {"ctx", "roster", "pair-mask", "pair-box", "merkle-root", "transcript"} <= said
    assert {f"veilsum/4/{name}\0".encode() for name in said} <= {tag.value for tag in Tag}
