import math
from itertools import pairwise
from typing import Any

import pytest

from tests.study.specs import NOW_S, RECORDS, noisy
from veilsum.calibration.privacy.accountant import gdp_delta
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.study import RECIPES, Noise
from veilsum.study.promise import check_noise, mechanism_of, promise_noise, study_mu
from veilsum.study.signed import sign_study

FFC = {"kind": "ffc"}


def test_mu_is_the_largest_multiple_of_its_step_within_delta() -> None:
    mu = study_mu(Noise(epsilon=2.0, delta=1e-7, unit="record", recipe="sum"))
    assert (mu * 2**30).is_integer()
    assert gdp_delta(mu, 2.0) <= 1e-7 < gdp_delta(mu + 2**-30, 2.0)


@pytest.mark.parametrize("recipe", ["mean+sum+6-gradients", "mean+sum+16-gradients"])
def test_a_chain_spends_what_the_study_says(recipe: str) -> None:
    specs = [noisy(recipe, step, FFC) for step, _ in RECIPES[recipe]]
    mu = study_mu(specs[0].question.noise)
    said = [each for each in map(promise_noise, specs) if each]
    assert math.hypot(*(each.mu for each in said)) == pytest.approx(mu)
    assert said[0].mu == pytest.approx(mu * math.sqrt(0.05))
    assert said[0].epsilon == said[0].spent_epsilon
    assert all(one.spent_epsilon < other.spent_epsilon for one, other in pairwise(said))
    assert said[-1].spent_epsilon == pytest.approx(said[-1].study_epsilon)
    assert said[0].study_epsilon == pytest.approx(10, abs=1e-6)
    assert mechanism_of(specs[0]).mu_round <= said[0].mu


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"noise": {"epsilon": 1e-12, "delta": 1e-10}}, "positive, finite μ"),
        ({"noise": {"epsilon": 0.05}, "records": {**RECORDS, "rows_per_id": 200}}, "more than can be drawn"),
        ({"noise": {"unit": "member"}}, "more than can be drawn"),
    ],
)
def test_noise_that_fits_no_cohort_is_refused(more: dict[str, Any], said: str) -> None:
    spec = noisy("sum", "sum", FFC, **more)
    with pytest.raises(PeerFault, match=said) as refused:
        check_noise(spec.question, spec.members, spec.survivors_min)
    assert refused.value.cause is Cause.WEAK_PARAMETERS


def test_noise_that_fits_no_cohort_is_not_signed() -> None:
    content = noisy("sum", "sum", FFC, noise={"unit": "member"}).content
    with pytest.raises(Misuse):
        sign_study(content, bytes(32), SigningKey(bytes(32)), NOW_S)
