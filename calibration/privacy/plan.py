"""What a noisy sum would promise, cost and lose, before anybody makes it.

How much accuracy noise costs was measured, not derived (`benchmarks.private_heads`): 18 problems of 1,000 to 60,000
records and 32 to 256 features, each at ε from 0.5 to 8, solved by `solve_noisy`. Two ratios order the losses, and
the worse of what they say counts: N/(l·edge), the mean eigenvalue of V over the edge of its noise; and
(N/C)/(σ_U·√l), the records of a class over the length of the noise on its column of U. That is a rule of thumb for other
data, no bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict, Unpack

from calibration.errors import CalibrationError
from calibration.privacy.accountant import gdp_epsilon, gdp_mu
from calibration.privacy.mechanism import Mechanism
from calibration.privacy.release import ffc_release
from calibration.privacy.solving import noise_edge

# From each ratio on: points of accuracy lost, the median of what was measured up to the next, the worst of all from there on.
_BY_EIGENVALUE = ((0.0, 18.8, 33.3), (0.125, 13.2, 33.3), (0.25, 8.4, 31.7), (0.5, 5.2, 31.7), (1.0, 3.5, 15.8),
                  (2.0, 2.3, 5.5), (4.0, 0.8, 3.8), (8.0, 0.5, 1.8), (16.0, 0.1, 1.0))  # fmt: skip
_BY_CLASS = ((0.0, 23.8, 33.3), (2.0, 17.0, 31.7), (4.0, 11.7, 15.8), (8.0, 5.2, 9.5), (16.0, 3.6, 5.5),
             (32.0, 2.6, 3.7), (64.0, 1.8, 2.4), (128.0, 0.7, 1.5))  # fmt: skip
_GOOD_POINTS, _HOPELESS_POINTS = 4.0, 10.0
_EPSILON_ADVISED = 8.0


class Cohort(TypedDict):
    """n, n_min and a: who may be in the sum, how few ever are, and how many of them may know their own noise."""

    members: int
    survivors_min: int
    colluders: int


class Verdict(StrEnum):
    """Whether to open the round, by the median loss: up to 4 points, up to 10, more."""

    GOOD = "good"
    WEAK = "weak"
    HOPELESS = "hopeless"


@dataclass(frozen=True)
class NoisyRound:
    """One noisy round, in figures."""

    mechanism: Mechanism
    records: int
    """N of all members."""
    delta: float

    @property
    def epsilon(self) -> float:
        """ε at δ."""
        return self.mechanism.epsilon(self.delta)

    @property
    def deviation(self) -> float:
        """σ on the first block of the sum when all members are in it, in units of features of length 1."""
        return self.mechanism.deviation(self.mechanism.release.layout.blocks[0].name, self.mechanism.members)

    @property
    def excess(self) -> float:
        """How much noisier that is than σ needs, √(n/(n_min − a)): shares are sized for the fewest honest members."""
        return self.deviation / self.mechanism.sigma

    @property
    def ring_bits(self) -> int:
        """The smallest ring that holds sum and noise."""
        mechanism = self.mechanism
        bound = mechanism.lattice.bound(self.records, mechanism.noise_tail)
        return bound.bit_length() + 1

    @property
    def upload_bytes(self) -> int:
        """One member's masked vector."""
        return -(-self.mechanism.release.layout.elements * self.ring_bits // 8)


@dataclass(frozen=True)
class Plan(NoisyRound):
    """A noisy round of FFC statistics."""

    classes: int
    """C."""

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
        """Points of accuracy lost against the exact sum: the greater median, and the worst that had both ratios."""
        found = [read(_BY_EIGENVALUE, self.eigenvalue_ratio), read(_BY_CLASS, self.class_ratio)]
        median = max(median for median, _ in found)
        return median, max(median, min(worst for _, worst in found))

    @property
    def verdict(self) -> Verdict:
        """By the median loss."""
        return verdict_of(self.expected_loss[0])

    @property
    def factor(self) -> float:
        """By how much the noise would have to shrink, or the records to grow, for a good round; 1 or less for one."""
        return max(
            _first_good(_BY_EIGENVALUE) / self.eigenvalue_ratio, _first_good(_BY_CLASS) / self.class_ratio
        )

    def advice(self) -> tuple[str, ...]:
        """What alone would make it a good round; nothing where it is one."""
        if self.verdict is Verdict.GOOD:
            return ()
        said = [f"{math.ceil(self.records * self.factor):,} records"]
        epsilon = gdp_epsilon(self.mechanism.mu * self.factor, self.delta)
        if epsilon <= _EPSILON_ADVISED:
            said.append(f"ε = {math.ceil(epsilon * 100) / 100:g}")
        dim = self._dim_that_would_do()
        if dim >= 2 * self.classes:
            said.append(f"features projected to {dim} dimensions by a map that is public")
        if self.excess >= self.factor:
            said.append(
                f"n_min − a closer to n: the noise is {self.excess:.1f} times what a sum of honest members only needs"
            )
        return tuple(said)

    def _dim_that_would_do(self) -> int:
        # the ratios go as l^−1.5 and l^−0.5
        by_eigenvalue = self.dim * (self.eigenvalue_ratio / _first_good(_BY_EIGENVALUE)) ** (2 / 3)
        by_class = self.dim * (self.class_ratio / _first_good(_BY_CLASS)) ** 2
        return int(min(by_eigenvalue, by_class))


def plan(
    records: int,
    dim: int,
    classes: int,
    *,
    epsilon: float,
    delta: float = 1e-5,
    bias: bool = False,
    rows_per_unit: int = 1,
    **cohort: Unpack[Cohort],
) -> Plan:
    """Size a noisy sum of FFC statistics and say what to expect of it.

    Args:
        records: N of all members.
        dim: features per record.
        classes: C.
        epsilon: what the sum may cost, positive.
        delta: at this δ; well below 1/N.
        bias: with a constant column, off which the counts are read.
        rows_per_unit: rows that a record has at most; of a member, where it is protected as a whole.
        cohort: its numbers, the manifest's.

    Raises:
        CalibrationError: a number outside its domain, or noise that can't be drawn.
    """
    check_asked(records, epsilon)
    release = ffc_release(dim + bias, classes)
    mechanism = Mechanism(release, rows_per_unit, gdp_mu(epsilon, delta), **cohort)
    return Plan(mechanism, records, delta, classes)


def check_asked(records: int, epsilon: float) -> None:
    """Refuse a plan of nothing (CalibrationError)."""
    if records < 1 or not epsilon > 0:
        raise CalibrationError(
            f"a plan takes at least a record and a positive ε, not {records} and {epsilon!r}"
        )


def verdict_of(points: float) -> Verdict:
    """By the points of accuracy lost."""
    if points <= _GOOD_POINTS:
        return Verdict.GOOD
    return Verdict.WEAK if points <= _HOPELESS_POINTS else Verdict.HOPELESS


def read(table: tuple[tuple[float, float, float], ...], ratio: float) -> tuple[float, float]:
    """The two figures of the row that a ratio falls into."""
    _, median, worst = next(row for row in reversed(table) if ratio >= row[0])
    return median, worst


def _first_good(table: tuple[tuple[float, float, float], ...]) -> float:
    return next(ratio for ratio, median, _ in table if median <= _GOOD_POINTS)
