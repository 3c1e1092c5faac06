"""Ridge heads from sums: the pooled one, with λ by generalised cross-validation, its posterior, and its rounding error.

(V + λI)W = U (SphereFed, eq. 10, with a ridge: V of ReLU features is often singular). One eigendecomposition V = QDQᵀ gives W, degrees of
freedom and residuals for every λ at once: with P = QᵀU and p_i = Σ_c P_ic², W = Q(D + λ)⁻¹P, dof = Σ d/(d + λ),
RSS = N − Σ p(d + 2λ)/(d + λ)², GCV = N·RSS/(N − dof)² (Golub, Heath, Wahba 1979).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilsum.calibration.errors import CalibrationError, ConfigMismatch, NoRecords, SingularSystem
from veilsum.calibration.ffc import FFCStatistics
from veilsum.calibration.head import Head, find_empty_classes
from veilsum.calibration.rows import CONSTANT_ENTRY, Array, Floats, split_constant, with_constant
from veilsum.calibration.spectrum import Spectrum

# GCV errors within this of the smallest count as equal, and the largest λ of them is taken. On the flat part of a curve
# rounding would decide the plain minimum, and masked sums would choose another λ.
_GCV_TIE = 1e-4
# In units of N, what must not steer the choice of λ because rounding at 2^−31 shows in it: eigenvalues and residuals below
# these (a fit that explains 99.99 % can't be told from a perfect one), and a GCV error whose denominator all but vanishes.
_EIGENVALUE_NEGLIGIBLE, _RESIDUAL_NEGLIGIBLE, _FREEDOM_NEGLIGIBLE = 1e-9, 1e-4, 1e-3


@dataclass(frozen=True, repr=False, eq=False)
class Solution(Head):
    """The head that solves (V + λI)W = U, with diagnostics. The column of a class without records is 0.

    Attributes:
        raw_weights: (l, C), W in the space that was solved, l = dim + 1 with a constant.
        ridge: λ.
        grid: (G,) the ridges compared, ascending.
        gcv: (G,) generalised cross-validation error at each; infinite where undefined.
        dof: effective degrees of freedom, tr((V + λI)⁻¹V).
        residual: ‖(V + λI)W − U‖_F / ‖U‖_F, the error of floating point.
        condition: condition number of V + λI.
        smallest_eigenvalue: of V; only rounding makes it negative.
        rank: eigenvalues of V above its rounding.
        records: N.
    """

    raw_weights: Floats
    ridge: float
    grid: Floats
    gcv: Floats
    dof: float
    residual: float
    condition: float
    smallest_eigenvalue: float
    rank: int
    records: int


def default_grid(records: float, dim: int) -> Floats:
    """49 ridges from 1e-4 to 1e2 times N/l, the mean eigenvalue of V, eight per decade.

    They follow from N and l alone, so masked and plain sums have the same grid.
    """
    return records / dim * np.logspace(-4, 2, 49)


def solve_ffc(
    statistics: FFCStatistics,
    ridge: float | Sequence[float] | NDArray[np.floating] | None = None,
    *,
    in_place: bool = False,
) -> Solution:
    """Solve for the calibrated head of a member, or of a pool of members.

    Equal sums give equal bits on one machine. The rounded sum of a 48-bit ring chooses the same λ as the plain one, unless the curve meets
    the tie tolerance within the rounding.

    Args:
        statistics: with at least one record.
        ridge: λ; a grid from which GCV chooses; or None for GCV on `default_grid`.
        in_place: as `FFCStatistics.spectrum`. A large V then takes its own size of memory beside it, instead of twice that (with scipy;
            four times without).

    Raises:
        NoRecords: the statistics are empty.
        SingularSystem: V + λI can't be inverted for the smallest λ.
        CalibrationError: an invalid ridge or an empty grid.
    """
    N = statistics.records
    if N == 0:
        raise NoRecords("the statistics hold no records: update or merge before solving")
    U = statistics.U
    grid = default_grid(N, len(U)) if ridge is None else _parse_grid(ridge)
    spectrum = statistics.spectrum(in_place=in_place)
    spectrum.check_invertible(float(grid[0]))
    Q = spectrum.vectors
    P = Q.T @ U
    dofs, gcv = _gcv_curves(spectrum, np.einsum("ic,ic->i", P, P), grid, N)
    best = int(np.flatnonzero(gcv <= gcv.min() * (1 + _GCV_TIE))[-1])
    chosen = float(grid[best])
    # An eigenvalue that rounding made so negative that it would blow up W counts as 0: along it, W does not solve the equations.
    solved = spectrum.observed > -chosen / 2
    V, shrunk = statistics.V, (np.where(solved, spectrum.observed, 0) + chosen)[:, None]
    W = Q @ (P / shrunk)
    # Eigenvectors of a large V are orthogonal to fewer digits, which shows in the equations if λ is small: one step mends that.
    W += Q @ (np.where(solved[:, None], Q.T @ (U - V @ W - chosen * W), 0) / shrunk)
    left = np.linalg.norm(V @ W + chosen * W - U)

    weights, bias = split_constant(W) if statistics.constant else (W, None)
    return Solution(
        weights,
        bias,
        find_empty_classes(statistics.counts),
        raw_weights=W,
        ridge=chosen,
        grid=grid,
        gcv=gcv,
        dof=float(dofs[best]),
        residual=float(left / max(np.linalg.norm(U), np.finfo(np.float64).tiny)),
        condition=spectrum.condition_number(chosen),
        smallest_eigenvalue=float(spectrum.observed[0]),
        rank=spectrum.rank,
        records=N,
    )


def _parse_grid(ridge: float | Sequence[float] | NDArray[np.floating]) -> Floats:
    """Ridges in ascending order, each once, (G,)."""
    try:
        grid = np.unique(np.atleast_1d(np.asarray(ridge, dtype=np.float64)))
    except (TypeError, ValueError) as error:
        raise CalibrationError(f"ridge is a number, a sequence of numbers or None, not {ridge!r}") from error
    if not grid.size or not np.isfinite(grid).all() or grid[0] < 0 or np.ndim(ridge) > 1:
        raise CalibrationError(f"a ridge is finite and not negative, a grid is not empty; got {ridge!r}")
    return grid


def _gcv_curves(spectrum: Spectrum, p: Floats, grid: Floats, records: int) -> tuple[Floats, Floats]:
    """Degrees of freedom and GCV error at each λ, (G,) each."""
    # Only directions above rounding may steer the choice of λ.
    real = spectrum.values > max(spectrum.noise, _EIGENVALUE_NEGLIGIBLE * records)
    d, p = spectrum.values[real, None], p[real, None]
    kept = d / (d + grid)  # (l, G): how much of each direction the ridge leaves
    dofs = kept.sum(axis=0)
    rss = np.maximum(records - (p / (d + grid) * (2 - kept)).sum(axis=0), 0)
    freedom = records - dofs
    gcv = np.full(len(grid), np.inf)
    felt = np.maximum(rss, _RESIDUAL_NEGLIGIBLE * records)
    np.divide(records * felt, freedom**2, out=gcv, where=freedom > _FREEDOM_NEGLIGIBLE * records)
    return dofs, gcv


@dataclass(frozen=True, eq=False)
class RidgePosterior:
    """The posterior over a solution's weights, which tells how sure the head can be of a record.

    Ridge is the posterior mean of a Gaussian linear model with noise s² and a prior of variance s²/λ. A new record's scores have the
    variance s²(1 + zᵀ(V + λI)⁻¹z), s² = RSS/(n − dof) (Bishop 2006, eq. 3.58 and 3.59).

    Attributes:
        solution: the mean.
        whitening: (l, l), L⁻¹ of V + λI = LLᵀ.
        variances: (C,), s_c² of each class's column; their sum is RSS/(n − dof).
        constant: the value of the constant column; None without one.
    """

    solution: Solution
    whitening: Floats
    variances: Floats
    constant: float | None

    def leverage(self, features: Array, *, normalise: bool = False) -> Floats:
        """zᵀ(V + λI)⁻¹z, (n,): a score for records out of distribution, up to 1/λ where the pooled records hold nothing like z.

        It needs no labels and no other data. Arguments and errors as `Head.rows`.
        """
        rows = self.solution.rows(features, normalise=normalise)
        solved = rows if self.constant is None else with_constant(rows)
        leverage: Floats = ((solved @ self.whitening.T) ** 2).sum(axis=1)
        return leverage

    def variance(self, features: Array, *, normalise: bool = False) -> Floats:
        """s_c²(1 + zᵀ(V + λI)⁻¹z), (n, C): the expected square of how far a label's one-hot lies from the scores."""
        return np.outer(1 + self.leverage(features, normalise=normalise), self.variances)


