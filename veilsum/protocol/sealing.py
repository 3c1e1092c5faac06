"""M1: a member masks its vector and seals the shares of its seeds (wire: Uploads)."""

import hashlib
import os
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import PairKey
from veilsum.protocol.keystream import Masks
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    Upload,
    UploadHeader,
    edge_commitment,
    self_commitment,
    share_commitments,
)
from veilsum.protocol.packing import pack_words
from veilsum.protocol.shamir import SHARE_BYTES, share_secrets

BOX_NONCE = bytes(12)
"""Zero is safe because the salt in `box_key` is fresh for every upload, so each key seals a single box."""


def seal_box(key: bytes, shares: bytes, context: bytes) -> bytes:
    """Seal a box: ciphertext and 16-byte tag, bound to the context."""
    return AESGCM(key).encrypt(BOX_NONCE, shares, context)


def unseal_box(key: bytes, box: bytes, context: bytes, dealer: str) -> bytes:
    """Open a box and return its shares. Raises PeerFault(box-refused), which names the dealer."""
    try:
        return AESGCM(key).decrypt(BOX_NONCE, box, context)
    except (InvalidTag, ValueError) as error:
        raise PeerFault(Cause.BOX_REFUSED, f"the box from {dealer} does not open", [dealer]) from error


class Sealing:
    """Builds one member's upload: the chunks in order, then the signed announcement.

    Nothing is stored before `finish`; after an interruption, begin again with fresh secrets. Once the upload is stored, the same
    `self_seed` and vector reproduce its chunks.
    """

    def __init__(
        self,
        attempt: Attempt,
        member: str,
        masks: tuple[PairKey, ...],
        boxes: tuple[PairKey, ...],
        random_bytes: Callable[[int], bytes] = os.urandom,
        self_seed: SecretBytes | None = None,
    ) -> None:
        self._attempt, self._member, self._random = attempt, member, random_bytes
        self._box_keys = {pair.peer: pair for pair in boxes}
        self.self_seed = SecretBytes(random_bytes(32)) if self_seed is None else self_seed
        """b_u, the seed of this member's own mask."""
        seeds = {pair.peer: pair.mask_seed(member, attempt.context) for pair in masks}
        self._edge_seeds = [seeds[peer] for peer in attempt.neighbours_of(member)]
        # sgn(v − u) by index in the cohort; ids sort as indices do (wire: Uploads).
        added = [self.self_seed, *(seeds[peer] for peer in seeds if peer > member)]
        subtracted = [seeds[peer] for peer in seeds if peer < member]
        self._masks = Masks(attempt.ring, added=added, subtracted=subtracted)
        self._digests: list[bytes] = []
        self._words = np.empty(0, attempt.ring.dtype)

    def mask_next_chunk(self, values: npt.NDArray[np.int64]) -> bytes:
        """Mask and pack the next chunk, as `mask_chunk` does."""
        packed = self.mask_chunk(len(self._digests), values)
        self._digests.append(hashlib.sha256(packed).digest())
        return packed

    def mask_chunk(self, index: int, values: npt.NDArray[np.int64]) -> bytes:
        """Mask and pack chunk `index`.

        Args:
            index: the chunk's index.
            values: int64, shape (n,): the chunk's elements in order.

        Raises:
            Misuse: index or length is wrong, or a value is outside the ring (the error gives only its index).
        """
        attempt = self._attempt
        if index >= attempt.chunk_count or len(values) != attempt.chunk_elements(index):
            raise Misuse(f"chunk {index} of {attempt.chunk_count} does not have {len(values)} elements")
        if self._words.size < len(values):
            self._words = np.empty(len(values), attempt.ring.dtype)
        words = attempt.ring.to_ring(values, out=self._words[: len(values)])
        self._masks.apply_to_chunk(words, index * attempt.spec.chunk_elements)
        return bytes(pack_words(words, attempt.ring.bits, out=words.data.cast("B")))

    def finish(self, key: SigningKey) -> tuple[Upload, SecretBytes]:
        """Deal the shares and sign; return the announcement and this member's own shares of its secrets.

        Args:
            key: the member's identity.

        Raises:
            Misuse: chunks are missing.
        """
        attempt, me, digests = self._attempt, self._member, tuple(self._digests)
        if len(digests) != attempt.chunk_count:
            raise Misuse(f"{len(digests)} of {attempt.chunk_count} chunks are masked")
        secrets = [self.self_seed, *self._edge_seeds]
        dealt = share_secrets(secrets, attempt.quorum.threshold, len(attempt.decryptors), self._random)
        salt = self._random(32)
        boxes, rows, own = [], [], SecretBytes()
        for position, decryptor in enumerate(attempt.decryptors):
            shares = dealt[position].tobytes()
            rows.append(commit_row(attempt.context, me, decryptor, shares))
            if decryptor == me:
                own = SecretBytes(shares)
                boxes.append(b"")
            else:
                box_key = self._box_keys[decryptor].box_key(me, decryptor, attempt.context, salt)
                boxes.append(seal_box(box_key, shares, attempt.context))
        commitments = [self_commitment(attempt.context, me, self.self_seed)]
        for peer, seed in zip(attempt.neighbours_of(me), self._edge_seeds, strict=True):
            commitments.append(edge_commitment(attempt.context, me, peer, seed))
        header = UploadHeader.make_signed(
            key,
            context=attempt.context,
            member=me,
            salt=salt,
            chunk_root=Tree(digests).root,
            commitment_root=commitment_tree(commitments, rows).root,
            box_root=Tree(boxes).root,
        )
        upload = Upload(header, digests, tuple(commitments), tuple(rows), tuple(boxes))
        return upload, own


def commit_row(context: bytes, dealer: str, decryptor: str, shares: bytes) -> bytes:
    """Commit to a dealer's shares for one decryptor, in 16 bytes each, in the order of the secrets."""
    return share_commitments(context, dealer, decryptor, range(-(-len(shares) // SHARE_BYTES)), shares)


def commitment_tree(
    commitments: list[bytes] | tuple[bytes, ...], rows: list[bytes] | tuple[bytes, ...]
) -> Tree:
    """Build the tree under an upload's commitment root: the secrets' commitments, then one row per decryptor."""
    return Tree([b"".join(commitments), *rows])
