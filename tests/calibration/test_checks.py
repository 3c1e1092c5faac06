from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from calibration import (
    FFCStatistics,
    LayoutMismatch,
    ShapeMismatch,
    SumCheckFailed,
    SumsLattice,
    WrongDtype,
    check_sums,
    ffc_layout,
)

LATTICES = [SumsLattice(31), SumsLattice(15), SumsLattice(40)]
MEMBERS = 5


def members_of(*, bias: bool, seed: int, n: int = 60, dim: int = 6) -> list[FFCStatistics]:
    rng = np.random.default_rng(seed)
    members = [FFCStatistics(dim, 3, bias=bias, normalise=True) for _ in range(MEMBERS)]
    for member in members:
        size = int(rng.integers(0, n))
        member.update(np.maximum(rng.standard_normal((size, dim)), 0) + 1e-9, rng.integers(0, 3, size))
    return members


def total_of(members: list[FFCStatistics], lattice: Any) -> NDArray[np.int64]:
    total: NDArray[np.int64] = np.sum([member.vector(lattice) for member in members], axis=0)
    return total


@given(
    lattice=st.sampled_from(LATTICES), bias=st.booleans(), seed=st.integers(0, 2**32), n=st.integers(1, 60)
)
@settings(deadline=None, max_examples=80)
def test_honest_sums_pass(*, lattice: Any, bias: bool, seed: int, n: int) -> None:
    members = members_of(bias=bias, seed=seed, n=n)
    check_sums(members[0].layout, lattice, total_of(members, lattice), members=MEMBERS, bias=bias)


Change = Callable[[int, int, int], int]
"""The new value of an entry from the old one, the unit of its block and N."""

TAMPERED: list[tuple[str, Any, Change, str, bool]] = [
    # what is changed, to what, the identity that must notice, with a bias
    ("n", 1, lambda old, unit, N: -unit, "counts", False),
    ("n", 0, lambda old, unit, N: 2**62 // unit * unit, "range", True),
    ("V", (0, 0), lambda old, unit, N: 2**62, "range", False),
    ("U", (0, 0), lambda old, unit, N: -(2**63), "range", False),
    ("U", (0, 1), lambda old, unit, N: N * unit, "class mass", False),
    ("U", (-1, 1), lambda old, unit, N: old + unit, "bias", True),
    ("V", (0, -1), lambda old, unit, N: old + unit, "bias", True),
    ("V", (-1, -1), lambda old, unit, N: old - unit, "bias", True),
    ("V", (0, 0), lambda old, unit, N: N * unit, "trace", False),
    ("V", (0, 0), lambda old, unit, N: -N * unit, "trace", True),
    ("V", (0, 1), lambda old, unit, N: N * unit // 2, "semidefinite", False),
    ("V", (0, 1), lambda old, unit, N: -N * unit // 2, "semidefinite", True),
]


@pytest.mark.parametrize(("block", "index", "change", "identity", "bias"), TAMPERED)
@pytest.mark.parametrize("lattice", LATTICES)
def test_a_tampered_sum_is_named(
    *, block: str, index: Any, change: Change, identity: str, bias: bool, lattice: Any
) -> None:
    members = members_of(bias=bias, seed=1)
    layout = members[0].layout
    arrays = layout.unflatten(total_of(members, lattice))
    unit = lattice.unit()
    N = sum(member.records for member in members)
    arrays[block][index] = change(int(arrays[block][index]), unit, N)
    with pytest.raises(SumCheckFailed, match=f"^{identity}: ") as caught:
        check_sums(layout, lattice, layout.flatten(arrays), members=MEMBERS, bias=bias)
    assert caught.value.identity == identity


def test_a_fraction_of_a_record_is_no_count() -> None:
    members = members_of(bias=False, seed=1)
    total = total_of(members, SumsLattice(31))
    total[-1] += 1
    with pytest.raises(SumCheckFailed, match="counts: class 2 has"):
        check_sums(members[0].layout, SumsLattice(31), total, members=MEMBERS, bias=False)


@pytest.mark.parametrize(("beyond", "refused"), [(-1e-6, False), (1e-6, True)])
def test_the_smallest_eigenvalue_decides_to_a_millionth(
    *, beyond: float, refused: bool, clouds: Callable[..., Any]
) -> None:
    # One cloud and C = 1: the joint matrix loses its last eigenvalue when U grows by the right factor.
    rows, labels = clouds(500, 8, 1)
    lattice = SumsLattice(40)
    member = FFCStatistics(8, 1)
    member.update(rows, labels)
    arrays = member.layout.unflatten(member.vector(lattice))
    # n − UᵀV⁻¹U is the Schur complement: scale U until it is −beyond·n.
    explained = float((member.U.T @ np.linalg.solve(member.V, member.U))[0, 0])
    U = member.U * np.sqrt((1 + beyond) * 500 / explained)
    arrays["U"] = np.rint(U * 2**40).astype(np.int64)
    vector = member.layout.flatten(arrays)
    if not refused:
        check_sums(member.layout, lattice, vector, members=1, bias=False)
        return
    with pytest.raises(SumCheckFailed, match=r"eigenvalue below −\d"):
        check_sums(member.layout, lattice, vector, members=1, bias=False)


def test_the_rounding_of_the_trace_is_tolerated_and_no_more() -> None:
    # Every member's diagonal rounds by half a step at most: l·n/2 steps in all, and one more is too many.
    lattice, dim, members = SumsLattice(10), 4, 6
    layout = ffc_layout(dim, 1)
    arrays = {
        "V": np.diag(np.full(dim, 256)),
        "U": np.zeros((dim, 1), np.int64),
        "n": np.array([1024]),
    }
    arrays["V"][0, 0] += dim * members // 2
    check_sums(layout, lattice, layout.flatten(arrays), members=members, bias=False)
    arrays["V"][0, 0] += 1
    with pytest.raises(SumCheckFailed, match=r"trace: \|tr V − N\| is 13 steps, at most 12 is possible"):
        check_sums(layout, lattice, layout.flatten(arrays), members=members, bias=False)


def test_what_can_not_be_checked() -> None:
    layout = ffc_layout(2, 2)
    with pytest.raises(ShapeMismatch, match="how many were added"):
        check_sums(layout, SumsLattice(), np.zeros(layout.elements, np.int64), members=0, bias=False)
    with pytest.raises(LayoutMismatch):
        check_sums(layout, SumsLattice(), np.zeros(3, np.int64), members=1, bias=False)
    unsigned: Any = np.zeros(layout.elements, np.uint64)
    with pytest.raises(WrongDtype, match="centred lift"):
        check_sums(layout, SumsLattice(), unsigned, members=1, bias=False)
    check_sums(layout, SumsLattice(), np.zeros(layout.elements, np.int64), members=1, bias=False)


def test_very_many_classes_take_no_more_memory_than_their_sums() -> None:
    # [[V, U], [Uᵀ, diag n]] alone would take 80 GB.
    member = FFCStatistics(4, 100_000)
    member.update(np.eye(4), np.array([0, 7, 7, 99_999]))
    total = member.vector(SumsLattice(31))
    check_sums(member.layout, SumsLattice(31), total, members=1, bias=False)
    arrays = member.layout.unflatten(total)
    arrays["V"][0, 1] = arrays["V"][1, 0] = 2**31 // 2
    with pytest.raises(SumCheckFailed, match=r"^semidefinite: V − U"):
        check_sums(member.layout, SumsLattice(31), member.layout.flatten(arrays), members=1, bias=False)
