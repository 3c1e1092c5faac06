from __future__ import annotations

import math
from typing import Any

import pytest

from calibration import CalibrationError
from calibration.privacy import Verdict, gdp_mu, plan
from calibration.privacy.plan import _BY_CLASS, _BY_EIGENVALUE

COHORT: dict[str, Any] = {"members": 12, "survivors_min": 8, "colluders": 3}
ALL: dict[str, Any] = {"members": 12, "survivors_min": 12, "colluders": 0}


def test_its_figures_are_those_of_the_mechanism() -> None:
    made = plan(60_000, 256, 10, epsilon=1.0, **COHORT)
    sigma = math.sqrt(2) / gdp_mu(1, 1e-5)
    assert made.mechanism.sigma == pytest.approx(sigma)
    assert made.mechanism.epsilon(1e-5) == pytest.approx(1, rel=1e-6)
    assert made.excess == pytest.approx(math.sqrt(12 / 5))
    assert made.deviation == pytest.approx(sigma * math.sqrt(12 / 5))
    assert made.eigenvalue_ratio == pytest.approx(60_000 / (256 * made.deviation * math.sqrt(512)))
    assert made.class_ratio == pytest.approx(6_000 / (made.deviation * 16))
    assert made.dim == 256
    assert made.upload_bytes == math.ceil((256 * 257 // 2 + 2560) * made.ring_bits / 8)
    assert 2 ** (made.ring_bits - 1) > 60_000 * 4**12 + made.mechanism.noise_tail >= 2 ** (made.ring_bits - 2)


@pytest.mark.parametrize(("dim", "needed"), [(256, 48_000), (512, 137_000)])
def test_the_rule_of_thumb_for_records_is_where_it_gets_good(dim: int, needed: int) -> None:
    # N ≳ 12·l^1.5 at ε = 1 with no more noise than needed; the tables turn good at 8.5·l^1.5 to 12·l^1.5.
    assert plan(needed, dim, 10, epsilon=1.0, **ALL).verdict is Verdict.GOOD
    assert plan(needed // 2, dim, 10, epsilon=1.0, **ALL).verdict is not Verdict.GOOD
    assert plan(needed // 20, dim, 10, epsilon=1.0, **ALL).verdict is Verdict.HOPELESS


def test_what_it_advises_makes_it_good() -> None:
    made = plan(20_000, 128, 10, epsilon=0.5, **COHORT)
    assert made.verdict is not Verdict.GOOD
    assert made.factor > 1
    records, epsilon, dim, *_ = made.advice()
    enough = int(records.split()[0].replace(",", ""))
    assert plan(enough, 128, 10, epsilon=0.5, **COHORT).verdict is Verdict.GOOD
    assert plan(enough - 200, 128, 10, epsilon=0.5, **COHORT).verdict is not Verdict.GOOD
    assert plan(20_000, 128, 10, epsilon=float(epsilon.split()[-1]), **COHORT).verdict is Verdict.GOOD
    smaller = int(dim.split()[3])
    assert smaller < 128
    assert plan(20_000, smaller, 10, epsilon=0.5, **COHORT).verdict is Verdict.GOOD
    assert plan(enough, 128, 10, epsilon=0.5, **COHORT).advice() == ()


@pytest.mark.parametrize(("dim", "classes"), [(512, 2), (128, 20)])  # V's ratio decides, then the classes'
def test_the_dimension_it_advises_is_the_largest_that_does(dim: int, classes: int) -> None:
    made = plan(20_000, dim, classes, epsilon=1.0, **COHORT)
    [advised] = [int(said.split()[3]) for said in made.advice() if said.startswith("features")]
    assert plan(20_000, advised, classes, epsilon=1.0, **COHORT).verdict is Verdict.GOOD
    assert plan(20_000, advised + 1, classes, epsilon=1.0, **COHORT).verdict is not Verdict.GOOD


def test_advice_names_shares_where_they_would_help() -> None:
    wasteful: dict[str, Any] = {"members": 50, "survivors_min": 8, "colluders": 5}
    made = plan(20_000, 128, 10, epsilon=1.0, **wasteful)
    assert any(said.startswith("n_min − a closer to n: the noise is 4.1 times") for said in made.advice())
    hopeless = plan(2_000, 512, 100, epsilon=5.0, **COHORT)
    assert hopeless.verdict is Verdict.HOPELESS
    assert [said.split()[-1] for said in hopeless.advice()] == ["records"]


def test_weak_lies_between() -> None:
    verdicts = [plan(records, 128, 10, epsilon=1.0, **ALL).verdict for records in (500, 8_000, 50_000)]
    assert verdicts == [Verdict.HOPELESS, Verdict.WEAK, Verdict.GOOD]


def test_loss_falls_with_records_and_budget() -> None:
    by_records = [
        plan(records, 64, 10, epsilon=1.0, **ALL).expected_loss for records in (100, 1_000, 10_000, 10**6)
    ]
    by_epsilon = [plan(5_000, 64, 10, epsilon=epsilon, **ALL).expected_loss for epsilon in (0.1, 1, 10)]
    for losses in (by_records, by_epsilon):
        assert losses == sorted(losses, reverse=True)
        assert all(median <= worst for median, worst in losses)
    for table in (_BY_EIGENVALUE, _BY_CLASS):
        assert [list(column) for column in zip(*table, strict=True)][1:] == [
            sorted((row[column] for row in table), reverse=True) for column in (1, 2)
        ]


def test_several_rows_of_a_unit_and_many_classes_move_the_sensitivity() -> None:
    assert plan(10_000, 64, 10, epsilon=1.0, **COHORT).mechanism.sensitivity == math.sqrt(2)
    several = plan(10_000, 64, 100, epsilon=1.0, rows_per_unit=3, **COHORT)
    assert several.mechanism.sensitivity == 3 * math.sqrt(5)
    assert plan(10_000, 64, 10, epsilon=1.0, bias=True, **COHORT).dim == 65


def test_what_cannot_be_planned_is_refused() -> None:
    for records, epsilon in ((0, 1.0), (10, 0.0), (10, math.nan)):
        with pytest.raises(CalibrationError, match="at least a record and a positive ε"):
            plan(records, 64, 10, epsilon=epsilon, **COHORT)
    with pytest.raises(CalibrationError, match="more than can be drawn"):
        plan(10_000, 64, 10, epsilon=1e-3, **COHORT)
    with pytest.raises(CalibrationError, match="δ is between 0 and 1"):
        plan(10, 64, 10, epsilon=1.0, delta=1.0, **COHORT)
