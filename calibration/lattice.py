"""The two ways to turn statistics into integers that a ring can add without loss.

A statistic that is a polynomial of degree d in the features (the counts 0, U 1, V 2) is written in
steps of `1/unit(d)`. Exact rounds add on the *sums* lattice: float64 statistics are rounded once, to the
same step for all. Noisy rounds add on the *features* lattice: the features themselves are integers, to
which noise of integers is added.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from calibration.errors import HeadroomExceeded, LatticeMismatch, NonFinite, WrongDtype
from calibration.rows import Floats, Integers, unit_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

# float64 holds integers to 2^53 and int64 to 2^63; one bit is kept free in the latter.
_INTEGER_BITS = 62
_BLOCK = 2**14


@dataclass(frozen=True)
class Lattice(ABC):
    """What both lattices promise: a name, a scale in bits, units and a provable bound.

    `(name, bits)` identifies a lattice in a round's terms; `lattice_from` reads it.
    """

    bits: int
    name: ClassVar[str]
    bits_max: ClassVar[int]

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= self.bits_max:
            raise LatticeMismatch(
                f"the {self.name} lattice takes 1 to {self.bits_max} bits, not {self.bits!r}"
            )

    @abstractmethod
    def unit(self, degree: int) -> int:
        """The integer that stands for 1 in a statistic of this degree in the features, a power of 2."""

    @abstractmethod
    def bound(self, records_max: int, members: int, noise_tail: int = 0) -> int:
        """The largest magnitude that the centred sum can take, in steps.

        Args:
            records_max: N_max, records of all members together.
            members: n, how many vectors are added.
            noise_tail: T, the largest noise on the sum, in steps.
        """

    def required_bits(self, records_max: int, members: int, noise_tail: int = 0) -> int:
        """The smallest ring width b with 2^(b−1) > `bound(…)`."""
        return self.bound(records_max, members, noise_tail).bit_length() + 1

    def check_headroom(self, ring_bits: int, records_max: int, members: int, noise_tail: int = 0) -> None:
        """Prove that no sum can wrap around in a ring of `ring_bits` (PROTOCOL, "Ring").

        Raises:
            HeadroomExceeded: it could; the error has the width that would do.
        """
        required = self.required_bits(records_max, members, noise_tail)
        if required > ring_bits:
            raise HeadroomExceeded(
                f"{members} members with {records_max} records on the {self.name} lattice at {self.bits} bits "
                f"can sum to {self.bound(records_max, members, noise_tail)}, not below 2^{ring_bits - 1}; "
                f"take a ring of {required} bits, fewer records or a coarser lattice",
                required_bits=required,
            )

    @classmethod
    def for_ring(
        cls,
        ring_bits: int,
        records_max: int,
        members: int,
        noise_tail: int = 0,
        *,
        finest: int | None = None,
        coarsest: int = 1,
    ) -> Self:
        """The finest lattice of this kind, from `finest` to `coarsest` bits, whose sums fit a ring of `ring_bits`.

        Raises:
            HeadroomExceeded: not even the coarsest fits.
        """
        for bits in range(finest or cls.bits_max, coarsest, -1):
            lattice = cls(bits)
            if lattice.required_bits(records_max, members, noise_tail) <= ring_bits:
                return lattice
        last = cls(coarsest)
        last.check_headroom(ring_bits, records_max, members, noise_tail)
        return last

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
    """float64 statistics, each rounded once to a multiple of 2^−bits, half to even.

    31 bits suit a 48-bit ring and 15 bits a 32-bit ring at up to 65,535 records.
    """

    bits: int = 31
    name: ClassVar[str] = "sums"
    bits_max: ClassVar[int] = 52

    def unit(self, degree: int = 0) -> int:  # noqa: ARG002 - one step for every degree is this lattice
        """2^bits, for every degree."""
        return 1 << self.bits

    def bound(self, records_max: int, members: int, noise_tail: int = 0) -> int:
        """N_max·2^s + ⌈n/2⌉ + T: unit features bound every entry by N, each member rounds by ½ at most."""
        _check_terms(records_max, members, noise_tail)
        return records_max * self.unit(0) + (members + 1) // 2 + noise_tail

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
    name: ClassVar[str] = "features"
    bits_max: ClassVar[int] = 20

    @property
    def constant(self) -> int:
        """q₀ = ⌊2^f/√2⌋, the constant column of a fit with a bias."""
        return math.isqrt(4**self.bits // 2)

    @property
    def constant_share(self) -> float:
        """κ = q₀²/4^f, ½ or a little less: what of a row's squared length is the constant's; the features have the rest."""
        return self.constant**2 / self.unit(2)

    def unit(self, degree: int) -> int:
        """2^(bits·degree)."""
        return 1 << self.bits * degree

    def bound(self, records_max: int, members: int, noise_tail: int = 0) -> int:
        """N_max·4^f + T: nothing is rounded, however many members."""
        _check_terms(records_max, members, noise_tail)
        return records_max * self.unit(2) + noise_tail

    def check_dim(self, dim: int) -> None:
        """Refuse rows so wide that all their values could round to zero.

        A row of length 2^f/√2 has a value above ½ while l ≤ 4^f.

        Raises:
            LatticeMismatch: `dim` exceeds 4^f.
        """
        if dim > self.unit(2):
            raise LatticeMismatch(f"{dim} features need a lattice finer than {self.bits} bits (dim ≤ 4^bits)")

    def encode_rows(self, features: NDArray[Any], *, bias: bool = False, first: int = 0) -> Integers:
        """Integer rows by the rule of PROTOCOL, "Ring".

        Args:
            features: (n, l) array of a real type; rows are scaled to length 1 in float64.
            bias: whether to scale them by 1/√2 and append the constant column, which gives (n, l + 1).
            first: index of the first row in the caller's batch, for error messages.

        Raises:
            NonFinite: NaN or infinity in a row.
            ZeroRow: a row of zeros.
            LatticeMismatch: as `check_dim`.
        """
        self.check_dim(features.shape[1] + bias)
        scaled, _ = unit_rows(features, first=first)
        scaled *= 2**self.bits * (math.sqrt(0.5) if bias else 1)
        rounded = _within(scaled, 4**self.bits - (self.constant**2 if bias else 0))
        if bias:
            rounded = np.column_stack([rounded, np.full(len(rounded), float(self.constant))])
        return rounded.astype(np.int64)

    def encode_bounded(self, rows: Floats) -> Integers:
        """Integers of rows that are no longer than 1, (n, k): by the same rule none is longer than 2^bits."""
        return _within(rows * 2.0**self.bits, 4**self.bits).astype(np.int64)

    @property
    def exact_rows(self) -> int:
        """How many rows one product in float64 may add up: its integers stay below 2^53."""
        return (2**53 - 1) // self.unit(2)


@dataclass(frozen=True)
class IndicatorLattice(Lattice):
    """Each vector is of ones and zeros, so every sum counts members."""

    bits: int = 1
    name: ClassVar[str] = "indicator"
    bits_max: ClassVar[int] = 1

    def unit(self, degree: int) -> int:  # noqa: ARG002 - a member counts once in any statistic
        """Return 1."""
        return 1

    def bound(self, records_max: int, members: int, noise_tail: int = 0) -> int:
        """Return n + T: a member adds 1 at most, however many records it has."""
        _check_terms(records_max, members, noise_tail)
        return members + noise_tail


def lattice_from(name: str, bits: int) -> SumsLattice | FeaturesLattice:
    """The lattice that the terms of a round over records name.

    Raises:
        LatticeMismatch: no such name, or a scale out of range.
    """
    for lattice in (SumsLattice, FeaturesLattice):
        if lattice.name == name:
            return lattice(bits)
    raise LatticeMismatch(f"no lattice is called {name!r}; use 'sums' or 'features'")


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


def _check_terms(records_max: int, members: int, noise_tail: int) -> None:
    if records_max < 0 or members < 1 or noise_tail < 0:
        raise HeadroomExceeded(
            f"terms of {records_max} records, {members} members and a noise tail of {noise_tail} bound nothing; "
            "pass at least one member and nothing negative"
        )
