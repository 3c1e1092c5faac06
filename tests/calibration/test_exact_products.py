"""Under noise no record's numbers depend on the records beside it: not by a bit, where a map blows the last one up."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibration import CalibrationError, FeaturesLattice, LayoutMismatch
from calibration.collected import Collected
from calibration.exact_products import exact_products
from calibration.privacy import NoiseTerms, noisy_layout
from calibration.privacy.mechanism import gradient_layout
from calibration.questions import question

DIM, CLASSES, SIZE = 64, 4, 32
LATTICE, NOISE = FeaturesLattice(12), NoiseTerms(0.1, 1.0)


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


def test_features_map_records_alike_whatever_stands_beside_them() -> None:
    layout = noisy_layout(SIZE, CLASSES).having(dim=DIM, classes=CLASSES, size=SIZE, bandwidth=0.05)
    posed = question("rff", layout, b"\1" * 32)
    mechanism = NOISE.mechanism(posed, LATTICE, members=12, survivors_min=8, colluders=3)
    for seed, count in enumerate((2, 39, 75, 156)):
        rng = np.random.default_rng(seed)
        rows, labels = rng.standard_normal((count + 1, DIM)), rng.integers(0, CLASSES, count + 1)
        sums = []
        for features in (rows[:count], rows):
            own = Collected(posed, LATTICE, noise=NOISE)
            own.update(features, labels[: len(features)])
            sums.append(own.vector(LATTICE))
        moved = np.linalg.norm((sums[1] - sums[0]) * mechanism.weights())
        assert moved <= mechanism.sensitivity * (1 + 1e-12)


def test_a_head_that_records_could_make_overflow_is_refused_before_any_record() -> None:
    layout = gradient_layout(DIM, CLASSES).having(
        dim=DIM, classes=CLASSES, head=json.dumps({"kind": "linear"}), number=1, rounds=1, clip=1.0, step=2.0
    )
    material = {"weights": np.full((DIM, CLASSES), 2e6), "empty_classes": np.zeros(0, np.int64)}
    with pytest.raises(CalibrationError, match="weights are 1e\\+06 at most"):
        Collected(question("refine", layout, b"\1" * 32, material), LATTICE, noise=NOISE)


def test_material_of_reals_is_finite_float64() -> None:
    layout = noisy_layout(4, 2).having(centre=True)
    for centre in (np.full(4, np.nan, np.float32), np.zeros(4, np.float32), np.full(4, np.inf)):
        with pytest.raises(LayoutMismatch, match="centre is not finite float64"):
            Collected(question("ffc", layout, b"\1" * 32, {"centre": centre}), LATTICE, noise=NOISE)
