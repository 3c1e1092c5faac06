"""Fuzzing of chunks: packed elements, which are authenticated only by the digest that their member announced."""

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from assurance.fuzz.mutator import Mutator
from assurance.fuzz.oracle import Tally
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.packing import PackingError, add_packed, pack_words, unpack_words
from veilsum.protocol.ring import Ring

HEADER_BYTES = 3
"""Header of a decoder's input: the width of an element, then the number of elements."""


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
    """Send mutants of a chunk to the phase that checks it. Only the announced bytes may pass.

    Args:
        phase: the collecting phase.
        member: the chunk's member.
        index: the chunk's index.
        spool: all chunks so far, by member and index.
        mutator: makes the mutants.
        tally: counts the results.
        count: number of mutants.
        copied: whether an announcement was changed and signed again, and may contain digests of another chunk.
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
    """Return whether the action succeeded."""
    return tally.call(what, data, lambda: (action(),), (refusal,)) is not None


def check_packed(data: bytes, bits: int, elements: int) -> None:
    """Check that bytes are refused by all readers, or read alike by all and written alike by packing.

    Raises:
        PackingError: if no encoder writes these bytes.
        AssertionError: if two readers differ.
    """
    ring = Ring(bits)
    total = np.full(elements, ring.mask, ring.dtype)
    try:
        words = unpack_words(data, bits, elements)
    except PackingError as error:
        try:
            add_packed(total, data, bits)
        except type(error):
            raise error from None
        raise AssertionError("what is not unpacked is added") from error
    assert bytes(pack_words(words, bits)) == data, "unpacks, but is packed otherwise"
    add_packed(total, data, bits)
    assert (((total + 1) & ring.mask) == words).all(), "is added otherwise than it is unpacked"


def read_packed(data: bytes) -> None:
    """Read a decoder's input: a width, a count and packed bytes."""
    if len(data) < HEADER_BYTES:
        raise PackingError("there is no width")
    check_packed(data[HEADER_BYTES:], 8 + data[0] % 57, int.from_bytes(data[1:HEADER_BYTES], "little"))


def packed_seeds() -> tuple[bytes, ...]:
    """Return one seed for each width, with as many elements as the width has bits."""
    seeds = []
    for bits in range(8, 65):
        words = Ring(bits).to_ring(np.arange(bits) - 4)
        seeds.append(bytes((bits - 8, bits, 0)) + bytes(pack_words(words, bits)))
    return tuple(seeds)
