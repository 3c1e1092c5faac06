"""A client masks its vector, seals four seeds for the helpers and speaks once (helpers H5)."""

import os
from collections.abc import Callable

from protocol.boxes import seal, unseal
from protocol.causes import Cause
from protocol.codec import SecretBytes
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.messages import HELPERS, SEED_BYTES, HelperDelivery, HelperHeader, HelperUpload
from protocol.identity import SigningKey
from protocol.keys import AgreementKey, derive
from protocol.keystream import Masks
from protocol.masking import Masking
from protocol.merkle import Tree
from protocol.tags import Tag, hash_fields, info


def seed_commitment(context: bytes, client: str, index: int, seed: bytes) -> bytes:
    """32 bytes over s_j. Whole: who could find two seeds for one of 16 bytes would set honest helpers against each other."""
    return hash_fields(Tag.HELPER_SEED, context, client.encode(), index.to_bytes(1, "little"), seed)


def box_key(
    shared: bytes, context: bytes, client: str, helper: str, keys: tuple[bytes, bytes]
) -> SecretBytes:
    """The AES-256-GCM key of one box.

    Args:
        shared: X25519 of `keys`.
        context: ctx.
        client: who seals.
        helper: who opens.
        keys: both public keys, the client's and the helper's.
    """
    names = info(Tag.HELPER_BOX, client.encode(), helper.encode(), *keys)
    return derive(shared, salt=context, context=names)


def open_box(attempt: HelperAttempt, helper: str, private: bytes, delivery: HelperDelivery) -> SecretBytes:
    """A client's three seeds for this helper; PeerFault(box-refused or low-order-point) names the client."""
    key, header = AgreementKey(private), delivery.header
    client, context = header.member, attempt.context
    shared = key.agree(header.sender_key, client)
    keys = header.sender_key, key.public
    seeds = SecretBytes(unseal(box_key(shared, context, client, helper, keys), delivery.box, context, client))
    for place, index in enumerate(attempt.seeds_of(helper)):
        if seed_commitment(context, client, index, seed_at(seeds, place)) != delivery.commitments[index]:
            raise PeerFault(Cause.BOX_REFUSED, f"a seed of {client} misses its commitment", [client])
    return seeds


def seed_at(seeds: bytes, place: int) -> SecretBytes:
    """The seed at this place among those that one helper holds of one client."""
    return SecretBytes(seeds[place * SEED_BYTES : (place + 1) * SEED_BYTES])


class HelperSealing(Masking):
    """One client's upload in the making: chunks in order, then the signed announcement of them.

    Its seeds and its X25519 key live in this object alone and are never stored: whoever is interrupted begins again with
    fresh ones.

    Args:
        attempt: one that was checked.
        client: whose upload.
        random_bytes: the operating system's, but in simulations.
    """

    def __init__(
        self, attempt: HelperAttempt, client: str, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._attempt, self._client = attempt, client
        self._seeds = [SecretBytes(random_bytes(SEED_BYTES)) for _ in range(HELPERS)]
        self._sender = AgreementKey(random_bytes(32))
        # y = x + G(s_0) + G(s_1) + G(s_2) + G(s_3) mod 2^b
        super().__init__(attempt, Masks(attempt.ring, added=self._seeds))

    def finish(self, key: SigningKey, *, lineage: bytes, records_tag: bytes, records: int) -> HelperUpload:
        """Seal the seeds and sign: the upload's announcement.

        Args:
            key: the client's identity.
            lineage: lin_u, 8 bytes.
            records_tag: ver_u, 8 bytes.
            records: how many records the vector sums.

        Raises:
            Misuse: chunks are missing.
            PeerFault: too-many-records where the manifest's cap is lower.
        """
        attempt, client, digests = self._attempt, self._client, self.chunk_digests()
        context = attempt.context
        if records > attempt.manifest.cap:
            cap = f"{records} records, this attempt's cap is {attempt.manifest.cap}"
            raise PeerFault(Cause.TOO_MANY_RECORDS, cap, [client])
        boxes = []
        for card in attempt.manifest.cards:
            shared = self._sender.agree(card.box_key, card.member)
            keys = self._sender.public, card.box_key
            dealt = b"".join(self._seeds[index] for index in attempt.seeds_of(card.member))
            boxes.append(seal(box_key(shared, context, client, card.member, keys), dealt, context))
        commitments = [seed_commitment(context, client, j, seed) for j, seed in enumerate(self._seeds)]
        header = HelperHeader.make(
            key,
            context=context,
            member=client,
            lineage=lineage,
            records=records_tag,
            sender_key=self._sender.public,
            chunk_root=Tree.of(digests).root,
            seed_root=Tree.of(commitments).root,
            box_root=Tree.of(boxes).root,
        )
        return HelperUpload(header, digests, tuple(commitments), tuple(boxes))
