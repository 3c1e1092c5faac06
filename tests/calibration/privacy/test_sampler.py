import io
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr  # type: ignore[import-untyped]
from scipy.stats import chi2, kstwobign  # type: ignore[import-untyped]

from tests.support.simulator import SeededRandom
from veilsum.calibration import CalibrationError
from veilsum.calibration.errors import WrongDtype
from veilsum.calibration.privacy import sampler
from veilsum.calibration.privacy.sampler import DRAW_BYTES, VARIANCE_MAX, DiscreteGaussian, exp_minus_bounds

Source = Callable[[int], Any]
VARIANCES = [1, 2, 3, 9, 16, 100, 10**6 + 7, 1 << 40, (1 << 52) - 1, VARIANCE_MAX - 1]


def drawn(gaussian: DiscreteGaussian, count: int) -> Any:
    out = np.empty(count, np.int64)
    gaussian.fill_samples(out)
    return out


def candidates(source: Source) -> Any:
    return np.frombuffer(source(DRAW_BYTES), "<u4").reshape(3, -1).copy()


def replayed(words: Any, more: Source) -> Source:
    """Draw these candidates first, then `more`."""
    blocks = [words.tobytes()]
    return lambda count: blocks.pop() if blocks else more(count)


@pytest.mark.parametrize("sigma", [1, 3, 10])
def test_chi_square_against_the_exact_probabilities(sigma: int) -> None:
    count = 400_000
    values = drawn(DiscreteGaussian(sigma**2, SeededRandom(sigma)), count)
    points = np.arange(-40 * sigma, 40 * sigma + 1)
    mass = np.exp(-(points**2) / (2 * sigma**2))
    mass /= mass.sum()
    inner = np.abs(points) <= next(k for k in range(40 * sigma) if count * mass[points == k + 1] < 10)
    seen = np.array([(values == point).sum() for point in points[inner]] + [0])
    seen[-1] = count - seen.sum()
    expected = np.append(mass[inner], 1 - mass[inner].sum()) * count
    statistic = ((seen - expected) ** 2 / expected).sum()
    assert chi2.sf(statistic, len(seen) - 1) > 1e-3


@pytest.mark.parametrize("bits", [12, 20, 30])
def test_kolmogorov_smirnov_where_the_grid_is_fine(bits: int) -> None:
    count = 400_000
    values = np.sort(drawn(DiscreteGaussian(1 << 2 * bits, SeededRandom(bits)), count)) / 2.0**bits
    ranks = np.arange(count + 1) / count
    distance = max(
        np.abs(ndtr(values) - ranks[1:]).max(), np.abs(ndtr(values - 2.0**-bits) - ranks[:-1]).max()
    )
    # The step of the grid moves the distribution function by 2^−bits·φ(0) at most.
    assert kstwobign.sf(math.sqrt(count) * (distance - 2.0**-bits)) > 1e-3


