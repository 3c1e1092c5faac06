from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from calibration import (
    CalibrationError,
    ConfigMismatch,
    FFCStatistics,
    NoRecords,
    RandomFeatures,
    ShapeMismatch,
    SumsLattice,
    mean_squared_distance,
    solve_ffc,
    solve_random_features,
)


def statistics_of(rows: Any, labels: Any, classes: int, **settings: Any) -> FFCStatistics:
    statistics = FFCStatistics(rows.shape[1], classes, **settings)
    statistics.update(rows, labels)
    return statistics


def test_products_estimate_the_gaussian_kernel(clouds: Any) -> None:
    rows, _ = clouds(30, 8, 3)
    phi = RandomFeatures(8, 20_000, 0.7, b"kernel")(rows)
    square = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(phi @ phi.T, np.exp(-square / (2 * 0.49)), atol=0.03)
    np.testing.assert_allclose(np.linalg.norm(phi, axis=1), 1, atol=1e-12)


def test_a_seed_fixes_the_map_and_sizes_are_nested() -> None:
    large, small = RandomFeatures(3, 8, 0.5, b"a"), RandomFeatures(3, 4, 0.5, b"a")
    assert (large.directions[:2] == small.directions).all()
    assert (RandomFeatures(3, 8, 0.5, b"b").directions != large.directions).all()
    np.testing.assert_allclose(RandomFeatures(3, 8, 1.0, b"a").directions * 2, large.directions)
    rows = np.eye(3)
    np.testing.assert_allclose(large(rows)[:, :4] * np.sqrt(2), small(rows), atol=1e-15)
    # The first numbers of the stream, so that no release changes a map that members share.
    np.testing.assert_allclose(
        RandomFeatures(2, 2, 1.0, b"").directions, [[-1.1286852772514402, -0.04456983610670606]], rtol=1e-14
    )
    draws = RandomFeatures(100, 2000, 1.0, b"normal").directions
    assert abs(draws.mean()) < 0.01
    assert abs(draws.std() - 1) < 0.01


@pytest.mark.parametrize("bias", [False, True])
def test_the_mean_squared_distance_is_that_of_all_pairs(*, clouds: Any, bias: bool) -> None:
    rows, labels = clouds(60, 5, 3)
    square = ((rows[:, None] - rows[None]) ** 2).sum(axis=2).mean()
    assert mean_squared_distance(statistics_of(rows, labels, 3, bias=bias)) == pytest.approx(square)


def test_the_number_of_features_is_chosen_by_gcv_from_one_upload(clouds: Any) -> None:
    rows, labels = clouds(300, 6, 3, noise=2.0)
    phi = RandomFeatures(6, 128, 1.0, b"round 7")
    statistics = statistics_of(phi(rows), labels, 3)
    for size in (2, 64, 128):
        smaller = RandomFeatures(6, size, 1.0, b"round 7")
        direct = solve_ffc(statistics_of(smaller(rows), labels, 3), 0.2)
        head = solve_random_features(statistics, phi, [size], 0.2)
        np.testing.assert_allclose(head.weights, direct.weights, atol=1e-9)
        np.testing.assert_allclose(head.scores(rows), direct.scores(smaller(rows)), atol=1e-9)
    sizes = (32, 64, 128)
    errors = [solve_ffc(statistics.leading(size)).gcv.min() for size in sizes]
    assert solve_random_features(statistics, phi).map.size == sizes[int(np.argmin(errors))]
    assert head.scores(3 * rows, normalise=True) == pytest.approx(head.scores(rows), abs=1e-9)


def test_real_digits_gain_from_random_features(pool: Any) -> None:
    digits = load_digits()
    rows, labels = digits.data / np.linalg.norm(digits.data, axis=1, keepdims=True), digits.target
    first = statistics_of(rows[:1200], labels[:1200], 10)
    phi = RandomFeatures(64, 512, np.sqrt(mean_squared_distance(first)), b"digits")
    lattice = SumsLattice(31)
    members = [statistics_of(phi(rows[i:1200:3]), labels[i:1200:3], 10) for i in range(3)]
    pooled = FFCStatistics.from_sums(
        members[0].layout, lattice, pool(members, lattice), bias=False, members=3
    )
    head = solve_random_features(pooled, phi, [512])
    linear = (solve_ffc(first).predict(rows[1200:]) == labels[1200:]).mean()
    kernel = (head.predict(rows[1200:]) == labels[1200:]).mean()
    assert kernel > linear + 0.04


@pytest.mark.parametrize(
    ("dim", "size", "bandwidth"),
    [
        *((0, 2, 1.0), (2, 3, 1.0), (2, 0, 1.0)),
        *((2, 2, bandwidth) for bandwidth in (0.0, 1e-308, 9e-4, 1.1e3, 1e308, np.inf, np.nan)),
    ],
)
def test_maps_that_are_none(dim: int, size: int, bandwidth: float) -> None:
    with pytest.raises(CalibrationError, match="even size"):
        RandomFeatures(dim, size, bandwidth, b"")


def test_what_does_not_belong_to_a_map(clouds: Any) -> None:
    rows, labels = clouds(40, 4, 2)
    phi, statistics = RandomFeatures(4, 6, 1.0, b""), statistics_of(rows, labels, 2)
    with pytest.raises(ShapeMismatch, match="φ has 6"):
        solve_random_features(statistics, phi)
    with pytest.raises(ShapeMismatch, match="weights are for 4"):
        phi.head(solve_ffc(statistics))
    for size in (0, 5):
        with pytest.raises(ShapeMismatch, match="pass 1 to 4"):
            statistics.leading(size)
    with pytest.raises(ConfigMismatch, match="without a constant column"):
        statistics_of(rows, labels, 2, bias=True).leading(2)
    with pytest.raises(NoRecords, match="sum a first round"):
        mean_squared_distance(FFCStatistics(4, 2))
