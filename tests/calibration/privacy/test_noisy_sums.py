"""Answers from noisy sums: exact with almost no noise, right on average with much."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.calibration.records import ccvr, digits, ffc, hits, unit
from tests.support.simulator import SeededRandom
from veilsum.calibration import (
    CalibrationError,
    Head,
    nearest_class_mean,
    ridge_posterior,
    solve_ffc,
    solve_lda,
)
from veilsum.calibration.errors import NonFinite, NoRecords, ShapeMismatch
from veilsum.calibration.lattice import FeaturesLattice
from veilsum.calibration.privacy.accountant import gdp_mu
from veilsum.calibration.privacy.integer_sums import ClassMoments, IntegerMean, IntegerMoments
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.calibration.privacy.noisy_sums import (
    NoisyGaussians,
    NoisyMean,
    NoisySums,
    noise_edge,
    shrink_spectrum,
    solve_noisy,
)
from veilsum.calibration.privacy.release import ccvr_release, ffc_release, mean_release
from veilsum.calibration.rows import with_constant

DIM, CLASSES, N = 5, 3, 600
LATTICE = FeaturesLattice(12)
RNG = np.random.default_rng(1)
LABELS = RNG.choice(CLASSES, N, p=[0.7, 0.2, 0.1])
ROWS = unit(np.abs(RNG.standard_normal((N, DIM))) + 2 * np.eye(DIM)[LABELS])
QUIET = 100.0
"""A μ with almost no noise."""


def noisy(
    sums: Any, release: Any, mu: float, seed: int, records: Any = (ROWS, LABELS)
) -> tuple[Any, Mechanism]:
    """Return the blocks of one member's noisy sum, and its mechanism."""
    mechanism = Mechanism(release, 1, mu, 1, 1, 0)
    sums.update(*records)
    mechanism.add_noise(sums.flat, SeededRandom(seed))
    return release.layout.unflatten(sums.flat), mechanism


def moments(*, constant: bool, mu: float = QUIET, seed: int = 0, records: Any = (ROWS, LABELS)) -> NoisySums:
    release = ffc_release(records[0].shape[1] + constant, int(records[1].max()) + 1)
    blocks, mechanism = noisy(IntegerMoments(release, constant=constant), release, mu, seed, records)
    V, U = LATTICE.decode(blocks["V"], 2), LATTICE.decode(blocks["U"], 1)
    return NoisySums(V, U, mechanism.deviation("V", 1), mechanism.deviation("U", 1), constant, None)


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


def test_the_edge_is_where_the_noise_ends() -> None:
    rng, dim, deviation = np.random.default_rng(20), 400, 0.7
    upper = np.triu(rng.standard_normal((dim, dim)) * deviation / math.sqrt(2), 1)
    noise = upper + upper.T + np.diag(rng.standard_normal(dim) * deviation)
    assert np.linalg.norm(noise, 2) == pytest.approx(noise_edge(deviation, dim), rel=0.05)


def test_shrinkage_on_a_spectrum_with_a_known_answer() -> None:
    d = np.array([-3.0, 1.0, 2.0, 4.25, 4.75, 13.0])
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    V, U, deviation = (Q * d) @ Q.T, np.eye(6)[:, :2], 5 / math.sqrt(12)  # an edge of 5
    solution = solve_noisy(V, U, deviation)
    assert solution.spectrum.edge == pytest.approx(5)
    assert solution.spectrum.above == 1
    kept = (13 + 12) / 2
    bulk = (22 - kept) / 5  # the trace is kept: the others gain what the one eigenvalue lost
    assert solution.eigenvalues == pytest.approx([bulk + 2.5] * 5 + [kept + 2.5])
    assert solution.weights == pytest.approx((Q / solution.eigenvalues) @ Q.T @ U)
    assert solution.records == pytest.approx(22)
    assert solution.bias is None
    given = solve_noisy(V, U, deviation, ridge=7.0)
    assert given.eigenvalues - 7 == pytest.approx(solution.eigenvalues - 2.5)
    negative = solve_noisy(-np.eye(3), np.ones((3, 1)), 1.0)  # half the edge is left
    assert negative.eigenvalues == pytest.approx([math.sqrt(6) / 2] * 3)
    assert solve_noisy(100 * np.eye(3), np.ones((3, 1)), 1.0).spectrum.above == 3


