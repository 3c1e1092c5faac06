from collections.abc import Callable
from typing import Any

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.keys import AgreementKey, canonical

Load = Callable[[str], list[dict[str, Any]]]
FILE = "Protocol/wycheproof/x25519_test.json"

# RFC 7748 leaves these to the implementation, and Wycheproof accepts either answer; ours, and why.
TAKEN = {
    "Twist": "the ladder gives nothing away on the twist, and a peer's secret with itself is its own affair",
    "NonCanonicalPublic": "RFC 7748 §5 says which point is meant; `canonical` finds it where duplicates count",
    "SmallPublicKey": "small is no fault of its own: those of low order are refused as such",
}
REFUSED = {
    "LowOrderPublic": "the secret would be the same for every private key",
    "ZeroSharedSecret": "RFC 7748 §6.1: the check that a shared secret needs",
}
NEUTRAL = {
    "EdgeCaseMultiplication",
    "EdgeCasePrivateKey",
    "EdgeCaseShared",
    "Ktv",
    "Normal",
    "SpecialPublicKey",
}


def agreed(vector: dict[str, Any], public: bytes) -> bytes | tuple[Cause, tuple[str, ...]]:
    try:
        return AgreementKey(bytes.fromhex(vector["private"])).agree(public, "eve")
    except PeerFault as fault:
        return fault.cause, fault.parties


def test_every_vector(wycheproof: Load) -> None:
    vectors = wycheproof(FILE)
    assert len(vectors) >= 518
    wrong = []
    for vector in vectors:
        flags = set(vector["flags"])
        assert flags <= NEUTRAL | TAKEN.keys() | REFUSED.keys(), "a flag that nobody has decided on"
        assert vector["result"] == "valid" or flags & (TAKEN.keys() | REFUSED.keys())
        shared = bytes.fromhex(vector["shared"])
        expected = (Cause.LOW_ORDER_POINT, ("eve",)) if flags & REFUSED.keys() else shared
        if agreed(vector, bytes.fromhex(vector["public"])) != expected:
            wrong.append(vector["tcId"])
    assert wrong == []


def test_the_canonical_encoding_means_the_same_point(wycheproof: Load) -> None:
    changed = 0
    for vector in wycheproof(FILE):
        public = bytes.fromhex(vector["public"])
        changed += canonical(public) != public
        assert agreed(vector, canonical(public)) == agreed(vector, public)
        assert canonical(public) != public or "NonCanonicalPublic" not in vector["flags"]
    assert changed > 10
