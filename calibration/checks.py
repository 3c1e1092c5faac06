"""Identities that the sum of honest members fulfils, checked without learning more than the sum.

In this order (PROTOCOL, "Checks on the sum"; the later ones rest on the earlier ones):

1. counts: whole and not negative,
2. range: no entry beyond what N records can reach, so nothing below can overflow,
3. class mass: |U_jc| ≤ n_c,
4. bias: the constant column repeats what U and the counts say,
5. trace: tr V = N for features of length 1,
6. semidefinite: [[V, U], [Uᵀ, diag n]] is a sum of outer products.

What no check can see is a member that sends well-formed statistics of invented records.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from calibration.dense import is_definite
from calibration.errors import ShapeMismatch, SumCheckFailed
from calibration.lattice import SumsLattice, require_int64
from calibration.layouts import ffc_dimensions

if TYPE_CHECKING:
    from calibration.layout import Layout
    from calibration.rows import Floats, Integers

_ROWS = 256
_EPS = float(np.finfo(np.float64).eps)


def counts_of(integers: Integers, lattice: SumsLattice) -> Integers:
    """Class counts from their encoded sums, whole numbers.

    Raises:
        SumCheckFailed: a count is a fraction or negative.
    """
    unit = lattice.unit()
    counts, rest = np.divmod(integers, unit)
    wrong = np.flatnonzero((rest != 0) | (counts < 0))
    if wrong.size:
        c = wrong[0]
        raise SumCheckFailed(
            f"class {c} has {integers[c] / unit:g} records; {wrong.size} such classes", identity="counts"
        )
    return counts


def check_sums(
    layout: Layout,
    lattice: SumsLattice,
    vector: Integers,
    *,
    members: int,
    bias: bool,
) -> None:
    """Check a noiseless sum of FFC statistics; return if nothing is wrong with it.

    Args:
        layout: of the round, with the blocks V, U and n (`ffc_layout`).
        lattice: of the round.
        vector: (elements,) int64, the centred sum.
        members: n, how many vectors were added.
        bias: whether the last column is the constant.

    Raises:
        SumCheckFailed: `identity` names what is violated.
        LayoutMismatch: not a layout of FFC statistics, or a vector of another length.
        WrongDtype: the vector is not int64.
    """
    if members < 1:
        raise ShapeMismatch(f"a sum of {members} members can't be checked; pass how many were added")
    ffc_dimensions(layout, bias=bias)
    require_int64(vector)
    blocks = layout.unflatten(vector)
    V, U, encoded = blocks["V"], blocks["U"], blocks["n"]
    counts = counts_of(encoded, lattice)
    records = sum(counts.tolist())
    _check_range(vector, lattice.bound(records, members))
    # In steps: each member rounded by ½ at most.
    rounding, unit = members / 2, lattice.unit()
    slack = summation_error(records, len(V)) * unit
    beyond = np.abs(U).max(axis=0) - counts * unit
    _expect("class mass", "max |U_jc| − n_c", beyond.max(), rounding + slack)
    if bias:
        _check_bias(V, U, counts, unit, rounding, slack)
    off = abs(sum(np.diagonal(V).tolist()) - records * unit)
    _expect("trace", "|tr V − N|", off, rounding * len(V) + slack)
    # An entry's rounding moves eigenvalues by up to the size of the matrix; the error of the long sums is
    # bounded in the spectral norm already, as γ_N·tr of [[V, U], [Uᵀ, diag n]].
    tolerance = (rounding * (len(V) + len(counts)) + 2 * slack) / unit
    reals = lattice.decode(V, in_place=True)
    check_semidefinite(reals, lattice.decode(U), counts, tolerance, in_place=True)


def summation_error(records: int, dim: int) -> float:
    """A bound on what float64 adds to a sum of N products below 1, and to a norm over dim terms, at 1 eps."""
    return records * (records + dim) * _EPS


def _check_range(vector: Integers, bound: int) -> None:
    largest = max(int(vector.max()), -int(vector.min()))
    if largest > bound or bound.bit_length() > 62:
        raise SumCheckFailed(
            f"an entry of {largest} steps where the counts allow {bound} and int64 2^62", identity="range"
        )


def _check_bias(V: Integers, U: Integers, counts: Integers, unit: int, rounding: float, slack: float) -> None:
    half = math.sqrt(0.5)
    by_class = U[-1] - half * (unit * counts)
    by_column = V[-1] - half * U.sum(axis=1)
    _expect("bias", "max |U[constant, c] − n_c/√2|", np.abs(by_class).max(), rounding + slack)
    _expect(
        "bias",
        "max |V[constant, j] − ΣU_j/√2|",
        np.abs(by_column).max(),
        rounding * (len(counts) + 1) + 2 * slack,
    )


def check_semidefinite(
    V: Floats, U: Floats, counts: Integers, rounding: float, *, in_place: bool = False
) -> None:
    """Check that A = [[V, U], [Uᵀ, diag n]] is a sum of outer products, as far as rounding lets it be told.

    A + τI has no negative eigenvalue exactly where V + τI − U(diag n + τI)⁻¹Uᵀ, its Schur complement, has none: memory is
    that of V, however many the classes.

    Args:
        V: (l, l).
        U: (l, C).
        counts: (C,), none below 0.
        rounding: a bound on the spectral norm of what rounding and long sums did to A.
        in_place: work in V, which is lost.

    Raises:
        SumCheckFailed: an eigenvalue lies below what rounding explains.
    """
    size, largest = len(V) + len(counts), max(np.diagonal(V).max(initial=0), np.max(counts, initial=0))
    # Cholesky of an n × n matrix ends well if τ > n(n+1)·eps·max A_ii (Higham 2002, Theorem 10.7), and it costs a third
    # of the eigenvalues; the complement is what it makes of A in its first C steps.
    tolerance = rounding + size * (size + 1) * _EPS * float(largest) + _EPS
    scaled = U / np.sqrt(counts + tolerance)
    complement = V if in_place else V.copy()
    # What both look at is the lower triangle.
    for start in range(0, len(V), _ROWS):
        rows = slice(start, start + _ROWS)
        complement[rows, : rows.stop] -= scaled[rows] @ scaled[: rows.stop].T
    complement[np.diag_indices(len(V))] += tolerance
    if not is_definite(complement):
        raise SumCheckFailed(
            f"V − U·diag(n)⁻¹·Uᵀ has an eigenvalue below −{tolerance:g}, all that rounding explains",
            identity="semidefinite",
        )


def _expect(identity: str, what: str, value: float, tolerance: float) -> None:
    if not value <= tolerance:
        raise SumCheckFailed(
            f"{what} is {value:g} steps, at most {tolerance:g} is possible", identity=identity
        )
