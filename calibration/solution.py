"""A calibrated head and how well it is determined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.rows import Array, Floats, Integers, as_features, check_rows, unit_rows


@dataclass(frozen=True, eq=False)
class Solution:
    """Weights that solve (V + λI)W = U, with what tells good ones from bad.

    `weights` and `bias` are for features z of length 1: scores = z @ weights + bias.
    """

    weights: Floats
    """(dim, C)."""
    bias: Floats | None
    """(C,), or None if the statistics have no constant column."""
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
    empty_classes: tuple[int, ...]
    """Classes without a record: their column is 0, and `predict` never answers them."""

    @property
    def tensors(self) -> dict[str, Floats]:
        """`weights` and, with a bias, `bias`, contiguous: the arrays of a head's file."""
        named = {"weights": self.weights} | ({} if self.bias is None else {"bias": self.bias})
        return {name: np.ascontiguousarray(tensor) for name, tensor in named.items()}

    def scores(self, features: Array, *, normalise: bool = False) -> Floats:
        """Scores of each class, (n, C) float64; they are not probabilities.

        Args:
            features: (n, dim) float16, float32 or float64, numpy or torch.
            normalise: accept rows of any length.

        Raises:
            CalibrationError: as `FFCStatistics.update` for features.
        """
        matrix = as_features(features, len(self.weights))
        check_rows(matrix, normalise=normalise)
        rows, _ = unit_rows(matrix)
        scores: Floats = rows @ self.weights
        if self.bias is not None:
            scores += self.bias
        return scores

    def predict(self, features: Array, *, normalise: bool = False) -> Integers:
        """The class of highest score, (n,) int64; the lowest index among equals.

        Raises:
            CalibrationError: as `scores`.
        """
        scores = self.scores(features, normalise=normalise)
        # A column of zeros would beat every negative score.
        scores[:, list(self.empty_classes)] = -np.inf
        best: Integers = scores.argmax(axis=1).astype(np.int64, copy=False)
        return best
