from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from calibration import CalibrationError, FeaturesLattice, LayoutMismatch, WrongDtype
from calibration.moments import IntegerMoments
from calibration.privacy import (
    Mechanism,
    Neighbours,
    ccvr_sensitivity,
    clip_member,
    ffc_sensitivity,
    member_sensitivity,
    noisy_layout,
)
from calibration.privacy.sensitivity import mean_sensitivity

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE


def moved(z: Any, y: int, other: Any, label: int, w: float, a: float) -> float:
    """‖(V, wU, αn) of one record − those of another‖."""
    U, n = np.zeros((len(z), 2)), np.zeros(2)
    U[:, y] += z
    U[:, label] -= other
    n[y] += 1
    n[label] -= 1
    V = np.outer(z, z) - np.outer(other, other)
    return math.sqrt((V**2).sum() + w**2 * (U**2).sum() + a**2 * (n**2).sum())


def test_adding_a_record_moves_the_sum_by_exactly_as_much(rng: np.random.Generator) -> None:
    z = rng.standard_normal(6)
    z /= np.linalg.norm(z)
    alone = math.sqrt((np.outer(z, z) ** 2).sum() + 4 * (z @ z) + 9)
    assert ffc_sensitivity(2, counts_weight=3) == pytest.approx(alone, rel=1e-12)
    assert ffc_sensitivity(1) == pytest.approx(math.sqrt(2))
    assert ccvr_sensitivity(1, 2, 3) == pytest.approx(math.sqrt(14))


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("w", [0.5, 1, 1.2, math.sqrt(2), 2, 4])
@pytest.mark.parametrize("a", [0, 0.3, 2])
def test_no_pair_of_records_moves_it_further_and_one_moves_it_as_far(
    *, w: float, a: float, nonnegative: bool
) -> None:
    bound = ffc_sensitivity(w, counts_weight=a, neighbours=REPLACE, nonnegative=nonnegative)
    angles = np.linspace(0, math.pi / 2 if nonnegative else math.pi, 4001)
    first = np.array([1.0, 0.0])
    seen = [
        moved(first, 0, np.array([math.cos(angle), math.sin(angle)]), label, w, a)
        for angle in angles
        for label in (0, 1)
    ]
    assert max(seen) <= bound * (1 + 1e-12)
    assert max(seen) == pytest.approx(bound, rel=1e-6)


def test_the_closed_forms_of_a_replacement() -> None:
    assert ffc_sensitivity(1, neighbours=REPLACE) ** 2 == pytest.approx(2 + 2 + 1 / 2)
    assert ffc_sensitivity(2, neighbours=REPLACE) ** 2 == pytest.approx(4 * 4)
    assert ffc_sensitivity(2, neighbours=REPLACE, nonnegative=True) ** 2 == pytest.approx(2 + 2 * 4)
    assert ccvr_sensitivity(1, 1, 1, neighbours=REPLACE) ** 2 == pytest.approx(6)
    assert ccvr_sensitivity(0, 3, 1, neighbours=REPLACE) ** 2 == pytest.approx(36)
    assert ccvr_sensitivity(0, 1, 1, neighbours=REPLACE, nonnegative=True) ** 2 == pytest.approx(4)


def rows_of(lattice: FeaturesLattice, *, nonnegative: bool) -> Any:
    """Every integer row of two features and the constant that the lattice has, and that of a record left out."""
    reach = range(0 if nonnegative else -(2**lattice.bits), 2**lattice.bits + 1)
    budget = 4**lattice.bits - lattice.constant**2
    rows = [(x, y, lattice.constant) for x in reach for y in reach if x**2 + y**2 <= budget]
    return np.array([*rows, (0, 0, 0)])


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize(("bits", "tight"), [(1, 0.2), (2, 0.6), (3, 0.85), (4, 0.85)])
def test_the_constants_of_a_replacement_cancel_whichever_two_rows_the_lattice_has(
    bits: int, tight: float, *, nonnegative: bool
) -> None:
    lattice = FeaturesLattice(bits)
    rows = rows_of(lattice, nonnegative=nonnegative)
    unit, kappa = 2**bits, lattice.constant_share
    gram = rows @ rows.T
    squares = np.diagonal(gram)
    V = (squares[:, None] ** 2 + squares**2 - 2 * gram**2) / unit**4
    same, apart = ((squares[:, None] + squares - factor * gram) / unit**2 for factor in (2, 0))
    for w in (0.3, 1.0, 2.0, 4.0):
        bound = ffc_sensitivity(w, neighbours=REPLACE, nonnegative=nonnegative, constant=kappa)
        seen = max((V + w**2 * same).max(), (V + w**2 * apart).max())
        assert tight * bound**2 <= seen <= bound**2 * (1 + 1e-12)
        assert bound <= ffc_sensitivity(w, neighbours=REPLACE, nonnegative=nonnegative) * (1 + 1e-12)
    mean = mean_sensitivity(REPLACE, nonnegative=nonnegative, constant=kappa)
    assert tight * mean**2 <= same.max() <= mean**2 * (1 + 1e-12)


