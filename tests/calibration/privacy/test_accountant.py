from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from scipy.special import log_ndtr  # type: ignore[import-untyped]
from scipy.stats import norm  # type: ignore[import-untyped]

from calibration import CalibrationError
from calibration.privacy import (
    compose,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    sum_defect,
    zcdp_epsilon,
    zcdp_epsilon_classic,
)

DELTA = 1e-5
ORACLE = json.loads((Path(__file__).parent / "dp_accounting_values.json").read_text("utf-8"))

# σ/Δ at δ = 1e-5 for each ε: GDP, Rényi, classic zCDP.
TABLE = {
    0.5: (7.03, 7.67, 9.70),
    1: (3.73, 4.05, 4.90),
    2: (1.99, 2.15, 2.50),
    4: (1.08, 1.16, 1.30),
    8: (0.60, 0.64, 0.69),
}


@pytest.mark.parametrize("epsilon", TABLE)
def test_the_table_of_noise_by_epsilon(epsilon: float) -> None:
    gdp, renyi, classic = TABLE[epsilon]
    assert 1 / gdp_mu(epsilon, DELTA) == pytest.approx(gdp, abs=0.0051)
    for bound, ratio in ((zcdp_epsilon, renyi), (zcdp_epsilon_classic, classic)):
        assert (
            bound(1 / (2 * (ratio + 0.0051) ** 2), DELTA)
            < epsilon
            < bound(1 / (2 * (ratio - 0.0051) ** 2), DELTA)
        )


@pytest.mark.parametrize(("sigma", "rounds", "epsilon", "delta"), ORACLE["rows"])
def test_rounds_compose_as_another_accountant_composes_them(
    sigma: float, rounds: int, epsilon: float, delta: float
) -> None:
    mu = compose([1 / sigma] * rounds)
    assert gdp_epsilon(mu, DELTA) == pytest.approx(epsilon, rel=1e-3)
    assert gdp_delta(mu, 1.0) == pytest.approx(delta, rel=1e-3, abs=1e-14)
    assert zcdp_epsilon_classic(mu**2 / 2, DELTA) > zcdp_epsilon(mu**2 / 2, DELTA) > epsilon * (1 - 1e-3)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0, 12.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 7.0, 60.0])
def test_delta_against_logarithms(mu: float, epsilon: float) -> None:
    above, below = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
    expected = math.exp(above) - math.exp(epsilon + below)
    assert gdp_delta(mu, epsilon) == pytest.approx(expected, rel=1e-6, abs=1e-15)
    if epsilon == 0:
        assert gdp_delta(mu, 0) == pytest.approx(2 * norm.cdf(mu / 2) - 1)


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.0, 20.0, 400.0])
def test_mu_and_epsilon_are_inverse_and_keep_the_promise(epsilon: float, delta: float) -> None:
    mu = gdp_mu(epsilon, delta)
    assert (mu * 2**30).is_integer()
    assert gdp_delta(mu, epsilon) <= delta < gdp_delta(mu + 2**-30, epsilon)
    assert gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-8)


def test_the_ends() -> None:
    assert gdp_delta(0, 1) == gdp_epsilon(0, DELTA) == 0
    assert gdp_epsilon(1e-7, DELTA) == 0  # δ alone covers it
    assert gdp_epsilon(100, DELTA) == math.inf
    assert compose([]) == 0
    assert compose([3, 4]) == 5
    assert zcdp_epsilon(0, DELTA, offset=0.25) == 0.25
    assert zcdp_epsilon(0.1, DELTA, offset=0.25) == pytest.approx(0.25 + zcdp_epsilon(0.1, DELTA))


def test_the_defect_of_a_sum_is_the_published_series() -> None:
    series = [
        10 * sum(math.exp(-2 * math.pi**2 * v * k / (k + 1)) for k in range(1, n))
        for v, n in ((1, 2), (1, 50))
    ]
    assert [sum_defect(1, 2), sum_defect(1, 50)] == pytest.approx(series)
    assert sum_defect(16, 1) == 0
    many = 10 * sum(math.exp(-2 * math.pi**2 * k / (k + 1)) for k in range(1, 1000))
    assert many < sum_defect(1, 1000) < 1.3 * many
    assert sum_defect(16, 10_000) < 1e-66


def test_values_outside_their_domain_are_refused() -> None:
    for mu, epsilon in ((-1, 1), (math.nan, 1), (1, -1), (1, 501), (1, math.nan)):
        with pytest.raises(CalibrationError, match="μ is not negative and ε from 0 to 500"):
            gdp_delta(mu, epsilon)
    for delta in (0.0, 1.0, -1.0, math.nan):
        for bound in (gdp_epsilon, gdp_mu, zcdp_epsilon, zcdp_epsilon_classic):
            with pytest.raises(CalibrationError, match="δ is between 0 and 1"):
                bound(1.0, delta)
    with pytest.raises(CalibrationError, match="ρ and what is added"):
        zcdp_epsilon(-1, DELTA)
    with pytest.raises(CalibrationError, match="ρ and what is added"):
        zcdp_epsilon(1, DELTA, offset=-1)
    with pytest.raises(CalibrationError, match="ρ and what is added"):
        zcdp_epsilon_classic(-1, DELTA)
