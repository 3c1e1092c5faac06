import math

import numpy as np
import pytest

from veilsum.calibration import CalibrationError
from veilsum.calibration.lattice import FeaturesLattice
from veilsum.calibration.privacy.release import (
    ccvr_release,
    clip_member,
    default_weight,
    ffc_release,
    gradient_release,
    mean_release,
)


def test_one_row_moves_a_vector_by_the_specified_sensitivity() -> None:
    assert [default_weight(classes) for classes in (2, 20, 21, 100)] == [1, 1, 2, 2]
    assert mean_release(5).row_sensitivity == gradient_release(5, 3).row_sensitivity == 1
    assert [ffc_release(5, classes).row_sensitivity for classes in (20, 21)] == [math.sqrt(2), math.sqrt(5)]
    assert [ccvr_release(5, classes).row_sensitivity for classes in (20, 21)] == [1.5, math.sqrt(5.25)]


def test_an_element_off_the_diagonal_counts_twice() -> None:
    weights = ffc_release(3, 30).element_weights(FeaturesLattice(1))
    root = math.sqrt(2)
    assert weights[:6].tolist() == pytest.approx([1 / 4, root / 4, root / 4, 1 / 4, root / 4, 1 / 4])
    assert (weights[6:] == 1).all()  # 2 over a step of ½


def test_a_clipped_member_is_within_the_bound_and_keeps_its_direction() -> None:
    rng = np.random.default_rng(20)
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
    for sign in (1, -1):
        assert (clip_member(sign * coarse, np.ones(1000), 0.6 * 3 * math.sqrt(1000)) == sign).all()
    assert clip_member(np.empty(0, np.int64), np.empty(0), 1.0).size == 0
    assert clip_member(np.full(4, 2**62), np.ones(4), 2.0).tolist() == [0] * 4
    for bound in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(CalibrationError):
            clip_member(np.ones(3, np.int64), np.ones(3), bound)
