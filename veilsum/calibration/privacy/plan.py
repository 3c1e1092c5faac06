"""Plans: what a noisy sum would promise, cost and lose, before it is made.

The accuracy that noise costs was measured, not derived (`benchmarks.private_heads`): 18 problems of 1,000 to 60,000 records and 32 to 256
features, each at ε from 0.5 to 8, solved by `solve_noisy`. Two ratios order the losses, and the worse verdict of the two counts:
N/(l·edge), the mean eigenvalue of V over the edge of its noise; and (N/C)/(σ_U·√l), the records of a class over the length of the noise on
its column of U. What refinement gains was measured on 16 of the problems (`benchmarks.refined_heads`). For other data this is a rule of thumb,
not a bound.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict, Unpack

from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.privacy.accountant import gdp_epsilon, gdp_mu
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.calibration.privacy.noisy_sums import noise_edge
from veilsum.calibration.privacy.release import ffc_release

_Figures = tuple[tuple[float, float, float], ...]
"""Rows of (smallest ratio, median, worst), in points of accuracy."""

# Points lost: the median of what was measured up to the next ratio, and the worst from this ratio on.
_BY_EIGENVALUE: _Figures = (
    (0.0, 18.8, 33.3), (0.125, 13.2, 33.3), (0.25, 8.4, 31.7), (0.5, 5.2, 31.7), (1.0, 3.5, 15.8),
    (2.0, 2.3, 5.5), (4.0, 0.8, 3.8), (8.0, 0.5, 1.8), (16.0, 0.1, 1.0),
)  # fmt: skip
_BY_CLASS: _Figures = (
    (0.0, 23.8, 33.3), (2.0, 17.0, 31.7), (4.0, 11.7, 15.8), (8.0, 5.2, 9.5), (16.0, 3.6, 5.5),
    (32.0, 2.6, 3.7), (64.0, 1.8, 2.4), (128.0, 0.7, 1.5),
)  # fmt: skip
# Points gained by rounds of gradients at one budget, half of μ² on V and U, by N/(l·edge) of one sum.
_GAINS: dict[int, _Figures] = {
    2: ((0.0, 4.8, 1.1), (0.25, 1.9, 0.5), (0.5, 1.1, 0.6), (1.0, 1.3, 0.0), (2.0, 1.2, 0.1), (4.0, 1.3, 0.1), (8.0, 1.4, 0.0)),
    4: ((0.0, 4.2, 1.2), (0.25, 2.8, 0.6), (0.5, 2.2, 0.5), (1.0, 2.1, -0.1), (2.0, 1.8, 0.1), (4.0, 1.9, 0.0), (8.0, 2.1, 0.1)),
    8: ((0.0, 5.0, 0.6), (0.25, 3.6, 0.2), (0.5, 2.7, 0.3), (1.0, 2.5, -0.3), (2.0, 2.4, 0.0), (4.0, 2.4, 0.1), (8.0, 2.8, 0.0)),
}  # fmt: skip
_GOOD_POINTS, _WEAK_POINTS = 4.0, 10.0
_EPSILON_ADVISED = 8.0


class CohortSizes(TypedDict):
    """n, n_min and a: members in the cohort, members at least in a sum, and how many of those may know their own noise."""

    members: int
    survivors_min: int
    colluders: int


class Outlook(StrEnum):
    """Whether to open the round, by the median loss: up to 4 points, up to 10, more."""

    GOOD = "good"
    WEAK = "weak"
    HOPELESS = "hopeless"


@dataclass(frozen=True)
class NoisyRound:
    """One noisy round in figures.

    Attributes:
        mechanism: its noise.
        records: N of all members.
        delta: δ.
    """

    mechanism: Mechanism
    records: int
    delta: float

    @property
    def epsilon(self) -> float:
        return self.mechanism.epsilon(self.delta)

    @property
    def deviation(self) -> float:
        """σ on the first block of the sum of all members, in units of features of length 1."""
        return self.mechanism.deviation(self.mechanism.release.layout.blocks[0].name, self.mechanism.members)

    @property
    def excess(self) -> float:
        """How much noisier that is than σ needs, √(n/(n_min − a)): shares are sized for the fewest honest members."""
        return self.deviation / self.mechanism.sigma

    @property
    def ring_bits(self) -> int:
        """The smallest ring that holds sum and noise."""
        bound = self.mechanism.lattice.bound(self.records, self.mechanism.noise_tail)
        return bound.bit_length() + 1

    @property
    def upload_bytes(self) -> int:
        """One member's masked vector."""
        return -(-self.mechanism.release.layout.elements * self.ring_bits // 8)


@dataclass(frozen=True)
class MeanPlan(NoisyRound):
    """A noisy round of means."""

    @property
    def error(self) -> float:
        """The expected length of the noise on the mean of unit features when all members are summed: √(2l)·σ/N."""
        dim = self.mechanism.release.layout.elements - 1
        return math.sqrt(2 * dim) * self.deviation / self.records


@dataclass(frozen=True)
class FFCPlan(NoisyRound):
    """A noisy round of FFC statistics with C classes."""

    classes: int

    @property
    def dim(self) -> int:
        """l, the rows of V."""
        return self.mechanism.release.layout.blocks[0].shape[0]

    @property
    def eigenvalue_ratio(self) -> float:
        """N/(l·edge)."""
        return self.records / (self.dim * noise_edge(self.deviation, self.dim))

    @property
    def class_ratio(self) -> float:
        """(N/C)/(σ_U·√l)."""
        deviation = self.mechanism.deviation("U", self.mechanism.members)
        return self.records / (self.classes * deviation * math.sqrt(self.dim))

    @property
    def expected_loss(self) -> tuple[float, float]:
        """Points of accuracy lost against the exact sum: the greater median, and the worst among those with both ratios."""
        found = [_figures(_BY_EIGENVALUE, self.eigenvalue_ratio), _figures(_BY_CLASS, self.class_ratio)]
        median = max(median for median, _ in found)
        return median, max(median, min(worst for _, worst in found))

    @property
    def outlook(self) -> Outlook:
        median, _ = self.expected_loss
        if median <= _GOOD_POINTS:
            return Outlook.GOOD
        return Outlook.WEAK if median <= _WEAK_POINTS else Outlook.HOPELESS

    def refinement_gain(self, rounds: int) -> tuple[float, float] | None:
        """Points gained if half of μ² goes to so many rounds of gradients instead, median and worst; None below two rounds.

        These are the figures of the most rounds measured, up to `rounds`.
        """
        measured = [each for each in _GAINS if each <= rounds]
        return _figures(_GAINS[max(measured)], self.eigenvalue_ratio) if measured else None

    @property
    def factor(self) -> float:
        """By how much the noise would have to shrink, or the records to grow, for a good round; at most 1 for a good one."""
        return max(
            _first_good(_BY_EIGENVALUE) / self.eigenvalue_ratio, _first_good(_BY_CLASS) / self.class_ratio
        )

    def advice(self) -> tuple[str, ...]:
        """Changes each of which would make it a good round; empty for a good one."""
        if self.outlook is Outlook.GOOD:
            return ()
        advice = [f"{math.ceil(self.records * self.factor):,} records"]
        epsilon = gdp_epsilon(self.mechanism.mu * self.factor, self.delta)
        if epsilon <= _EPSILON_ADVISED:
            advice.append(f"ε = {math.ceil(epsilon * 100) / 100:g}")
        # The ratios go as l^−1.5 and l^−0.5.
        by_eigenvalue = self.dim * (self.eigenvalue_ratio / _first_good(_BY_EIGENVALUE)) ** (2 / 3)
        by_class = self.dim * (self.class_ratio / _first_good(_BY_CLASS)) ** 2
        dim = int(min(by_eigenvalue, by_class))
        if dim >= 2 * self.classes:
            advice.append(f"features projected to {dim} dimensions by a public map")
        if self.excess >= self.factor:
            advice.append(
                f"n_min − a closer to n: the noise is {self.excess:.1f} times what a sum of honest members only needs"
            )
        return tuple(advice)


def plan(
    records: int,
    dim: int,
    classes: int,
    *,
    epsilon: float,
    delta: float = 1e-5,
    bias: bool = False,
    rows_per_unit: int = 1,
    **cohort: Unpack[CohortSizes],
) -> FFCPlan:
    """Size a noisy sum of FFC statistics.

    Args:
        records: N of all members.
        dim: features per record.
        classes: C.
        epsilon: what the sum may cost, positive.
        delta: at this δ; well below 1/N.
        bias: with a constant column, from which the counts are read.
        rows_per_unit: the most rows that a record has, or a member if members are protected as a whole.
        cohort: its numbers, as in the manifest.

    Raises:
        CalibrationError: a number outside its domain, or noise that can't be drawn.
    """
    if records < 1 or not epsilon > 0:
        raise CalibrationError(
            f"a plan takes at least one record and a positive ε, not {records} and {epsilon!r}"
        )
    mechanism = Mechanism(ffc_release(dim + bias, classes), rows_per_unit, gdp_mu(epsilon, delta), **cohort)
    return FFCPlan(mechanism, records, delta, classes)


def _figures(table: _Figures, ratio: float) -> tuple[float, float]:
    """Median and worst of the row that a ratio falls into."""
    _, median, worst = next(row for row in reversed(table) if ratio >= row[0])
    return median, worst


def _first_good(table: _Figures) -> float:
    return next(ratio for ratio, median, _ in table if median <= _GOOD_POINTS)
