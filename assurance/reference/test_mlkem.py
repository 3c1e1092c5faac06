"""The plain ML-KEM-768 against published vectors and the product."""

from hashlib import sha256, shake_256
from typing import Any

import pytest

from assurance.reference import mlkem
from tests.support.published_vectors import wycheproof
from veilsum.protocol.keys import DecapsulationKey, encapsulate

Vector = dict[str, Any]


def published(name: str, least: int) -> list[Vector]:
    vectors = wycheproof(f"Protocol/wycheproof/mlkem_768_{name}_test.json".replace("__", "_"))
    assert len(vectors) >= least
    return vectors


def raw(vector: Vector, *names: str) -> list[bytes]:
    return [bytes.fromhex(vector[name]) for name in names]


def test_keys_of_seeds_are_the_published_ones() -> None:
    for vector in published("keygen_seed", 100):
        (seed,) = raw(vector, "seed")
        assert mlkem.generate(seed) == tuple(raw(vector, "ek", "dk")), vector["tcId"]


def test_decapsulation_is_the_published_one() -> None:
    for vector in published("", 201):
        seed, ciphertext, shared = raw(vector, "seed", "c", "K")
        if len(seed) != 64:
            continue
        key, private = mlkem.generate(seed)
        if vector["result"] == "valid":
            assert (key, mlkem.decapsulate(private, ciphertext)) == (*raw(vector, "ek"), shared), vector["tcId"]
        else:
            with pytest.raises(ValueError, match="ciphertext"):
                mlkem.decapsulate(private, ciphertext)


def test_decapsulation_keys_are_checked() -> None:
    """Expanded keys, which `cryptography` does not read: other lengths, another hash or another key inside."""
    results = []
    for vector in published("semi_expanded_decaps", 9):
        private, ciphertext = raw(vector, "dk", "c")
        results.append(vector["result"])
        if vector["result"] == "valid":
            assert [mlkem.decapsulate(private, ciphertext)] == raw(vector, "K"), vector["tcId"]
        else:
            with pytest.raises(ValueError, match=r"bytes|hash"):
                mlkem.decapsulate(private, ciphertext)
    assert results.count("invalid") >= 6


def test_encapsulation_is_the_published_one() -> None:
    for vector in published("encaps", 265):
        key, message, ciphertext, shared = raw(vector, "ek", "m", "c", "K")
        assert mlkem.is_key(key) == (vector["result"] == "valid"), vector["tcId"]
        if mlkem.is_key(key):
            assert mlkem.encapsulate(key, message) == (shared, ciphertext), vector["tcId"]


def test_both_agree_on_random_keys() -> None:
    """Each decapsulates what the other encapsulates, and rejects a changed ciphertext alike."""
    ciphertexts = set()
    for number in range(100):
        seed, message = shake_256(b"seed %d" % number).digest(64), sha256(b"message %d" % number).digest()
        theirs, (key, private) = DecapsulationKey(seed), mlkem.generate(seed)
        assert theirs.public == key
        shared, ciphertext = mlkem.encapsulate(key, message)
        assert theirs.decapsulate(ciphertext) == mlkem.decapsulate(private, ciphertext) == shared
        place = number * len(ciphertext) // 100
        changed = ciphertext[:place] + bytes([ciphertext[place] ^ 1 << number % 8]) + ciphertext[place + 1 :]
        rejected = mlkem.decapsulate(private, changed)
        assert theirs.decapsulate(changed) == rejected != shared
        for drawn, sent in (encapsulate(key, "eve"), encapsulate(key, "eve")):
            assert mlkem.decapsulate(private, sent) == drawn
            ciphertexts.add(sent)
    assert len(ciphertexts) == 200
