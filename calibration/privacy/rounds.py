"""Plans of what is no single sum of V and U: a noisy mean, and a head refined by noisy gradients at one budget.

What refinement gains was measured (`benchmarks.refined_heads`): 16 problems of 1,000 to 60,000 records and 32 to 256 features at ε = 1,
2, 4 and 8, half of μ² on (V, U) and half on the gradients, against all of it on (V, U). A rule of thumb for other data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Unpack

from calibration.errors import CalibrationError
from calibration.privacy.accountant import gdp_epsilon, gdp_mu
from calibration.privacy.mechanism import Mechanism
from calibration.privacy.plan import Cohort, NoisyRound, Plan, Verdict, check_asked, plan, read, verdict_of
from calibration.privacy.release import gradient_release, mean_release

FIRST_SHARE = 0.5
"""Of μ², for V and U."""

# From N/(l·edge) of one sum on: points gained, the median of what was measured up to the next, and the worst.
_GAINS: dict[int, tuple[tuple[float, float, float], ...]] = {
    2: (
        (0.0, 4.8, 1.1),
        (0.25, 1.9, 0.5),
        (0.5, 1.1, 0.6),
        (1.0, 1.3, 0.0),
        (2.0, 1.2, 0.1),
        (4.0, 1.3, 0.1),
        (8.0, 1.4, 0.0),
    ),
    4: (
        (0.0, 4.2, 1.2),
        (0.25, 2.8, 0.6),
        (0.5, 2.2, 0.5),
        (1.0, 2.1, -0.1),
        (2.0, 1.8, 0.1),
        (4.0, 1.9, 0.0),
        (8.0, 2.1, 0.1),
    ),
    8: (
        (0.0, 5.0, 0.6),
        (0.25, 3.6, 0.2),
        (0.5, 2.7, 0.3),
        (1.0, 2.5, -0.3),
        (2.0, 2.4, 0.0),
        (4.0, 2.4, 0.1),
        (8.0, 2.8, 0.0),
    ),
}


@dataclass(frozen=True)
class MeanPlan(NoisyRound):
    """A noisy round of means."""

    @property
    def error(self) -> float:
        """The expected length of what noise adds to the mean of unit features when all members are summed: √(2l)·σ/N."""
        dim = self.mechanism.release.layout.elements - 1
        return math.sqrt(2 * dim) * self.deviation / self.records


@dataclass(frozen=True)
class RefinedPlan:
    """A round of V and U, and rounds of gradients after it, for what one round would cost.

    Attributes:
        whole: one round that the whole budget goes to, to compare with.
        first: the round of V and U, at `FIRST_SHARE` of μ².
        each: one round of gradients.
        rounds: how many of these.
    """

    whole: Plan
    first: Plan
    each: NoisyRound
    rounds: int

    @property
    def mu(self) -> float:
        """√Σμ² of all rounds."""
        return math.hypot(
            self.first.mechanism.mu_round, math.sqrt(self.rounds) * self.each.mechanism.mu_round
        )

    @property
    def upload_bytes(self) -> int:
        """One member's masked vectors, of all rounds."""
        return self.first.upload_bytes + self.rounds * self.each.upload_bytes

    @property
    def gain(self) -> tuple[float, float] | None:
        """Points of accuracy over `whole`, median and worst, as measured with the most rounds up to these; None below two."""
        measured = [rounds for rounds in _GAINS if rounds <= self.rounds]
        return read(_GAINS[max(measured)], self.whole.eigenvalue_ratio) if measured else None

    @property
    def expected_loss(self) -> tuple[float, float] | None:
        """Points lost against the exact ridge head, median and worst; below 0 where the refined head is ahead of it; None if unknown."""
        if self.gain is None:
            return None
        (median, worst), (gained, least) = self.whole.expected_loss, self.gain
        return median - gained, worst - least

    @property
    def verdict(self) -> Verdict | None:
        """By the median loss; None if unknown."""
        return None if self.expected_loss is None else verdict_of(self.expected_loss[0])


def plan_mean(
    records: int,
    dim: int,
    *,
    epsilon: float,
    delta: float = 1e-5,
    rows_per_unit: int = 1,
    **cohort: Unpack[Cohort],
) -> MeanPlan:
    """Size a noisy mean.

    Args:
        records: N of all members.
        dim: features per record.
        epsilon: what it may cost, positive.
        delta: at this δ.
        rows_per_unit: as `plan`.
        cohort: its numbers.

    Raises:
        CalibrationError: a number outside its domain, or noise that can't be drawn.
    """
    check_asked(records, epsilon)
    mechanism = Mechanism(mean_release(dim), rows_per_unit, gdp_mu(epsilon, delta), **cohort)
    return MeanPlan(mechanism, records, delta)


def plan_refined(
    records: int,
    dim: int,
    classes: int,
    *,
    rounds: int,
    epsilon: float,
    delta: float = 1e-5,
    bias: bool = False,
    rows_per_unit: int = 1,
    **cohort: Unpack[Cohort],
) -> RefinedPlan:
    """Size a head from noisy sums that noisy gradients refine, at one budget.

    Args:
        records: N of all members.
        dim: features per record.
        classes: C.
        rounds: of gradients, 1 to 100.
        epsilon: what all rounds together may cost, positive.
        delta: at this δ.
        bias: with a constant column.
        rows_per_unit: as `plan`.
        cohort: its numbers.

    Raises:
        CalibrationError: a number outside its domain, or noise that can't be drawn.
    """
    if not 1 <= rounds <= 100:
        raise CalibrationError(f"{rounds} rounds of gradients: take 1 to 100")
    fixed: dict[str, Any] = {"delta": delta, "bias": bias, "rows_per_unit": rows_per_unit, **cohort}
    whole = plan(records, dim, classes, epsilon=epsilon, **fixed)
    mu = whole.mechanism.mu
    first = plan(records, dim, classes, epsilon=gdp_epsilon(mu * math.sqrt(FIRST_SHARE), delta), **fixed)
    own = mu * math.sqrt((1 - FIRST_SHARE) / rounds)
    mechanism = Mechanism(gradient_release(dim + bias, classes), rows_per_unit, own, **cohort)
    return RefinedPlan(whole, first, NoisyRound(mechanism, records, delta), rounds)
