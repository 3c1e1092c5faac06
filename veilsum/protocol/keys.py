"""The secrets of a pair, from X25519 and ML-KEM-768, and everything derived from them (wire: Keys)."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Id, Repeated, Secret, SecretBytes
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.tags import Tag, hash_fields, info

MLKEM_SEED_BYTES = 64
"""The seed (d, z) of an ML-KEM-768 private key (FIPS 203, algorithm 16)."""


def derive_key(secret: bytes, *, salt: bytes, context: bytes) -> SecretBytes:
    """Derive 32 bytes with HKDF-SHA256."""
    return SecretBytes(HKDF(SHA256(), 32, salt, context).derive(secret))


class AgreementKey:
    """An X25519 private key, deleted once its pairs' keys are stored."""

    def __init__(self, private: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(private)
        self.public = self._key.public_key().public_bytes_raw()

    def agree_secret(self, public: bytes, owner: str) -> SecretBytes:
        """Compute the shared secret. Raises PeerFault(low-order-point), which names the key's `owner`."""
        try:
            return SecretBytes(self._key.exchange(X25519PublicKey.from_public_bytes(public)))
        except ValueError as error:
            raise _low_order(owner) from error

    def __repr__(self) -> str:
        return f"<AgreementKey {self.public.hex()[:16]}>"


_P = 2**255 - 19
_ORDER_8_U = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
_LOW_ORDER = frozenset(u.to_bytes(32, "little") for u in (0, 1, _P - 1, *_ORDER_8_U))
"""u-coordinates of all points of Curve25519 and its twist whose order divides 8; their shared secret is zero."""


def canonical_public(public: bytes) -> bytes:
    """Return the canonical encoding of an X25519 public key; RFC 7748 §5 also accepts u + p and ignores the top bit."""
    u = int.from_bytes(public, "little") & ((1 << 255) - 1)
    return (u % _P).to_bytes(32, "little")


def check_order(public: bytes, owner: str) -> None:
    """Refuse a public key of low order, in any encoding. The fault names the key's `owner`."""
    if canonical_public(public) in _LOW_ORDER:
        raise _low_order(owner)


def _low_order(owner: str) -> PeerFault:
    return PeerFault(Cause.LOW_ORDER_POINT, f"a key of {owner} is of low order", [owner])


class DecapsulationKey:
    """An ML-KEM-768 private key (FIPS 203), from its 64-byte seed; deleted once its pairs' keys are stored."""

    def __init__(self, seed: bytes) -> None:
        self._key = MLKEM768PrivateKey.from_seed_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def decapsulate(self, ciphertext: bytes) -> SecretBytes:
        """Return the secret of a ciphertext of 1,088 bytes; of a wrong one, a secret that nobody knows (implicit rejection)."""
        return SecretBytes(self._key.decapsulate(ciphertext))

    def __repr__(self) -> str:
        return f"<DecapsulationKey {hash_mlkem_key(self.public).hex()[:16]}>"


class Encapsulated(NamedTuple):
    """A fresh secret of 32 bytes and its ciphertext of 1,088."""

    secret: SecretBytes
    ciphertext: bytes


Encapsulate: TypeAlias = Callable[[bytes, str], Encapsulated]
"""Encapsulates to an ML-KEM key, which a member owns: `encapsulate`, or a recording of it."""


def encapsulate(mlkem_key: bytes, owner: str) -> Encapsulated:
    """Encapsulate a fresh secret to an ML-KEM-768 key. Raises PeerFault(mlkem-key-invalid), which names the key's `owner`."""
    secret, ciphertext = _load_mlkem_key(mlkem_key, owner).encapsulate()
    return Encapsulated(SecretBytes(secret), ciphertext)


def check_mlkem_key(mlkem_key: bytes, owner: str) -> None:
    """Check an ML-KEM-768 key as FIPS 203, §7.2 says. Raises PeerFault(mlkem-key-invalid), which names the key's `owner`."""
    _load_mlkem_key(mlkem_key, owner)


def hash_mlkem_key(mlkem_key: bytes) -> bytes:
    """Compute the hash by which a card holds an ML-KEM key."""
    return hash_fields(Tag.MLKEM_KEY, mlkem_key)


def hash_ciphertext(ciphertext: bytes) -> bytes:
    """Compute the hash by which the keys of a pair depend on a ciphertext."""
    return hash_fields(Tag.CIPHERTEXT, ciphertext)


def _load_mlkem_key(mlkem_key: bytes, owner: str) -> MLKEM768PublicKey:
    try:
        return MLKEM768PublicKey.from_public_bytes(mlkem_key)
    except ValueError as error:
        raise PeerFault(
            Cause.MLKEM_KEY_INVALID, f"the ML-KEM key of {owner} fails the check of FIPS 203", [owner]
        ) from error


class PairSecret(NamedTuple):
    """What two members agreed on: an X25519 secret, and the secret that one of them encapsulated.

    Attributes:
        sender: who encapsulated.
        recipient: to whom.
        x25519: 32 bytes.
        mlkem: 32 bytes.
        mlkem_key_hash: of the recipient's ML-KEM key.
        ciphertext_hash: of the ciphertext in which the sender encapsulated.
    """

    sender: str
    recipient: str
    x25519: SecretBytes
    mlkem: SecretBytes
    mlkem_key_hash: bytes
    ciphertext_hash: bytes

    def derive_root(self, tag: Tag, cohort: bytes, manifest_hash: bytes) -> SecretBytes:
        """Derive K_0; `tag` is PAIR_MASK or PAIR_BOX. It stays secret as long as one of the two secrets does."""
        context = info(
            tag,
            cohort,
            self.sender.encode(),
            self.recipient.encode(),
            self.mlkem_key_hash,
            self.ciphertext_hash,
        )
        return derive_key(self.x25519 + self.mlkem, salt=manifest_hash, context=context)


class PairKey(Repeated):
    """K_uv, a pair's shared key for one sequence number, for masks or for boxes."""

    peer: Id
    key: Secret

    def ratchet_to(self, cohort: bytes, sequence: int) -> "PairKey":
        """Derive K_sequence from K_(sequence-1) by a one-way step: a key stolen later opens no earlier round."""
        step = info(Tag.RATCHET, cohort, sequence.to_bytes(8, "little"))
        return PairKey(self.peer, derive_key(self.key, salt=b"", context=step))

    def mask_seed(self, me: str, context: bytes) -> SecretBytes:
        """Derive r_uv, equal at both ends."""
        return derive_key(self.key, salt=context, context=info(Tag.MASK_SEED, *_in_order(me, self.peer)))

    def box_key(self, dealer: str, decryptor: str, context: bytes, salt: bytes) -> SecretBytes:
        """Derive the AES-256-GCM key of the single box from `dealer` to `decryptor` under the upload's salt."""
        return derive_key(
            self.key, salt=context + salt, context=info(Tag.BOX_KEY, dealer.encode(), decryptor.encode())
        )


def _in_order(me: str, peer: str) -> tuple[bytes, bytes]:
    """Return both ids, encoded in cohort order, so that both ends derive the same keys."""
    return min(me, peer).encode(), max(me, peer).encode()
