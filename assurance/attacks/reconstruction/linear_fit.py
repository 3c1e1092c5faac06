"""z is nearly a linear function of zzᵀ. Anyone can fit it on public records, and it turns V into Σz."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veilsum.calibration.rows import Floats, Integers

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True, eq=False)
class LinearFit:
    """L with z ≈ L·upper(zzᵀ), and what its errors and the withheld class look like on public records."""

    matrix: Floats
    error: Floats
    """Of a published row on average, (dim,)."""
    error_covariance: Floats
    mean: Floats
    """Of the withheld class, (dim,)."""
    covariance: Floats

    @classmethod
    def of(cls, public: Floats, labels: Integers, withheld: int, ridge: float = 1e-7) -> Self:
        squares, of_class = _squares_of(public), public[labels == withheld]
        gram = squares.T @ squares
        size = ridge * np.trace(gram) / len(gram)
        matrix = np.linalg.solve(gram + size * np.eye(len(gram)), squares.T @ public).T
        errors = (squares @ matrix.T - public)[labels != withheld]
        return cls(matrix, errors.mean(axis=0), np.cov(errors.T), of_class.mean(axis=0), np.cov(of_class.T))

    def read_withheld(self, V: Floats, U: Floats, rows: int) -> Floats:
        """Return the best linear estimate of the one row that V holds and U doesn't, less its class's mean; U holds `rows` rows."""
        seen = self.matrix @ V[np.triu_indices(len(V))] - U.sum(axis=1) - rows * self.error - self.mean
        noise = self.covariance + rows * self.error_covariance + 1e-12 * np.eye(len(V))
        found: Floats = self.covariance @ np.linalg.solve(noise, seen)
        return found


def cosine(one: Floats, other: Floats) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def _squares_of(rows: Floats) -> Floats:
    j, k = np.triu_indices(rows.shape[1])
    return rows[:, j] * rows[:, k]
