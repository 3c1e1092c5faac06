"""A set is certified: a helper adds up its keystreams, and forgets the seeds (helpers H8)."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np

from protocol.codec import Digest, Fixed, Many, Nested
from protocol.errors import Misuse
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.helper.base import HelperPhase, HelperPhaseKind, Step
from protocol.helpers.helper.standing import Standing
from protocol.helpers.messages import (
    HELPERS,
    MAX_CLIENTS,
    SEEDS_BYTES,
    HelperCertificate,
    HelperOpening,
    HelperSums,
)
from protocol.helpers.sealing import seed_at
from protocol.identity import SigningKey
from protocol.keystream import Masks
from protocol.messages.base import Message
from protocol.packing import pack


@dataclass(frozen=True, slots=True)
class SumChunk:
    """Chunk `index` of Σ_{u∈S} G(s_{u,seed}), packed."""

    seed: int
    index: int
    packed: memoryview


class Summing(HelperPhase):
    """Holds the survivors' seeds and no others.

    Attributes:
        standing: where the helper stands afterwards; it knows this attempt's end already.
        outcome: what was certified.
        seeds: three a survivor, in the certificate's order.
    """

    kind: ClassVar[int] = HelperPhaseKind.SUMMING

    standing: Annotated[Standing, Nested(Standing)]
    opening: Annotated[HelperOpening, Nested(HelperOpening)]
    outcome: Digest
    seeds: Annotated[tuple[bytes, ...], Many(Fixed(SEEDS_BYTES, secret=True), MAX_CLIENTS)]

    @cached_property
    def attempt(self) -> HelperAttempt:
        """The attempt that was certified."""
        return HelperAttempt(self.standing.roster, self.opening)

    def lapse(self, now_s: float) -> HelperPhase:
        """Without the seeds, and without the sums, after the terms' latest end."""
        return self.standing if now_s >= self.opening.terms.latest_end_s else self

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """The certificate again: the sums are not ready."""
        return {HelperCertificate: self._again}

    def _again(self, certificate: HelperCertificate, _key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(certificate.context, "coordinator")
        return self, ()

    def adding(self) -> "Adding":
        """Begin the sums; whoever is interrupted begins again and gets the same bytes."""
        return Adding(self)

    def summed(self, sums: HelperSums) -> Step:
        """Take what `Adding.finish` returned: the seeds are gone, the effect is the sums' digests.

        Raises:
            Misuse: they are another attempt's or outcome's.
        """
        if (sums.context, sums.outcome) != (self.attempt.context, self.outcome):
            raise Misuse("these sums are not of the certified set")
        return replace(self.standing, sums=(sums,)), (sums,)


class Adding:
    """The sums of one helper, chunk by chunk: memory is a chunk and a cipher context a seed, 3 to 4.5 KiB a survivor.

    Its chunks are kept by the driver, and sent after the digests that `finish` signs.
    """

    def __init__(self, phase: Summing) -> None:
        self._attempt, self._outcome, self._helper = phase.attempt, phase.outcome, phase.standing.member
        self._indices = self._attempt.seeds_of(self._helper)
        self._masks = [
            Masks(self._attempt.ring, added=[seed_at(seeds, place) for seeds in phase.seeds])
            for place in range(HELPERS - 1)
        ]
        self._digests: list[list[bytes]] = [[] for _ in self._indices]

    def chunks(self) -> Iterator[SumChunk]:
        """Every chunk of every sum, each once: for one chunk after the other, the three sums in order."""
        attempt = self._attempt
        step = attempt.opening.terms.chunk_elements
        for index in range(attempt.chunks):
            for seed, masks, digests in zip(self._indices, self._masks, self._digests, strict=True):
                words = np.zeros(attempt.chunk_elements(index), attempt.ring.dtype)
                masks.apply(words, index * step)
                packed = pack(words, attempt.ring.bits)
                digests.append(hashlib.sha256(packed).digest())
                yield SumChunk(seed, index, packed)

    def finish(self, key: SigningKey) -> HelperSums:
        """Sign the digests; Misuse where chunks are missing."""
        if any(len(digests) != self._attempt.chunks for digests in self._digests):
            raise Misuse("the sums are not complete")
        return HelperSums.make(
            key,
            context=self._attempt.context,
            member=self._helper,
            outcome=self._outcome,
            digests=tuple(map(tuple, self._digests)),
        )
