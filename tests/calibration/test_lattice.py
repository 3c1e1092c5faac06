import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilsum.calibration.errors import HeadroomExceeded, LatticeMismatch, NonFinite
from veilsum.calibration.lattice import FeaturesLattice, SumsLattice, exact_products


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


def test_rounding_is_half_to_even() -> None:
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.75]) / 2**15
    assert SumsLattice(15).encode(halves).tolist() == [-2, -2, 0, 0, 2, 2, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_int64_can_not_hold_are_refused(bad: float) -> None:
    vector = np.zeros(40_000)
    vector[[20_000, 20_001]] = bad
    with pytest.raises(NonFinite, match=r"elements \[20000, 20001\] are"):
        SumsLattice().encode(vector)
    for value in (2.0**31, -(2.0**31), 1e300):
        with pytest.raises(HeadroomExceeded):
            SumsLattice(31).encode(np.array([0.0, value]))


def test_a_vector_is_encoded_in_its_own_memory_and_within_a_bound() -> None:
    lattice, rng = SumsLattice(20), np.random.default_rng(1)
    values = rng.normal(scale=5, size=40_000)
    expected = lattice.encode(np.clip(values, -4, 4))
    memory = values.copy()
    found = lattice.encode(memory, memory.view(np.int64), bound=4)
    assert np.shares_memory(found, memory)
    assert (found == expected).all()
    assert (lattice.encode(np.array([np.inf, -np.inf]), bound=2) == np.array([2, -2]) * lattice.unit()).all()
    with pytest.raises(NonFinite):
        lattice.encode(np.array([np.nan]), bound=2)


def test_bounds_and_bits() -> None:
    # All records on one axis, every rounding up, the whole noise tail.
    assert SumsLattice(25).largest_sum(60, 3) == 60 * 2**25 + 2
    assert FeaturesLattice(12).largest_sum(100, 7) == 100 * 4**12 + 7
    assert FeaturesLattice(12).exact_rows == 2**29 - 1
    assert (SumsLattice(52).bits, FeaturesLattice(20).bits, FeaturesLattice(1).bits) == (52, 20, 1)
    other: Any = FeaturesLattice(12)
    assert SumsLattice(12) != other
    bits: Any
    for kind, bits in ((SumsLattice, 0), (SumsLattice, 53), (FeaturesLattice, 21), (FeaturesLattice, True)):
        with pytest.raises(LatticeMismatch):
            kind(bits)


@pytest.mark.parametrize(
    ("bits", "row", "constant", "expected"),
    [
        (2, [0.25, -0.6], 0, [1, -2]),
        (2, [0.75, 0.4375**0.5], 0, [3, 2]),  # of 3 and 3, the one that was rounded up
        (2, [0.19**0.5, 0.9], 0, [2, 3]),  # of 2 and 4, which were rounded up, the larger
        (1, [-(0.2**0.5)] * 5, 0, [0, -1, -1, -1, -1]),  # of equals, the first
        (1, [6**-0.5] * 6, 0, [0, 0, 1, 1, 1, 1]),
        (2, [0.5, 0.75], 2, [2, 2, 2]),  # none was rounded up: the largest
        (2, [0.5, 0.5, -0.5], 2, [2, 2, -2, 2]),
        (2, [0.5, 0.5, -0.5], 3, [1, 1, -2, 3]),
        (2, [0.2, 0.9], 3, [0, 2, 3]),  # each was rounded up, and taken back: the largest again
    ],
)
def test_rows_are_shortened_until_they_fit(
    bits: int, row: list[float], constant: int, expected: list[int]
) -> None:
    """By hand; `assurance/reference/test_records.py` has 3,000 longer rows."""
    more = {"constant": constant} if constant else {}
    assert FeaturesLattice(bits).encode_rows(np.array([row]), **more).tolist() == [expected]


def test_the_constants_are_the_shares_of_a_row() -> None:
    for bits in range(1, 15):
        lattice = FeaturesLattice(bits)
        assert lattice.constant == math.floor(2**bits * math.sqrt(0.1))
        assert lattice.mean_constant == math.floor(2**bits * math.sqrt(0.5))


@pytest.mark.parametrize("width", [1, 2, 64, 1280])
def test_exact_products_do_not_depend_on_the_rows_beside(width: int) -> None:
    rng = np.random.default_rng(width)
    rows = rng.standard_normal((90, width))
    columns = rng.standard_normal((width, 5)) * 10.0 ** np.arange(-3, 7, 2)
    rows[1:] /= np.linalg.norm(rows[1:], axis=1, keepdims=True)
    rows[0] *= 1e300
    whole = exact_products(rows, columns)
    for count in (1, 2, 39, 75):
        np.testing.assert_array_equal(exact_products(rows[:count], columns), whole[:count])
        np.testing.assert_array_equal(exact_products(rows[-count:], columns), whole[-count:])
    np.testing.assert_array_equal(exact_products(rows, columns[:, :2]), whole[:, :2])
    lengths = np.linalg.norm(columns, axis=0)
    assert (np.abs(whole - rows @ columns)[1:] < 1e-6 * lengths).all()
    assert (np.abs(whole[0] / 1e300 - (rows[0] / 1e300) @ columns) < 1e-6 * lengths * np.sqrt(width)).all()


@pytest.mark.parametrize("width", [3, 1280])
@pytest.mark.parametrize("peak", [1.0, float(np.nextafter(1.0, 2.0)), 2.0, 1e-3])
def test_no_part_of_an_exact_product_exceeds_float64(width: int, peak: float) -> None:
    rows, columns = np.full((3, width), peak), np.full((width, 2), 1 - 2**-30)
    exact = width * (Fraction(round(Fraction(peak) * 2**24), 2**24) if peak <= 1 else Fraction(peak))
    found = exact_products(rows, columns)
    assert found == pytest.approx(float(exact), rel=1e-6 if peak > 1e-3 else 1e-4)
    assert (found == found[0, 0]).all()
    shift = 24 - np.frexp(np.nextafter(max(peak, 1.0), 0))[1]
    assert np.rint(np.ldexp(peak, shift)) <= 2**24


@pytest.mark.parametrize("exponent", [-560, -537, -500, 500])
def test_columns_of_any_size_give_exact_products(exponent: int) -> None:
    rng = np.random.default_rng(0)
    rows, columns = rng.uniform(0.8, 1, (3, 1023)), rng.uniform(0.9, 1, (1023, 2))
    columns[512:] *= -1  # partial sums grow large
    scaled = exact_products(rows, np.ldexp(columns, exponent))
    np.testing.assert_array_equal(scaled, np.ldexp(exact_products(rows, columns), exponent))


def test_no_row_beside_changes_a_product_of_numbers_whose_squares_underflow() -> None:
    """All squares but the first underflow to 0. By the length that is left, these columns would be too large to add exactly."""
    rng = np.random.default_rng(0)
    rows, column = rng.uniform(0.8, 1, (40, 1023)), rng.uniform(1.4e-162, 1.57e-162, (1023, 1))
    column[512:] *= -1
    column[0] = 2.3e-162
    whole = exact_products(rows, column)
    for count in (1, 2, 7):
        np.testing.assert_array_equal(exact_products(rows[:count], column), whole[:count])


@pytest.mark.parametrize(("width", "bits"), [(1, 26), (4, 25), (1280, 21)])
def test_factors_of_an_exact_product_are_rounded_to_as_many_bits_as_float64_can_add(
    width: int, bits: int
) -> None:
    row, column = np.zeros((1, width)), np.zeros((width, 1))
    row[0, 0] = 1
    for added, kept in ((2.0**-bits, 2.0**-bits), (2.0 ** -(bits + 1), 0)):
        column[0, 0] = 1 + added
        assert exact_products(row, column)[0, 0] == 1 + kept
    column[0, 0] = 1
    for entry, kept in ((2.0**-24, 2.0**-24), (2.0**-25, 0)):
        row[0, 0] = entry
        assert exact_products(row, column)[0, 0] == kept


@pytest.mark.parametrize("each", [np.exp, np.log, np.cos, np.sin, np.sqrt])
def test_functions_of_one_number_do_not_depend_on_its_place(each: Any) -> None:
    """Noisy vectors rely on this too, and numpy doesn't promise it."""
    values = np.abs(np.random.default_rng(0).standard_normal((64, 7))) * 50 + 0.01
    whole = each(values)
    for start in range(64):
        for count in (1, 2, 5):
            np.testing.assert_array_equal(each(values[start : start + count]), whole[start : start + count])
    squares = (values**2).sum(axis=1)
    assert [(row[None] ** 2).sum(axis=1)[0] for row in values] == squares.tolist()
