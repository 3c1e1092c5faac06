"""Eigendecomposition of a symmetric matrix of sums, and what rounding leaves of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.dense import eigh
from calibration.errors import SingularSystem

if TYPE_CHECKING:
    from calibration.rows import Floats

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """V = QDQᵀ."""

    vectors: Floats
    """(l, l), Q."""
    values: Floats
    """(l,) ascending, not negative: V is semidefinite, what is negative is rounding, and 0 is nearer to the truth."""
    smallest: float
    """The smallest eigenvalue before clipping."""
    noise: float
    """Eigenvalues up to this may be rounding alone."""

    @classmethod
    def of(cls, V: Floats, rounding_deviation: float = 0.0, *, in_place: bool = False) -> Spectrum:
        """Decompose V.

        Args:
            V: (l, l) symmetric.
            rounding_deviation: standard deviation of an element's error.
            in_place: as `dense.eigh`.
        """
        eigenvalues, vectors = eigh(V, in_place=in_place)
        values = np.maximum(eigenvalues, 0)
        # Rounding moves eigenvalues by the edge of its spectrum, 2√l deviations (Wigner); twice that to be safe.
        noise = max(len(V) * _EPS * values[-1], 4 * np.sqrt(len(V)) * rounding_deviation)
        return cls(vectors, values, float(eigenvalues[0]), float(noise))

    @property
    def rank(self) -> int:
        """Eigenvalues above the noise."""
        return int(np.count_nonzero(self.values > self.noise))

    def conditions(self, grid: Floats) -> Floats:
        """Condition number of V + λI at each of (G,) ridges; infinite where it is singular."""
        conditions = np.full(len(grid), np.inf)
        lowest = self.values[0] + grid
        np.divide(self.values[-1] + grid, lowest, out=conditions, where=lowest > 0)
        return conditions

    def check_invertible(self, ridge: float) -> None:
        """Refuse a ridge that leaves directions undetermined.

        Raises:
            SingularSystem: V has an eigenvalue within its noise, and the ridge is no larger than float64's rounding.
        """
        d_min, d_max = float(self.values[0]), float(self.values[-1])
        if ridge <= len(self.values) * _EPS * d_max and d_min <= self.noise:
            raise SingularSystem(
                f"V has an eigenvalue {d_min:g}, within its rounding of {self.noise:g}, so ridge {ridge:g} leaves "
                "the weights undetermined; pass a larger ridge, or None to choose one by GCV"
            )
