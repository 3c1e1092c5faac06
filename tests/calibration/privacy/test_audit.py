from __future__ import annotations

import math

import numpy as np
import pytest

from calibration import ShapeMismatch
from calibration.privacy import Estimate, estimate_mu


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_the_error_is_what_repeated_audits_show(mu: float, rng: np.random.Generator) -> None:
    estimates = [
        estimate_mu(5 + 3 * rng.standard_normal(400), 5 + 3 * mu + 3 * rng.standard_normal(400))
        for _ in range(400)
    ]
    found = np.array([estimate.mu for estimate in estimates])
    assert found.mean() == pytest.approx(mu, abs=0.02)
    assert found.std() == pytest.approx(estimates[0].error, rel=0.15)
    blamed = sum(estimate.fault(mu) is not None and estimate.mu > mu for estimate in estimates)
    assert blamed <= 8


def test_faults_are_noise_missing_and_noise_wasted() -> None:
    assert Estimate(1.03, 0.01).fault(1.0) is None
    assert Estimate(0.951, 0.01).fault(1.0) is None
    assert Estimate(1.04, 0.01).fault(1.0) == "too little noise: μ̂ = 1.040 ± 0.010 where 1.000 was promised"
    assert Estimate(0.94, 0.01).fault(1.0) == "too much noise: μ̂ = 0.940 ± 0.010 where 1.000 was promised"


def test_scores_of_other_shapes_are_refused() -> None:
    for without, having in ((3, 4), (1, 1)):
        with pytest.raises(ShapeMismatch, match="n ≥ 2"):
            estimate_mu(np.zeros(without), np.ones(having))
    with pytest.raises(ShapeMismatch, match="n ≥ 2"):
        estimate_mu(np.zeros((2, 2)), np.ones((2, 2)))
    assert estimate_mu(np.array([0.0, 2.0]), np.array([1.0, 3.0])).mu == pytest.approx(1 / math.sqrt(2))
