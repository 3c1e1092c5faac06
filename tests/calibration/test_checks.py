"""Checks of sums and of solutions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.calibration.records import clouds, ffc, total_of
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.calibration.checks import check_solution, check_sums, summation_error
from veilsum.calibration.errors import (
    LayoutMismatch,
    ShapeMismatch,
    SolutionCheckFailed,
    SumCheckFailed,
    WrongDtype,
)
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.layout import ffc_layout

LATTICES = [SumsLattice(31), SumsLattice(15), SumsLattice(40)]
MEMBERS = 5


def cohort(*, constant: bool, seed: int, n: int = 60, dim: int = 6) -> list[FFCStatistics]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, n, MEMBERS).tolist()
    return [
        ffc(
            np.maximum(rng.standard_normal((size, dim)), 0) + 1e-9,
            rng.integers(0, 3, size),
            3,
            constant=constant,
            normalise=True,
        )
        for size in sizes
    ]


@given(
    lattice=st.sampled_from(LATTICES),
    constant=st.booleans(),
    seed=st.integers(0, 2**32),
    n=st.integers(1, 60),
)
@settings(deadline=None, max_examples=80)
def test_honest_sums_pass(*, lattice: SumsLattice, constant: bool, seed: int, n: int) -> None:
    members = cohort(constant=constant, seed=seed, n=n)
    check_sums(members[0].layout, lattice, total_of(members, lattice), members=MEMBERS, constant=constant)


Change = Callable[[int, int, int], int]
"""Maps an entry's old value, its block's unit, and N to its new value."""

TAMPERED: list[tuple[str, Any, Change, str, bool]] = [
    # what is changed, to what, the identity that must notice, with a constant
    ("n", 1, lambda old, unit, N: -unit, "counts", False),
    ("n", 1, lambda old, unit, N: old + 1, "counts", False),
    ("n", 0, lambda old, unit, N: 2**62 // unit * unit, "range", True),
    ("V", (0, 0), lambda old, unit, N: 2**62, "range", False),
    ("U", (0, 0), lambda old, unit, N: -(2**63), "range", False),
    ("U", (0, 1), lambda old, unit, N: N * unit, "class mass", False),
    ("U", (-1, 1), lambda old, unit, N: old + unit, "constant", True),
    ("V", (0, -1), lambda old, unit, N: old + unit, "constant", True),
    ("V", (-1, -1), lambda old, unit, N: old - unit, "constant", True),
    ("V", (0, 0), lambda old, unit, N: N * unit, "trace", False),
    ("V", (0, 0), lambda old, unit, N: -N * unit, "semidefinite", True),
    ("V", (0, 1), lambda old, unit, N: N * unit // 2, "semidefinite", False),
    ("V", (0, 1), lambda old, unit, N: -N * unit // 2, "semidefinite", True),
]


@pytest.mark.parametrize(("block", "index", "change", "identity", "constant"), TAMPERED)
@pytest.mark.parametrize("lattice", LATTICES)
def test_a_tampered_sum_is_named(
    *, block: str, index: Any, change: Change, identity: str, constant: bool, lattice: SumsLattice
) -> None:
    members = cohort(constant=constant, seed=1)
    layout = members[0].layout
    arrays = layout.unflatten(total_of(members, lattice))
    N = sum(member.records for member in members)
    arrays[block][index] = change(int(arrays[block][index]), lattice.unit(), N)
    with pytest.raises(SumCheckFailed) as caught:
        check_sums(layout, lattice, layout.flatten(arrays), members=MEMBERS, constant=constant)
    assert caught.value.identity == identity


@pytest.mark.parametrize(("beyond", "refused"), [(-1e-6, False), (1e-6, True)])
def test_the_smallest_eigenvalue_decides_to_a_millionth(*, beyond: float, refused: bool) -> None:
    # One cloud and C = 1: the joint matrix loses its last eigenvalue if U grows by the right factor.
    lattice, member = SumsLattice(40), ffc(*clouds(500, 8, 1), 1)
    arrays = member.layout.unflatten(member.vector(lattice))
    # n − UᵀV⁻¹U is the Schur complement: scale U until it is −beyond·n.
    explained = float((member.U.T @ np.linalg.solve(member.V, member.U))[0, 0])
    arrays["U"] = np.rint(member.U * np.sqrt((1 + beyond) * 500 / explained) * 2**40).astype(np.int64)
    vector = member.layout.flatten(arrays)
    if not refused:
        check_sums(member.layout, lattice, vector, members=1, constant=False)
        return
    with pytest.raises(SumCheckFailed, match="semidefinite"):
        check_sums(member.layout, lattice, vector, members=1, constant=False)


def test_the_rounding_of_the_trace_is_tolerated_and_no_more() -> None:
    # Every member's diagonal rounds by half a step at most: l·n/2 steps in all, and one more is too many.
    lattice, dim, members = SumsLattice(10), 4, 6
    layout = ffc_layout(dim, 1)
    V, U, n = np.diag(np.full(dim, 256)), np.zeros((dim, 1), np.int64), np.array([1024])
    V[0, 0] += dim * members // 2
    check_sums(layout, lattice, layout.flatten({"V": V, "U": U, "n": n}), members=members, constant=False)
    short = V // 4  # rows without their sparse features are shorter
    check_sums(layout, lattice, layout.flatten({"V": short, "U": U, "n": n}), members=members, constant=False)
    V[0, 0] += 1
    with pytest.raises(SumCheckFailed, match=r"\b13 .*\b12\b"):
        check_sums(layout, lattice, layout.flatten({"V": V, "U": U, "n": n}), members=members, constant=False)


def test_the_rounding_of_eigenvalues_is_tolerated_and_no_more() -> None:
    # Every member moves an eigenvalue by half a step for each row of [[V, U], [Uᵀ, diag n]] at most: 6/2 · (4 + 1) steps.
    lattice, dim, members = SumsLattice(10), 4, 6
    layout = ffc_layout(dim, 1)
    V, U, n = np.diag(np.full(dim, 256)), np.zeros((dim, 1), np.int64), np.array([1024])
    V[0, 1] = V[1, 0] = 256 + 15
    check_sums(layout, lattice, layout.flatten({"V": V, "U": U, "n": n}), members=members, constant=False)
    V[0, 1] = V[1, 0] = 256 + 16
    with pytest.raises(SumCheckFailed, match="semidefinite"):
        check_sums(layout, lattice, layout.flatten({"V": V, "U": U, "n": n}), members=members, constant=False)


def identity_of(member: FFCStatistics, lattice: SumsLattice, arrays: Any, members: int) -> str:
    """Return the check that a sum fails; empty if it passes all."""
    try:
        vector = member.layout.flatten(arrays)
        check_sums(member.layout, lattice, vector, members=members, constant=member.constant)
    except SumCheckFailed as failed:
        return failed.identity
    return ""


@pytest.mark.parametrize(("scale", "members", "most"), [(10, 6, 3), (40, 1, 0)])
def test_half_a_step_a_member_is_tolerated_of_a_class_s_mass_and_no_more(
    scale: int, members: int, most: int
) -> None:
    lattice, member = SumsLattice(scale), ffc(np.eye(4)[[0] * 5 + [1] * 3], [0] * 5 + [1] * 3, 2)
    arrays = member.layout.unflatten(member.vector(lattice))
    arrays["U"][0, 0] += most  # the class is as heavy as it can be already
    assert identity_of(member, lattice, arrays, members) != "class mass"
    arrays["U"][0, 0] += 1
    assert identity_of(member, lattice, arrays, members) == "class mass"


@pytest.mark.parametrize(("block", "at", "most"), [("U", (-1, 1), 3), ("V", (0, -1), 12)])
def test_half_a_step_a_member_and_term_is_tolerated_of_the_constant_and_no_more(
    block: str, at: tuple[int, int], most: int
) -> None:
    lattice, [member] = (
        SumsLattice(20),
        [each for each in cohort(constant=True, seed=1) if each.records > 20][:1],
    )
    arrays = member.layout.unflatten(member.vector(lattice))
    n = arrays[block][at]
    for steps, identity in (
        (most - 2, ""),
        (most + 2, "constant"),
    ):  # its own rounding, below two steps, is in either
        arrays[block][at] = n + steps
        if block == "V":
            arrays[block][at[::-1]] = n + steps
        assert identity_of(member, lattice, arrays, 6) == identity


def test_long_sums_add_the_error_of_float64() -> None:
    assert summation_error(10**6, 500) == 10**6 * (10**6 + 500) * 2.0**-52


def test_what_can_not_be_checked_is_refused() -> None:
    layout = ffc_layout(2, 2)
    vectors: list[tuple[Any, int, type[Exception]]] = [
        (np.zeros(layout.elements, np.int64), 0, ShapeMismatch),
        (np.zeros(3, np.int64), 1, LayoutMismatch),
        (np.ones(layout.elements, np.uint64), 1, WrongDtype),
    ]
    for vector, members, error in vectors:
        with pytest.raises(error):
            check_sums(layout, SumsLattice(), vector, members=members, constant=False)
    check_sums(layout, SumsLattice(), np.zeros(layout.elements, np.int64), members=1, constant=False)


def test_very_many_classes_take_no_more_memory_than_their_sums() -> None:
    # [[V, U], [Uᵀ, diag n]] alone would take 80 GB.
    member = ffc(np.eye(4), np.array([0, 7, 7, 99_999]), 100_000)
    total = member.vector(SumsLattice(31))
    check_sums(member.layout, SumsLattice(31), total, members=1, constant=False)
    arrays = member.layout.unflatten(total)
    arrays["V"][0, 1] = arrays["V"][1, 0] = 2**31 // 2
    with pytest.raises(SumCheckFailed, match="semidefinite"):
        check_sums(member.layout, SumsLattice(31), member.layout.flatten(arrays), members=1, constant=False)


@pytest.fixture
def claim() -> tuple[Any, ...]:
    statistics = ffc(*clouds(300, 20, 6, relu=True), 6, constant=True)
    solution = solve_ffc(statistics)
    return statistics.V, statistics.U, solution.ridge, solution.raw_weights


@pytest.mark.parametrize("seed", range(10))
def test_true_weights_pass_and_changed_ones_fail(claim: tuple[Any, ...], seed: int) -> None:
    V, U, ridge, W = claim
    rng = np.random.default_rng(seed)
    check_solution(V, U, ridge, W, rng)
    one = np.zeros_like(W)
    one[rng.integers(0, len(W)), rng.integers(0, W.shape[1])] = 1e-6
    cancelling = np.zeros_like(W)
    cancelling[0, :2] = 1e-3, -1e-3
    for change in (one, cancelling):
        with pytest.raises(SolutionCheckFailed):
            check_solution(V, U, ridge, W + change, rng, rounds=1)
    for factor in (1.001, 0.0):
        with pytest.raises(SolutionCheckFailed):
            check_solution(V, U, factor * ridge, W, rng)


def test_shapes_of_a_solution_belong_together(claim: tuple[Any, ...]) -> None:
    V, U, ridge, W = claim
    rng = np.random.default_rng(0)
    for other in [(V[:-1], U, W), (V, U[:-1], W[:-1]), (V, U, W[:, :-1]), (V, U[:, 0], W[:, 0])]:
        with pytest.raises(ShapeMismatch):
            check_solution(other[0], other[1], ridge, other[2], rng)
    with pytest.raises(ShapeMismatch):
        check_solution(V, U, ridge, W, rng, rounds=0)
