"""Checks of sums and solutions that need nothing else.

A sum of honest members passes, in this order (analysis: Results; later checks rest on earlier ones):

1. counts: whole and not negative,
2. range: no entry beyond what N records can reach, so nothing below can overflow,
3. class mass: |U_jc| ≤ n_c,
4. constant: the constant column repeats what U and the counts say,
5. trace: tr V ≤ N, since no row is longer than 1,
6. semidefinite: [[V, U], [Uᵀ, diag n]] is a sum of outer products.

No check sees a member that sends well-formed statistics of invented records.
"""

import numpy as np

from veilsum.calibration.errors import NonFinite, ShapeMismatch, SolutionCheckFailed, SumCheckFailed
from veilsum.calibration.lattice import SumsLattice, require_int64
from veilsum.calibration.layout import Layout
from veilsum.calibration.rows import CONSTANT_ENTRY, Floats, Integers
from veilsum.calibration.spectrum import FLOAT64_EPS, is_definite

_ROW_ERROR = 256
_RESIDUAL_MAX = 1e-10


def check_sums(
    layout: Layout, lattice: SumsLattice, vector: Integers, *, members: int, constant: bool
) -> None:
    """Check a noiseless sum of FFC statistics.

    `vector` is the centred sum of `members` vectors, (elements,) int64, in the layout of `ffc_layout`; with `constant` the last column is
    the constant.

    Raises:
        SumCheckFailed: `identity` names the violated identity.
    """
    if members < 1:
        raise ShapeMismatch(f"a sum of {members} members can't be checked: pass the number of vectors added")
    require_int64(vector)
    blocks = layout.unflatten(vector)
    V, U, encoded = blocks["V"], blocks["U"], blocks["n"]
    counts = counts_of(encoded, lattice)
    records = sum(counts.tolist())
    largest, bound = max(int(vector.max()), -int(vector.min())), lattice.largest_sum(records, members)
    if largest > bound or bound.bit_length() > 62:
        raise SumCheckFailed(
            f"an entry reaches {largest} steps; the counts allow {bound} and int64 2^62", identity="range"
        )
    # In steps: each member rounded by at most ½.
    rounding, unit = members / 2, lattice.unit()
    slack = summation_error(records, len(V)) * unit
    beyond = np.abs(U).max(axis=0) - counts * unit
    _expect_at_most("class mass", "max |U_jc| − n_c", beyond.max(), rounding + slack)
    if constant:
        by_class = np.abs(U[-1] - CONSTANT_ENTRY * (unit * counts)).max()
        by_column = np.abs(V[-1] - CONSTANT_ENTRY * U.sum(axis=1)).max()
        _expect_at_most("constant", "max |U[constant, c] − √.1·n_c|", by_class, rounding + slack)
        _expect_at_most(
            "constant", "max |V[constant, j] − √.1·ΣU_j|", by_column, rounding * (len(counts) + 1) + 2 * slack
        )
    beyond = sum(np.diagonal(V).tolist()) - records * unit
    _expect_at_most("trace", "tr V − N", beyond, rounding * len(V) + slack)
    # An entry's rounding moves eigenvalues by up to the size of the matrix; the error of the long sums is
    # bounded in the spectral norm already, as γ_N·tr of [[V, U], [Uᵀ, diag n]].
    tolerance = (rounding * (len(V) + len(counts)) + 2 * slack) / unit
    reals = lattice.decode(V, in_place=True)
    check_semidefinite(reals, lattice.decode(U), counts, tolerance, in_place=True)


def counts_of(integers: Integers, lattice: SumsLattice) -> Integers:
    """Decode class counts from their sums. Raises SumCheckFailed if a count is a fraction or negative."""
    unit = lattice.unit()
    counts, rest = np.divmod(integers, unit)
    wrong = np.flatnonzero((rest != 0) | (counts < 0))
    if wrong.size:
        c = wrong[0]
        raise SumCheckFailed(
            f"class {c} has {integers[c] / unit:g} records; {wrong.size} such classes", identity="counts"
        )
    return counts


def summation_error(records: int, dim: int) -> float:
    """Bound what float64 adds to a sum of N products below 1, and to a norm over dim terms, at 1 eps each."""
    return records * (records + dim) * FLOAT64_EPS


