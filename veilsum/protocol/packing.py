"""Ring elements on the wire: the low b bits of each, LSB first, little-endian (protocol, "Ring").

Element i fills the bits i·b … (i+1)·b − 1 of the packed string, where bit j is bit j mod 8 of byte j div 8.
Chunks cut at a multiple of 8 elements end on a byte, so packing by chunk and packing the whole vector give
the same bytes. A last byte is padded with zero bits; a decoder refuses anything else.

One method serves every width. Read the packed string as little-endian words of w bits (w = 32 or 64, as in
memory): the pattern of shifts repeats every w / gcd(b, w) elements, which fill b / gcd(b, w) words. So a
vector is a matrix with one such period per row, and its columns are shifted and joined with numpy.
Measured with 947,840 elements on one core: 1.7 ms at 48 bits, 3.3 at 42, 5.5 at 63.
"""

from math import gcd
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from veilsum.protocol.errors import Misuse
from veilsum.protocol.ring import Ring, Words

Buffer: TypeAlias = bytes | bytearray | memoryview

# Measured at 64 KiB, 256 KiB, 1 MiB and 16 MiB. In smaller blocks, numpy's overhead per call slows widths with a long period
# (63 bits: 22, 8, 5 ms); larger blocks exceed the cache and take more memory.
PACKING_BLOCK_BYTES = 1 << 20
_SCRATCH_BYTES = 1 << 17


class PackingError(ValueError):
    """Invalid packed bytes."""