def test_shrinkage_solves_noisy_digits_where_plain_ridge_does_not() -> None:
    train, test = digits()
    for epsilon, least in ((1.0, 0.75), (4.0, 0.84)):
        found = [
            moments(constant=False, mu=gdp_mu(epsilon, 1e-5), seed=seed, records=train) for seed in range(3)
        ]
        assert np.mean([hits(each.solution, test) for each in found]) > least
        if epsilon == 1:
            plain = [np.linalg.solve(each.V + np.eye(64) * np.trace(each.V) / 64, each.U) for each in found]
            assert np.mean([hits(Head(W, None, ()), test) for W in plain]) < 0.3
    biased = moments(constant=True, mu=gdp_mu(200.0, 1e-5), records=train)
    assert biased.solution.bias is not None
    assert hits(biased.solution, test) > 0.85
    assert biased.records == pytest.approx(1200, rel=0.01)


def test_what_can_not_be_solved_is_refused() -> None:
    V, U = np.eye(3), np.ones((3, 2))
    wrong: list[tuple[Any, Any, float, type[Exception]]] = [
        *((V, U, deviation, CalibrationError) for deviation in (0.0, -1.0, math.nan, math.inf)),
        (V, U * math.nan, 1.0, NonFinite),
        *((V, each, 1.0, ShapeMismatch) for each in (U[:2], U[:, 0])),
        *((each, U, 1.0, ShapeMismatch) for each in (V[:2], V[:, :2], V[0])),
    ]
    for each, other, deviation, error in wrong:
        with pytest.raises(error):
            solve_noisy(each, other, deviation)


def test_a_noisy_mean_is_the_mean() -> None:
    release = mean_release(DIM)
    blocks, _ = noisy(IntegerMean(release), release, QUIET, 0)
    found = NoisyMean(LATTICE.decode(blocks["z"], 1), LATTICE.mean_constant / 4096)
    assert found.records == N
    np.testing.assert_allclose(found.mean, ROWS.mean(axis=0), atol=1e-3)
    assert np.linalg.norm(NoisyMean(np.array([3.0, 4, 1]), 0.5**0.5).mean) == pytest.approx(1)
    assert NoisyMean(np.array([1.0, -0.5]), 0.5**0.5).mean.tolist() == [0]


def test_class_counts_need_a_constant() -> None:
    np.testing.assert_allclose(moments(constant=True).counts, np.bincount(LABELS), atol=0.3)
    with pytest.raises(CalibrationError):
        _ = moments(constant=False).counts


def test_lda_means_and_posterior_are_those_of_exact_sums() -> None:
    found, exact = moments(constant=True), ffc(ROWS, LABELS, CLASSES, constant=True)
    means, own = nearest_class_mean(exact), found.nearest_mean()
    np.testing.assert_allclose(own.weights, means.weights, atol=5e-3)
    assert means.bias is not None
    assert own.bias is not None
    np.testing.assert_allclose(own.bias, means.bias, atol=5e-3)
    lda = solve_lda(exact, shrinkage=0.0)
    assert (found.solve_lda().predict(ROWS) == lda.predict(ROWS)).mean() > 0.98
    posterior = ridge_posterior(exact, solve_ffc(exact, found.solution.spectrum.edge / 2))
    whitening, variances = found.posterior
    expected = posterior.whitening.T @ posterior.whitening
    np.testing.assert_allclose(whitening.T @ whitening, expected, rtol=0.2, atol=0.02)
    np.testing.assert_allclose(variances, posterior.variances, rtol=0.05)
    loud = [moments(constant=True, mu=0.5, seed=seed).nearest_mean().bias for seed in range(30)]
    squares = [-2 * bias[0] for bias in loud if bias is not None]
    assert np.mean(squares) == pytest.approx(-2 * float(means.bias[0]), abs=4 * np.std(squares) / 30**0.5)
    drowned = moments(constant=True, mu=0.03)
    arrays = [
        *drowned.solve_lda().tensors.values(),
        *drowned.nearest_mean().tensors.values(),
        *drowned.posterior,
    ]
    assert all(np.isfinite(array).all() for array in arrays)


