from collections.abc import Callable
from typing import Any

import pytest

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import verify_signature

Load = Callable[[str], list[dict[str, Any]]]

# Public keys with a torsion component: RFC 8032 §5.1.7 is silent on them, Wycheproof accepts either answer.
DECIDED = {
    "MixedOrderPublicKey": "valid: nobody but the holder of the scalar can sign, so it harms only its owner",
    "SmallOrderPublicKey": "invalid: one signature fits any message, and whoever cheats could not be named",
}
REFUSED = (Cause.BAD_SIGNATURE, ("eve",))


def verdict(public: str, signature: bytes, message: bytes) -> tuple[Cause, tuple[str, ...]] | None:
    try:
        verify_signature(bytes.fromhex(public), signature, message, "eve")
    except PeerFault as fault:
        return fault.cause, fault.parties
    return None


def test_every_vector(wycheproof: Load) -> None:
    vectors = wycheproof("Signature/wycheproof/ed25519_test.json")
    assert len(vectors) >= 150
    wrong = []
    for vector in vectors:
        result = vector["result"]
        if result == "acceptable":
            (result,) = {DECIDED[flag].split(":")[0] for flag in vector["flags"] if flag in DECIDED}
        expected = REFUSED if result == "invalid" else None
        signature, message = bytes.fromhex(vector["sig"]), bytes.fromhex(vector["msg"])
        if verdict(vector["publicKey"]["pk"], signature, message) != expected:
            wrong.append(vector["tcId"])
    assert wrong == []


@pytest.mark.parametrize("order", [1, 2])
def test_a_signature_has_one_encoding(wycheproof: Load, order: int) -> None:
    group_order = 2**252 + 27742317777372353535851937790883648493
    checked = 0
    for vector in wycheproof("Signature/wycheproof/ed25519_test.json"):
        if vector["result"] != "valid":
            continue
        signature, message = bytes.fromhex(vector["sig"]), bytes.fromhex(vector["msg"])
        scalar = int.from_bytes(signature[32:], "little") + order * group_order
        if scalar < 1 << 256:
            other = signature[:32] + scalar.to_bytes(32, "little")
            assert verdict(vector["publicKey"]["pk"], other, message) == REFUSED
            checked += 1
    assert checked > 50