def test_the_closed_forms_of_a_replacement_beside_a_constant() -> None:
    for w in (1.0, 2.0, 3.0):
        assert ffc_sensitivity(w, neighbours=REPLACE, constant=0.5) ** 2 == pytest.approx(2 + 2 * w**2)
        sign: Any = {"neighbours": REPLACE, "nonnegative": True, "constant": 0.5}
        assert ffc_sensitivity(w, **sign) ** 2 == pytest.approx(1.5 + 2 * w**2)
    assert ffc_sensitivity(1, constant=0.5) == ffc_sensitivity(1)
    assert (mean_sensitivity(), mean_sensitivity(REPLACE)) == (1, math.sqrt(2))
    assert mean_sensitivity(REPLACE, nonnegative=True) == 1
    fine = FeaturesLattice(12).constant_share
    assert 0.4998 < fine < 0.5
    assert math.sqrt(2) < mean_sensitivity(REPLACE, constant=fine) < 1.00015 * math.sqrt(2)


@pytest.mark.parametrize("bias", [False, True])
def test_integer_rows_keep_it_in_grid_units(*, bias: bool, rng: np.random.Generator) -> None:
    lattice = FeaturesLattice(8)
    layout = noisy_layout(5, 3, bias=bias)
    weights = Mechanism(layout, lattice, 1.5, 1.0, 0.1, 3, 3, 0).weights()
    delta = ffc_sensitivity(1.5)
    for _ in range(200):
        one = IntegerMoments(layout, lattice, bias=bias)
        one.update(rng.standard_normal((1, 5)) ** 3, rng.integers(0, 3, 1))
        norm = float(np.linalg.norm(one.flat * weights))
        assert 0.97 * delta <= norm <= delta * (1 + 1e-12)


def test_a_clipped_member_is_within_the_bound_and_keeps_its_direction(rng: np.random.Generator) -> None:
    vector = rng.integers(-(2**40), 2**40, 5000)
    weights = rng.uniform(0.5, 2, 5000) * 2.0**-24
    norm = float(np.linalg.norm(vector * weights))
    assert clip_member(vector, weights, norm * 1.001) is vector
    clipped = clip_member(vector, weights, norm / 7)
    exact = sum(
        (int(x) * weight.as_integer_ratio()[0] / weight.as_integer_ratio()[1]) ** 2
        for x, weight in zip(clipped, weights, strict=True)
    )
    assert math.sqrt(exact) <= norm / 7
    assert np.abs(clipped - vector / 7).max() <= 2
    assert (np.abs(clipped) <= np.abs(vector)).all()
    coarse = np.full(1000, 3)
    assert clip_member(coarse, np.ones(1000), 0.6 * 3 * math.sqrt(1000)).tolist() == [1] * 1000
    assert clip_member(-coarse, np.ones(1000), 0.6 * 3 * math.sqrt(1000)).tolist() == [-1] * 1000
    assert member_sensitivity(3.0) == 3.0
    assert member_sensitivity(3.0, REPLACE) == 6.0
    assert clip_member(np.empty(0, np.int64), np.empty(0), 1.0).size == 0


def test_what_cannot_be_clipped_is_refused() -> None:
    vector, weights = np.ones(3, np.int64), np.ones(3)
    with pytest.raises(WrongDtype, match="pass the centred lift as int64"):
        clip_member(weights, weights, 1.0)  # type: ignore[arg-type]
    with pytest.raises(LayoutMismatch, match=r"the vector has shape \(3,\), its weights \(2,\)"):
        clip_member(vector, weights[:2], 1.0)
    for bound in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(CalibrationError, match="clipped to a positive bound"):
            clip_member(vector, weights, bound)
    for extreme in (2**53, -(2**53)):
        with pytest.raises(CalibrationError, match="2\\^53 steps or more"):
            clip_member(vector * extreme, weights, 1.0)


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_other_weights_are_refused(weight: float) -> None:
    with pytest.raises(CalibrationError, match="those of features positive"):
        ffc_sensitivity(weight)
    with pytest.raises(CalibrationError, match="those of features positive"):
        ccvr_sensitivity(1, 1, weight)
    with pytest.raises(CalibrationError, match="those of counts not negative"):
        ffc_sensitivity(1, counts_weight=-1.0)
