"""The protocol's primitives, against the vectors of Wycheproof and NIST."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from tests.support.forging import ED25519_ORDER
from tests.support.published_vectors import Vector, read_vectors, wycheproof
from tests.support.refusals import refused
from veilsum.protocol import sealing
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import verify_signature
from veilsum.protocol.keys import (
    AgreementKey,
    DecapsulationKey,
    canonical_public,
    check_mlkem_key,
    derive_key,
)
from veilsum.protocol.keystream import Masks
from veilsum.protocol.ring import Ring


def cavp(path: str) -> list[dict[str, bytes]]:
    """Return the encryption half of a .rsp file, by field."""
    encrypting = read_vectors(path).split("[ENCRYPT]")[1].split("[DECRYPT]")[0]
    return [
        {
            name: bytes.fromhex(value)
            for name, _, value in (line.partition(" = ") for line in block.splitlines())
            if name != "COUNT"
        }
        for block in encrypting.strip().split("\n\n")
    ]


# AES-256-CTR


BLOCK_BYTES = 16

# NIST SP 800-38A, F.5.5 CTR-AES256.Encrypt: key, initial counter, and the output block under each counter.
KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
COUNTER = 0xF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF
OUTPUT = (
    "0bdf7df1591716335e9a8b15c860c502",
    "5a6e699d536119065433863c8f657b94",
    "1bc12c9c01610d5d0d8bd6a3378eca62",
    "2956e1c8693536b1bee99c73a31576b6",
)


def stream(key: bytes, counter: int, blocks: int, bits: int) -> bytes:
    """Return blocks of G(key) from a counter on. A stream is addressed in steps of 8 elements, so it may start some blocks earlier."""
    ring = Ring(bits)
    per_block = BLOCK_BYTES // ring.itemsize
    lead = counter % (8 // per_block)
    words = np.zeros(per_block * (lead + blocks), ring.dtype)
    Masks(ring, added=[key]).apply_to_chunk(words, per_block * (counter - lead))
    return words.astype(ring.dtype.newbyteorder("<")).tobytes()[BLOCK_BYTES * lead :]


@pytest.mark.parametrize("bits", [32, 64])
def test_the_keystream_is_that_of_sp_800_38a(bits: int) -> None:
    assert stream(KEY, COUNTER, 4, bits).hex() == "".join(OUTPUT)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(
    ("name", "count"), [("GFSbox", 5), ("KeySbox", 16), ("VarTxt", 128), ("VarKey", 256)]
)
def test_the_cipher_under_every_counter_of_the_aesavs(name: str, count: int, bits: int) -> None:
    """A stream's block at counter c is AES(c), so single-block answers of CBC with IV zero apply."""
    vectors = cavp(f"Cipher/AES/CBC{name}256.rsp")
    assert len(vectors) == count
    for vector in vectors:
        assert vector["IV"] == bytes(BLOCK_BYTES)
        counter = int.from_bytes(vector["PLAINTEXT"], "big")
        assert stream(vector["KEY"], counter, 1, bits) == vector["CIPHERTEXT"]


def outcome(work: Callable[[], object]) -> object:
    """Return the result, or the cause and parties of the refusal."""
    try:
        return work()
    except PeerFault as fault:
        return fault.cause, fault.parties


def differing(vectors: Iterable[Vector], agrees: Callable[[Vector], bool]) -> list[int]:
    """Return the publisher's numbers of the vectors that don't agree."""
    return [vector["tcId"] for vector in vectors if not agrees(vector)]


def raw(vector: Vector, *names: str) -> list[bytes]:
    return [bytes.fromhex(vector[name]) for name in names]


# AES-256-GCM


@pytest.fixture
def boxes() -> list[Vector]:
    """Return vectors with a 256-bit key, a 96-bit nonce and a 128-bit tag, as in boxes."""
    return [
        vector
        for vector in wycheproof("Cipher/wycheproof/aes_gcm_test.json")
        if (vector["keySize"], vector["ivSize"], vector["tagSize"]) == (256, 96, 128)
    ]


