"""The two ways to turn statistics into integers that a ring can add without loss (docs/protocol.md §8.1, §9).

A statistic that is a polynomial of degree d in the features (the counts 0, U 1, V 2) is written in steps of `1/unit(d)`. Exact
studies add on the *sums* lattice: float64 statistics are rounded once, to one step for all. Noisy studies add on the *features*
lattice: the features themselves become integers, and noise of integers is added to their sums.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibration.errors import HeadroomExceeded, LatticeMismatch, NonFinite, WrongDtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from calibration.rows import Floats, Integers

# float64 holds integers to 2^53 and int64 to 2^63; one bit is kept free in the latter.
_INTEGER_BITS = 62
_BLOCK = 2**14


@dataclass(frozen=True)
class Lattice(ABC):
    """What both lattices share: a scale in bits, and units.

    Raises:
        LatticeMismatch: bits outside their domain.
    """

    bits: int
    bits_max: ClassVar[int]

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= self.bits_max:
            raise LatticeMismatch(f"{type(self).__name__} takes 1 to {self.bits_max} bits, not {self.bits!r}")

    @abstractmethod
    def unit(self, degree: int) -> int:
        """The integer that stands for 1 in a statistic of this degree in the features, a power of 2."""

    def decode(self, integers: Integers, degree: int = 0, *, in_place: bool = False) -> Floats:
        """Integers of any shape, in steps, as float64; those of a matrix `in_place`, where they stood.

        Raises:
            WrongDtype: not int64 (unsigned ring elements must be centred first).
        """
        integers = np.asarray(integers)
        require_int64(integers)
        if not in_place:
            return np.multiply(integers, 1 / self.unit(degree))
        reals = integers.view(np.float64)
        # A row at a time: numpy copies first what it converts in its place.
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

    def bound(self, records_max: int, members: int) -> int:
        """N_max·2^s + ⌈n/2⌉, the largest magnitude of a sum: unit features bound every entry by N, each of n members rounds by ½ at most."""
        return records_max * self.unit(0) + (members + 1) // 2

    def encode(self, vector: Floats, out: Integers | None = None) -> Integers:
        """Round to integers at 2^−bits, half to even.

        Args:
            vector: (elements,) float64.
            out: (elements,) int64 to write to.

        Raises:
            NonFinite: NaN or infinity.
            HeadroomExceeded: a value that int64 can't hold at this scale.
            WrongDtype: `vector` is not float64 or `out` not int64 of the same shape.
        """
        if vector.dtype != np.float64 or vector.ndim != 1:
            raise WrongDtype(f"a vector to encode is float64 (elements,), not {vector.dtype}{vector.shape}")
        if out is None:
            out = np.empty(vector.shape, np.int64)
        elif out.dtype != np.int64 or out.shape != vector.shape:
            raise WrongDtype(f"out is {out.dtype}{out.shape}; pass int64{vector.shape}")
        largest = 2.0 ** (_INTEGER_BITS - self.bits)
        scratch = np.empty(min(_BLOCK, vector.size))
        for start in range(0, vector.size, _BLOCK):
            values = vector[start : start + _BLOCK]
            # Written so that NaN, for which every comparison is false, is refused too.
            if not (values.max() < largest and values.min() > -largest):
                self._refuse(values, start, largest)
            scaled = np.multiply(values, 2.0**self.bits, out=scratch[: values.size])
            np.rint(scaled, out=scaled)
            np.copyto(out[start : start + _BLOCK], scaled, casting="unsafe")
        return out

    def _refuse(self, values: Floats, start: int, largest: float) -> None:
        rows = np.flatnonzero(~np.isfinite(values)) + start
        if rows.size:
            raise NonFinite(f"elements {rows[:5].tolist()} are NaN or infinite", rows=rows[:5].tolist())
        raise HeadroomExceeded(
            f"{np.abs(values).max():g} at {self.bits} bits does not fit an int64 (below {largest:g}); "
            "take a coarser lattice"
        )


@dataclass(frozen=True)
class FeaturesLattice(Lattice):
    """Integer rows q ≈ 2^bits·z with ‖q‖² ≤ 4^bits; V = qᵀq and U = qᵀY are exact integers, to which noise is added."""

    bits: int = 12
    bits_max: ClassVar[int] = 20

    @property
    def constant(self) -> int:
        """q₀ = ⌊2^f/√2⌋, the constant column of a fit with a bias."""
        return math.isqrt(4**self.bits // 2)

    def unit(self, degree: int) -> int:
        """2^(bits·degree)."""
        return 1 << self.bits * degree

    def bound(self, records_max: int, noise_tail: int) -> int:
        """N_max·4^f + T, the largest magnitude of a sum with noise up to T: nothing is rounded, however many members."""
        return records_max * self.unit(2) + noise_tail

    def encode_rows(self, rows: Floats, *, constant: bool = False) -> Integers:
        """Integer rows q = rint(2^f·x), shortened until ‖q‖² ≤ 4^f.

        Args:
            rows: (n, l) no longer than 1, or than 1/√2 with a constant.
            constant: append q₀, for which the others leave room: (n, l + 1).
        """
        room = self.unit(2) - (self.constant**2 if constant else 0)
        whole = _within(rows * self.unit(1), room)
        if constant:
            whole = np.column_stack([whole, np.full(len(whole), float(self.constant))])
        return whole.astype(np.int64)

    @property
    def exact_rows(self) -> int:
        """How many rows one product in float64 may add up: its integers stay below 2^53."""
        return (2**53 - 1) // self.unit(2)


def require_int64(sums: NDArray[Any]) -> None:
    """Refuse sums of another type, unsigned ring elements above all.

    Raises:
        WrongDtype: not int64.
    """
    if sums.dtype != np.int64:
        raise WrongDtype(f"sums are {sums.dtype}; pass the centred lift as int64")


def _within(scaled: Floats, budget: int) -> Floats:
    """Rounded rows of at most `budget` in ‖q‖²."""
    rounded: Floats = np.rint(scaled)
    over = np.flatnonzero(np.einsum("ij,ij->i", rounded, rounded) > budget)
    rounded[over] = _shrink(rounded[over], scaled[over], budget)
    return rounded


def _shrink(rounded: Floats, scaled: Floats, budget: int) -> Floats:
    """Take 1 off |q_i| until ‖q‖² ≤ budget: where rounding overshot first, largest first, lowest i on ties."""
    magnitudes, excess = np.abs(rounded), np.einsum("ij,ij->i", rounded, rounded) - budget
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