def test_gaussians_of_classes_are_the_exact_ones_less_the_noise() -> None:
    exact, quiet = ccvr(ROWS, LABELS, CLASSES, bound=1.0), gaussians()
    assert (quiet.dim, quiet.classes, quiet.records) == (DIM, CLASSES, N)
    np.testing.assert_array_equal(quiet.counts, exact.counts)
    for label in range(CLASSES):
        np.testing.assert_allclose(quiet.mean(label), exact.mean(label), atol=2e-3)
        count = exact.counts[label]
        apart = np.linalg.norm(quiet.covariance(label) - exact.covariance(label) * (count - 1) / count)
        assert apart < 0.1 * np.linalg.norm(exact.covariance(label))
    kept, raw = [], []
    for seed in range(10):
        loud = gaussians(0.5, seed)
        wanted, own = exact.covariance(2), loud._class_scatter(2) / loud.counts[2]
        kept.append(np.linalg.norm(loud.covariance(2) - wanted))
        raw.append(np.linalg.norm(own - wanted))
        for label in range(CLASSES):
            assert np.linalg.eigvalsh(loud.covariance(label)).min() >= -1e-12
            assert np.linalg.norm(loud.mean(label)) <= 1 + 1e-12
    assert np.mean(kept) < 0.7 * np.mean(raw)
    with pytest.raises(NoRecords):
        NoisyGaussians(np.ones(3), np.ones((3, 2)), np.ones((3, 2, 2)), 10.0, 10.0).shared_covariance()


def uncounted(column_deviation: float, counts: list[float]) -> NoisySums:
    """Sums of 40 rows, whose class counts are these whatever the rows are."""
    rows = with_constant(ROWS[:40])
    U = rows.T @ np.eye(len(counts))[np.arange(40) % len(counts)]
    U[-1] = np.array(counts) * math.sqrt(0.1)
    return NoisySums(rows.T @ rows, U, 0.4, column_deviation, True, None)


SUMS = [
    uncounted(0.01, [25.0, 14.0, 0.4, -2.0]),
    uncounted(2.0, [25.0, 14.0, 12.0, -2.0]),  # the third is within two deviations
    uncounted(20.0, [25.0, 14.0, 0.4, -2.0]),  # all are
]


def held_of(sums: NoisySums) -> tuple[Any, Any, Any]:
    """Return counts that are 0 for a class within two deviations of 0, the means, and the variances of their noise."""
    counts = sums.U[-1] / math.sqrt(0.1)
    seen = counts > 2 * sums.column_deviation / math.sqrt(0.1)
    held = np.maximum(counts, 1) * (seen if seen.any() else 1)
    divided = np.maximum(held, 1)
    means = sums.U[:-1].T / math.sqrt(0.9) / divided[:, None] * (held > 0)[:, None]
    return held, means, (sums.column_deviation / math.sqrt(0.9) / divided) ** 2


