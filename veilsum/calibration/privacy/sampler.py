"""Exact samples of the discrete Gaussian, from random bytes and integer arithmetic alone.

N_Z(0, σ²) gives x the probability exp(−x²/2σ²)/Σ_y exp(−y²/2σ²). Canonne, Kamath, Steinke 2020, algorithms 2 and 3, propose from a discrete
Laplace of scale t = ⌊σ⌋ + 1: U is uniform below t and kept with probability exp(−U/t), V is geometric with P(V ≥ v) = e^−v, and X = U + tV
gets a random sign, with −0 rejected. X is then kept with probability exp(−(X − σ²/t)²/2σ²). Here one test replaces both: X is kept with
probability e^−γ,

    γ = U/t + (X − σ²/t)²/2σ² = X²/2σ² − V + σ²/2t² ≥ 0.

Each test checks whether a uniform real R is below a number p, from the first bits of R and a fixed-point value of p with a proved margin.
If these do not decide (one candidate in four million), more bits of R are drawn and more digits of p computed until they do. So no
probability is approximated, no floating point is used, and the slow path is rare.

The time of a sample depends on the random bytes, never on the data that the noise is added to.
"""

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache
from math import ceil, floor, isqrt

import numpy as np
from numpy.typing import NDArray

from veilsum.calibration.errors import CalibrationError, WrongDtype
from veilsum.calibration.rows import Integers

ByteSource = Callable[[int], bytes | memoryview]
"""Returns fresh uniform bytes, like `os.urandom`. The next call may overwrite a memoryview."""

VARIANCE_MAX = 1 << 62
"""Exclusive upper limit of σ², so that every product fits an int64."""

DRAW_BYTES = 12 << 13
"""Bytes requested from the source at a time; each undecided comparison requests 4 more."""

_CANDIDATES_DRAWN = DRAW_BYTES // 12
_LAPLACE_MAX = 22  # e^−22 < 2^−31: the exact arithmetic finds such a V
_SCALE_BITS = 31  # of probabilities in fixed point
_GAMMA_BITS = 30  # of γ in fixed point
# |p̂ − p| in steps of 2^−31 is below 176. With x = X/σ < 46 and ŷ its floor at 25 bits, 0 ≤ x − ŷ < (1 + X/2^32)·2^−25
# and γ is found too small by less than x(x − ŷ) + 2^−29. As γ ≥ (x − σ/t)²/2 and σ/t < 1, e^−γ·x ≤ 1.34 and
# e^−γ·x² ≤ 2.43, so with σ < 2^31 p̂ is too large by less than (1.34 + 1.22)·2^−25 + 2^−29, 168 steps; floors in the
# tables and after products take off at most 6.
ARITHMETIC_MARGIN = 256


