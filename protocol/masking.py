"""A vector is masked and packed chunk by chunk, in either mode, and the digests of its chunks are kept."""

import hashlib

import numpy as np
import numpy.typing as npt

from protocol.chunked import Chunked
from protocol.errors import Misuse
from protocol.keystream import Masks
from protocol.packing import pack


class Masking:
    """The chunks of one upload in the making.

    Args:
        chunked: the attempt, which fixes the chunks.
        masks: what is added to them, in the attempt's ring.
    """

    def __init__(self, chunked: Chunked, masks: Masks) -> None:
        self._chunked, self._masks = chunked, masks
        self._digests: list[bytes] = []
        self._words = np.empty(0, chunked.ring.dtype)

    def chunk(self, values: npt.NDArray[np.int64]) -> memoryview:
        """Mask and pack the next chunk.

        Args:
            values: int64, the chunk's elements in order; as many as the terms give this chunk.

        Raises:
            Misuse: too many chunks, another length, or a value outside the ring (named by index only).
        """
        index, chunked = len(self._digests), self._chunked
        if index >= chunked.chunks or len(values) != chunked.chunk_elements(index):
            raise Misuse(f"chunk {index} of {chunked.chunks} does not have {len(values)} elements")
        if self._words.size < len(values):
            self._words = np.empty(len(values), chunked.ring.dtype)
        words = chunked.ring.to_ring(values, out=self._words[: len(values)])
        self._masks.apply(words, index * chunked.terms.chunk_elements)
        packed = pack(words, chunked.ring.bits)
        self._digests.append(hashlib.sha256(packed).digest())
        return packed

    def chunk_digests(self) -> tuple[bytes, ...]:
        """SHA-256 of every chunk in order; Misuse while some are missing."""
        if len(self._digests) != self._chunked.chunks:
            raise Misuse(f"{len(self._digests)} of {self._chunked.chunks} chunks are masked")
        return tuple(self._digests)
