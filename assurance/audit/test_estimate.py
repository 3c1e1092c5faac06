import numpy as np
import pytest

from assurance.audit.estimate import Estimate, estimate_mu


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_the_error_is_what_repeated_audits_show(mu: float) -> None:
    rng = np.random.default_rng(20)
    estimates = [
        estimate_mu(5 + 3 * rng.standard_normal(400), 5 + 3 * mu + 3 * rng.standard_normal(400))
        for _ in range(400)
    ]
    found = np.array([estimate.mu for estimate in estimates])
    assert found.mean() == pytest.approx(mu, abs=0.02)
    assert found.std() == pytest.approx(estimates[0].error, rel=0.15)
    assert sum(estimate.fault(mu) is not None and estimate.mu > mu for estimate in estimates) <= 8


def test_faults_are_noise_missing_and_noise_wasted() -> None:
    assert Estimate(1.03, 0.01).fault(1.0) is Estimate(0.93, 0.01).fault(1.0) is None
    assert "too little noise" in str(Estimate(1.04, 0.01).fault(1.0))
    assert "too much noise" in str(Estimate(0.92, 0.01).fault(1.0))