def ridge_posterior(statistics: FFCStatistics, solution: Solution) -> RidgePosterior:
    """Compute the posterior from the V, U and counts that were solved; nothing more is summed.

    Raises:
        ConfigMismatch: a solution of other statistics.
        NoRecords: no more records than degrees of freedom.
        SingularSystem: V + λI is not positive definite in float64.
    """
    V, U, W = statistics.V, statistics.U, solution.raw_weights
    if W.shape != U.shape or statistics.records != solution.records:
        raise ConfigMismatch(
            f"the solution is of {solution.records} records and weights {W.shape}, the statistics of "
            f"{statistics.records} and {U.shape}: pass the statistics that were solved"
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
            f"V + {solution.ridge:g}·I is not positive definite: take a larger ridge"
        ) from error
    constant = CONSTANT_ENTRY if statistics.constant else None
    return RidgePosterior(solution, whitening, np.maximum(rss, 0) / freedom, constant)


_PROMISED_ERROR = 1e-6


def smallest_ridge(dim: int, members: int, scale_bits: int) -> float:
    """The smallest λ for which each column of W is promised within 1e-6·(‖w‖ + ½) of float64 ridge.

    Each of n members rounds by an error uniform on ±½ step. So the sum's error has variance n/12, the symmetric error matrix E a spectral
    norm near 2√(l·n/12) steps (Wigner's edge), and the error of a column of U half that length. Both norms vary by
    chance: √l + 2 in place of √l allows for that. The solve amplifies both by at most 1/λ, E's after ‖w‖; a ridge of 1e6 times E's norm keeps the change
    below that.

    `dim` is l, the rows of V with the constant column, and `members` n.
    """
    return 2 * (math.sqrt(dim) + 2) * math.sqrt(members / 12) * 2.0**-scale_bits / _PROMISED_ERROR


