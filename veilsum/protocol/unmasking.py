"""M4: add up the survivors' chunks and remove the rebuilt masks (analysis: Results)."""

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
    """Computes the sum chunk by chunk, in any order. Memory is a few chunks, regardless of the number of members."""

    def __init__(
        self,
        attempt: Attempt,
        survivors: tuple[str, ...],
        self_seeds: Mapping[str, bytes],
        edge_seeds: Mapping[tuple[str, str], bytes],
    ) -> None:
        """Prepare the sum over `survivors`; `self_seeds` holds b_u by survivor, `edge_seeds` r_uw by survivor and dropout."""
        self._attempt, self.survivors = attempt, survivors
        edges = edge_seeds.items()
        # A survivor u added sgn(w − u)·G(r_uw) for each dropout w. These masks are still in the sum, as is every G(b_u).
        self._masks = Masks(
            attempt.ring,
            added=[seed for (survivor, lost), seed in edges if lost < survivor],
            subtracted=[*self_seeds.values(), *(seed for (s, lost), seed in edges if lost > s)],
        )

    def sum_chunk(self, index: int, packed: Iterable[tuple[str, bytes]]) -> npt.NDArray[np.int64]:
        """Return chunk `index` of the sum.

        `packed` yields each survivor with its packed chunk, read one at a time.

        Raises:
            Misuse: the chunks are not exactly one per survivor.
            PeerFault: chunk-mismatch if a chunk is not packed correctly.
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
        return self.unmask_chunk(index, total)

    def unmask_chunk(self, index: int, total: Words) -> npt.NDArray[np.int64]:
        """Unmask `total`, chunk `index` summed over the survivors, into the ring's centred range; overwrites `total`."""
        self._masks.apply_to_chunk(total, index * self._attempt.spec.chunk_elements)
        return self._attempt.ring.lift_signed(total)
