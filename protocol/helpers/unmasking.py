"""Add up the survivors' chunks and take the helpers' sums off (helpers H8)."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.helpers.coordinator.ended import Recovered
from protocol.helpers.messages import HELPERS
from protocol.packing import PackingError, add_packed
from protocol.ring import Words


class HelperUnmasking:
    """The sum, chunk by chunk, in any order; memory is a few chunks whatever the number of clients."""

    def __init__(self, recovered: Recovered) -> None:
        self._attempt, self._sources = recovered.attempt, recovered.sources
        self.survivors = tuple(survivor.member for survivor in recovered.certificate.survivors)

    def chunk(
        self, index: int, packed: Iterable[tuple[str, bytes]], sums: Sequence[bytes]
    ) -> npt.NDArray[np.int64]:
        """Chunk `index` of the sum.

        Args:
            index: which chunk.
            packed: each survivor with its packed chunk, read one at a time.
            sums: this chunk of each seed's sum, from any holder that `Recovered.sources` names.

        Returns:
            int64, the chunk's elements in the ring's centred range.

        Raises:
            Misuse: not exactly the survivors' chunks, or not four sums.
            PeerFault: chunk-mismatch where a chunk is not what was announced, or not packed as it should be.
        """
        total = np.zeros(self._attempt.chunk_elements(index), self._attempt.ring.dtype)
        seen = []
        for client, data in packed:
            self._add(total, data, index, (client,))
            seen.append(client)
        if sorted(seen) != sorted(self.survivors):
            raise Misuse("a sum takes one chunk of each survivor and no other")
        return self.unmask(index, total, sums)

    def unmask(self, index: int, total: Words, sums: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """Chunk `index` of the sum.

        Args:
            index: which chunk.
            total: the survivors' chunks added up, of the ring's dtype; it is overwritten.
            sums: this chunk of each seed's sum, from any holder that `Recovered.sources` names.

        Returns:
            int64, the chunk's elements in the ring's centred range.

        Raises:
            Misuse: not four sums.
            PeerFault: chunk-mismatch where one of them is not what was announced, or not packed as it should be.
        """
        ring = self._attempt.ring
        if len(sums) != HELPERS:
            raise Misuse(f"a chunk is unmasked by {HELPERS} sums, not {len(sums)}")
        masks = np.zeros(total.size, ring.dtype)
        for source, data in zip(self._sources, sums, strict=True):
            if hashlib.sha256(data).digest() != source.digests[index]:
                raise PeerFault(
                    Cause.CHUNK_MISMATCH, f"chunk {index} of the sum is not the one signed", source.holders
                )
            self._add(masks, data, index, source.holders)
        np.subtract(total, masks, out=total)
        return ring.lift(total)

    def _add(
        self, total: npt.NDArray[np.unsignedinteger], data: bytes, index: int, owners: tuple[str, ...]
    ) -> None:
        try:
            add_packed(total, data, self._attempt.ring.bits)
        except PackingError as error:
            raise PeerFault(Cause.CHUNK_MISMATCH, f"chunk {index}: {error}", owners) from error
