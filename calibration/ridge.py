"""Ridge regression from sums, with λ by generalised cross-validation.

(V + λI)W = U (SphereFed, eq. 10, with a ridge: of ReLU features V is often singular). One
eigendecomposition V = QDQᵀ gives W, degrees of freedom and residuals for every λ at once:
with P = QᵀU and p_i = Σ_c P_ic², W = Q(D + λ)⁻¹P, dof = Σ d/(d + λ), RSS = N − Σ p(d + 2λ)/(d + λ)²,
GCV = N·RSS/(N − dof)² (Golub, Heath, Wahba 1979). Of weighted records Σw takes the place of N in RSS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import CalibrationError, NoRecords
from calibration.solution import Solution
from calibration.spectrum import Spectrum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from calibration.ffc import FFCStatistics
    from calibration.rows import Floats

# GCV errors within this of the smallest count as equal, and the largest λ of them is taken. On the flat
# part of a curve the plain minimum would be decided by rounding, and masked sums would choose another λ.
_TIE = 1e-4

# In units of N, what may not steer the choice of λ because rounding at 2^−31 shows in it: eigenvalues and
# residuals below these (a fit that explains 99.99 % can't be told from a perfect one), and a GCV error
# whose denominator all but vanishes.
_NEGLIGIBLE = 1e-9
_RESIDUAL = 1e-4
_FREEDOM = 1e-3


def default_grid(records: float, dim: int) -> Floats:
    """49 ridges from 1e-4 to 1e2 times N/l, the mean eigenvalue of V, eight a decade.

    It depends on N and l alone, so masked and plain sums have the same grid.
    """
    return records / dim * np.logspace(-4, 2, 49)


def solve_ffc(
    statistics: FFCStatistics,
    ridge: float | Sequence[float] | NDArray[np.floating] | None = None,
    *,
    in_place: bool = False,
) -> Solution:
    """The calibrated head of a member, or of a pool of members.

    Equal sums give equal bits on one machine. Between the rounded sum of a 48-bit ring and the plain one
    the chosen λ is the same unless the curve meets the tie tolerance within the rounding.

    Args:
        statistics: with at least one record.
        ridge: λ; a grid of them, of which GCV chooses; or None for GCV on `default_grid`.
        in_place: as `FFCStatistics.spectrum`: a large V takes its own size of memory beside it then, and not twice that (with scipy;
            four times without).

    Raises:
        NoRecords: the statistics are empty.
        CalibrationError: a ridge that is negative, not finite or not a number; an empty grid.
        SingularSystem: V + λI can't be inverted for the smallest λ asked for.
    """
    N = statistics.records
    if N == 0:
        raise NoRecords("the statistics hold no records; update or merge before solving")
    U = statistics.U
    grid = default_grid(N, len(U)) if ridge is None else parse_grid(ridge)
    spectrum = statistics.spectrum(in_place=in_place)
    spectrum.check_invertible(float(grid[0]))
    d, Q = spectrum.values, spectrum.vectors

    P = Q.T @ U
    dofs, rss, gcv = _curves(spectrum, np.einsum("ic,ic->i", P, P), grid, N)
    best = largest_of_ties(gcv)
    chosen = float(grid[best])
    V, shrunk = statistics.V, (d + chosen)[:, None]
    W = Q @ (P / shrunk)
    # Eigenvectors of a large V are orthogonal to fewer digits, and where λ is small the equations show it: one step mends that.
    # Not along what was clipped, by which W is not to solve them.
    W += Q @ (np.where(d[:, None] > 0, Q.T @ (U - V @ W - chosen * W), 0) / shrunk)
    left = np.linalg.norm(V @ W + chosen * W - U)
    conditions = spectrum.conditions(grid)

    has_bias = statistics.bias
    return Solution(
        weights=W[:-1] * np.sqrt(0.5) if has_bias else W,
        bias=W[-1] * statistics.constant if has_bias else None,
        raw_weights=W,
        ridge=chosen,
        grid=grid,
        gcv=gcv,
        dofs=dofs,
        conditions=conditions,
        dof=float(dofs[best]),
        rss=float(rss[best]),
        residual=float(left / max(np.linalg.norm(U), np.finfo(np.float64).tiny)),
        condition=float(conditions[best]),
        smallest_eigenvalue=spectrum.smallest,
        rank=spectrum.rank,
        records=N,
        empty_classes=tuple(np.flatnonzero(statistics.counts == 0).tolist()),
    )


def parse_grid(ridge: float | Sequence[float] | NDArray[np.floating]) -> Floats:
    """Ridges in ascending order, each once, (G,).

    Raises:
        CalibrationError: a ridge that is negative, not finite or not a number; an empty grid.
    """
    try:
        grid = np.unique(np.atleast_1d(np.asarray(ridge, dtype=np.float64)))
    except (TypeError, ValueError) as error:
        raise CalibrationError(f"ridge is a number, a sequence of numbers or None, not {ridge!r}") from error
    if not grid.size or not np.isfinite(grid).all() or grid[0] < 0 or np.ndim(ridge) > 1:
        raise CalibrationError(f"a ridge is finite and not negative, a grid is not empty; got {ridge!r}")
    return grid


def _curves(spectrum: Spectrum, p: Floats, grid: Floats, records: int) -> tuple[Floats, Floats, Floats]:
    """Degrees of freedom, RSS and GCV error at each λ, (G,) each."""
    # Only directions above rounding may steer the choice of λ.
    real = spectrum.values > max(spectrum.noise, _NEGLIGIBLE * records)
    d, p = spectrum.values[real, None], p[real, None]
    kept = d / (d + grid)  # (l, G): how much of each direction the ridge leaves
    dofs = kept.sum(axis=0)
    rss = np.maximum(records - (p / (d + grid) * (2 - kept)).sum(axis=0), 0)
    freedom = records - dofs
    gcv = np.full(len(grid), np.inf)
    felt = np.maximum(rss, _RESIDUAL * records)
    np.divide(records * felt, freedom**2, out=gcv, where=freedom > _FREEDOM * records)
    return dofs, rss, gcv


def largest_of_ties(errors: Floats) -> int:
    """Index of the largest λ whose error ties with the smallest; the largest of all if none is defined.

    Args:
        errors: (G,) over ascending λ.
    """
    return int(np.flatnonzero(errors <= errors.min() * (1 + _TIE))[-1])
