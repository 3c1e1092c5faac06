"""What follows from noisy sums of each question: exact answers where there is next to no noise, right ones on average where there is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibration import CCVRStatistics, FeaturesLattice, FFCStatistics, Head, ridge_posterior, solve_ffc
from calibration.collected import Collected
from calibration.errors import CalibrationError, LayoutMismatch, NoRecords
from calibration.ffc import balanced_weights
from calibration.lda import nearest_class_mean, solve_lda
from calibration.noisy_ccvr import NoisyGaussians
from calibration.noisy_choice import FACTORS, NoisyFolds, paths
from calibration.noisy_reliability import NoisyReliability
from calibration.privacy import MemberNoise, NoiseTerms, solve_noisy
from calibration.questions import Answer, Earlier, Summed, Wish, ask, question
from calibration.reliability import ReliabilityStatistics
from calibration.rows import unit_rows
from protocol.keystream import Keystream

DIM, CLASSES, N = 5, 3, 600
LATTICE = FeaturesLattice(12)
RNG = np.random.default_rng(1)
LABELS = RNG.choice(CLASSES, N, p=[0.7, 0.2, 0.1])
ROWS = unit_rows(np.abs(RNG.standard_normal((N, DIM))) + 2 * np.eye(DIM)[LABELS])[0]
QUIET = 100.0
"""μ of so little noise that it hardly shows."""


def noisy(name: str, earlier: Earlier | None = None, mu: float = QUIET, seed: int = 0, **given: Any) -> Any:
    """A round of one member: what it pools and what follows, as another may rest on it."""
    asked = ask(name, Wish(DIM, CLASSES, given, noisy=True), earlier)
    posed, terms = question(name, asked.layout, b"c" * 32, asked.material), NoiseTerms(mu, 1.0)
    mechanism = terms.mechanism(posed, LATTICE, members=1, survivors_min=1, colluders=0)
    own = Collected(posed, LATTICE, noise=terms)
    own.update(ROWS, LABELS)
    total = own.vector(LATTICE).copy()
    MemberNoise(posed.layout, mechanism.shares, Keystream(seed.to_bytes(32, "big"))).add_to(total)
    gathering: Any = posed.gathering(LATTICE)
    gathering.take(0, total)
    summed = Summed(LATTICE, 1, mechanism=mechanism)
    pooled = posed.gathered(gathering, summed)
    answer: Answer = posed.answer(pooled, summed)
    return SimpleNamespace(pooled=pooled, answer=answer, earlier=Earlier(name, pooled, answer.head))


def test_counts_and_the_weights_that_follow_from_them() -> None:
    exact = np.bincount(LABELS)
    quiet, loud = noisy("counts"), noisy("counts", mu=0.01)
    np.testing.assert_allclose(quiet.pooled.counts, exact, atol=0.1)
    np.testing.assert_array_equal(quiet.answer.documents["counts"].arrays["counts"], exact)
    assert loud.pooled.deviation == pytest.approx(100, rel=1e-3)
    weights = ask("balanced", Wish(DIM, CLASSES, noisy=True), quiet.earlier).material["class_weights"]
    np.testing.assert_allclose(weights, balanced_weights(exact), rtol=0.01)
    # a class that noise drowned counts as four deviations, and takes from no other all its weight
    weights = ask("balanced", Wish(DIM, CLASSES, noisy=True), loud.earlier).material["class_weights"]
    assert weights.min() > 0.4
    by_constant = noisy("ffc-bias").pooled.class_counts
    np.testing.assert_allclose(by_constant.counts, exact, atol=0.3)
    with pytest.raises(CalibrationError, match="a noisy round of ffc counts no classes"):
        ask("balanced", Wish(DIM, CLASSES, noisy=True), noisy("ffc").earlier)


@pytest.mark.parametrize("bias", [False, True])
def test_balanced_sums_are_those_of_weighted_rows(*, bias: bool) -> None:
    found = noisy("balanced", noisy("counts").earlier, bias=bias)
    weights = balanced_weights(np.bincount(LABELS))
    exact = FFCStatistics(DIM, CLASSES, bias=bias, class_weights=weights, track_records=False)
    exact.update(ROWS, LABELS)
    np.testing.assert_allclose(found.pooled.V, exact.V, atol=1.0)
    np.testing.assert_allclose(found.pooled.U, exact.U, atol=1.0)
    assert found.answer.records == N
    assert (found.answer.head.bias is None) != bias


@pytest.mark.parametrize("name", ["ffc", "ffc-bias"])
def test_what_is_published_beside_a_noisy_head_is_what_exact_sums_publish(name: str) -> None:
    found = noisy(name, publish="lda,ncm,posterior")
    exact = FFCStatistics(DIM, CLASSES, bias=name == "ffc-bias", track_records=False)
    exact.update(ROWS, LABELS)
    told = {key: document.arrays for key, document in found.answer.documents.items()}
    means = nearest_class_mean(exact)
    np.testing.assert_allclose(told["ncm"]["weights"], means.weights, atol=5e-3)
    assert means.bias is not None
    np.testing.assert_allclose(told["ncm"]["bias"], means.bias, atol=5e-3)
    lda, own = solve_lda(exact, shrinkage=0.0), Head(told["lda"]["weights"], told["lda"]["bias"], ())
    assert (own.predict(ROWS) == lda.predict(ROWS)).mean() > 0.98
    solution = solve_ffc(exact, found.pooled.solution.edge / 2)
    posterior = ridge_posterior(exact, solution)
    whitening = told["posterior"]["whitening"]
    np.testing.assert_allclose(
        whitening.T @ whitening, posterior.whitening.T @ posterior.whitening, rtol=0.2, atol=0.02
    )
    np.testing.assert_allclose(told["posterior"]["variances"], posterior.variances, rtol=0.05)
    loud = [noisy(name, mu=0.5, seed=seed, publish="ncm").answer for seed in range(30)]
    squares = [-2 * answer.documents["ncm"].arrays["bias"][0] for answer in loud]
    assert np.mean(squares) == pytest.approx(-2 * float(means.bias[0]), abs=4 * np.std(squares) / 30**0.5)
    drowned = noisy(name, mu=0.03, publish="lda,ncm,posterior").answer.documents
    assert all(
        np.isfinite(array).all() for document in drowned.values() for array in document.arrays.values()
    )


def test_material_with_weights_beyond_1_is_refused() -> None:
    asked = ask("balanced", Wish(DIM, CLASSES, {"bias": False}, noisy=True), noisy("counts").earlier)
    for weight in (0.0, 1.5):
        posed = question("balanced", asked.layout, b"", {"class_weights": np.full(CLASSES, weight)})
        with pytest.raises(LayoutMismatch, match="class weights lie above 0 and up to 1"):
            posed.accumulator(LATTICE, normalise=True)


def test_gaussians_of_classes_are_the_exact_ones_less_what_noise_explains() -> None:
    exact = CCVRStatistics(DIM, CLASSES)
    exact.update(ROWS, LABELS)
    quiet: NoisyGaussians = noisy("ccvr").pooled
    np.testing.assert_array_equal(quiet.counts, exact.counts)
    for label in range(CLASSES):
        np.testing.assert_allclose(quiet.mean(label), exact.mean(label), atol=2e-3)
        count = exact.counts[label]
        apart = np.linalg.norm(quiet.covariance(label) - exact.covariance(label) * (count - 1) / count)
        assert apart < 0.1 * np.linalg.norm(exact.covariance(label))
    loud: NoisyGaussians = noisy("ccvr", mu=0.5).pooled
    shared = loud.shared_covariance()
    for label in range(CLASSES):
        assert np.linalg.eigvalsh(loud.covariance(label)).min() >= -1e-12
        assert np.linalg.norm(loud.mean(label)) <= 1 + 1e-12
    assert np.linalg.eigvalsh(shared).min() >= -1e-12
    kept, raw = [], []
    for seed in range(10):
        found: NoisyGaussians = noisy("ccvr", mu=0.5, seed=seed).pooled
        wanted, own = exact.covariance(2), found._scatter(2) / found.counts[2]
        kept.append(np.linalg.norm(found.covariance(2) - wanted))
        raw.append(np.linalg.norm(own - wanted))
    assert np.mean(kept) < 0.7 * np.mean(raw)
    with pytest.raises(NoRecords, match="noise drowned the records of every class"):
        NoisyGaussians(np.ones(3), np.ones((3, 2)), np.ones((3, 2, 2)), 10.0, 10.0).shared_covariance()


def test_folds_are_what_one_sum_is_and_their_errors_are_right_on_average() -> None:
    found = noisy("folds", folds=3, bias=False)
    pooled: NoisyFolds = found.pooled
    exact = FFCStatistics(DIM, CLASSES, track_records=False)
    exact.update(ROWS, LABELS)
    np.testing.assert_allclose(pooled.V.sum(axis=0), exact.V, atol=1.0)
    solved = solve_noisy(pooled.V.sum(axis=0), pooled.U.sum(axis=0), pooled.deviation * np.sqrt(3))
    middle = FACTORS.tolist().index(0.5)
    np.testing.assert_allclose(
        paths(pooled.V, pooled.U, pooled.deviation)[middle], solved.weights, atol=1e-12
    )
    held = solve_ffc(exact, found.answer.ridge)
    np.testing.assert_allclose(found.answer.head.weights, held.weights, atol=0.02)
    residuals = ((np.eye(CLASSES)[LABELS] - ROWS @ held.weights) ** 2).sum(axis=1).mean()
    assert found.answer.errors.min() == pytest.approx(residuals, abs=0.03)
    errors = [noisy("folds", mu=2.0, seed=seed, folds=3, bias=False).answer.errors[-1] for seed in range(40)]
    assert np.mean(errors) == pytest.approx(
        float(found.answer.errors[-1]), abs=4 * np.std(errors) / 40**0.5 + 0.08
    )


@pytest.mark.parametrize("name", ["ffc", "ffc-bias"])
def test_records_left_out_of_a_noisy_sum_have_the_errors_that_fits_without_them_give(name: str) -> None:
    first = noisy(name, mu=5.0)
    found = noisy("loo", first.earlier)
    sums, index = first.pooled, 3
    unit = ROWS if name == "ffc" else np.column_stack([ROWS * np.sqrt(0.5), np.full(N, np.sqrt(0.5))])
    path = found.answer.grid[index]
    values, vectors = np.linalg.eigh(sums.V)
    del values
    shrunk = sums.solution.eigenvalues - sums.solution.edge / 2
    A = (vectors * (shrunk + path)) @ vectors.T
    squares = []
    for z, label in zip(unit, LABELS, strict=True):
        y = np.eye(CLASSES)[label]
        W = np.linalg.solve(A - np.outer(z, z), sums.U - np.outer(z, y))
        squares.append(min(((y - z @ W) ** 2).sum() / 4, 1))
    told = found.answer.errors[index] * found.answer.records / 4
    assert told == pytest.approx(sum(squares), abs=0.5)


def test_reliability_says_of_little_noise_what_exact_sums_say() -> None:
    first = noisy("ffc")
    exact = ReliabilityStatistics(first.earlier.head, temperatures=[0.1], bins=5)
    exact.update(ROWS, LABELS)
    found = noisy("reliability", first.earlier, bins=5, temperature=0.1)
    pooled: NoisyReliability = found.pooled
    for name in ("confidences", "hits", "binned", "confusion"):
        np.testing.assert_allclose(getattr(pooled, name), exact.block(name), atol=0.2)
    assert pooled.mean_losses[0] == pytest.approx(float(exact.losses[0]), abs=1e-2)
    assert (pooled.records, found.answer.temperature) == (N, 0.1)
    assert pooled.calibration_errors[0] == pytest.approx(float(exact.calibration_errors[0]), abs=2e-3)
    grid = noisy("reliability", first.earlier, bins=5)
    whole = ReliabilityStatistics(first.earlier.head, temperatures=grid.pooled.temperatures)
    whole.update(ROWS, LABELS)
    assert abs(np.log(grid.answer.temperature / whole.temperature)) < 0.6
    with pytest.raises(CalibrationError, match=r"a temperature lies from 0\.001 to 1000"):
        noisy("reliability", first.earlier, bins=5, temperature=1e4)
