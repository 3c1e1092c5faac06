"""Sealed share boxes: AES-256-GCM under keys that are used once (protocol §6.4)."""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from protocol.causes import Cause
from protocol.errors import PeerFault

_NONCE = bytes(12)
"""Zero is safe: box_key's salt is fresh for every upload, so a key seals one box."""


def seal(key: bytes, shares: bytes, context: bytes) -> bytes:
    """The box: ciphertext and 16-byte tag, bound to the context."""
    return AESGCM(key).encrypt(_NONCE, shares, context)


def unseal(key: bytes, box: bytes, context: bytes, dealer: str) -> bytes:
    """The shares in the box; PeerFault(box-refused) names the dealer if it does not open."""
    try:
        return AESGCM(key).decrypt(_NONCE, box, context)
    except (InvalidTag, ValueError) as error:
        raise PeerFault(Cause.BOX_REFUSED, f"the box from {dealer} does not open", [dealer]) from error
