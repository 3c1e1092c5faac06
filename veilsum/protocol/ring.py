"""The integers mod 2^b in which members' vectors are masked and summed (protocol, "Ring").

A word is a uint32 if b ≤ 32, else a uint64. Both wrap exactly, and 2^b divides 2^32 or 2^64, so sums of
words need no reduction. Only the low b bits of a word are significant; the bits above them are dropped on
the wire (`veilsum.protocol.packing`) and ignored by `Ring.lift_signed`.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from veilsum.protocol.errors import Misuse

Words: TypeAlias = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True)
class Ring:
    """The integers mod 2^`bits`, read as the centred range −2^(bits−1) … 2^(bits−1) − 1.

    Args:
        bits: width of an element on the wire, 8 … 64.

    Raises:
        Misuse: `bits` is outside its domain.
    """

    bits: int

    def __post_init__(self) -> None:
        if not 8 <= self.bits <= 64:
            raise Misuse(f"a ring has 8 to 64 bits, not {self.bits}")

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The numpy type of a word: uint32 up to 32 bits, else uint64."""
        return np.dtype(np.uint32 if self.bits <= 32 else np.uint64)

    @property
    def itemsize(self) -> int:
        """Bytes of a word in memory and of an element of the keystream: 4 or 8."""
        return 4 if self.bits <= 32 else 8

    @property
    def mask(self) -> int:
        """2^bits − 1."""
        return (1 << self.bits) - 1

    def packed_bytes(self, elements: int) -> int:
        """Return the number of bytes that `elements` elements take on the wire, with padding.

        Raises:
            Misuse: `elements` is negative.
        """
        if elements < 0:
            raise Misuse(f"a vector has no {elements} elements")
        return -(-elements * self.bits // 8)

    def to_ring(self, vector: npt.NDArray[np.int64], out: Words | None = None) -> Words:
        """Embed signed integers in the ring.

        Args:
            vector: int64 of shape (n,), each value in the ring's centred range.
            out: output of shape (n,) and the ring's dtype; allocated if None.

        Returns:
            Words of shape (n,), sign-extended above the low `bits` bits.

        Raises:
            Misuse: another dtype or shape, or a value outside the centred range; the error gives the index of the
                first such value, never the value.
        """
        if vector.dtype != np.int64 or vector.ndim != 1:
            raise Misuse(f"the ring takes an int64 vector, not {vector.dtype} of shape {vector.shape}")
        half = 1 << (self.bits - 1)
        if vector.size and (int(vector.min()) < -half or int(vector.max()) >= half):
            first = int(np.argmax((vector < -half) | (vector > half - 1)))
            raise Misuse(f"element {first} is outside the centred range of a ring of {self.bits} bits")
        if out is None:
            out = np.empty(vector.shape, self.dtype)
        self.check_words(out)
        if out.shape != vector.shape:
            raise Misuse(f"{vector.size} elements don't fit an output of {out.size}")
        # unsigned to unsigned: narrowing keeps the low bits, which is reduction mod 2^32
        np.copyto(out, vector.view(np.uint64), casting="same_kind")
        return out

    def lift_signed(self, words: Words) -> npt.NDArray[np.int64]:
        """Read the low `bits` bits of each word as a signed integer.

        Args:
            words: shape (n,), of the ring's dtype.

        Returns:
            int64 of shape (n,), in the ring's centred range.

        Raises:
            Misuse: another dtype or shape.
        """
        self.check_words(words)
        spare = 8 * self.itemsize - self.bits
        signed = (words << spare).view(f"i{self.itemsize}")
        signed >>= spare  # an arithmetic shift: it copies the sign bit down
        return signed.astype(np.int64, copy=False)

    def check_words(self, words: Words) -> None:
        """Refuse anything but a vector of this ring's words.

        Raises:
            Misuse: another dtype or number of dimensions.
        """
        if words.dtype != self.dtype or words.ndim != 1:
            raise Misuse(
                f"a ring of {self.bits} bits takes a {self.dtype} vector, not {words.dtype} of shape {words.shape}"
            )