def definite_ridge(dim: int, members: int, scale_bits: int) -> float:
    """The smallest λ that is safe beside negative eigenvalues of rounding: twice the norm of the sum's error. Arguments as `smallest_ridge`."""
    return 2 * _PROMISED_ERROR * smallest_ridge(dim, members, scale_bits)


def weights_error_bound(
    weights: Floats, ridge: float, *, members: float, scale_bits: int, smallest_eigenvalue: float = 0.0
) -> float:
    """Bound max|ΔW| for all rounding errors; infinity if λ = 0 and V's smallest eigenvalue does not exceed the rounding.

    With Ŵ solved from the rounded sums V̂ = V + E, Û = U + F and W from the true ones, (V + λI)(Ŵ − W) = F − EŴ exactly. An entry of E or F
    is at most η = n/2 steps, so ‖E‖₂ ≤ lη and ‖F_c‖₂ ≤ √l·η, and ‖(V + λI)⁻¹‖₂ ≤ 1/(λ + max(0, d̂ − lη)) for the smallest eigenvalue d̂ of V̂
    (Weyl). The largest entry of a column is below its Euclidean norm. float64's own errors are left out: in a ring of 48 bits they are far
    below a step.

    `weights` are Ŵ, (l, C), as `Solution.raw_weights`, and `members` is n, times the factor by which the sums were scaled after rounding. 0 is
    always valid for d̂, the smallest eigenvalue.
    """
    dim = len(weights)
    error = members / 2 * 2.0**-scale_bits
    definite = ridge + max(0.0, smallest_eigenvalue - dim * error)
    if definite <= 0:
        return math.inf
    largest_column = float(np.linalg.norm(weights, axis=0).max(initial=0))
    return (math.sqrt(dim) * error + dim * error * largest_column) / definite


@dataclass(frozen=True)
class Rounding:
    """How coarsely exact sums were rounded.

    Attributes:
        bits: s, of steps of 2^−s.
        members: how many vectors were added, each rounded once.
        promised: keep λ so large that the weights are within 1e-6 of unrounded ones.
    """

    bits: int
    members: int
    promised: bool

    def ridges_for(self, statistics: FFCStatistics, *, scale: float = 1.0) -> Sequence[float]:
        """The λ to compare, if the rounded V was scaled by a factor: all at least twice the error's norm, so that V + λI stays definite."""
        width = len(statistics.V)
        least = smallest_ridge if self.promised else definite_ridge
        smallest = scale * least(width, self.members, self.bits)
        grid: list[float] = default_grid(statistics.records, width).tolist()
        return [ridge for ridge in grid if ridge >= smallest] or [smallest]

    def error_bound(self, solution: Solution, *, scale: float = 1.0) -> float | None:
        """The most that rounding may have moved a weight, if the rounded V was scaled by a factor of at least 1; None where no bound holds."""
        bound = weights_error_bound(
            solution.raw_weights,
            solution.ridge,
            members=scale * self.members,
            scale_bits=self.bits,
            smallest_eigenvalue=solution.smallest_eigenvalue,
        )
        return bound if math.isfinite(bound) else None
