"""How sure a ridge head can be of a record: its leverage, and the variance of its scores.

Ridge is the posterior mean of a Gaussian linear model with noise s² and a prior of variance s²/λ. A new record's scores
have the variance s²(1 + zᵀ(V + λI)⁻¹z), s² = RSS/(n − dof) (Bishop 2006, eq. 3.58 and 3.59).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import ConfigMismatch, NoRecords, SingularSystem
from calibration.rows import Array, Floats, with_constant

if TYPE_CHECKING:
    from calibration.ffc import FFCStatistics
    from calibration.solution import Solution


@dataclass(frozen=True, eq=False)
class RidgePosterior:
    """The posterior over the weights of a solution; made by `ridge_posterior`."""

    solution: Solution
    """Its mean."""
    whitening: Floats
    """(l, l), L⁻¹ of V + λI = LLᵀ."""
    variances: Floats
    """(C,), s_c² of each class's column; together they are RSS/(n − dof)."""
    constant: float | None
    """The value of the constant column, if there is one."""

    def leverage(self, features: Array, *, normalise: bool = False) -> Floats:
        """zᵀ(V + λI)⁻¹z, (n,): large where the pooled records hold nothing like z, up to 1/λ.

        This is the score for records out of distribution. It needs no labels and no other data.

        Args:
            features: as `Head.rows`.
            normalise: accept rows of any length.

        Raises:
            CalibrationError: as `Head.rows`.
        """
        rows = self.solution.rows(features, normalise=normalise)
        solved = rows if self.constant is None else with_constant(rows, self.constant)
        leverage: Floats = ((solved @ self.whitening.T) ** 2).sum(axis=1)
        return leverage

    def variance(self, features: Array, *, normalise: bool = False) -> Floats:
        """s_c²(1 + zᵀ(V + λI)⁻¹z), (n, C): how far a label's one-hot may lie from the scores, squared.

        Raises:
            CalibrationError: as `leverage`.
        """
        return np.outer(1 + self.leverage(features, normalise=normalise), self.variances)


def ridge_posterior(statistics: FFCStatistics, solution: Solution) -> RidgePosterior:
    """The posterior from the same V, U and counts that the solution was made of; nothing more is summed.

    Raises:
        ConfigMismatch: a solution of other statistics.
        NoRecords: no more records than degrees of freedom.
        SingularSystem: V + λI is not positive definite in float64.
    """
    V, U, W = statistics.V, statistics.U, solution.raw_weights
    if W.shape != U.shape or statistics.records != solution.records:
        raise ConfigMismatch(
            f"the solution is of {solution.records} records and weights {W.shape}, the statistics of "
            f"{statistics.records} and {U.shape}; pass the statistics that were solved"
        )
    freedom = solution.records - solution.dof
    if freedom <= 0:
        raise NoRecords(
            f"{solution.records} records leave no variance beside {solution.dof:g} degrees of freedom"
        )
    rss = statistics.counts - 2 * np.einsum("lc,lc->c", W, U) + np.einsum("lc,lc->c", W, V @ W)
    shifted = V + solution.ridge * np.eye(len(V))
    try:
        whitening = np.linalg.inv(np.linalg.cholesky(shifted))
    except np.linalg.LinAlgError as error:
        raise SingularSystem(
            f"V + {solution.ridge:g}·I is not positive definite; take a larger ridge"
        ) from error
    constant = statistics.constant if statistics.bias else None
    return RidgePosterior(solution, whitening, np.maximum(rss, 0) / freedom, constant)
