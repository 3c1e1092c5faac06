"""What records state as the most that rounding moved a weight, where sums are scaled before they are solved."""

from __future__ import annotations

import numpy as np

from calibration import FFCStatistics, RandomFeatures, Solution, SumsLattice, smallest_ridge
from calibration.answer import Rounding
from calibration.random_features import choose_random_features
from calibration.ridge import default_grid

PHI = RandomFeatures(2, 8, 1.0, bytes(32))


def solved(rows: np.ndarray, labels: np.ndarray, bits: int) -> tuple[RandomFeatures, Solution]:
    """The solution of one member's sums, rounded to so many bits."""
    own = FFCStatistics(PHI.size, 2)
    own.update(PHI(rows, normalise=True), labels)
    lattice = SumsLattice(bits)
    pooled = FFCStatistics.from_sums(own.layout, lattice, own.vector(lattice), bias=False, members=1)
    return choose_random_features(pooled, PHI, ridge=0.5)


def test_the_bound_holds_of_sums_that_are_scaled() -> None:
    reached, beyond_one_rounding = 0.0, False
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows, labels = rng.normal(size=(40, 2)), rng.integers(0, 2, 40)
        (chosen, coarse), (other, fine) = (solved(rows, labels, bits) for bits in (8, 40))
        if chosen != other:
            continue  # GCV took another number of features
        moved = np.abs(coarse.raw_weights - fine.raw_weights).max()
        rounding = Rounding(8, 1, promised=False)
        bound = rounding.error_bound(coarse, roundings=PHI.size / chosen.size)
        once = rounding.error_bound(coarse)
        assert bound is not None
        assert once is not None
        assert moved <= bound
        reached = max(reached, moved / bound)
        beyond_one_rounding |= bool(moved > once / 4)
    assert reached > 0.02
    assert beyond_one_rounding


def test_ridges_that_hold_the_promise_grow_with_the_roundings() -> None:
    own = FFCStatistics(4, 2)
    own.update(np.eye(4)[np.arange(60) % 4], np.arange(60) % 2)
    grid = Rounding(20, 3, promised=True).ridges(own, roundings=4.0)
    assert grid is not None
    assert grid[0] >= smallest_ridge(4, 12, 20) > default_grid(60, 4)[0]
    assert Rounding(1, 3, promised=True).ridges(own) == [smallest_ridge(4, 3, 1)]
    assert Rounding(20, 3, promised=False).ridges(own) is None