class DiscreteGaussian:
    """A stream of independent samples of N_Z(0, σ²), for an integer σ² from 1 to 2^62 − 1. Equal source bytes give equal samples."""

    def __init__(self, variance: int, source: ByteSource) -> None:
        if type(variance) is not int or not 1 <= variance < VARIANCE_MAX:
            raise CalibrationError(
                f"the sampler takes an integer variance from 1 to 2^62 − 1, not {variance!r}; a coarser lattice lowers it"
            )
        self.variance = variance
        self._source = source
        self.laplace_scale = isqrt(variance) + 1
        self._shift = _GAMMA_BITS + 27  # X·⌊2^57/σ⌋ < 46·2^57 < 2^63
        self._inverse = isqrt((1 << 2 * self._shift) // variance)
        self._constant = (variance << _GAMMA_BITS - 1) // self.laplace_scale**2
        self._left = np.empty(0, np.int64)

    def __repr__(self) -> str:
        return f"<DiscreteGaussian of variance {self.variance}>"

    def fill_samples(self, out: Integers) -> None:
        """Fill (n,) int64 `out` with samples, within about 2 MiB of scratch memory. Raises WrongDtype for another array."""
        if out.dtype != np.int64 or out.ndim != 1:
            raise WrongDtype(f"samples are int64 (n,), not {out.dtype}{out.shape}")
        done = 0
        while done < out.size:
            if not self._left.size:
                self._left = self.draw_candidates()
            taken = min(out.size - done, self._left.size)
            out[done : done + taken] = self._left[:taken]
            self._left = self._left[taken:]
            done += taken

    def draw_candidates(self) -> Integers:
        """Return the candidates kept from one draw of bytes, about 48 %."""
        words = np.frombuffer(self._source(DRAW_BYTES), "<u4").reshape(3, _CANDIDATES_DRAWN)
        # U = ⌊w·t/2^32⌋ is uniform if the low half of the product is at least 2^32 mod t (Lemire 2019)
        product = words[0] * np.uint64(self.laplace_scale)
        X = (product >> np.uint64(32)).view(np.int64)
        valid = product.astype(np.uint32) >= (1 << 32) % self.laplace_scale
        V, doubtful = find_geometric_parts(words[1])
        X += V * self.laplace_scale
        probability = approximate_exp_minus(self.bound_gamma(X, V))
        uniform, negative = words[2] >> np.uint32(1), (words[2] & np.uint32(1)).astype(np.bool_)
        difference = probability - uniform
        kept = (difference > ARITHMETIC_MARGIN) & valid & ~(negative & (X == 0))
        doubtful |= np.abs(difference) <= ARITHMETIC_MARGIN
        undecided = np.flatnonzero(doubtful & valid)
        # Copy the words first: the next call of the source may overwrite them.
        for index, drawn in zip(undecided, words[:, undecided].T.tolist(), strict=True):
            kept[index], X[index] = self.decide_candidate(*drawn)
        signed = np.where(negative, -X, X)
        samples: Integers = signed[kept]
        return samples

    def bound_gamma(self, X: Integers, V: Integers) -> Integers:
        """Return a lower bound of γ, in fixed point with 30 fractional bits."""
        ratio = X * self._inverse
        ratio >>= self._shift - 25
        gamma = ratio * ratio
        gamma >>= 51 - _GAMMA_BITS
        gamma += self._constant
        gamma -= V << _GAMMA_BITS
        np.maximum(gamma, 0, out=gamma)
        return gamma

    def decide_candidate(self, first: int, second: int, third: int) -> tuple[bool, int]:
        """Return whether a candidate is kept, and its X, by exact arithmetic on its three words."""
        U, V = first * self.laplace_scale >> 32, 0
        real = LazyReal(second, 32, self._source)
        while real.below_exp_minus(Fraction(V + 1)):
            V += 1
        X = U + self.laplace_scale * V
        gamma = Fraction(U, self.laplace_scale) + (X - Fraction(self.variance, self.laplace_scale)) ** 2 / (
            2 * self.variance
        )
        kept = LazyReal(third >> 1, 31, self._source).below_exp_minus(gamma)
        return kept and not (X == 0 and third & 1), X


class LazyReal:
    """A uniform real in [0, 1) that draws its bits on demand."""

    def __init__(self, drawn: int, bits: int, source: ByteSource) -> None:
        self._drawn, self._bits, self._source = drawn, bits, source

    def below_exp_minus(self, gamma: Fraction) -> bool:
        """Whether the real is below e^−γ. γ ≥ 0 is rational, so the two are equal only for γ = 0."""
        while True:
            low, high = exp_minus_bounds(gamma, self._bits)
            if self._drawn < low:
                return True
            if self._drawn >= high:
                return False
            self._drawn = self._drawn << 32 | int.from_bytes(self._source(4), "little")
            self._bits += 32


def exp_minus_bounds(gamma: Fraction, bits: int) -> tuple[int, int]:
    """Return ⌊2^bits·e^−γ⌋ and ⌈2^bits·e^−γ⌉; a bound close to an integer may be one step further out.

    Python's decimal rounds `exp` correctly to its last digit, so the neighbouring decimals on both sides are bounds.
    """
    digits = bits // 3 + 12
    below, above = Context(digits, ROUND_FLOOR), Context(digits, ROUND_CEILING)
    numerator, denominator = Decimal(-gamma.numerator), Decimal(gamma.denominator)
    low = below.next_minus(below.exp(below.divide(numerator, denominator)))
    high = above.next_plus(above.exp(above.divide(numerator, denominator)))
    return floor(Fraction(low) * (1 << bits)), ceil(Fraction(high) * (1 << bits))


def find_geometric_parts(words: NDArray[np.uint32]) -> tuple[Integers, NDArray[np.bool_]]:
    """Return V of each word, and whether more bits are needed to determine it."""
    thresholds = _threshold_tables()[0]
    V = np.zeros(words.size, np.uint8)
    for threshold in thresholds[:_LAPLACE_MAX]:
        V += words < threshold
    return V.astype(np.int64), words == thresholds.take(V)


def approximate_exp_minus(gamma: Integers) -> Integers:
    """Return e^−γ with 31 fractional bits, within 6 steps, for γ with 30 fractional bits."""
    _, coarse, fine = _threshold_tables()
    high = coarse.take(gamma >> 25, mode="clip")
    high *= fine.take((gamma >> 15) & 1023)
    high >>= _SCALE_BITS
    rest = gamma & 32767  # e^−d = 1 − d within 2^−31 for d < 2^−15
    rest *= high
    rest >>= _GAMMA_BITS
    high -= rest
    return high


@cache
def _threshold_tables() -> tuple[NDArray[np.uint32], Integers, Integers]:
    """Return ⌊2^32·e^−v⌋ for v = 1 … 23, and ⌊2^31·e^−γ⌋ for γ in steps of 2^−5 up to 22, and in steps of 2^−15 up to 2^−5."""
    thresholds = [exp_minus_bounds(Fraction(v), 32)[0] for v in range(1, _LAPLACE_MAX + 2)]
    coarse = [exp_minus_bounds(Fraction(i, 32), _SCALE_BITS)[0] for i in range(32 * _LAPLACE_MAX)]
    fine = [exp_minus_bounds(Fraction(i, 32 << 10), _SCALE_BITS)[0] for i in range(1 << 10)]
    return np.array(thresholds, np.uint32), np.array([*coarse, 0]), np.array(fine)
