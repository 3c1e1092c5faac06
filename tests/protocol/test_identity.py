import pytest

from tests.support.refusals import refused
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey, fingerprint, verify_signature

# RFC 8032 §7.1, test 3
SEED = bytes.fromhex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")
PUBLIC = "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"
SIGNATURE = (
    "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
    "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
)


def test_rfc_8032() -> None:
    key = SigningKey(SEED)
    assert key.public.hex() == PUBLIC
    assert key.seed == SEED
    assert key.sign(b"\xaf\x82").hex() == SIGNATURE
    verify_signature(key.public, bytes.fromhex(SIGNATURE), b"\xaf\x82", "ann")


P = 2**255 - 19
ORDER_8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022


@pytest.mark.parametrize("sign", [0, 1 << 255])
@pytest.mark.parametrize("y", [0, 1, P - 1, ORDER_8, P - ORDER_8, P, P + 1])
def test_a_key_of_small_order_signs_nothing(y: int, sign: int) -> None:
    public = (y + sign).to_bytes(32, "little")
    # Under the neutral element this fits any message: the verifier of RFC 8032 takes it.
    signature = (1).to_bytes(32, "little") + bytes(32)
    with refused("bad-signature", "eve"):
        verify_signature(public, signature, b"anything", "eve")


def test_a_seed_has_32_bytes() -> None:
    with pytest.raises(Misuse, match="32 bytes, not 31"):
        SigningKey(bytes(31))


def test_a_repr_shows_the_public_key_only() -> None:
    assert repr(SigningKey(SEED)) == f"<SigningKey {PUBLIC[:16]}>"


def test_a_fingerprint_is_the_whole_key_in_groups_of_four() -> None:
    groups = fingerprint(bytes.fromhex(PUBLIC)).split(" ")
    assert len(groups) == 16
    assert "".join(groups) == PUBLIC