class _Frame:
    """Scratch memory for one block: `rows` periods as elements, and as packed words."""

    def __init__(self, ring: Ring, elements: int) -> None:
        self.width = 8 * ring.itemsize
        common = gcd(ring.bits, self.width)
        self.period, packed_words = self.width // common, ring.bits // common
        rows = max(1, min(-(-elements // self.period), PACKING_BLOCK_BYTES // (self.period * ring.itemsize)))
        little = ring.dtype.newbyteorder("<")
        self.elements = np.empty((rows, self.period), little)
        self.packed = np.empty((rows, packed_words), little)
        self.column = np.empty(rows, ring.dtype)
        self.packed_bytes = self.packed.view(np.uint8).reshape(-1)


def _view_units(
    memory: npt.NDArray[np.unsignedinteger], ring: Ring, bits: int
) -> npt.NDArray[np.unsignedinteger]:
    """View memory as rows of `bits` bits, in the widest units that fill both an element and its word: 2 B at 48 bits."""
    unit = gcd(ring.bits, 8 * ring.itemsize)
    return memory.view(f"<u{unit // 8}").reshape(-1, bits // unit)


def _pack_bytes(words: Words, ring: Ring, packed: npt.NDArray[np.uint8]) -> None:
    """Pack whole-byte widths by dropping the words' high bytes: block by block and, in a block, column by column."""
    size = ring.bits // 8
    scratch = np.empty(min(words.size, _SCRATCH_BYTES // ring.itemsize) * size, np.uint8)
    for start in range(0, words.size, _SCRATCH_BYTES // ring.itemsize):
        block = words[start : start + _SCRATCH_BYTES // ring.itemsize]
        source = _view_units(
            np.ascontiguousarray(block, ring.dtype.newbyteorder("<")), ring, 8 * ring.itemsize
        )
        bytes_ = scratch[: block.size * size]
        target = _view_units(bytes_, ring, ring.bits)
        for i in range(target.shape[1]):
            target[:, i] = source[:, i]
        packed[start * size :][: bytes_.size] = bytes_


def _unpack_bytes(packed: npt.NDArray[np.uint8], ring: Ring, elements: int) -> Words:
    words = np.zeros(elements, ring.dtype.newbyteorder("<"))
    source, target = _view_units(packed, ring, ring.bits), _view_units(words, ring, 8 * ring.itemsize)
    for i in range(source.shape[1]):
        target[:, i] = source[:, i]
    return words.astype(ring.dtype, copy=False)


def pack_words(words: Words, bits: int, out: bytearray | memoryview | None = None) -> memoryview:
    """Encode the low `bits` bits of each word.

    Args:
        words: shape (n,), uint32 if bits ≤ 32, else uint64; higher bits are dropped.
        bits: width of an element, 8 … 64.
        out: at least ⌈n·bits/8⌉ writable bytes, which may be the words' own; allocated if None.

    Returns:
        The ⌈n·bits/8⌉ packed bytes: a view of `out` or of new memory.

    Raises:
        Misuse: invalid width, dtype or shape, or an `out` that is read-only or too short.
    """
    ring = Ring(bits)
    ring.check_words(words)
    size = ring.packed_bytes(words.size)
    packed = np.empty(size, np.uint8) if out is None else np.frombuffer(out, np.uint8)
    if packed.size < size or not packed.flags.writeable:
        raise Misuse(f"{words.size} elements of {bits} bits take {size} writable bytes")
    packed = packed[:size]
    if bits % 8 == 0:
        _pack_bytes(words, ring, packed)
        return packed.data

    frame = _Frame(ring, words.size)
    flat, column = frame.elements.reshape(-1), frame.column
    for start in range(0, words.size, flat.size):
        block = words[start : start + flat.size]
        np.bitwise_and(block, ring.mask, out=flat[: block.size])
        flat[block.size :] = 0  # the padding
        for i in range(frame.period):
            # the word and bit at which element i begins, and the number of its bits that go into the next word
            word, shift = divmod(i * bits, frame.width)
            spill = shift + bits - frame.width
            if shift:
                np.left_shift(frame.elements[:, i], shift, out=column)
                frame.packed[:, word] |= column
            else:
                frame.packed[:, word] = frame.elements[:, i]
            if spill > 0:
                np.right_shift(frame.elements[:, i], bits - spill, out=frame.packed[:, word + 1])
        # a block holds whole periods, so it begins at a byte
        target = packed[start * bits // 8 :][: frame.packed_bytes.size]
        target[:] = frame.packed_bytes[: target.size]
    return packed.data


def unpack_words(data: Buffer | npt.NDArray[np.uint8], bits: int, elements: int) -> Words:
    """Decode `elements` elements: the inverse of `pack_words`, for exactly the bytes that it writes.

    Args:
        data: ⌈elements·bits/8⌉ bytes.
        bits: width of an element, 8 … 64.
        elements: number of elements.

    Returns:
        Words of shape (elements,), each below 2^bits.

    Raises:
        PackingError: the wrong number of bytes, or a set bit after the last element.
        Misuse: invalid width, or a negative number of elements.
    """
    ring = Ring(bits)
    packed = _check_packed(data, ring, elements)
    if bits % 8 == 0:
        return _unpack_bytes(packed, ring, elements)

    out, frame = np.empty(elements, ring.dtype), _Frame(ring, elements)
    flat, column = frame.elements.reshape(-1), frame.column
    for start in range(0, elements, flat.size):
        source = packed[start * bits // 8 :][: frame.packed_bytes.size]
        frame.packed_bytes[: source.size] = source
        frame.packed_bytes[source.size :] = 0
        for i in range(frame.period):
            word, shift = divmod(i * bits, frame.width)
            spill = shift + bits - frame.width
            np.right_shift(frame.packed[:, word], shift, out=frame.elements[:, i])
            if spill > 0:
                np.left_shift(frame.packed[:, word + 1], bits - spill, out=column)
                frame.elements[:, i] |= column
        block = out[start : start + flat.size]
        np.bitwise_and(flat[: block.size], ring.mask, out=block)
    return out


def add_packed(total: Words, data: Buffer, bits: int) -> None:
    """Add the elements of `data` to `total` mod 2^bits, in place; higher bits become arbitrary.

    Whole-byte widths need no decoding: element i is read as the word that begins at its first byte, and the bits of the next
    elements lie above 2^bits. 947,940 elements of 48 bits take 0.4 ms; `unpack_words` takes 1.2.

    Raises:
        PackingError, Misuse: as in `unpack_words`.
    """
    ring = Ring(bits)
    ring.check_words(total)
    packed = _check_packed(data, ring, total.size)
    stride = bits // 8
    # The last element has no bytes after it; if a word spans more than two elements, neither do those before it.
    if bits % 8 or 2 * stride < ring.itemsize or total.size < 2:
        np.add(total, unpack_words(data, bits, total.size), out=total)
        return
    words = np.ndarray((total.size - 1,), ring.dtype.newbyteorder("<"), packed, 0, (stride,))
    np.add(total[:-1], words, out=total[:-1])
    total[-1:] += unpack_words(packed[-stride:], bits, 1)


def _check_packed(data: Buffer | npt.NDArray[np.uint8], ring: Ring, elements: int) -> npt.NDArray[np.uint8]:
    """View `data` as bytes after checking its length and zero padding."""
    size = ring.packed_bytes(elements)
    packed = np.frombuffer(data, np.uint8)
    if packed.size != size:
        raise PackingError(f"{elements} elements of {ring.bits} bits take {size} bytes, not {packed.size}")
    padding = 8 * size - elements * ring.bits
    if padding and int(packed[-1]) >> (8 - padding):
        raise PackingError(f"the last {padding} bits of the last byte must be zero")
    return packed
