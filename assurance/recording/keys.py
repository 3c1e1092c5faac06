"""Private keys that a recorder has, and guesses of the secrets that they don't give."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from assurance.reference.wire import H, pieces

KEY_SETS = ("none", "x25519", "mlkem", "both")
"""Which private keys may be broken."""


class Folder:
    """What one member stored: every run of bytes in it that was not sent may be a secret.

    Args:
        state: the bytes.
        is_public: as `Keys`.
    """

    def __init__(self, state: bytes, is_public: Callable[[bytes], bool]) -> None:
        self._state = state
        starts = range(len(state) - 31)
        self._starts = [at for at in starts if not is_public(state[at : at + 32])]

    def windows(self, size: int) -> list[bytes]:
        """Return all runs of this many bytes, 32 or more."""
        found = (self._state[at : at + size] for at in self._starts)
        return [each for each in found if len(each) == size]


class Keys:
    """What a recorder has beside the recording: private keys of every member, or what one member stored at some time.

    Args:
        recorded: the recording.
        chosen: "none", "x25519", "mlkem" or "both" for private keys of everybody; or a name among the recording's folders.
        is_public: whether 32 bytes stood in the traffic: such bytes of a folder are not searched.
    """

    def __init__(
        self, recorded: Mapping[str, Any], chosen: str, is_public: Callable[[bytes], bool] = lambda _: False
    ) -> None:
        self.x25519 = dict[bytes, X25519PrivateKey]()
        self.mlkem = dict[bytes, MLKEM768PrivateKey]()
        self.bytes: dict[str, list[bytes]] = {member: [] for member in recorded["keys"]}
        self.folders = dict[str, Folder]()
        for member, held in recorded["keys"].items():
            for private in held["x25519"] if chosen in {"x25519", "both"} else ():
                self._add_x25519(bytes.fromhex(private))
                self.bytes[member].append(bytes.fromhex(private))
            for seed in held["mlkem"] if chosen in {"mlkem", "both"} else ():
                self._add_mlkem(bytes.fromhex(seed))
                self.bytes[member] += pieces(bytes.fromhex(seed), 32)
        for member, state in recorded.get("folders", {}).get(chosen, {}).items():
            folder = self.folders[member] = Folder(bytes.fromhex(state), is_public)
            for window in folder.windows(32):
                self._add_x25519(window)
            for window in folder.windows(64):
                self._add_mlkem(window)

    def _add_x25519(self, private: bytes) -> None:
        key = X25519PrivateKey.from_private_bytes(private)
        self.x25519[key.public_key().public_bytes_raw()] = key

    def _add_mlkem(self, seed: bytes) -> None:
        key = MLKEM768PrivateKey.from_seed_bytes(seed)
        self.mlkem[key.public_key().public_bytes_raw()] = key

    def agree(self, one: bytes, other: bytes) -> bytes | None:
        """Return the X25519 secret of two public keys, if one of the private keys is known."""
        for mine, theirs in ((one, other), (other, one)):
            if mine in self.x25519:
                return self.x25519[mine].exchange(X25519PublicKey.from_public_bytes(theirs))
        return None

    def decapsulate(self, public: bytes, ciphertext: bytes) -> bytes | None:
        """Return the encapsulated secret, if the private key is known."""
        return self.mlkem[public].decapsulate(ciphertext) if public in self.mlkem else None


CONSTANTS = {"left out": b"", "zeros": bytes(32), "ones": b"\xff" * 32}


@cache
def _exchange(private: bytes, public: bytes) -> bytes:
    with suppress(ValueError):
        return X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    return b""


def guess_agreements(one: bytes, other: bytes, known: Iterable[bytes]) -> dict[str, bytes]:
    """Guess two public keys' X25519 secret: constants, what is public, and private keys that others were made of.

    Args:
        one: a public key.
        other: the other's public key.
        known: 32-byte parts of the pair's ML-KEM seeds.
    """
    xor = bytes(a ^ b for a, b in zip(one, other, strict=True))
    guesses = CONSTANTS | {"one's key": one, "other's key": other, "both keys xored": xor}
    for number, part in enumerate((bytes(32), *known)):
        for private in (part, hashlib.sha256(part).digest()):
            for public in (one, other):
                guesses[f"exchange {len(guesses)} with a key of part {number}"] = _exchange(private, public)
    return guesses


def guess_encapsulated(ciphertext: bytes, public: bytes, known: Iterable[bytes]) -> dict[str, bytes]:
    """Guess an encapsulated secret: constants, what is public, an implicit rejection's, and an encapsulation's of a known message.

    Args:
        ciphertext: of 1,088 bytes.
        public: the ML-KEM key, of 1,184 bytes.
        known: 32-byte secrets of the pair: X25519 keys and their agreed secret.
    """
    guesses = CONSTANTS | {
        "head of the ciphertext": ciphertext[:32],
        "tail of the ciphertext": ciphertext[-32:],
        "SHA-256 of the ciphertext": hashlib.sha256(ciphertext).digest(),
        "SHA3-256 of the ciphertext": hashlib.sha3_256(ciphertext).digest(),
        "the ciphertext's hash in the derivation": H("ciphertext", ciphertext),
        "SHA-256 of the key": hashlib.sha256(public).digest(),
        "SHA3-256 of the key": hashlib.sha3_256(public).digest(),
    }
    for number, part in enumerate((bytes(32), b"\xff" * 32, *known)):
        name = f"part {number}"
        # FIPS 203, algorithms 17 and 18: G(m ‖ H(ek)) for the message m, and J(z ‖ c) for a false ciphertext.
        encapsulated = hashlib.sha3_512(part + hashlib.sha3_256(public).digest()).digest()[:32]
        guesses[f"{name} itself"] = part
        guesses[f"of the message {name}"] = encapsulated
        guesses[f"rejection by {name}"] = hashlib.shake_256(part + ciphertext).digest(32)
        for seed in (part + part, part + bytes(32), bytes(32) + part, hashlib.sha512(part).digest()):
            guesses[f"key {len(guesses)} of {name}"] = MLKEM768PrivateKey.from_seed_bytes(seed).decapsulate(
                ciphertext
            )
    return guesses