@pytest.mark.parametrize("sums", SUMS)
def test_heads_of_noisy_sums_are_those_of_their_formulas(sums: NoisySums) -> None:
    held, means, variances = held_of(sums)
    empty = tuple(np.flatnonzero(held == 0).tolist())
    nearest: Any = sums.nearest_mean()
    np.testing.assert_allclose(nearest.weights, means.T)
    np.testing.assert_allclose(nearest.bias, -np.maximum((means**2).sum(axis=1) - DIM * variances, 0) / 2)
    scatter = sums.V[:-1, :-1] / 0.9 - sum(
        n * np.outer(mean, mean) for n, mean in zip(held, means, strict=True)
    )
    found = shrink_spectrum(scatter, 0.4 / 0.9)
    inverse = (found.vectors / ((found.eigenvalues + found.edge / 2) / held.sum())) @ found.vectors.T
    lda: Any = sums.solve_lda()
    np.testing.assert_allclose(lda.weights, inverse @ means.T)
    squares = np.maximum(np.diagonal(means @ inverse @ means.T) - variances * np.trace(inverse), 0)
    odds = np.log(np.where(held > 0, held, 1) / held.sum())
    np.testing.assert_allclose(lda.bias, np.where(held > 0, odds - squares / 2, 0))
    assert nearest.empty_classes == lda.empty_classes == empty


@pytest.mark.parametrize("ridge", [None, 3.0])
@pytest.mark.parametrize("sums", SUMS)
def test_the_posterior_of_noisy_sums_is_that_of_its_formula(sums: NoisySums, ridge: float | None) -> None:
    given = replace(sums, ridge=ridge)
    values, Q = given.solution.eigenvalues, given.solution.spectrum.vectors
    own = noise_edge(0.4, DIM + 1) / 2 if ridge is None else ridge
    inverse, shrunk = (Q / values) @ Q.T, (Q * (values - own)) @ Q.T
    W, counts = inverse @ sums.U, sums.U[-1] / math.sqrt(0.1)
    rss = counts + np.diagonal(W.T @ shrunk @ W - 2 * W.T @ sums.U)
    rss = np.maximum(rss + 2 * sums.column_deviation**2 * np.trace(inverse), 0)
    whitening, variances = given.posterior
    np.testing.assert_allclose(whitening.T @ whitening, inverse, atol=1e-12)
    np.testing.assert_allclose(variances, rss / max(1, counts.sum() - np.trace(inverse @ shrunk)))


@pytest.mark.parametrize("deviation", [0.01, 1.5, 60.0])
def test_the_gaussians_of_classes_are_those_of_their_formulas(deviation: float) -> None:
    groups = [ROWS[label == LABELS][:size] for label, size in ((0, 60), (1, 30), (2, 20))]
    sums = np.array([*(group.sum(axis=0) for group in groups), np.ones(DIM)])
    moments = np.array([*(group.T @ group for group in groups), np.eye(DIM)])
    found = NoisyGaussians(np.array([60.4, 30.0, 1.3, -5.0]), 2 * sums, moments, 0.6, deviation)
    counts = np.array([60, 30, 2, 0])  # more than two deviations, and two records at least
    assert (found.counts.tolist(), found.records) == (counts.tolist(), 87)
    means = [2 * total / n for total, n in zip(sums[:3], counts, strict=False)]
    means = [mean / max(1, np.linalg.norm(mean)) for mean in means]
    scatters = [moments[label] - counts[label] * np.outer(means[label], means[label]) for label in range(3)]

    def cleared(matrix: Any, noise: float) -> Any:
        spectrum = shrink_spectrum(matrix, noise)
        return (spectrum.vectors * spectrum.eigenvalues) @ spectrum.vectors.T

    shared = cleared(sum(scatters) / 92, deviation * math.sqrt(3) / 92)
    np.testing.assert_allclose(found.shared_covariance(), shared, atol=1e-12)
    for label in range(3):
        np.testing.assert_allclose(found.mean(label), means[label])
        own, noise = scatters[label] / counts[label], deviation / counts[label]
        kept = max(0, 1 - noise**2 * DIM * (DIM + 1) / 2 / ((own - shared) ** 2).sum())
        mixed = cleared(kept * own + (1 - kept) * shared, kept * noise) if kept else shared
        np.testing.assert_allclose(found.covariance(label), mixed, atol=1e-12)
