"""The two lattices: how statistics become integers that a ring adds without loss (member: Exact vectors, member: Noise).

A statistic that is a polynomial of degree d in the features (counts 0, U 1, V 2) is counted in steps of `1/unit(d)`. Exact studies add
on the *sums* lattice: float64 statistics are rounded once, to the same step for every degree. Noisy studies add on the *features* lattice:
the features themselves become integers, and integer noise is added to their sums.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from veilsum.calibration.errors import HeadroomExceeded, LatticeMismatch, NonFinite, WrongDtype
from veilsum.calibration.rows import Floats, Integers

_INTEGER_BITS = 62  # one bit less than int64 has
_ROUNDING_BLOCK_ELEMENTS = 2**14
_ROW_BITS, _PRODUCT_BITS = 24, 52


@dataclass(frozen=True)
class Lattice(ABC):
    """A scale in bits, and the units that follow from it."""

    bits: int
    bits_max: ClassVar[int]

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= self.bits_max:
            raise LatticeMismatch(f"{type(self).__name__} takes 1 to {self.bits_max} bits, not {self.bits!r}")

    @abstractmethod
    def unit(self, degree: int) -> int:
        """The integer that stands for 1 in a statistic of this degree in the features, a power of 2."""

    def decode(self, integers: Integers, degree: int = 0, *, in_place: bool = False) -> Floats:
        """Convert integers of any shape, in steps, to float64; with `in_place` a matrix keeps its memory.

        Raises:
            WrongDtype: not int64, such as ring elements before the centred lift.
        """
        integers = np.asarray(integers)
        require_int64(integers)
        if not in_place:
            return np.multiply(integers, 1 / self.unit(degree))
        reals = integers.view(np.float64)
        # Row by row: numpy copies what it converts in its own memory.
        for row, real in zip(integers, reals, strict=True):
            np.multiply(row, 1 / self.unit(degree), out=real)
        return reals


@dataclass(frozen=True)
class SumsLattice(Lattice):
    """float64 statistics, each rounded once to a multiple of 2^−bits, half to even."""

    bits: int = 31
    bits_max: ClassVar[int] = 52

    def unit(self, degree: int = 0) -> int:  # noqa: ARG002 - one step for every degree is this lattice
        """2^bits, for every degree."""
        return 1 << self.bits

    def largest_sum(self, records_max: int, members: int) -> int:
        """N_max·2^s + ⌈n/2⌉, the largest magnitude of a sum: unit rows bound each entry by N, and each member rounds by at most ½."""
        return records_max * self.unit(0) + (members + 1) // 2

    def encode(self, vector: Floats, out: Integers | None = None, *, bound: float = math.inf) -> Integers:
        """Round an (elements,) vector to integers, half to even.

        Args:
            vector: float64.
            out: (elements,) int64, which may be the vector's own memory; a new array if None.
            bound: larger values count as this one, smaller ones as its negative.

        Raises:
            NonFinite: NaN or infinity.
            HeadroomExceeded: a value that int64 can't hold at this scale.
            WrongDtype: `vector` is not float64, or `out` not int64 of the same shape.
        """
        if vector.dtype != np.float64 or vector.ndim != 1:
            raise WrongDtype(f"a vector to encode is float64 (elements,), not {vector.dtype}{vector.shape}")
        if out is None:
            out = np.empty(vector.shape, np.int64)
        elif out.dtype != np.int64 or out.shape != vector.shape:
            raise WrongDtype(f"out is {out.dtype}{out.shape}: pass int64{vector.shape}")
        largest = 2.0 ** (_INTEGER_BITS - self.bits)
        scratch = np.empty(min(_ROUNDING_BLOCK_ELEMENTS, vector.size))
        for start in range(0, vector.size, _ROUNDING_BLOCK_ELEMENTS):
            values = vector[start : start + _ROUNDING_BLOCK_ELEMENTS]
            scaled = np.clip(values, -bound, bound, out=scratch[: values.size])
            # Written so that NaN, for which every comparison is false, is refused too.
            if not (scaled.max() < largest and scaled.min() > -largest):
                self._refuse_values(values, start, largest)
            scaled *= 2.0**self.bits
            np.rint(scaled, out=scaled)
            np.copyto(out[start : start + _ROUNDING_BLOCK_ELEMENTS], scaled, casting="unsafe")
        return out

    def _refuse_values(self, values: Floats, start: int, largest: float) -> None:
        rows = np.flatnonzero(~np.isfinite(values)) + start
        if rows.size:
            raise NonFinite(f"elements {rows[:5].tolist()} are NaN or infinite")
        raise HeadroomExceeded(
            f"{np.abs(values).max():g} does not fit int64 at {self.bits} bits (expected below {largest:g}): "
            "take a coarser lattice"
        )


@dataclass(frozen=True)
class FeaturesLattice(Lattice):
    """Integer rows q ≈ 2^f·z with ‖q‖² ≤ 4^f, f = bits: V = qᵀq and U = qᵀY are integers, to which noise is added."""

    bits: int = 12
    bits_max: ClassVar[int] = 20

    @property
    def mean_constant(self) -> int:
        """⌊2^f/√2⌋, the last number of a mean's rows. It counts them."""
        return math.isqrt(4**self.bits // 2)

    @property
    def constant(self) -> int:
        """⌊2^f·√.1⌋, the last number of rows that are summed with a constant."""
        return math.isqrt(4**self.bits // 10)

    @property
    def exact_rows(self) -> int:
        """How many rows a product in float64 may add up so that its integers stay below 2^53."""
        return (2**53 - 1) // self.unit(2)

    def unit(self, degree: int) -> int:
        """2^(f·degree)."""
        return 1 << self.bits * degree

    def largest_sum(self, records_max: int, noise_tail: int) -> int:
        """N_max·4^f + T, the largest magnitude of a sum with noise up to T."""
        return records_max * self.unit(2) + noise_tail

    def encode_rows(self, rows: Floats, *, constant: int = 0) -> Integers:
        """Integer rows q = rint(2^f·x), shortened until ‖q‖² ≤ 4^f, of (n, l) rows x no longer than 1.

        With a `constant` q₀ above 0, they are shortened until ‖q‖² ≤ 4^f − q₀², and q₀ is appended: (n, l + 1).
        """
        room = self.unit(2) - constant**2
        scaled = rows * self.unit(1)
        whole: Floats = np.rint(scaled)
        over = np.flatnonzero(np.einsum("ij,ij->i", whole, whole) > room)
        whole[over] = _shrink_to_norm(whole[over], scaled[over], room)
        if constant:
            whole = np.column_stack([whole, np.full(len(whole), float(constant))])
        return whole.astype(np.int64)


def require_int64(sums: NDArray[Any]) -> None:
    """Raise WrongDtype unless sums are int64; ring elements are unsigned."""
    if sums.dtype != np.int64:
        raise WrongDtype(f"sums are {sums.dtype}: pass the centred lift as int64")


def exact_products(rows: Floats, columns: NDArray[Any]) -> Floats:
    """Multiply (n, l) rows by (l, k) columns so that each row's bits follow from that row and the columns alone, (n, k).

    Under noise, one record more must not change the last bit of another's number, and BLAS may sum in another order for one row more. So
    both factors, which are finite, are rounded to whole numbers first, small enough that float64 rounds no partial sum (docs/privacy.md).
    """
    column_bits = _PRODUCT_BITS - _ROW_BITS - (len(columns).bit_length() + 1) // 2
    # Powers of two: only the rounding to whole numbers changes a digit.
    peaks = np.abs(rows).max(axis=1, initial=1.0)
    row_shift = _ROW_BITS - np.frexp(np.nextafter(peaks, 0))[1]
    # By the largest number first: squares of tiny ones underflow, and a length found too short lets sums outgrow float64.
    peak_shift = -np.frexp(np.abs(columns).max(axis=0, initial=0.0))[1]
    scaled = np.ldexp(columns, peak_shift)
    length_shift = column_bits - np.frexp(np.linalg.norm(scaled, axis=0))[1]
    whole = np.rint(np.ldexp(rows, row_shift[:, None])) @ np.rint(np.ldexp(scaled, length_shift))
    products: Floats = np.ldexp(np.ldexp(whole, -length_shift - peak_shift), -row_shift[:, None])
    return products


def _shrink_to_norm(rounded: Floats, scaled: Floats, room: int) -> Floats:
    """Take 1 off |q_i| until ‖q‖² ≤ room: first where rounding overshot, then the largest; the lowest i on ties."""
    magnitudes, excess = np.abs(rounded), np.einsum("ij,ij->i", rounded, rounded) - room
    overshot = np.where(magnitudes > np.abs(scaled), magnitudes, 0.0)
    rows = np.flatnonzero(excess > 0)
    while rows.size:
        # argmax takes the lowest index among equals. A coordinate that was shrunk overshoots no more.
        chosen = overshot[rows].argmax(axis=1)
        spent = overshot[rows, chosen] == 0
        chosen[spent] = magnitudes[rows[spent]].argmax(axis=1)
        excess[rows] -= 2 * magnitudes[rows, chosen] - 1
        magnitudes[rows, chosen] -= 1
        overshot[rows, chosen] = 0
        rows = rows[excess[rows] > 0]
    return np.copysign(magnitudes, rounded)
