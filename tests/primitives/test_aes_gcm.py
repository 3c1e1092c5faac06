from collections.abc import Callable
from typing import Any

import pytest

from veilsum.protocol import sealing
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault

Load = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def vectors(wycheproof: Load) -> list[dict[str, Any]]:
    """Those of a 256-bit key, a 96-bit nonce and a 128-bit tag: the only ones that a box has."""
    return [
        vector
        for vector in wycheproof("Cipher/wycheproof/aes_gcm_test.json")
        if (vector["keySize"], vector["ivSize"], vector["tagSize"]) == (256, 96, 128)
    ]


def test_every_vector(vectors: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(vectors) >= 66
    assert {vector["result"] for vector in vectors} == {"valid", "invalid"}  # nothing is left to us
    wrong = []
    for vector in vectors:
        key, nonce, context, shares, ciphertext, tag = (
            bytes.fromhex(vector[name]) for name in ("key", "iv", "aad", "msg", "ct", "tag")
        )
        monkeypatch.setattr(sealing, "_NONCE", nonce)
        sealed = sealing.seal(key, shares, context)
        opened: object
        try:
            opened = sealing.unseal(key, ciphertext + tag, context, "eve")
        except PeerFault as fault:
            opened = fault.cause, fault.parties
        valid = vector["result"] == "valid"
        expected = shares if valid else (Cause.BOX_REFUSED, ("eve",))
        if (sealed == ciphertext + tag) != valid or opened != expected:
            wrong.append(vector["tcId"])
    assert wrong == []


def test_a_box_has_no_other_tag_length(
    vectors: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for vector in vectors:
        key, nonce, context, ciphertext, tag = (
            bytes.fromhex(vector[name]) for name in ("key", "iv", "aad", "ct", "tag")
        )
        monkeypatch.setattr(sealing, "_NONCE", nonce)
        for length in (0, 4, 8, 12, 15):
            with pytest.raises(PeerFault, match=r"^box-refused: "):
                sealing.unseal(key, ciphertext + tag[:length], context, "eve")
