"""What the keys of two honest members must be, derived again from their private keys (wire: Cohorts, wire: Keys).

It uses nothing of `protocol` but the layout of messages: HKDF, the hashes and who encapsulates to whom stand here once more.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from veilsum.protocol.member import Enrolled, Ready
from veilsum.protocol.messages import Manifest, Pairing


def follows(members: Sequence[str], one: str, other: str) -> bool:
    """Return whether `one` encapsulates to `other` on the complete graph: in a circle of ids, the next ⌊(n − 1)/2⌋."""
    count, place = len(members), members.index(one)
    steps = (members.index(other) - place) % count
    return 0 < steps <= (count - 1) // 2 or (2 * steps == count and one < other)


def check_keys(ready: Ready, enrolled: Mapping[str, Enrolled], pairings: Mapping[str, Pairing]) -> None:
    """Check the keys that a member shares with honest members: both secrets are those of the two, whatever was shown (lemma 5).

    Args:
        ready: the member's phase before its first attempt.
        enrolled: honest members of the manifest with their private keys.
        pairings: what they sent under this manifest.

    Raises:
        AssertionError: if a key is another one.
    """
    manifest, member = ready.manifest, ready.member
    stored = ready.to_bytes()
    for name, pairs in (("pair-mask", ready.masks), ("pair-box", ready.boxes)):
        for pair in pairs:
            if pair.peer not in enrolled:
                continue
            ends = (member, pair.peer)
            sender, recipient = ends if follows(manifest.members, *ends) else ends[::-1]
            ciphertext = _sent_to(manifest, pairings[sender], recipient)
            x25519, mlkem = _secrets(enrolled[member], enrolled[pair.peer], enrolled[recipient], ciphertext)
            key = _root(name, manifest, (sender, recipient), x25519 + mlkem, enrolled[recipient], ciphertext)
            assert bytes(pair.key) == key, (
                f"{member} holds another key with {pair.peer} than their cards give"
            )
            assert x25519 not in stored, f"{member} stores the X25519 secret of a pair"
            assert mlkem not in stored, f"{member} stores an encapsulated secret"


def _sent_to(manifest: Manifest, pairing: Pairing, recipient: str) -> bytes:
    """Return the ciphertext that a pairing holds for a member."""
    recipients = [other for other in manifest.members if follows(manifest.members, pairing.member, other)]
    return pairing.ciphertexts[recipients.index(recipient)]


def _secrets(one: Enrolled, other: Enrolled, recipient: Enrolled, ciphertext: bytes) -> tuple[bytes, bytes]:
    """Return what X25519 and ML-KEM give."""
    private = X25519PrivateKey.from_private_bytes(bytes(one.keys.x25519))
    x25519 = private.exchange(X25519PublicKey.from_public_bytes(other.card.x25519_key))
    decapsulation = MLKEM768PrivateKey.from_seed_bytes(bytes(recipient.keys.mlkem_seed))
    return x25519, decapsulation.decapsulate(ciphertext)


def _root(
    name: str,
    manifest: Manifest,
    ends: tuple[str, str],
    secret: bytes,
    recipient: Enrolled,
    ciphertext: bytes,
) -> bytes:
    """Derive K_0 (wire: Keys)."""
    from_, to = (end.encode() for end in ends)
    public = recipient.enrolment.mlkem_key
    key_hash = hashlib.sha256(_fields("mlkem-key", public)).digest()
    hashed = hashlib.sha256(_fields("ciphertext", ciphertext)).digest()
    info = _fields(name, manifest.cohort, from_, to, key_hash, hashed)
    salt = hashlib.sha256(_fields("manifest", manifest.to_bytes())).digest()
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")  # RFC 5869, one block


def _fields(name: str, *fields: bytes) -> bytes:
    """Encode a tag and its fields (wire: Hashes)."""
    return f"veilsum/4/{name}\0".encode() + b"".join(
        len(each).to_bytes(8, "little") + each for each in fields
    )
