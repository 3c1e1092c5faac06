"""Under noise no record's numbers depend on the records beside it: not by a bit, where a map blows the last one up."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibration.exact_products import exact_products


@pytest.mark.parametrize("width", [1, 2, 64, 1280])
def test_products_are_those_of_whole_numbers_whatever_stands_beside(width: int) -> None:
    rng = np.random.default_rng(width)
    rows, columns = (
        rng.standard_normal((90, width)),
        rng.standard_normal((width, 5)) * 10.0 ** np.arange(-3, 7, 2),
    )
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
def test_no_part_of_a_product_leaves_what_float64_holds_exactly(width: int) -> None:
    for peak in (1.0, np.nextafter(1.0, 2.0), 2.0, 1e-3):
        rows, columns = np.full((3, width), peak), np.full((width, 2), 1 - 2**-30)
        exact = (
            width * Fraction(round(Fraction(peak) * 2**24), 2**24) if peak <= 1 else width * Fraction(peak)
        )
        told = exact_products(rows, columns)
        assert told == pytest.approx(float(exact), rel=1e-6 if peak > 1e-3 else 1e-4)
        assert (told == told[0, 0]).all()
        shift = 24 - np.frexp(np.nextafter(max(peak, 1.0), 0))[1]
        assert np.rint(np.ldexp(peak, shift)) <= 2**24


@pytest.mark.parametrize("each", [np.exp, np.log, np.cos, np.sin, np.sqrt, lambda x: x**0.37])
def test_functions_of_one_number_do_not_know_its_place(each: Any) -> None:
    values = np.abs(np.random.default_rng(0).standard_normal((64, 7))) * 50 + 0.01
    whole = each(values)
    for start in range(64):
        for count in (1, 2, 5):
            np.testing.assert_array_equal(each(values[start : start + count]), whole[start : start + count])
    squares = (values**2).sum(axis=1)
    assert [(row[None] ** 2).sum(axis=1)[0] for row in values] == squares.tolist()
