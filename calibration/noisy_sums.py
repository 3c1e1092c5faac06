"""What the noisy steps of a study sum, decoded: the mean of all records, and V and U."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import CalibrationError
from calibration.noisy_lda import NoisyMoments, posterior_of
from calibration.privacy.solving import noise_edge, solve_noisy

if TYPE_CHECKING:
    from calibration.privacy.solving import NoisySolution
    from calibration.rows import Floats

_SQRT_HALF = math.sqrt(0.5)


@dataclass(frozen=True, eq=False)
class NoisyMean:
    """Σ(z, 1)/√2.

    Attributes:
        sums: (dim + 1,).
        constant: what a record adds last: 1/√2, rounded.
    """

    sums: Floats
    constant: float

    @property
    def records(self) -> int:
        """N, an estimate; 0 where noise made it negative."""
        return max(0, round(float(self.sums[-1]) / self.constant))

    @property
    def mean(self) -> Floats:
        """m, (dim,), drawn back to length 1 where noise made it longer; zeros where noise drowned the records."""
        if self.records < 1:
            return np.zeros(len(self.sums) - 1)
        mean: Floats = self.sums[:-1] / _SQRT_HALF / (float(self.sums[-1]) / self.constant)
        return mean / max(1.0, float(np.linalg.norm(mean)))


@dataclass(frozen=True, eq=False)
class NoisySums:
    """V̂ and Û.

    Attributes:
        V: (l, l).
        U: (l, C).
        deviation: σ_V.
        column_deviation: σ_U.
        bias: whether the last column is the constant.
        ridge: λ that the study gives; None for ½·edge.
    """

    V: Floats
    U: Floats
    deviation: float
    column_deviation: float
    bias: bool
    ridge: float | None

    @cached_property
    def solution(self) -> NoisySolution:
        """By shrinkage."""
        return solve_noisy(self.V, self.U, self.deviation, bias=self.bias, ridge=self.ridge)

    @property
    def records(self) -> int:
        """N as tr V̂ has it; 0 where noise made it negative."""
        return max(0, round(self.solution.records))

    @property
    def counts(self) -> Floats:
        """(C,) records of each class, as the constant column of Û has them; CalibrationError without one."""
        if not self.bias:
            raise CalibrationError(
                "a noisy sum counts classes only in a column of constants: ffc with a bias"
            )
        counts: Floats = self.U[-1] / _SQRT_HALF
        return counts

    @property
    def moments(self) -> NoisyMoments:
        """Of unit features, without the constant; CalibrationError as `counts`."""
        return NoisyMoments(
            2 * self.V[:-1, :-1],
            math.sqrt(2) * self.U[:-1],
            self.counts,
            2 * self.deviation,
            math.sqrt(2) * self.column_deviation,
            math.sqrt(2) * self.column_deviation,
        )

    @property
    def posterior(self) -> tuple[Floats, Floats]:
        """Whitening and variances of the head, as `ridge_posterior` has them; CalibrationError as `counts`."""
        ridge = noise_edge(self.deviation, len(self.V)) / 2 if self.ridge is None else self.ridge
        return posterior_of(self.solution, self.U, self.counts, self.column_deviation, ridge)
