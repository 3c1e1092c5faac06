"""A calibrated head and how well it is determined."""

from __future__ import annotations

from dataclasses import dataclass

from calibration.head import Head
from calibration.rows import Floats


@dataclass(frozen=True, eq=False)
class Solution(Head):
    """Weights that solve (V + λI)W = U, with what tells good ones from bad.

    `weights` and `bias` are for features z of length 1: scores = z @ weights + bias. The column of a class without
    records is 0.
    """

    raw_weights: Floats
    """(l, C), W in the space that was solved, l = dim + 1 with a bias."""
    ridge: float
    """λ."""
    grid: Floats
    """(G,) the ridges that were compared, ascending."""
    gcv: Floats
    """(G,) generalised cross-validation error at each; infinite where it is undefined."""
    dofs: Floats
    """(G,) effective degrees of freedom at each."""
    conditions: Floats
    """(G,) condition number of V + λI at each; infinite where it is singular."""
    dof: float
    """tr((V + λI)⁻¹V) at the chosen ridge."""
    rss: float
    """Σ‖y − Wᵀz‖² over the records that were summed, at the chosen ridge."""
    residual: float
    """‖(V + λI)W − U‖_F / ‖U‖_F, what floating point left of the equations."""
    condition: float
    """Condition number of V + λI."""
    smallest_eigenvalue: float
    """Of V, before clipping; negative by rounding alone."""
    rank: int
    """Eigenvalues of V above its rounding."""
    records: int
    """N."""

    def _changed(self, weights: Floats, bias: Floats | None) -> Head:
        return Head(weights, bias, self.empty_classes, centre=self.centre)