def check_semidefinite(
    V: Floats, U: Floats, counts: Integers, rounding: float, *, in_place: bool = False
) -> None:
    """Check that A = [[V, U], [Uᵀ, diag n]] is a sum of outer products, as far as rounding lets it be told.

    A + τI has no negative eigenvalue exactly if its Schur complement V + τI − U(diag n + τI)⁻¹Uᵀ has none. So memory is that of V,
    however many classes there are.

    V is (l, l), U (l, C) and counts (C,), none below 0. `rounding` bounds the spectral norm of what rounding and long sums did to A.
    `in_place` overwrites V.
    """
    size, largest = len(V) + len(counts), max(np.diagonal(V).max(), counts.max())
    # Cholesky of an n × n matrix succeeds if τ > n(n+1)·eps·max A_ii (Higham 2002, Theorem 10.7), and costs a third
    # of the eigenvalues; its first C steps turn A into the complement.
    tolerance = rounding + size * (size + 1) * FLOAT64_EPS * float(largest) + FLOAT64_EPS
    scaled = U / np.sqrt(counts + tolerance)
    complement = V if in_place else V.copy()
    # Both read the lower triangle only.
    for start in range(0, len(V), _ROW_ERROR):
        rows = slice(start, start + _ROW_ERROR)
        complement[rows, : rows.stop] -= scaled[rows] @ scaled[: rows.stop].T
    complement[np.diag_indices(len(V))] += tolerance
    if not is_definite(complement):
        raise SumCheckFailed(
            f"V − U·diag(n)⁻¹·Uᵀ has an eigenvalue below −{tolerance:g}, which rounding does not explain",
            identity="semidefinite",
        )


def check_solution(
    V: Floats,
    U: Floats,
    ridge: float,
    W: Floats,
    rng: "np.random.Generator",  # quoted: numpy imports `random` only where it is asked for
    *,
    rounds: int = 3,
) -> None:
    """Check (V + λI)W = U by Freivalds' method, for a small part of what solving costs.

    A round draws x ~ N(0, I_C) and compares (V + λI)(Wx) with Ux in O(l² + lC). Normal x show an error in any set of columns; ±1 would miss
    two errors that cancel half of the time. The check bounds the residual: if V + λI is ill-conditioned, weights can be further off.

    V is (l, l), U (l, C), and W (l, C) as `Solution.raw_weights`. `rng` is the verifier's own: false weights can be made to pass if it is
    known in advance. Residuals are relative to ‖V‖_F‖Wx‖ + λ‖Wx‖ + ‖Ux‖.

    Raises:
        SolutionCheckFailed: the equations do not hold.
        ShapeMismatch: shapes that do not belong together.
        NonFinite: NaN or infinity in V, U, λ or W.
    """
    dim = len(V)
    if V.shape != (dim, dim) or U.shape != W.shape or len(U) != dim or U.ndim != 2 or rounds < 1:
        raise ShapeMismatch(
            f"V {V.shape}, U {U.shape}, W {W.shape}, {rounds} rounds: pass (l, l), (l, C), (l, C), at least 1"
        )
    X = rng.standard_normal((U.shape[1], rounds))
    WX, UX = W @ X, U @ X
    residuals = np.linalg.norm(V @ WX + ridge * WX - UX, axis=0)
    scales = (np.linalg.norm(V) + ridge) * np.linalg.norm(WX, axis=0) + np.linalg.norm(UX, axis=0)
    if not np.isfinite(residuals).all() or not np.isfinite(scales).all():
        raise NonFinite("V, U, the ridge or the weights hold NaN or infinity")
    if float((residuals - _RESIDUAL_MAX * scales).max()) > 0:
        raise SolutionCheckFailed(
            f"the weights miss the equations by {(residuals / scales).max():.3g} of their size, "
            f"{_RESIDUAL_MAX:g} is tolerated: do not use them"
        )


def _expect_at_most(identity: str, what: str, value: float, tolerance: float) -> None:
    if not value <= tolerance:
        raise SumCheckFailed(
            f"{what} is {value:g} steps, at most {tolerance:g} is possible", identity=identity
        )
