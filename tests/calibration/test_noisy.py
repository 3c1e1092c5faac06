"""What follows from noisy sums: exact answers where there is next to no noise, right ones on average where there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibration import CCVRStatistics, FeaturesLattice, FFCStatistics, ridge_posterior, solve_ffc
from calibration.errors import CalibrationError, NoRecords
from calibration.lda import nearest_class_mean, solve_lda
from calibration.moments import ClassMoments, IntegerMean, IntegerMoments
from calibration.noisy_ccvr import NoisyGaussians
from calibration.noisy_sums import NoisyMean, NoisySums
from calibration.privacy import Mechanism, ccvr_release, ffc_release, mean_release
from calibration.rows import unit_rows
from protocol.keystream import Keystream

DIM, CLASSES, N = 5, 3, 600
LATTICE = FeaturesLattice(12)
RNG = np.random.default_rng(1)
LABELS = RNG.choice(CLASSES, N, p=[0.7, 0.2, 0.1])
ROWS = unit_rows(np.abs(RNG.standard_normal((N, DIM))) + 2 * np.eye(DIM)[LABELS])[0]
QUIET = 100.0
"""μ of so little noise that it hardly shows."""


def noisy(sums: Any, release: Any, mu: float, seed: int) -> tuple[Any, Any]:
    """The blocks of one member's noisy sum, and its mechanism."""
    mechanism = Mechanism(release, 1, mu, 1, 1, 0)
    sums.update(ROWS, LABELS)
    mechanism.add_noise(sums.flat, Keystream(seed.to_bytes(32, "big")))
    return release.layout.unflatten(sums.flat), mechanism


def moments(*, bias: bool, mu: float = QUIET, seed: int = 0) -> NoisySums:
    release = ffc_release(DIM + bias, CLASSES)
    blocks, mechanism = noisy(IntegerMoments(release, constant=bias), release, mu, seed)
    V, U = LATTICE.decode(blocks["V"], 2), LATTICE.decode(blocks["U"], 1)
    return NoisySums(V, U, mechanism.deviation("V", 1), mechanism.deviation("U", 1), bias, None)


def gaussians(mu: float = QUIET, seed: int = 0) -> NoisyGaussians:
    release = ccvr_release(DIM, CLASSES)
    blocks, mechanism = noisy(ClassMoments(release), release, mu, seed)
    return NoisyGaussians(
        LATTICE.decode(blocks["N"], 2),
        LATTICE.decode(blocks["S"], 1),
        np.array([LATTICE.decode(blocks[f"M.{label}"], 2) for label in range(CLASSES)]),
        mechanism.deviation("N", 1),
        mechanism.deviation("M.0", 1),
    )


def test_a_noisy_mean_is_the_mean() -> None:
    release = mean_release(DIM)
    blocks, _ = noisy(IntegerMean(release), release, QUIET, 0)
    found = NoisyMean(LATTICE.decode(blocks["z"], 1), LATTICE.constant / 4096)
    assert found.records == N
    np.testing.assert_allclose(found.mean, ROWS.mean(axis=0), atol=1e-3)
    assert np.linalg.norm(NoisyMean(np.array([3.0, 4, 1]), 0.5**0.5).mean) == pytest.approx(1)
    assert NoisyMean(np.array([1.0, -0.5]), 0.5**0.5).mean.tolist() == [0]


def test_the_constant_counts_the_classes() -> None:
    np.testing.assert_allclose(moments(bias=True).counts, np.bincount(LABELS), atol=0.3)
    with pytest.raises(CalibrationError, match="ffc with a bias"):
        _ = moments(bias=False).counts


def test_what_follows_beside_a_noisy_head_is_what_follows_from_exact_sums() -> None:
    found = moments(bias=True)
    exact = FFCStatistics(DIM, CLASSES, bias=True)
    exact.update(ROWS, LABELS)
    means, own = nearest_class_mean(exact), found.moments.nearest_mean()
    np.testing.assert_allclose(own.weights, means.weights, atol=5e-3)
    assert means.bias is not None
    assert own.bias is not None
    np.testing.assert_allclose(own.bias, means.bias, atol=5e-3)
    lda = solve_lda(exact, shrinkage=0.0)
    assert (found.moments.lda().predict(ROWS) == lda.predict(ROWS)).mean() > 0.98
    solution = solve_ffc(exact, found.solution.edge / 2)
    posterior = ridge_posterior(exact, solution)
    whitening, variances = found.posterior
    np.testing.assert_allclose(
        whitening.T @ whitening, posterior.whitening.T @ posterior.whitening, rtol=0.2, atol=0.02
    )
    np.testing.assert_allclose(variances, posterior.variances, rtol=0.05)
    loud = [moments(bias=True, mu=0.5, seed=seed).moments.nearest_mean().bias for seed in range(30)]
    squares = [-2 * bias[0] for bias in loud if bias is not None]
    assert np.mean(squares) == pytest.approx(-2 * float(means.bias[0]), abs=4 * np.std(squares) / 30**0.5)
    drowned = moments(bias=True, mu=0.03)
    heads = (drowned.moments.lda(), drowned.moments.nearest_mean())
    arrays = [array for head in heads for array in head.tensors.values()]
    assert all(np.isfinite(array).all() for array in (*arrays, *drowned.posterior))


def test_gaussians_of_classes_are_the_exact_ones_less_what_noise_explains() -> None:
    exact = CCVRStatistics(DIM, CLASSES)
    exact.update(ROWS, LABELS)
    quiet: NoisyGaussians = gaussians()
    np.testing.assert_array_equal(quiet.counts, exact.counts)
    for label in range(CLASSES):
        np.testing.assert_allclose(quiet.mean(label), exact.mean(label), atol=2e-3)
        count = exact.counts[label]
        apart = np.linalg.norm(quiet.covariance(label) - exact.covariance(label) * (count - 1) / count)
        assert apart < 0.1 * np.linalg.norm(exact.covariance(label))
    loud: NoisyGaussians = gaussians(0.5)
    shared = loud.shared_covariance()
    for label in range(CLASSES):
        assert np.linalg.eigvalsh(loud.covariance(label)).min() >= -1e-12
        assert np.linalg.norm(loud.mean(label)) <= 1 + 1e-12
    assert np.linalg.eigvalsh(shared).min() >= -1e-12
    kept, raw = [], []
    for seed in range(10):
        found: NoisyGaussians = gaussians(0.5, seed)
        wanted, own = exact.covariance(2), found._scatter(2) / found.counts[2]
        kept.append(np.linalg.norm(found.covariance(2) - wanted))
        raw.append(np.linalg.norm(own - wanted))
    assert np.mean(kept) < 0.7 * np.mean(raw)
    with pytest.raises(NoRecords, match="noise drowned the records of every class"):
        NoisyGaussians(np.ones(3), np.ones((3, 2)), np.ones((3, 2, 2)), 10.0, 10.0).shared_covariance()