@pytest.mark.parametrize("variance", VARIANCES)
def test_every_fast_decision_is_the_exact_one(variance: int) -> None:
    gaussian = DiscreteGaussian(variance, SeededRandom(1))
    words = candidates(SeededRandom(variance % 997))[:, :250]
    # The hardest cases: the first and last U, V at its thresholds and 1, where γ may be all but 0, R at 0 and 1, zeros of both signs.
    hard = [0, 1, 1 << 30, (1 << 31) - 1, (1 << 32) - 2, (1 << 32) - 1]
    corners = [(first, second, third) for first in hard for second in hard for third in hard]
    words[:, :216] = np.array(corners, np.uint32).T
    # Fillers have U = 0 and V = 0: γ = σ²/2t² > 2^−31, so R next to 1 is above e^−γ, and none is kept.
    isolated = np.full((3, DRAW_BYTES // 12), (1 << 32) - 1, np.uint32)
    isolated[0] = 0
    isolated[:, :250] = words
    expected, laplace = [], math.isqrt(variance) + 1
    for column in words.T.tolist():
        if (column[0] * laplace) % (1 << 32) >= (1 << 32) % laplace:
            accepted, X = gaussian.decide_candidate(*column)
            if accepted:
                expected.append(-X if column[2] & 1 else X)
    assert (
        DiscreteGaussian(variance, replayed(isolated, SeededRandom(3))).draw_candidates().tolist() == expected
    )


@pytest.mark.parametrize("variance", VARIANCES)
def test_probabilities_are_within_the_margin_that_was_proved(variance: int) -> None:
    gaussian = DiscreteGaussian(variance, SeededRandom(4))
    words = candidates(SeededRandom(5))
    t = gaussian.laplace_scale
    U = [int(word) * t >> 32 for word in words[0]]
    V, doubtful = sampler.find_geometric_parts(words[1])
    X = np.array(U) + V * t
    got = sampler.approximate_exp_minus(gaussian.bound_gamma(X, V)).tolist()
    worst = 0.0
    for index in range(0, len(U), 16):
        if not doubtful[index]:
            x = int(X[index])
            gamma = Fraction(x * x, 2 * variance) - int(V[index]) + Fraction(variance, 2 * t * t)
            worst = max(worst, abs(got[index] - 2**31 * math.exp(-float(gamma))))
    assert worst < 176 < sampler.ARITHMETIC_MARGIN


def test_undecided_candidates_draw_more_bits_until_they_are_decided() -> None:
    variance = 1 << 20
    asked: list[int] = []
    more = SeededRandom(6)

    def source(count: int) -> Any:
        asked.append(count)
        return more(count) if count != DRAW_BYTES else words.tobytes()

    gaussian = DiscreteGaussian(variance, source)
    words = np.full((3, DRAW_BYTES // 12), (1 << 32) - 1, np.uint32)
    words[0] = 1 << 31  # U = ⌊t/2⌋ everywhere
    half = gaussian.laplace_scale // 2
    gamma = Fraction(half * half, 2 * variance) + Fraction(variance, 2 * gaussian.laplace_scale**2)
    edge = exp_minus_bounds(gamma, 31)[0]
    words[2, :4] = [2 * edge, 2 * edge + 1, 2 * (edge - 1), 2 * (edge + 1)]
    samples = gaussian.draw_candidates().tolist()
    # R = edge/2^31 is all that is known of the first two: each is decided by 32 bits more.
    assert asked == [DRAW_BYTES, 4, 4]
    assert samples[-1] == half
    assert set(samples) <= {half, -half}
    assert sampler.LazyReal(0, 32, lambda _: bytes(3) + b"\x01").below_exp_minus(Fraction(23))
    assert not sampler.LazyReal(0, 32, lambda _: b"\xff" * 4).below_exp_minus(Fraction(23))


@pytest.mark.parametrize("gamma", [Fraction(1, 7), Fraction(3), Fraction(50, 3)])
def test_bits_that_are_added_continue_those_that_were_drawn(gamma: Fraction) -> None:
    digits, _ = exp_minus_bounds(gamma, 31 + 32 + 32)
    first, second, third = digits >> 64, digits >> 32 & 0xFFFFFFFF, digits & 0xFFFFFFFF

    def below(*words: int) -> bool:
        rest = b"".join(word.to_bytes(4, "little") for word in words)
        return sampler.LazyReal(first, 31, io.BytesIO(rest).read).below_exp_minus(gamma)

    assert below(second - 1)
    assert not below(second + 1)
    assert below(second, third - 1)
    assert not below(second, third + 1)


def test_a_word_of_zeros_leaves_v_to_the_exact_arithmetic() -> None:
    V, doubtful = sampler.find_geometric_parts(np.array([0, 1, 1 << 31, (1 << 32) - 1], np.uint32))
    assert V.tolist() == [22, 21, 0, 0]
    assert doubtful.tolist() == [True, True, False, False]  # 2^32·e^−22 is 1.2
    # With all zeros the geometric variable never ends, so the stream ends it.
    accepted, X = DiscreteGaussian(100, SeededRandom(7)).decide_candidate(0, 0, 0)
    assert X % 11 == 0
    assert X >= 22 * 11
    assert not accepted


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(10**20 + 1, 10**18)])
@pytest.mark.parametrize("bits", [31, 62, 200])
def test_bounds_enclose_the_exponential(gamma: Fraction, bits: int) -> None:
    low, high = exp_minus_bounds(gamma, bits)
    with localcontext() as context:
        context.prec = 150
        true = (-Decimal(gamma.numerator) / Decimal(gamma.denominator)).exp() * 2**bits
    assert 0 <= low <= true <= high <= low + 2


def test_equal_bytes_give_equal_samples_however_they_are_read() -> None:
    whole = drawn(DiscreteGaussian(1 << 30, SeededRandom(8)), 20_000).tolist()
    pieces = DiscreteGaussian(1 << 30, SeededRandom(8))
    sizes = [0, 1, 7, 4_000, 15_992]
    assert np.concatenate([drawn(pieces, size) for size in sizes]).tolist() == whole
    assert repr(pieces) == "<DiscreteGaussian of variance 1073741824>"
    buffer, stream = bytearray(DRAW_BYTES), SeededRandom(8)

    def overwriting(count: int) -> memoryview:
        buffer[:count] = stream(count)
        return memoryview(buffer)[:count]

    assert drawn(DiscreteGaussian(1 << 30, overwriting), 20_000).tolist() == whole


@pytest.mark.parametrize("variance", [0, -1, VARIANCE_MAX, 1.5, True, np.int64(4)])
def test_other_variances_are_refused(variance: Any) -> None:
    with pytest.raises(CalibrationError):
        DiscreteGaussian(variance, SeededRandom(0))


@pytest.mark.parametrize("out", [np.empty(3), np.empty((2, 2), np.int64), np.empty(3, np.uint64)])
def test_other_outputs_are_refused(out: Any) -> None:
    with pytest.raises(WrongDtype):
        DiscreteGaussian(9, SeededRandom(0)).fill_samples(out)
