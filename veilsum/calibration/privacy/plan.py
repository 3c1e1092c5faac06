"""Plans: the guarantee, cost and expected loss of a noisy study, before it is signed.

The accuracy that noise costs is measured, not derived (`benchmarks.noisy_recipes`). One ratio orders the losses of a recipe: N·μ/(l·C), the
records per class and dimension over the noise of one sum, times the headroom: what a head can gain on always answering the largest class.
Losses are stated over the headroom as well. The table holds the median and the extremes of the measurements. Features differ by more than
that ratio, so the interval is wider than the extremes: wide enough to hold in 95 % of the settings of each kind, for data sets that were
left out of the table. `try_recipe` estimates the loss from your own features.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self, TypedDict, Unpack

from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.privacy.accountant import gdp_epsilon, gdp_mu
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.calibration.privacy.release import Release, ffc_release, gradient_release, mean_release

LOSSES_BY_RECIPE: dict[str, tuple[tuple[float, float, float, float], ...]] = {
    "sum": (
        (0.0, 48.4, 24.0, 78.5),
        (0.2, 19.0, 5.5, 43.0),
        (0.4, 12.6, 2.8, 32.0),
        (0.8, 8.1, 1.9, 23.7),
        (1.6, 4.6, 0.3, 16.4),
        (3.2, 1.2, -0.2, 11.3),
    ),
    "mean+sum": (
        (0.0, 46.4, 18.4, 76.4),
        (0.2, 15.9, 5.6, 32.2),
        (0.4, 9.2, 3.2, 14.0),
        (0.8, 5.8, 1.6, 12.9),
        (1.6, 3.1, -0.4, 6.8),
        (3.2, 1.0, -1.1, 5.0),
    ),
    "mean+sum+6-gradients": (
        (0.0, 41.7, 7.4, 72.7),
        (0.2, 7.8, 1.8, 20.4),
        (0.4, 2.1, 0.1, 9.8),
        (0.8, 0.3, -1.8, 9.8),
        (1.6, -0.6, -3.0, 3.8),
        (3.2, -0.9, -3.5, 0.9),
    ),
    "mean+sum+16-gradients": (
        (0.0, 42.0, 7.7, 72.6),
        (0.2, 7.9, 0.5, 21.0),
        (0.4, 2.2, -1.0, 12.4),
        (0.8, 0.3, -1.9, 9.2),
        (1.6, -1.4, -3.3, 3.2),
        (3.2, -1.4, -4.1, 1.2),
    ),
}
"""Rows of (smallest ratio, median, least, most) points lost over the headroom, by recipe, where no class is far larger than the others. The
least is over ratios up to the next row's, the most over ratios from this row's on."""
INTERVAL_MARGIN_POINTS, INTERVAL_MARGIN_SHARE = 5.0, 0.25
"""An interval exceeds the extremes of the table by so many points and this share of them, on either side."""
MOST_ACCURATE_RECIPE = "mean+sum+16-gradients"
_GOOD_POINTS, _WEAK_POINTS = 4.0, 10.0
_EPSILON_ADVISED = 8.0
RARE_HEADROOM = 0.4
"""Below this headroom a head of the highest score finds few records outside the largest class: a positive class of less than 20 %."""


def find_headroom(largest: float, classes: int) -> float:
    """Return how much a head can gain on always answering the largest class, over what it could with classes of one size."""
    return (1 - largest) / (1 - 1 / classes)


class CohortSizes(TypedDict):
    """n, n_min and a: members of the cohort, minimum members in a sum, and members that may collude."""

    members: int
    survivors_min: int
    colluders: int


class Outlook(StrEnum):
    """The verdict on a study by its loss over the headroom: up to 4 points, up to 10, or more."""

    GOOD = "good"
    WEAK = "weak"
    HOPELESS = "hopeless"

    @classmethod
    def of_loss(cls, lost: float) -> Self:
        """Return the verdict on a loss in points, over the headroom."""
        if lost <= _GOOD_POINTS:
            return cls.GOOD
        return cls.WEAK if lost <= _WEAK_POINTS else cls.HOPELESS


@dataclass(frozen=True)
class NoisyRound:
    """The figures of one noisy round: its noise, the records N of all members, and δ."""

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
        """The noise of all members over σ, √(n/(n_min − a)): shares are sized for the minimum of honest members."""
        return self.deviation / self.mechanism.sigma

    @property
    def elements(self) -> int:
        """Length of the vector."""
        return self.mechanism.release.layout.elements


@dataclass(frozen=True)
class Plan:
    """The figures of a noisy study of FFC.

    Attributes:
        recipe: name of the recipe, as in the study.
        rounds: the rounds by step.
        dim: l, the rows of V.
        classes: C, number of classes.
        largest: the largest class's share of the records.
        mu: μ of the whole chain.
    """

    recipe: str
    rounds: Mapping[str, NoisyRound]
    dim: int
    classes: int
    largest: float
    mu: float

    @property
    def sums(self) -> NoisyRound:
        """The round of V and U."""
        return self.rounds["sum"]

    @property
    def mean_error(self) -> float | None:
        """Expected length of the noise on the mean of unit features, summed over all members, √(2l)·σ/N; None without a mean."""
        if (mean := self.rounds.get("mean")) is None:
            return None
        dim = mean.mechanism.release.layout.elements - 1
        return math.sqrt(2 * dim) * mean.deviation / mean.records

    @property
    def effective_mu(self) -> float:
        """μ for one row, of a mechanism with as much noise as a sum of all members."""
        return self.mu / (self.sums.mechanism.rows * self.sums.excess)

    @property
    def headroom(self) -> float:
        """What a head can gain on always answering the largest class, over what it could with classes of one size."""
        return find_headroom(self.largest, self.classes)

    @property
    def ratio(self) -> float:
        """N·μ/(l·C), times the headroom: a largest class above its equal share adds no signal."""
        return self.sums.records * self.effective_mu / (self.dim * self.classes) * self.headroom

    def expected_loss(self, recipe: str = "") -> tuple[float, float, float]:
        """Return the points of accuracy that a recipe, by default the plan's own, loses against the exact sum; below 0 for a gain.

        Returns the median and the ends of the 95 % interval.
        """
        _, median, least, most = (self.headroom * each for each in self._look_up(recipe or self.recipe))
        bound = 100 * (1 - self.largest)  # no head gains or loses more than there is above the largest class
        margins = [INTERVAL_MARGIN_POINTS + INTERVAL_MARGIN_SHARE * abs(each) for each in (least, most)]
        ends = max(-bound, least - margins[0]), min(bound, most + margins[1])
        return round(median, 1), round(ends[0], 1), round(ends[1], 1)

    def _look_up(self, recipe: str) -> tuple[float, float, float, float]:
        return next(row for row in reversed(LOSSES_BY_RECIPE[recipe]) if self.ratio >= row[0])

    @property
    def table_end(self) -> Literal["first", "last"] | None:
        """The table's row that holds the ratio, if it is the first or the last: every smaller, or larger, ratio has the same figures."""
        rows = LOSSES_BY_RECIPE[self.recipe]
        if self.ratio < rows[1][0]:
            return "first"
        return "last" if self.ratio >= rows[-1][0] else None

    @property
    def outlook(self) -> Outlook:
        return Outlook.of_loss(self._look_up(self.recipe)[1])

    @property
    def factor(self) -> float:
        """The factor by which noise must shrink, or records grow, for a good verdict; at most 1 if it is good already."""
        return next(row[0] for row in LOSSES_BY_RECIPE[self.recipe] if row[1] <= _GOOD_POINTS) / self.ratio

    def list_remedies(self) -> tuple[str, ...]:
        """Return remedies: first the recipe that loses least, then changes that each suffice for a good verdict."""
        advice = []
        if self.recipe != MOST_ACCURATE_RECIPE:
            median, least, most = self.expected_loss(MOST_ACCURATE_RECIPE)
            advice.append(
                f"the recipe {MOST_ACCURATE_RECIPE}, which loses {median:g} points ({least:g} to {most:g})"
            )
        if self.outlook is Outlook.GOOD:
            return tuple(advice)
        delta = self.sums.delta
        advice.append(f"{math.ceil(self.sums.records * self.factor):,} records")
        epsilon = gdp_epsilon(self.mu * self.factor, delta)
        if epsilon <= _EPSILON_ADVISED:
            advice.append(f"ε = {math.ceil(epsilon * 100) / 100:g}")
        dim = int(self.dim / self.factor)
        if dim >= 2 * self.classes:
            advice.append(f"features projected to {dim} dimensions by a public map")
        if self.sums.excess >= self.factor:
            advice.append(
                f"n_min − a closer to n: the noise is {self.sums.excess:.1f} times what a sum of honest members only needs"
            )
        return tuple(advice)


