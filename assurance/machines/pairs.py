"""What the keys of two honest members must be, derived again from their private keys (wire: Cohorts, wire: Keys).

It uses nothing of `protocol` but the layout of messages: hashes are the second implementation's.
"""

from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from assurance.reference.wire import H, hkdf
from veilsum.protocol.member import Enrolled, Ready
from veilsum.protocol.messages import Pairing


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
    members, member, stored = ready.manifest.members, ready.member, ready.to_bytes()
    salt = H("manifest", ready.manifest.to_bytes())
    for name, pairs in (("pair-mask", ready.masks), ("pair-box", ready.boxes)):
        for pair in pairs:
            if pair.peer not in enrolled:
                continue
            ends = (member, pair.peer)
            sender, to = ends if follows(members, *ends) else ends[::-1]
            recipients = [other for other in members if follows(members, sender, other)]
            ciphertext = pairings[sender].ciphertexts[recipients.index(to)]
            private = X25519PrivateKey.from_private_bytes(bytes(enrolled[member].keys.x25519))
            x25519 = private.exchange(X25519PublicKey.from_public_bytes(enrolled[pair.peer].card.x25519_key))
            decapsulation = MLKEM768PrivateKey.from_seed_bytes(bytes(enrolled[to].keys.mlkem_seed))
            mlkem = decapsulation.decapsulate(ciphertext)
            hashes = H("mlkem-key", enrolled[to].enrolment.mlkem_key), H("ciphertext", ciphertext)
            key = hkdf(x25519 + mlkem, salt, name, ready.manifest.cohort, sender, to, *hashes)
            assert bytes(pair.key) == key, (
                f"{member} holds another key with {pair.peer} than their cards give"
            )
            assert x25519 not in stored, f"{member} stores the X25519 secret of a pair"
            assert mlkem not in stored, f"{member} stores an encapsulated secret"
