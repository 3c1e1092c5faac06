"""Ed25519 identities: signing and verification."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault


class SigningKey:
    """A long-term Ed25519 key of a member, an admin or a coordinator."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise Misuse(f"an Ed25519 seed has 32 bytes, not {len(seed)}")
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    @property
    def seed(self) -> bytes:
        """The 32 secret bytes, for storage."""
        return self._key.private_bytes_raw()

    def sign(self, digest: bytes) -> bytes:
        """Sign a digest from `hash_fields`; return the 64 bytes of the signature."""
        return self._key.sign(digest)

    def __repr__(self) -> str:
        return f"<SigningKey {self.public.hex()[:16]}>"


_P = 2**255 - 19
_ORDER_8_Y = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL_ORDER = frozenset({0, 1, _P - 1, _ORDER_8_Y, _P - _ORDER_8_Y})
"""y-coordinates of the eight points whose order divides 8. Under such a key, one signature is valid for any message."""


def verify_signature(public: bytes, signature: bytes, digest: bytes, signer: str) -> None:
    """Verify a signature over `digest`, and refuse keys of small order. Raises PeerFault(bad-signature), which names `signer`.

    Verification is cofactorless (RFC 8032 §5.1.7, as OpenSSL does it).
    """
    y = int.from_bytes(public, "little") & ((1 << 255) - 1)
    if y % _P in _SMALL_ORDER:
        raise PeerFault(Cause.BAD_SIGNATURE, f"{signer}'s key is of small order", [signer])
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, digest)
    except (InvalidSignature, ValueError) as error:
        raise PeerFault(Cause.BAD_SIGNATURE, f"{signer}'s signature does not verify", [signer]) from error


def fingerprint(public: bytes) -> str:
    """Format a key for comparison: all hexadecimal digits, in groups of four."""
    text = public.hex()
    return " ".join(text[i : i + 4] for i in range(0, len(text), 4))
