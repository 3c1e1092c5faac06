"""The accountant, compared with dp-accounting's and OpenDP's values in `oracle.py`'s files."""

import json
import math
from pathlib import Path

import pytest
from scipy.special import log_ndtr  # type: ignore[import-untyped]
from scipy.stats import norm  # type: ignore[import-untyped]

from tests.calibration.privacy.published import sum_defect, zcdp_epsilon
from veilsum.calibration import CalibrationError
from veilsum.calibration.judge_tables import JUDGE_LATTICE, TableShapes
from veilsum.calibration.privacy.accountant import gdp_delta, gdp_epsilon, gdp_mu
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.protocol.study import RECIPES

DELTA = 1e-5
DP_ACCOUNTING, OPENDP = (
    json.loads((Path(__file__).parent / f"{name}_values.json").read_text("utf-8"))
    for name in ("dp_accounting", "opendp")
)


@pytest.mark.parametrize(("sigma", "rounds", "epsilon", "delta"), DP_ACCOUNTING["rows"])
def test_rounds_compose_as_dp_accounting_composes_them(
    sigma: float, rounds: int, epsilon: float, delta: float
) -> None:
    mu = math.hypot(*[1 / sigma] * rounds)
    assert gdp_epsilon(mu, DELTA) == pytest.approx(epsilon, rel=1e-3)
    assert gdp_delta(mu, 1.0) == pytest.approx(delta, rel=1e-3, abs=1e-14)
    assert zcdp_epsilon(mu**2 / 2, DELTA) > epsilon * (1 - 1e-3)


@pytest.mark.parametrize("recipe", [recipe for recipe, steps in RECIPES.items() if len(steps) > 2])
def test_a_chain_costs_what_dp_accounting_says(recipe: str) -> None:
    chain = DP_ACCOUNTING["chains"][recipe]
    shares = [share for share, steps in chain["shares"] for _ in range(steps)]
    assert sorted(shares) == sorted(share for _, share in RECIPES[recipe])
    for mu, epsilon in chain["rows"]:
        spent = math.hypot(*(mu * math.sqrt(share) for share in shares))
        assert gdp_epsilon(spent, DELTA) == pytest.approx(epsilon, rel=1e-3)
        assert gdp_epsilon(mu, DELTA) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize(("mu", "epsilon"), DP_ACCOUNTING["judge"]["rows"])
def test_a_judgement_costs_what_dp_accounting_says(mu: float, epsilon: float) -> None:
    shapes, allowed = TableShapes(3, 10, 5, 8, 1), gdp_mu(epsilon, DP_ACCOUNTING["judge"]["delta"])
    mechanism = Mechanism(shapes.release, 3, allowed, 10, 8, 2, JUDGE_LATTICE)
    assert allowed == pytest.approx(mu, rel=1e-3)
    assert mechanism.epsilon(DP_ACCOUNTING["judge"]["delta"]) == pytest.approx(epsilon, rel=1e-3)
    assert mechanism.mu_round <= allowed


@pytest.mark.parametrize(("rho", "delta", "epsilon"), OPENDP["rows"])
def test_zcdp_converts_as_opendp_converts_it(rho: float, delta: float, epsilon: float) -> None:
    assert zcdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-6)


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
    assert zcdp_epsilon(0.1, DELTA, offset=0.25) == pytest.approx(0.25 + zcdp_epsilon(0.1, DELTA))


def test_the_defect_of_a_sum_is_the_published_series() -> None:
    def series(variance: int, shares: int) -> float:
        return 10 * sum(math.exp(-2 * math.pi**2 * variance * k / (k + 1)) for k in range(1, shares))

    for shares in (2, 50):
        assert sum_defect(1, shares) == pytest.approx(series(1, shares))
    assert sum_defect(16, 1) == 0
    assert series(1, 1000) < sum_defect(1, 1000) < 1.3 * series(1, 1000)
    assert sum_defect(16, 10_000) < 1e-66


def test_values_outside_their_domain_are_refused() -> None:
    for mu, epsilon in ((-1, 1), (math.nan, 1), (1, -1), (1, 501), (1, math.nan)):
        with pytest.raises(CalibrationError, match="ε from 0 to 500"):
            gdp_delta(mu, epsilon)
    for delta in (0.0, 1.0, -1.0, math.nan):
        for bound in (gdp_epsilon, gdp_mu):
            with pytest.raises(CalibrationError, match="δ is between 0 and 1"):
                bound(1.0, delta)
