"""Chunks: packed elements, which carry no signature but the digest that their member announced."""

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from assurance.fuzz.mutator import Mutator
from assurance.fuzz.oracle import Tally
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.packing import PackingError, add_packed, pack, unpack
from veilsum.protocol.ring import Ring

HEADER_BYTES = 3
"""Of a decoder's input: the width of an element, then how many there are."""


def fire(
    phase: Any,
    member: str,
    index: int,
    spool: Mapping[tuple[str, int], bytes],
    mutator: Mutator,
    tally: Tally,
    count: int,
    *,
    copied: bool,
) -> None:
    """Mutants of one chunk at the phase that checks it; only the bytes that were announced there may pass.

    Args:
        phase: is collecting.
        member: whose chunk it is.
        index: of the chunk.
        spool: every chunk so far, by member and index.
        mutator: draws.
        tally: counts.
        count: how many mutants.
        copied: an announcement was changed and signed again, so that it may hold the digests of another's chunks.
    """
    bits, draw = phase.attempt.ring.bits, mutator.random
    for _ in range(count):
        place = draw.choice((index, index, index, index + 1, -1, 1 << 64))
        data = mutator.bytes(spool[member, index]) if draw.random() < 0.8 else draw.choice([*spool.values()])
        digest, name = sha256(data).digest(), f"{type(phase).__name__} < chunk"
        tally.messages["chunk"] += 1
        check = partial(phase.check_chunk, member, place, digest, data)
        announced = spool.values() if copied else (spool.get((member, place)),)
        if accepted(tally, name, data, check, PeerFault) and data not in announced:
            tally.violation(f"{name}: accepted bytes that were not announced", data)
        read = partial(check_packed, data, bits, phase.attempt.chunk_elements(index))
        accepted(tally, "packed chunk", data, read, PackingError)


def accepted(
    tally: Tally, what: str, data: bytes, action: Callable[[], object], refusal: type[Exception]
) -> bool:
    """Whether the action went through."""
    return tally.call(what, data, lambda: (action(),), (refusal,)) is not None


def check_packed(data: bytes, bits: int, elements: int) -> None:
    """Bytes are refused by whoever reads them, or say the same to all, and are what packing writes.

    Raises:
        PackingError: no encoder writes them.
        AssertionError: two readers differ.
    """
    ring = Ring(bits)
    total = np.full(elements, ring.mask, ring.dtype)
    try:
        words = unpack(data, bits, elements)
    except PackingError as error:
        try:
            add_packed(total, data, bits)
        except type(error):
            raise error from None
        raise AssertionError("what is not unpacked is added") from error
    assert bytes(pack(words, bits)) == data, "unpacks, but is packed otherwise"
    add_packed(total, data, bits)
    assert (((total + 1) & ring.mask) == words).all(), "is added otherwise than it is unpacked"


def read_packed(data: bytes) -> None:
    """A decoder's input: a width, a count and packed bytes."""
    if len(data) < HEADER_BYTES:
        raise PackingError("there is no width")
    check_packed(data[HEADER_BYTES:], 8 + data[0] % 57, int.from_bytes(data[1:HEADER_BYTES], "little"))


def packed_seeds() -> tuple[bytes, ...]:
    """One for each width, of as many elements as that."""
    seeds = []
    for bits in range(8, 65):
        words = Ring(bits).to_ring(np.arange(bits) - 4)
        seeds.append(bytes((bits - 8, bits, 0)) + bytes(pack(words, bits)))
    return tuple(seeds)
