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
    ZeroRow,
    lattice_from,
)
from calibration.lattice import _shrink

Lattices = SumsLattice | FeaturesLattice


def lift(value: int, ring_bits: int) -> int:
    """The centred lift of a residue: what a ring of that width makes of a sum."""
    value %= 2**ring_bits
    return value - 2**ring_bits if value >= 2 ** (ring_bits - 1) else value


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


def test_the_protocols_defaults_fit_their_rings() -> None:
    for ring, bits in ((48, 31), (32, 15)):
        lattice = SumsLattice.for_ring(ring, 65_535, 1000)
        assert lattice == SumsLattice(bits)
        lattice.check_headroom(ring, 65_535, 1000)
        with pytest.raises(HeadroomExceeded, match=f"ring of {ring + 1} bits") as caught:
            lattice.check_headroom(ring, 65_536, 1000)
        assert caught.value.required_bits == ring + 1
    FeaturesLattice(12).check_headroom(42, 131_071, 10_000)
    with pytest.raises(HeadroomExceeded):
        FeaturesLattice(12).check_headroom(42, 131_072, 1)
    with pytest.raises(HeadroomExceeded):
        FeaturesLattice(12).check_headroom(42, 131_071, 1, noise_tail=2**24)
    with pytest.raises(HeadroomExceeded, match="at 1 bits"):
        FeaturesLattice.for_ring(8, 100, 3)
    assert FeaturesLattice.for_ring(9, 63, 3).bits == 1


@given(
    st.sampled_from([SumsLattice(31), SumsLattice(3), FeaturesLattice(12), FeaturesLattice(2)]),
    st.integers(1, 2**20),
    st.integers(1, 10_000),
    st.integers(0, 2**40),
)
@settings(deadline=None, max_examples=200)
def test_headroom_holds_the_worst_sum_and_one_bit_less_could_not(
    lattice: Lattices, records: int, members: int, tail: int
) -> None:
    # The worst an adversary can bring: all records on one axis, every rounding up, the whole noise tail.
    worst = records * lattice.unit(2) + (-(-members // 2) if lattice.name == "sums" else 0) + tail
    bits = lattice.required_bits(records, members, tail)
    assert lattice.bound(records, members, tail) == worst
    assert lift(worst, bits) == worst
    assert lift(-worst, bits) == -worst
    assert lift(worst, bits - 1) != worst


@pytest.mark.parametrize("terms", [(-1, 1, 0), (1, 0, 0), (1, 1, -1)])
def test_terms_that_bound_nothing(terms: tuple[int, int, int]) -> None:
    for lattice in (SumsLattice(), FeaturesLattice()):
        with pytest.raises(HeadroomExceeded, match="at least one member"):
            lattice.bound(*terms)


def test_names_and_bits_identify_a_lattice() -> None:
    for lattice in (SumsLattice(15), FeaturesLattice(9)):
        again = lattice_from(lattice.name, lattice.bits)
        assert again == lattice
        assert hash(again) == hash(lattice)
    other: Any = FeaturesLattice(12)
    assert SumsLattice(12) != other
    with pytest.raises(LatticeMismatch, match="'sums' or 'features'"):
        lattice_from("hexagonal", 3)
    bad: list[tuple[str, Any]] = [
        ("sums", 0),
        ("sums", 53),
        ("features", 21),
        ("features", True),
        ("sums", 8.0),
    ]
    for name, bits in bad:
        with pytest.raises(LatticeMismatch, match=f"the {name} lattice takes 1 to"):
            lattice_from(name, bits)


def reference_row(z: NDArray[np.float64], bits: int, *, bias: bool) -> list[int]:
    """PROTOCOL, "Ring", word for word, a coordinate at a time."""
    norm = math.sqrt(np.einsum("i,i->", z, z))
    exact = [float(x) / norm * (2**bits * (math.sqrt(0.5) if bias else 1)) for x in z]
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
    rows = rng.standard_normal((4, min(dim, 4**bits - bias)))
    rows[3] = np.sign(rows[3])  # ties everywhere
    if relu:
        rows = np.maximum(rows, 0) + 1e-9
    lattice = FeaturesLattice(bits)
    q = lattice.encode_rows(rows, bias=bias)
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
    q = FeaturesLattice(12).encode_rows(np.array([[0.0, -3.0]]))
    assert q.tolist() == [[0, -4096]]
    q = FeaturesLattice(12).encode_rows(np.array([[0.0, -3.0]]), bias=True)
    assert q.tolist() == [[0, -2896, 2896]]


def test_rows_that_can_not_be_encoded() -> None:
    with pytest.raises(ZeroRow, match="rows 7 are zero"):
        FeaturesLattice().encode_rows(np.array([[1.0], [0.0]]), first=6)
    with pytest.raises(LatticeMismatch, match="finer than 1 bits"):
        FeaturesLattice(1).encode_rows(np.ones((1, 5)))
    with pytest.raises(LatticeMismatch):
        FeaturesLattice(1).encode_rows(np.ones((1, 4)), bias=True)
    assert FeaturesLattice(1).encode_rows(np.ones((1, 4))).tolist() == [[1, 1, 1, 1]]
