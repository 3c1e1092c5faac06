"""Ridge regression from sums, with λ by generalised cross-validation.

(V + λI)W = U (SphereFed, eq. 10, with a ridge: of ReLU features V is often singular). One
eigendecomposition V = QDQᵀ gives W, degrees of freedom and residuals for every λ at once:
with P = QᵀU and p_i = Σ_c P_ic², W = Q(D + λ)⁻¹P, dof = Σ d/(d + λ), RSS = N − Σ p(d + 2λ)/(d + λ)²,
GCV = N·RSS/(N − dof)² (Golub, Heath, Wahba 1979).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import CalibrationError, NoRecords, SingularSystem
from calibration.solution import Solution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from calibration.ffc import FFCStatistics
    from calibration.rows import Floats

_EPS = float(np.finfo(np.float64).eps)

# GCV errors within this of the smallest count as equal, and the largest λ of them is taken. On the flat
# part of a curve the plain minimum would be decided by rounding, and masked sums would choose another λ.
_TIE = 1e-4

# In units of N, what may not steer the choice of λ because rounding at 2^−31 shows in it: eigenvalues and
# residuals below these (a fit that explains 99.99 % can't be told from a perfect one), and a GCV error
# whose denominator all but vanishes.
_NEGLIGIBLE = 1e-9
_RESIDUAL = 1e-4
_FREEDOM = 1e-3


def default_grid(records: int, dim: int) -> Floats:
    """49 ridges from 1e-4 to 1e2 times N/l, the mean eigenvalue of V, eight a decade.

    It depends on N and l alone, so masked and plain sums have the same grid.
    """
    return records / dim * np.logspace(-4, 2, 49)


def solve_ffc(
    statistics: FFCStatistics, ridge: float | Sequence[float] | NDArray[np.floating] | None = None
) -> Solution:
    """The calibrated head of a member, or of a pool of members.

    Equal sums give equal bits on one machine. Between the rounded sum of a 48-bit ring and the plain one
    the chosen λ is the same unless the curve meets the tie tolerance within the rounding.

    Args:
        statistics: with at least one record.
        ridge: λ; a grid of them, of which GCV chooses; or None for GCV on `default_grid`.

    Raises:
        NoRecords: the statistics are empty.
        CalibrationError: a ridge that is negative, not finite or not a number; an empty grid.
        SingularSystem: V + λI can't be inverted for the smallest λ asked for.
    """
    N = statistics.records
    if N == 0:
        raise NoRecords("the statistics hold no records; update or merge before solving")
    V, U = statistics.V, statistics.U
    grid = default_grid(N, len(V)) if ridge is None else _parse(ridge)
    eigenvalues, Q = np.linalg.eigh(V)
    # V is positive semidefinite: what is negative is rounding, and 0 is nearer to the truth.
    d = np.maximum(eigenvalues, 0)
    # Rounding moves eigenvalues by the edge of its spectrum, 2√l deviations (Wigner); twice that to be safe.
    noise = max(len(V) * _EPS * d[-1], 4 * np.sqrt(len(V)) * statistics.rounding_deviation)
    _check_invertible(float(grid[0]), float(d[0]), float(d[-1]), noise, len(V))

    P = Q.T @ U
    dofs, rss, gcv = _curves(d, np.einsum("ic,ic->i", P, P), grid, N, noise)
    best = _choose(gcv)
    chosen = float(grid[best])
    W = Q @ (P / (d + chosen)[:, None])
    left = np.linalg.norm(V @ W + chosen * W - U)

    has_bias = statistics.bias
    return Solution(
        weights=W[:-1] * np.sqrt(0.5) if has_bias else W,
        bias=W[-1] * statistics.constant if has_bias else None,
        raw_weights=W,
        ridge=chosen,
        grid=grid,
        gcv=gcv,
        dofs=dofs,
        dof=float(dofs[best]),
        rss=float(rss[best]),
        residual=float(left / max(np.linalg.norm(U), np.finfo(np.float64).tiny)),
        condition=float((d[-1] + chosen) / (d[0] + chosen)),
        smallest_eigenvalue=float(eigenvalues[0]),
        rank=int(np.count_nonzero(d > noise)),
        records=N,
        empty_classes=tuple(np.flatnonzero(statistics.counts == 0).tolist()),
    )


def _parse(ridge: float | Sequence[float] | NDArray[np.floating]) -> Floats:
    try:
        grid = np.unique(np.atleast_1d(np.asarray(ridge, dtype=np.float64)))
    except (TypeError, ValueError) as error:
        raise CalibrationError(f"ridge is a number, a sequence of numbers or None, not {ridge!r}") from error
    if not grid.size or not np.isfinite(grid).all() or grid[0] < 0 or np.ndim(ridge) > 1:
        raise CalibrationError(f"a ridge is finite and not negative, a grid is not empty; got {ridge!r}")
    return grid


def _check_invertible(smallest: float, d_min: float, d_max: float, noise: float, dim: int) -> None:
    if smallest <= dim * _EPS * d_max and d_min <= noise:
        raise SingularSystem(
            f"V has an eigenvalue {d_min:g}, within its rounding of {noise:g}, so ridge {smallest:g} leaves "
            "the weights undetermined; pass a larger ridge, or None to choose one by GCV"
        )


def _curves(d: Floats, p: Floats, grid: Floats, records: int, noise: float) -> tuple[Floats, Floats, Floats]:
    """Degrees of freedom, RSS and GCV error at each λ, (G,) each."""
    real = d > max(noise, _NEGLIGIBLE * records)
    d, p = d[real, None], p[real, None]
    kept = d / (d + grid)  # (l, G): how much of each direction the ridge leaves
    dofs = kept.sum(axis=0)
    rss = np.maximum(records - (p / (d + grid) * (2 - kept)).sum(axis=0), 0)
    freedom = records - dofs
    gcv = np.full(len(grid), np.inf)
    felt = np.maximum(rss, _RESIDUAL * records)
    np.divide(records * felt, freedom**2, out=gcv, where=freedom > _FREEDOM * records)
    return dofs, rss, gcv


def _choose(gcv: Floats) -> int:
    """Index of the largest λ whose error ties with the smallest; the largest of all if none is defined."""
    return int(np.flatnonzero(gcv <= gcv.min() * (1 + _TIE))[-1])
