import numpy as np
import pytest

from tests.calibration.records import clouds, digits, ffc, hits, members_of, pooled
from veilsum.calibration import (
    CalibrationError,
    FFCStatistics,
    RandomFeatures,
    solve_ffc,
    solve_random_features,
)
from veilsum.calibration.errors import ConfigMismatch, NoRecords, NotUnitNorm, ShapeMismatch
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.random_features import mean_squared_distance, suggested_bandwidth


def test_products_estimate_the_gaussian_kernel() -> None:
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
    np.testing.assert_allclose(large(np.eye(3))[:, :4] * np.sqrt(2), small(np.eye(3)), atol=1e-15)
    # The first numbers of the stream, so that no release changes a map that members share.
    first = [[-1.1286852772514402, -0.04456983610670606]]
    np.testing.assert_allclose(RandomFeatures(2, 2, 1.0, b"").directions, first, rtol=1e-14)
    draws = RandomFeatures(100, 2000, 1.0, b"normal").directions
    assert abs(draws.mean()) < 0.01
    assert abs(draws.std() - 1) < 0.01


def test_the_number_of_features_is_chosen_by_gcv_from_one_upload() -> None:
    rows, labels = clouds(300, 6, 3, noise=2.0)
    phi = RandomFeatures(6, 128, 1.0, b"round 7")
    statistics = ffc(phi(rows), labels, 3)
    for size in (2, 64, 128):
        smaller = RandomFeatures(6, size, 1.0, b"round 7")
        direct = solve_ffc(ffc(smaller(rows), labels, 3), 0.2)
        head = solve_random_features(statistics, phi, [size], 0.2)
        np.testing.assert_allclose(head.weights, direct.weights, atol=1e-9)
        np.testing.assert_allclose(head.scores(rows), direct.scores(smaller(rows)), atol=1e-9)
    sizes = (32, 64, 128)
    errors = [solve_ffc(statistics.first_features(size)).gcv.min() for size in sizes]
    assert solve_random_features(statistics, phi).map.size == sizes[int(np.argmin(errors))]
    phi = RandomFeatures(6, 6, 1.0, b"round 7")  # its half and its quarter are odd
    assert solve_random_features(ffc(phi(rows), labels, 3), phi).map.size == 6
    assert head.scores(3 * rows, normalise=True) == pytest.approx(head.scores(rows), abs=1e-9)


def test_real_digits_gain_from_random_features() -> None:
    (rows, labels), test = digits()
    first = ffc(rows, labels, 10)
    phi = RandomFeatures(64, 512, np.sqrt(mean_squared_distance(first)), b"digits")
    sums = pooled(members_of(phi(rows), labels, 10, 3), SumsLattice(31))
    assert hits(solve_random_features(sums, phi, [512]), test) > hits(solve_ffc(first), test) + 0.04


@pytest.mark.parametrize("constant", [False, True])
def test_the_mean_squared_distance_follows_from_sums(*, constant: bool) -> None:
    rows, labels = clouds(40, 6, 3)
    square = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    statistics = ffc(rows, labels, 3, constant=constant)
    assert mean_squared_distance(statistics) == pytest.approx(square.mean())
    assert suggested_bandwidth(statistics) == pytest.approx(np.sqrt(square.mean() / 2), rel=5e-4)


@pytest.mark.parametrize(
    ("dim", "size", "bandwidth"),
    [
        *((0, 2, 1.0), (2, 3, 1.0), (2, 0, 1.0), (1 << 20, 1 << 8, 1.0)),
        *((2, 2, bandwidth) for bandwidth in (0.0, 1e-308, 9e-4, 1.1e3, 1e308, np.inf, np.nan)),
    ],
)
def test_impossible_maps_are_refused(dim: int, size: int, bandwidth: float) -> None:
    with pytest.raises(CalibrationError):
        RandomFeatures(dim, size, bandwidth, b"")


def test_one_dimension_has_random_features() -> None:
    one, minus = RandomFeatures(1, 4096, 1.0, b"")(np.array([[1.0], [-1.0]]))
    assert one @ minus == pytest.approx(np.exp(-2), abs=0.05)


def test_statistics_of_another_map_are_refused() -> None:
    rows, labels = clouds(40, 4, 2)
    phi, statistics = RandomFeatures(4, 6, 1.0, b""), ffc(rows, labels, 2)
    with pytest.raises(ShapeMismatch):
        solve_random_features(statistics, phi)
    with pytest.raises(ShapeMismatch):
        phi.head(solve_ffc(statistics))
    for size in (0, 5):
        with pytest.raises(ShapeMismatch):
            statistics.first_features(size)
    with pytest.raises(NotUnitNorm):
        phi(2 * rows)
    with pytest.raises(ConfigMismatch):
        ffc(rows, labels, 2, constant=True).first_features(2)
    with pytest.raises(NoRecords):
        mean_squared_distance(FFCStatistics(4, 2))
