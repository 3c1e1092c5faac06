"""M4: add up the survivors' chunks and take the rebuilt masks off (protocol §4.8)."""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.keystream import Masks
from veilsum.protocol.packing import PackingError, add_packed
from veilsum.protocol.ring import Words


class Unmasking:
    """The sum, chunk by chunk, in any order; memory is a few chunks whatever the number of members."""

    def __init__(
        self,
        attempt: Attempt,
        survivors: tuple[str, ...],
        self_seeds: Mapping[str, bytes],
        edge_seeds: Mapping[tuple[str, str], bytes],
    ) -> None:
        """Unmask the sum over `survivors`: `self_seeds` are b_u of each, `edge_seeds` r_uw by survivor and neighbour that is lost."""
        self._attempt, self.survivors = attempt, survivors
        edges = edge_seeds.items()
        # A survivor u added sgn(w − u)·G(r_uw) for every lost w; all of it is still in the sum, with every G(b_u).
        self._masks = Masks(
            attempt.ring,
            added=[seed for (survivor, lost), seed in edges if lost < survivor],
            subtracted=[*self_seeds.values(), *(seed for (s, lost), seed in edges if lost > s)],
        )

    def chunk(self, index: int, packed: Iterable[tuple[str, bytes]]) -> npt.NDArray[np.int64]:
        """Chunk `index` of the sum.

        `packed` is each survivor with its packed chunk, read one at a time.

        Raises:
            Misuse: not exactly the survivors' chunks.
            PeerFault: chunk-mismatch where a chunk is not packed as it should be.
        """
        ring = self._attempt.ring
        total = np.zeros(self._attempt.chunk_elements(index), ring.dtype)
        seen = []
        for member, data in packed:
            try:
                add_packed(total, data, ring.bits)
            except PackingError as error:
                raise PeerFault(
                    Cause.CHUNK_MISMATCH, f"{member}'s chunk {index}: {error}", [member]
                ) from error
            seen.append(member)
        if sorted(seen) != sorted(self.survivors):
            raise Misuse("a sum takes one chunk of each survivor and no other")
        return self.unmask(index, total)

    def unmask(self, index: int, total: Words) -> npt.NDArray[np.int64]:
        """Chunk `index` of the sum in the ring's centred range, from the survivors' chunks added up; `total` is overwritten."""
        self._masks.apply(total, index * self._attempt.spec.chunk_elements)
        return self._attempt.ring.lift(total)
