"""What follows from noisy sums of each question: exact answers where there is next to no noise, right ones on average where there is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibration import CCVRStatistics, FeaturesLattice, FFCStatistics, Head, ridge_posterior, solve_ffc
from calibration.collected import Collected
from calibration.errors import CalibrationError, NoRecords
from calibration.lda import nearest_class_mean, solve_lda
from calibration.noisy_ccvr import NoisyGaussians
from calibration.privacy import MemberNoise, NoiseTerms
from calibration.questions import Answer, Earlier, Summed, Wish, ask, question
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


def test_the_constant_counts_the_classes() -> None:
    counted = noisy("ffc-bias").pooled.class_counts
    np.testing.assert_allclose(counted.counts, np.bincount(LABELS), atol=0.3)
    with pytest.raises(CalibrationError, match="a noisy round of ffc without a bias counts no classes"):
        _ = noisy("ffc").pooled.class_counts


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
