"""Ed25519 identities: who signs, and how a signature is checked."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault


class SigningKey:
    """A long-term Ed25519 key of a member, an admin or a coordinator."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise Misuse(f"an Ed25519 seed has 32 bytes, not {len(seed)}")
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    @property
    def seed(self) -> bytes:
        """The 32 secret bytes, for whoever stores the key."""
        return self._key.private_bytes_raw()

    def sign(self, digest: bytes) -> bytes:
        """64 bytes over a digest that `hash_fields` made."""
        return self._key.sign(digest)

    def __repr__(self) -> str:
        return f"<SigningKey {self.public.hex()[:16]}>"


def verify_signature(public: bytes, signature: bytes, digest: bytes, signer: str) -> None:
    """Refuse a signature that `public` did not make over `digest`; the fault names `signer`."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, digest)
    except (InvalidSignature, ValueError) as error:
        raise PeerFault(Cause.BAD_SIGNATURE, f"{signer}'s signature does not verify", [signer]) from error


def fingerprint(public: bytes) -> str:
    """How people compare keys: the whole key, in groups of four hexadecimal digits."""
    text = public.hex()
    return " ".join(text[i : i + 4] for i in range(0, len(text), 4))
