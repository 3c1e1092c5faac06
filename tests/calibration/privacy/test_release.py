from __future__ import annotations

import math

import numpy as np
import pytest

from calibration import CalibrationError, FeaturesLattice
from calibration.moments import ClassMoments, IntegerMean, IntegerMoments, IntegerSums
from calibration.privacy import (
    Release,
    ccvr_release,
    clip_member,
    default_weight,
    ffc_release,
    gradient_release,
    mean_release,
)


def test_the_weight_follows_the_classes() -> None:
    assert [default_weight(classes) for classes in (2, 20, 21, 100)] == [1, 1, 2, 2]


def test_one_row_moves_what_the_page_says() -> None:
    assert mean_release(5).row_sensitivity == gradient_release(5, 3).row_sensitivity == 1
    assert ffc_release(5, 20).row_sensitivity == math.sqrt(2)
    assert ffc_release(5, 21).row_sensitivity == math.sqrt(5)
    assert ccvr_release(5, 20).row_sensitivity == math.sqrt(2.25)
    assert ccvr_release(5, 21).row_sensitivity == math.sqrt(5.25)


def sums_of(name: str, lattice: FeaturesLattice) -> tuple[Release, IntegerSums]:
    match name:
        case "mean":
            mean = mean_release(5)
            sums: IntegerSums = IntegerMean(mean)
            sums.lattice = lattice
            return mean, sums
        case "ccvr":
            classes = ccvr_release(5, 3)
            return classes, ClassMoments(classes, lattice=lattice)
        case _:
            moments = ffc_release(5 + (name == "bias"), 3)
            return moments, IntegerMoments(moments, constant=name == "bias", lattice=lattice)


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 12])
@pytest.mark.parametrize("name", ["mean", "ffc", "bias", "ccvr"])
def test_integer_rows_keep_it_in_grid_steps(name: str, bits: int, rng: np.random.Generator) -> None:
    lattice = FeaturesLattice(bits)
    reached = 0.0
    for _ in range(200):
        release, sums = sums_of(name, lattice)
        row = rng.standard_normal((1, 5)) ** 3
        sums.update(row / np.linalg.norm(row), rng.integers(0, 3, 1))
        norm = float(np.linalg.norm(sums.flat * release.weights(lattice)))
        assert norm <= release.row_sensitivity * (1 + 1e-12)
        reached = max(reached, norm / release.row_sensitivity)
    assert reached > (0.99 if bits > 4 else 0.5)


def test_an_element_off_the_diagonal_counts_twice() -> None:
    weights = ffc_release(3, 30).weights(FeaturesLattice(1))
    root = math.sqrt(2)
    assert weights[:6].tolist() == pytest.approx([1 / 4, root / 4, root / 4, 1 / 4, root / 4, 1 / 4])
    assert (weights[6:] == 1).all()  # 2 over a step of ½


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
    assert clip_member(np.empty(0, np.int64), np.empty(0), 1.0).size == 0
    assert clip_member(np.full(4, 2**62), np.ones(4), 2.0).tolist() == [0] * 4


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_that_bounds_nothing_is_refused(bound: float) -> None:
    with pytest.raises(CalibrationError, match="clipped to a positive bound"):
        clip_member(np.ones(3, np.int64), np.ones(3), bound)
