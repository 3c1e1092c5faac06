"""Under noise no record's numbers depend on the records beside it: not by a bit, where a map blows the last one up."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibration import CalibrationError, FeaturesLattice, LayoutMismatch, ShapeMismatch
from calibration.collected import Collected
from calibration.exact_products import SHORTEST, exact_products, with_direction
from calibration.head_file import head_from
from calibration.noisy_choice import leaving_layout
from calibration.noisy_reliability import noisy_layout as judging_layout
from calibration.privacy import NoiseTerms, noisy_layout
from calibration.questions import Question, question
from calibration.random_features import projected

DIM, CLASSES, SIZE, AXES = 64, 4, 32, 16
LATTICE, NOISE = FeaturesLattice(12), NoiseTerms(0.1, 1.0)
BASIS = np.ascontiguousarray(np.linalg.qr(np.random.default_rng(0).standard_normal((DIM, DIM)))[0].T)


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


def test_a_projection_too_short_to_have_a_direction_is_the_first_unit_vector() -> None:
    axes = np.eye(3)[:2]
    rows = np.array([[0.0, 0, 1], [0, SHORTEST / 4, 1], [0, SHORTEST * 4, 1]])
    np.testing.assert_array_equal(projected(rows, axes, total=True), [[1, 0], [1, 0], [0, SHORTEST * 4]])
    np.testing.assert_array_equal(with_direction(np.zeros((1, 2))), [[1, 0]])


def mapped() -> Question:
    layout = noisy_layout(SIZE, CLASSES).having(
        dim=DIM, classes=CLASSES, size=SIZE, bandwidth=0.05, axes=AXES
    )
    return question("rff", layout, b"\1" * 32, {"axes": BASIS[:AXES]})


def judged(axes: Any = BASIS[:AXES], weights: Any = None) -> Question:
    form = {"kind": "random-features", "mapped": AXES, "size": SIZE, "bandwidth": 0.05, "context": "00" * 32}
    layout = judging_layout(1, 15, CLASSES).having(
        dim=DIM, classes=CLASSES, bins=15, temperature=1.0, head=json.dumps(form)
    )
    drawn = 100 * np.random.default_rng(1).standard_normal((SIZE, CLASSES)) if weights is None else weights
    material = {"weights": drawn, "axes": axes, "empty_classes": np.zeros(0, np.int64)}
    return question("reliability", layout, b"\1" * 32, material)


def left_out(vectors: Any = BASIS.T, scale: float = 1e5) -> Question:
    layout = leaving_layout().having(dim=DIM, classes=CLASSES, records=100, edge=1.0)
    projections = np.zeros((DIM, CLASSES))
    projections[:CLASSES] = scale * np.eye(CLASSES)
    return question(
        "loo", layout, b"\1" * 32, {"vectors": vectors, "values": np.ones(DIM), "projections": projections}
    )


@pytest.mark.parametrize("asked", [mapped, judged, left_out])
@pytest.mark.parametrize("count", [2, 39, 75, 156])
def test_records_that_the_axes_do_not_see_stay_as_they_are_when_one_comes(asked: Any, count: int) -> None:
    posed = asked()
    mechanism = NOISE.mechanism(posed, LATTICE, members=12, survivors_min=8, colluders=3)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((count, DIM - AXES)) @ BASIS[AXES:]
        more, labels = rng.standard_normal((1, DIM)), rng.integers(0, CLASSES, count + 1)
        sums = []
        for features in (rows, np.vstack([rows, more])):
            own = Collected(posed, LATTICE, noise=NOISE)
            own.update(features, labels[: len(features)])
            sums.append(own.vector(LATTICE))
        moved = np.linalg.norm((sums[1] - sums[0]) * mechanism.weights())
        assert moved <= mechanism.sensitivity * (1 + 1e-12)


def test_material_that_records_could_make_overflow_is_refused_before_any_record() -> None:
    huge = BASIS[:AXES] * np.finfo(float).max / 2
    for axes in (huge, 2 * BASIS[:AXES], BASIS[:AXES] + 1e-5, BASIS[: AXES - 1]):
        with pytest.raises(ShapeMismatch):
            Collected(judged(axes), LATTICE, noise=NOISE)
    with pytest.raises(CalibrationError, match="weights are 1e\\+06 at most"):
        Collected(judged(weights=np.full((SIZE, CLASSES), 2e6)), LATTICE, noise=NOISE)
    with pytest.raises(CalibrationError, match="vectors are not orthonormal"):
        Collected(left_out(2 * BASIS.T), LATTICE, noise=NOISE)
    with pytest.raises(CalibrationError, match=r"a weight beyond 1e\+06"):
        Collected(left_out(scale=1e30), LATTICE, noise=NOISE)
    form = {"kind": "random-features", "mapped": 2, "size": 2, "bandwidth": 1.0, "context": ""}
    with pytest.raises(ShapeMismatch, match="axes are not orthonormal"):
        head_from({"weights": np.eye(2), "axes": np.ones((2, 3))}, form, ())


def test_material_of_reals_is_finite_float64() -> None:
    layout = noisy_layout(4, 2).having(centre=True)
    for centre in (np.full(4, np.nan, np.float32), np.zeros(4, np.float32), np.full(4, np.inf)):
        with pytest.raises(LayoutMismatch, match="centre is not finite float64"):
            Collected(question("ffc", layout, b"\1" * 32, {"centre": centre}), LATTICE, noise=NOISE)
