"""Eigendecompositions of symmetric matrices, in little memory where they are large and scipy is installed.

numpy's `eigh` takes four times the matrix beside it, and its Cholesky twice. scipy works in the matrix itself, and its driver by
relatively robust representations (Dhillon, Parlett 2004) needs no more than the memory of the eigenvectors.
"""

import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from veilsum.calibration.errors import SingularSystem
from veilsum.calibration.layout import mirror_triangle
from veilsum.calibration.rows import Floats

LARGE_MATRIX_ROWS = 2048
"""Rows from which on memory counts: a matrix of 34 MB."""
FLOAT64_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """V = QDQᵀ of a matrix of sums.

    Attributes:
        vectors: (l, l), Q.
        observed: (l,) ascending, D.
        noise: eigenvalues up to this may be rounding alone.
    """

    vectors: Floats
    observed: Floats
    noise: float

    @classmethod
    def decompose(cls, V: Floats, rounding_deviation: float, *, in_place: bool = False) -> Self:
        """Decompose (l, l) symmetric V, with errors of this standard deviation in its elements; `in_place` as `eigh`."""
        eigenvalues, vectors = eigh(V, in_place=in_place)
        # Rounding moves eigenvalues by the edge of its spectrum, 2√l deviations (Wigner); twice that to be safe.
        noise = max(len(V) * FLOAT64_EPS * max(eigenvalues[-1], 0), 4 * np.sqrt(len(V)) * rounding_deviation)
        return cls(vectors, eigenvalues, float(noise))

    @cached_property
    def values(self) -> Floats:
        """(l,) ascending, none negative: V is semidefinite, so an eigenvalue below 0 is rounding, and 0 is nearer to the truth."""
        return np.maximum(self.observed, 0)

    @property
    def rank(self) -> int:
        """Eigenvalues above the noise."""
        return int(np.count_nonzero(self.values > self.noise))

    def condition_number(self, ridge: float) -> float:
        """Condition number of V + λI; infinite where it is singular."""
        lowest, highest = float(self.values[0]) + ridge, float(self.values[-1]) + ridge
        return highest / lowest if lowest > 0 else np.inf

    def check_invertible(self, ridge: float) -> None:
        """Raise SingularSystem if V has an eigenvalue within its noise and λ is no larger than float64's rounding."""
        d_min, d_max = float(self.values[0]), float(self.values[-1])
        if ridge <= len(self.values) * FLOAT64_EPS * d_max and d_min <= self.noise:
            raise SingularSystem(
                f"V has an eigenvalue {d_min:g}, within its rounding of {self.noise:g}, so ridge {ridge:g} leaves the weights "
                "undetermined: pass a larger ridge, or None to choose one by GCV"
            )


def eigh(V: Floats, *, in_place: bool = False) -> tuple[Floats, Floats]:
    """Decompose (l, l) symmetric V = QDQᵀ; return D, (l,) ascending, and Q, (l, l).

    `in_place` works in the memory of a large V, which must be symmetric to the last bit and is restored afterwards.
    """
    linalg = _scipy_for(len(V))
    if linalg is None:
        values, vectors = np.linalg.eigh(V)
        return values, vectors
    work = V if in_place else V.copy()
    diagonal = work.diagonal().copy()
    try:
        # LAPACK counts by columns: its upper triangle is our lower one, and it touches no other.
        values, vectors = linalg.eigh(work.T, lower=False, overwrite_a=True, check_finite=False, driver="evr")
    finally:
        if in_place:
            np.fill_diagonal(V, diagonal)
            mirror_triangle(V)
    return values, vectors


def is_definite(matrix: Floats) -> bool:
    """Tell by Cholesky's algorithm whether a symmetric matrix is positive definite. A large matrix is overwritten."""
    linalg = _scipy_for(len(matrix))
    try:
        if linalg is None:
            np.linalg.cholesky(matrix)
        else:
            linalg.cho_factor(matrix.T, lower=False, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True


def _scipy_for(rows: int) -> Any | None:
    """`scipy.linalg` for a large matrix; None for a small one, or without scipy."""
    if rows < LARGE_MATRIX_ROWS:
        return None
    try:
        return importlib.import_module("scipy.linalg")
    except ImportError:
        return None
