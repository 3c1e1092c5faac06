import pytest

from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey, fingerprint

# RFC 8032 §7.1, test 3
SEED = bytes.fromhex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")
PUBLIC = "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"


def test_a_seed_has_32_bytes() -> None:
    with pytest.raises(Misuse, match="32 bytes, not 31"):
        SigningKey(bytes(31))


def test_a_repr_shows_the_public_key_only() -> None:
    assert repr(SigningKey(SEED)) == f"<SigningKey {PUBLIC[:16]}>"


def test_a_fingerprint_is_the_whole_key_in_groups_of_four() -> None:
    groups = fingerprint(bytes.fromhex(PUBLIC)).split(" ")
    assert len(groups) == 16
    assert "".join(groups) == PUBLIC
