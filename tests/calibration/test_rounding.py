import math
from typing import Any

import numpy as np
import pytest

from tests.calibration.records import clouds, ffc, members_of, pooled
from veilsum.calibration import FFCStatistics, RandomFeatures, Solution, solve_ffc
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.random_features import choose_random_features
from veilsum.calibration.ridge import Rounding, default_grid, smallest_ridge, weights_error_bound

PHI = RandomFeatures(2, 8, 1.0, bytes(32))


def both(
    records: Any, members: int, bits: int, *, constant: bool = False
) -> tuple[FFCStatistics, FFCStatistics]:
    classes = int(records[1].max()) + 1
    rows, labels = records
    found = pooled(members_of(rows, labels, classes, members, constant=constant), SumsLattice(bits))
    return found, ffc(rows, labels, classes, constant=constant)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_48_bits_keep_the_promise_at_the_smallest_ridge(*, constant: bool, relu: bool) -> None:
    rounded, plain = both(clouds(400, 64, 10, relu=relu), 10, 31, constant=constant)
    ridge = smallest_ridge(64 + constant, 10, 31)
    exact = solve_ffc(plain, ridge).weights
    assert 0 < np.abs(solve_ffc(rounded, ridge).weights - exact).max() < 1e-6 * np.abs(exact).max()
    assert smallest_ridge(1280, 10, 31) == pytest.approx(0.0321, abs=1e-4)


@pytest.mark.parametrize("dim", [2, 4, 16])
def test_the_smallest_ridge_keeps_the_promise_where_v_is_singular_and_small(dim: int) -> None:
    rng, members, step = np.random.default_rng(dim), 3, 2.0**-24
    ridge = smallest_ridge(dim, members, 24) * np.eye(dim)

    def rounding(*shape: int) -> Any:
        return (rng.random((members, *shape)) - 0.5).sum(axis=0) * step

    for _ in range(500):
        rows, labels = clouds(dim // 2, dim, 3, seed=int(rng.integers(1 << 30)), relu=True)
        V, U = rows.T @ rows + ridge, rows.T @ np.eye(3)[labels]
        exact, upper = np.linalg.solve(V, U), np.triu(rounding(dim, dim))
        found = np.linalg.solve(V + upper + np.triu(upper, 1).T, U + rounding(dim, 3))
        allowed = 1e-6 * (np.linalg.norm(exact, axis=0) + 0.5)
        assert (np.linalg.norm(found - exact, axis=0) < allowed).all()


@pytest.mark.parametrize("ridge", [0.01, 1.0, 30.0])
def test_32_bits_give_the_same_predictions_within_the_stated_bound(ridge: float) -> None:
    records = clouds(4000, 64, 10, noise=2.0)
    rounded, plain = both(records, 10, 15)
    found, exact = solve_ffc(rounded, ridge), solve_ffc(plain, ridge)
    bound = Rounding(15, 10, promised=False).error_bound(found)
    assert bound is not None
    assert np.abs(found.weights - exact.weights).max() <= bound < np.abs(exact.weights).max()
    assert (found.predict(records[0]) == exact.predict(records[0])).mean() >= 0.999


def test_the_bound_holds_for_the_worst_rounding_and_is_near_it() -> None:
    # One feature, one class: V̂ = V − η and Û = U + η are the worst that rounding can do.
    V, U, ridge, members, bits = 5.0, 3.0, 0.5, 8, 6
    error = members / 2 * 2.0**-bits
    exact, rounded = U / (V + ridge), (U + error) / (V - error + ridge)
    bound = weights_error_bound(
        np.array([[rounded]]), ridge, members=members, scale_bits=bits, smallest_eigenvalue=V - error
    )
    assert abs(rounded - exact) <= bound <= 1.05 * abs(rounded - exact)
    assert weights_error_bound(np.ones((4, 1)), 0.0, members=3, scale_bits=15) == math.inf
    singular = solve_ffc(
        FFCStatistics.from_blocks(np.eye(1), np.ones((1, 1)), np.ones(1, int), constant=False), 0.0
    )
    assert Rounding(1, 9, promised=False).error_bound(singular) is None


def solved(rows: Any, labels: Any, bits: int) -> tuple[RandomFeatures, Solution]:
    """Solve one member's sums of random features, rounded to this many bits."""
    sums = pooled([ffc(PHI(rows, normalise=True), labels, 2)], SumsLattice(bits))
    return choose_random_features(sums, PHI, ridge=0.5)


def test_the_bound_holds_for_sums_that_are_scaled() -> None:
    reached, beyond_one_rounding = 0.0, False
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows, labels = rng.normal(size=(40, 2)), rng.integers(0, 2, 40)
        (chosen, coarse), (other, fine) = (solved(rows, labels, bits) for bits in (8, 40))
        if chosen != other:
            continue  # GCV took another number of features
        moved = np.abs(coarse.raw_weights - fine.raw_weights).max()
        rounding = Rounding(8, 1, promised=False)
        bound = rounding.error_bound(coarse, scale=PHI.size / chosen.size)
        once = rounding.error_bound(coarse)
        assert bound is not None
        assert once is not None
        assert moved <= bound
        reached = max(reached, moved / bound)
        beyond_one_rounding |= bool(moved > once / 4)
    assert reached > 0.02
    assert beyond_one_rounding


def test_ridges_that_hold_the_promise_outweigh_the_rounding_of_scaled_sums() -> None:
    phi = RandomFeatures(2, 256, 1.0, bytes(32))
    rows, labels = clouds(60, 2, 2)
    whole, bits = ffc(phi(rows), labels, 2), 20
    rounded = pooled(members_of(phi(rows), labels, 2, 3), SumsLattice(bits)).first_features(64)
    error = rounded.V - whole.first_features(64).V
    grid = Rounding(bits, 3, promised=True).ridges_for(rounded, scale=4.0)
    assert grid is not None
    assert grid[0] >= 1e6 * np.linalg.norm(error, 2) > default_grid(60, 64)[0]
    own = ffc(np.eye(4)[np.arange(60) % 4], np.arange(60) % 2, 2)
    assert Rounding(1, 3, promised=True).ridges_for(own) == [smallest_ridge(4, 3, 1)]


def test_ridges_outweigh_a_coarse_rounding() -> None:
    rows, labels = clouds(40, 24, 3, noise=0.01)
    rounded = pooled(members_of(rows, labels, 3, 10), SumsLattice(8))
    solution = solve_ffc(rounded, Rounding(8, 10, promised=False).ridges_for(rounded))
    assert solution.ridge > -2 * solution.smallest_eigenvalue > solve_ffc(rounded).ridge
    assert solution.residual < 1e-13