def plan(
    records: int,
    dim: int,
    classes: int,
    *,
    recipe: str,
    shares: Mapping[str, float],
    epsilon: float,
    delta: float = 1e-5,
    constant: bool = False,
    largest: float | None = None,
    rows_per_unit: int = 1,
    **cohort: Unpack[CohortSizes],
) -> Plan:
    """Size a noisy study of FFC.

    Args:
        records: N, records of all members.
        dim: features per record.
        classes: C, number of classes.
        recipe: name of the recipe, as in the study.
        shares: shares of μ², by step.
        epsilon: ε of the whole study, positive.
        delta: δ, well below 1/N.
        constant: whether there is a constant column, from which the counts are read.
        largest: the largest class's share of the records; None for classes of one size.
        rows_per_unit: maximum rows of a record, or of a member if the unit is a member.
        cohort: the cohort's sizes, as in the manifest.

    Raises:
        CalibrationError: a number is outside its domain, or the noise can't be drawn.
    """
    if records < 1 or not epsilon > 0:
        raise CalibrationError(
            f"a plan takes at least one record and a positive ε, not {records} and {epsilon!r}"
        )
    if largest is not None and not 1 / classes <= largest < 1:
        raise CalibrationError(
            f"the largest of {classes} classes has a share from {1 / classes:.3g} to below 1, not {largest!r}"
        )
    mu, width = gdp_mu(epsilon, delta), dim + constant

    def noisy(step: str, share: float) -> NoisyRound:
        releases: dict[str, Release] = {"mean": mean_release(dim), "sum": ffc_release(width, classes)}
        release = releases.get(step) or gradient_release(width, classes)
        return NoisyRound(Mechanism(release, rows_per_unit, mu * math.sqrt(share), **cohort), records, delta)

    rounds = {step: noisy(step, share) for step, share in shares.items()}
    return Plan(recipe, rounds, width, classes, 1 / classes if largest is None else largest, mu)