def test_boxes_are_aes_gcm(boxes: list[Vector], monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(boxes) >= 66
    assert {vector["result"] for vector in boxes} == {"valid", "invalid"}  # nothing is left to us

    def agrees(vector: Vector) -> bool:
        key, nonce, context, shares, ciphertext, tag = raw(vector, "key", "iv", "aad", "msg", "ct", "tag")
        monkeypatch.setattr(sealing, "BOX_NONCE", nonce)
        sealed = sealing.seal_box(key, shares, context)
        opened = outcome(lambda: sealing.unseal_box(key, ciphertext + tag, context, "eve"))
        valid = vector["result"] == "valid"
        expected = shares if valid else (Cause.BOX_REFUSED, ("eve",))
        return (sealed == ciphertext + tag) == valid and opened == expected

    assert differing(boxes, agrees) == []


def test_a_box_has_no_other_tag_length(boxes: list[Vector], monkeypatch: pytest.MonkeyPatch) -> None:
    for vector in boxes:
        key, nonce, context, ciphertext, tag = raw(vector, "key", "iv", "aad", "ct", "tag")
        monkeypatch.setattr(sealing, "BOX_NONCE", nonce)
        for length in (0, 4, 8, 12, 15):
            with refused("box-refused", "eve"):
                sealing.unseal_box(key, ciphertext + tag[:length], context, "eve")


# Ed25519

SIGNATURES = "Signature/wycheproof/ed25519_test.json"
# Public keys with a torsion component: RFC 8032 §5.1.7 is silent on them, Wycheproof accepts either answer.
DECIDED = {
    "MixedOrderPublicKey": "valid: nobody but the holder of the scalar can sign, so it harms only its owner",
    "SmallOrderPublicKey": "invalid: one signature fits any message, and whoever cheats could not be named",
}
FORGED = (Cause.BAD_SIGNATURE, ("eve",))


def verdict(vector: Vector, signature: bytes) -> object:
    public, message = bytes.fromhex(vector["publicKey"]["pk"]), bytes.fromhex(vector["msg"])
    return outcome(lambda: verify_signature(public, signature, message, "eve"))


def test_signatures_are_ed25519() -> None:
    def agrees(vector: Vector) -> bool:
        result = vector["result"]
        if result == "acceptable":
            (result,) = {DECIDED[flag].split(":")[0] for flag in vector["flags"] if flag in DECIDED}
        return verdict(vector, *raw(vector, "sig")) == (FORGED if result == "invalid" else None)

    vectors = wycheproof(SIGNATURES)
    assert len(vectors) >= 150
    assert differing(vectors, agrees) == []


@pytest.mark.parametrize("order", [1, 2])
def test_a_signature_has_one_encoding(order: int) -> None:
    checked = 0
    for vector in wycheproof(SIGNATURES):
        (signature,) = raw(vector, "sig")
        scalar = int.from_bytes(signature[32:], "little") + order * ED25519_ORDER
        if vector["result"] == "valid" and scalar < 1 << 256:
            assert verdict(vector, signature[:32] + scalar.to_bytes(32, "little")) == FORGED
            checked += 1
    assert checked > 50


# HKDF


def test_derivation_is_hkdf() -> None:
    """`derive_key` gives 32 bytes. A longer HKDF output begins with them (RFC 5869 §2.3); a shorter one is their beginning."""
    vectors = wycheproof("Protocol/wycheproof/hkdf_sha256_test.json")
    # More than 255 blocks of output: `derive_key` has no way to ask for that.
    assert all(each["flags"] == ["SizeTooLarge"] for each in vectors if each["result"] == "invalid")
    valid = [each for each in vectors if each["result"] != "invalid"]
    assert len(valid) >= 83

    def agrees(vector: Vector) -> bool:
        secret, salt, context, output = raw(vector, "ikm", "salt", "info", "okm")
        length = min(32, vector["size"])
        return derive_key(secret, salt=salt, context=context)[:length] == output[:length]

    assert differing(valid, agrees) == []


# X25519

X25519 = "Protocol/wycheproof/x25519_test.json"

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


def agreed(vector: Vector, public: bytes) -> object:
    return outcome(lambda: AgreementKey(bytes.fromhex(vector["private"])).agree_secret(public, "eve"))


def test_agreement_is_x25519() -> None:
    def agrees(vector: Vector) -> bool:
        flags, (public, shared) = set(vector["flags"]), raw(vector, "public", "shared")
        assert flags <= NEUTRAL | TAKEN.keys() | REFUSED.keys(), "a flag that nobody has decided on"
        assert vector["result"] == "valid" or flags & (TAKEN.keys() | REFUSED.keys())
        expected = (Cause.LOW_ORDER_POINT, ("eve",)) if flags & REFUSED.keys() else shared
        return agreed(vector, public) == expected

    vectors = wycheproof(X25519)
    assert len(vectors) >= 518
    assert differing(vectors, agrees) == []


def test_the_canonical_encoding_means_the_same_point() -> None:
    changed = 0
    for vector in wycheproof(X25519):
        (public,) = raw(vector, "public")
        changed += canonical_public(public) != public
        assert agreed(vector, canonical_public(public)) == agreed(vector, public)
        assert canonical_public(public) != public or "NonCanonicalPublic" not in vector["flags"]
    assert changed > 10


# ML-KEM-768

MLKEM = "Protocol/wycheproof/mlkem_768_"
CHOSEN = Path(__file__).parents[2] / "assurance" / "vectors" / "mlkem.json"
NO_KEY = (Cause.MLKEM_KEY_INVALID, ("eve",))


def decapsulated(seed: str, ciphertext: str) -> str | None:
    """Return the shared secret; None where the seed or the ciphertext is refused."""
    try:
        return DecapsulationKey(bytes.fromhex(seed)).decapsulate(bytes.fromhex(ciphertext)).hex()
    except ValueError:
        return None


def checked(key: bytes) -> object:
    return outcome(lambda: check_mlkem_key(key, "eve"))


def test_keys_of_seeds_are_ml_kem() -> None:
    vectors = wycheproof(f"{MLKEM}keygen_seed_test.json")
    assert len(vectors) >= 100
    assert differing(vectors, lambda v: DecapsulationKey(*raw(v, "seed")).public.hex() == v["ek"]) == []


def test_decapsulation_is_ml_kem() -> None:
    """Valid ciphertexts, implicit rejection of changed ones, and refused seeds and ciphertexts of other lengths."""

    def agrees(vector: Vector) -> bool:
        expected = vector["K"] if vector["result"] == "valid" else None
        return decapsulated(vector["seed"], vector["c"]) == expected

    vectors = wycheproof(f"{MLKEM}test.json")
    assert len(vectors) >= 201
    assert sum(vector["result"] == "invalid" for vector in vectors) >= 40
    assert differing(vectors, agrees) == []


def test_keys_are_checked_as_fips_203_says() -> None:
    vectors = wycheproof(f"{MLKEM}encaps_test.json")
    assert len(vectors) >= 265
    assert sum(vector["result"] == "invalid" for vector in vectors) >= 132
    wrong = differing(
        vectors, lambda v: checked(*raw(v, "ek")) == (None if v["result"] == "valid" else NO_KEY)
    )
    assert wrong == []


def test_every_coefficient_of_a_key_is_checked() -> None:
    """Set one coefficient at a time to the least value that is refused."""
    (key,) = raw(wycheproof(f"{MLKEM}keygen_seed_test.json")[0], "ek")
    packed, rho = int.from_bytes(key[:-32], "little"), key[-32:]
    for place in range(768):
        cleared = packed & ~(0xFFF << 12 * place)
        for value, expected in ((3328, None), (3329, NO_KEY)):
            changed = (cleared | value << 12 * place).to_bytes(1152, "little") + rho
            assert checked(changed) == expected, place
    assert checked(key[:-1]) == checked(key + b"\0") == NO_KEY


def test_ciphertexts_of_given_messages_are_decapsulated() -> None:
    """`cryptography` draws the message itself, so its encapsulation cannot be compared with vectors."""
    seeds = {
        each["ek"]: each["seed"] for each in wycheproof(f"{MLKEM}test.json") if each["result"] == "valid"
    }
    valid = [each for each in wycheproof(f"{MLKEM}encaps_test.json") if each["result"] == "valid"]
    known = [each for each in valid if each["ek"] in seeds]
    assert len(known) >= 130
    # no seed makes these keys
    others = {each["comment"] for each in valid if each not in known}
    assert others <= {"Zero secret and error", "Zero error", "Zero secret"}
    assert differing(known, lambda v: decapsulated(seeds[v["ek"]], v["c"]) == v["K"]) == []


def test_the_chosen_ml_kem_vectors_are_the_published_ones() -> None:
    names = {"seed": "seed", "key": "ek", "message": "m", "ciphertext": "c", "shared": "K"}
    compared = 0
    for case in json.loads(CHOSEN.read_text("utf-8"))["cases"]:
        publisher, file, number = case["source"].replace("#", "/").split("/")
        if publisher == "acvp":
            continue
        published = wycheproof(f"Protocol/wycheproof/{file}")
        (vector,) = (each for each in published if each["tcId"] == int(number))
        given = {**case["input"], **case.get("output", {})}
        given.pop("hash", None)  # the page's, not FIPS 203's
        assert {names[name]: value for name, value in given.items()}.items() <= vector.items(), case["name"]
        assert ("refused" in case) == (vector["result"] == "invalid"), case["name"]
        compared += 1
    assert compared >= 20
