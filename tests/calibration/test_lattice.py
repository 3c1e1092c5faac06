from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from calibration import (
    FeaturesLattice,
    HeadroomExceeded,
    LatticeMismatch,
    NonFinite,
    SumsLattice,
    WrongDtype,
)
from calibration.lattice import _shrink


def test_rounding_is_half_to_even() -> None:
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.75]) / 2**15
    assert SumsLattice(15).encode(halves).tolist() == [-2, -2, 0, 0, 2, 2, 1]


@given(st.integers(1, 52), st.integers(0, 70_000))
@settings(deadline=None, max_examples=40)
def test_encoding_errs_by_half_a_step_and_decodes_exactly(bits: int, size: int) -> None:
    lattice = SumsLattice(bits)
    vector = np.random.default_rng(size).uniform(-500, 500, size)
    out = np.empty(size, np.int64)
    assert lattice.encode(vector, out) is out
    decoded = lattice.decode(out)
    assert np.abs(decoded - vector).max(initial=0) <= 0.5 * 2.0**-bits
    assert (lattice.encode(decoded) == out).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_elements_are_named_across_blocks(bad: float) -> None:
    vector = np.zeros(40_000)
    vector[[20_000, 20_001]] = bad
    with pytest.raises(NonFinite, match=r"elements \[20000, 20001\]") as caught:
        SumsLattice().encode(vector)
    assert caught.value.rows == (20_000, 20_001)


@pytest.mark.parametrize("value", [2.0**31, -(2.0**31), 1e300])
def test_values_beyond_int64_are_refused(value: float) -> None:
    with pytest.raises(HeadroomExceeded, match="coarser lattice"):
        SumsLattice(31).encode(np.array([0.0, value]))


def test_what_encode_and_decode_take() -> None:
    lattice = SumsLattice()
    vector: Any
    for vector in (np.ones(3, np.float32), np.ones((3, 1))):
        with pytest.raises(WrongDtype, match="float64"):
            lattice.encode(vector)
    out: Any
    for out in (np.empty(4, np.int64), np.empty(3)):
        with pytest.raises(WrongDtype, match=r"pass int64\(3,\)"):
            lattice.encode(np.ones(3), out)
    assert lattice.decode(np.array([2**31, -(2**30)])).tolist() == [1.0, -0.5]
    unsigned: Any = np.ones(2, np.uint64)
    with pytest.raises(WrongDtype, match="centred lift"):
        lattice.decode(unsigned)
    features = FeaturesLattice(12)
    assert [float(features.decode(np.array([4096]), d)[0]) for d in (0, 1, 2)] == [4096, 1, 2**-12]


def test_bounds_hold_the_worst_sum() -> None:
    # All records on one axis, every rounding up, the whole noise tail.
    assert SumsLattice(25).bound(60, 3) == 60 * 2**25 + 2
    assert FeaturesLattice(12).bound(100, 7) == 100 * 4**12 + 7


def test_bits_outside_their_domain_are_refused() -> None:
    other: Any = FeaturesLattice(12)
    assert SumsLattice(12) != other
    bits: Any
    for kind, bits in ((SumsLattice, 0), (SumsLattice, 53), (FeaturesLattice, 21), (FeaturesLattice, True)):
        with pytest.raises(LatticeMismatch, match="takes 1 to"):
            kind(bits)


def reference_row(z: NDArray[np.float64], bits: int, *, bias: bool) -> list[int]:
    """protocol §9, word for word, a coordinate at a time."""
    exact = [float(x) * 2**bits for x in z]
    q = [round(x) for x in exact]
    constant = [math.floor(2**bits / math.sqrt(2))] if bias else []

    def over() -> bool:
        return bool(sum(x * x for x in q + constant) > 4**bits)

    for i in sorted(range(len(q)), key=lambda i: (-abs(q[i]), i)):
        if over() and abs(q[i]) > abs(exact[i]):
            q[i] -= 1 if q[i] > 0 else -1
    while over():
        i = max(range(len(q)), key=lambda i: (abs(q[i]), -i))
        q[i] -= 1 if q[i] > 0 else -1
    return q + constant


@given(
    bits=st.integers(1, 14),
    dim=st.integers(1, 60),
    bias=st.booleans(),
    seed=st.integers(0, 2**32),
    relu=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_integer_rows_follow_the_rule(*, bits: int, dim: int, bias: bool, seed: int, relu: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((4, dim))
    rows[3] = np.sign(rows[3])  # ties everywhere
    if relu:
        rows = np.maximum(rows, 0) + 1e-9
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * (math.sqrt(2) if bias else 1)
    lattice = FeaturesLattice(bits)
    q = lattice.encode_rows(rows, constant=bias)
    assert q.dtype == np.int64
    assert q.tolist() == [reference_row(row, bits, bias=bias) for row in rows]
    assert (np.einsum("ij,ij->i", q, q) <= 4**bits).all()
    if bias:
        assert (q[:, -1] == lattice.constant).all()


def test_when_shrinking_what_overshot_is_not_enough_the_largest_gives_way() -> None:
    # Unit rows never get here; a norm that is off in the last digit at a fine scale could.
    rounded = np.array([[3.0, -4.0, 4.0], [1.0, 0.0, 0.0]])
    scaled = np.array([[3.0, -3.6, 4.4], [1.0, 0.0, 0.0]])
    # 41 → −4 to −3 (overshot) → 34 → 4 to 3 (largest) → 27 → the first 3 to 2 (lowest index) → 22
    assert _shrink(rounded, scaled, 25).tolist() == [[2.0, -3.0, 3.0], [1.0, 0.0, 0.0]]


def test_an_axis_is_exact() -> None:
    q = FeaturesLattice(12).encode_rows(np.array([[0.0, -1.0]]))
    assert q.tolist() == [[0, -4096]]
    q = FeaturesLattice(12).encode_rows(np.array([[0.0, -math.sqrt(0.5)]]), constant=True)
    assert q.tolist() == [[0, -2896, 2896]]
