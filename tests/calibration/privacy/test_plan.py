import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilsum.calibration import CalibrationError
from veilsum.calibration.privacy import MeanPlan, Mechanism, Outlook, gdp_mu, mean_release, plan
from veilsum.calibration.privacy.plan import _BY_CLASS, _BY_EIGENVALUE, _GAINS

COHORT: dict[str, Any] = {"members": 12, "survivors_min": 8, "colluders": 3}
ALL: dict[str, Any] = {"members": 12, "survivors_min": 12, "colluders": 0}
FIGURES = Path(__file__).parents[3] / "benchmarks" / "figures" / "refined_heads.json"


def test_its_figures_are_those_of_the_mechanism() -> None:
    made = plan(60_000, 256, 10, epsilon=1.0, **COHORT)
    sigma = math.sqrt(2) / gdp_mu(1, 1e-5)
    assert made.mechanism.sigma == pytest.approx(sigma)
    assert made.epsilon == pytest.approx(1, rel=1e-6)
    assert made.excess == pytest.approx(math.sqrt(12 / 5))
    assert made.deviation == pytest.approx(sigma * math.sqrt(12 / 5))
    assert made.eigenvalue_ratio == pytest.approx(60_000 / (256 * made.deviation * math.sqrt(512)))
    assert made.class_ratio == pytest.approx(6_000 / (made.deviation * 16))
    assert made.upload_bytes == math.ceil((256 * 257 // 2 + 2560) * made.ring_bits / 8)
    assert 2 ** (made.ring_bits - 1) > 60_000 * 4**12 + made.mechanism.noise_tail >= 2 ** (made.ring_bits - 2)
    several = plan(10_000, 64, 100, epsilon=1.0, bias=True, rows_per_unit=3, **COHORT)
    assert (several.mechanism.sensitivity, several.dim) == (3 * math.sqrt(5), 65)


def test_the_mean_of_a_noisy_round_is_off_by_what_its_plan_says() -> None:
    made = MeanPlan(Mechanism(mean_release(50), 1, gdp_mu(1.0, 1e-5), **COHORT), 1_000, 1e-5)
    noise = np.random.default_rng(0).standard_normal((200, 50)) * made.deviation
    assert made.error == pytest.approx(np.linalg.norm(noise * math.sqrt(2) / 1_000, axis=1).mean(), rel=0.02)


@pytest.mark.parametrize(("dim", "needed"), [(256, 48_000), (512, 137_000)])
def test_the_rule_of_thumb_for_records_is_where_it_gets_good(dim: int, needed: int) -> None:
    # N ≳ 12·l^1.5 at ε = 1 with no more noise than needed; the tables turn good at 8.5·l^1.5 to 12·l^1.5.
    verdicts = [plan(needed // part, dim, 10, epsilon=1.0, **ALL).outlook for part in (1, 2, 20)]
    assert verdicts[0] is Outlook.GOOD is not verdicts[1]
    assert verdicts[2] is Outlook.HOPELESS
    assert plan(8_000, 128, 10, epsilon=1.0, **ALL).outlook is Outlook.WEAK


def test_its_advice_makes_it_good() -> None:
    made = plan(20_000, 128, 10, epsilon=0.5, **COHORT)
    assert made.outlook is not Outlook.GOOD
    assert made.factor > 1
    records, epsilon, dim, *_ = made.advice()
    enough = int(records.split()[0].replace(",", ""))
    assert plan(enough, 128, 10, epsilon=0.5, **COHORT).outlook is Outlook.GOOD
    assert plan(enough - 200, 128, 10, epsilon=0.5, **COHORT).outlook is not Outlook.GOOD
    assert plan(20_000, 128, 10, epsilon=float(epsilon.split()[-1]), **COHORT).outlook is Outlook.GOOD
    assert plan(20_000, int(dim.split()[3]), 10, epsilon=0.5, **COHORT).outlook is Outlook.GOOD
    assert plan(enough, 128, 10, epsilon=0.5, **COHORT).advice() == ()


@pytest.mark.parametrize(("dim", "classes"), [(512, 2), (128, 20)])  # V's ratio decides, then the classes'
def test_the_dimension_it_advises_is_the_largest_that_helps(dim: int, classes: int) -> None:
    made = plan(20_000, dim, classes, epsilon=1.0, **COHORT)
    [advised] = [int(each.split()[3]) for each in made.advice() if each.startswith("features")]
    assert plan(20_000, advised, classes, epsilon=1.0, **COHORT).outlook is Outlook.GOOD
    assert plan(20_000, advised + 1, classes, epsilon=1.0, **COHORT).outlook is not Outlook.GOOD


def test_it_advises_a_larger_quorum_only_where_that_helps() -> None:
    made = plan(20_000, 128, 10, epsilon=1.0, members=50, survivors_min=8, colluders=5)
    assert any(each.startswith("n_min − a closer to n: the noise is 4.1 times") for each in made.advice())
    hopeless = plan(2_000, 512, 100, epsilon=5.0, **COHORT)
    assert [each.split()[-1] for each in hopeless.advice()] == ["records"]


def test_loss_falls_with_records_and_budget() -> None:
    sizes = (100, 1_000, 10_000, 10**6)
    by_records = [plan(records, 64, 10, epsilon=1.0, **ALL).expected_loss for records in sizes]
    by_epsilon = [plan(5_000, 64, 10, epsilon=epsilon, **ALL).expected_loss for epsilon in (0.1, 1, 10)]
    for losses in (by_records, by_epsilon):
        assert losses == sorted(losses, reverse=True)
        assert all(median <= worst for median, worst in losses)
    for table in (_BY_EIGENVALUE, _BY_CLASS):
        for column in (1, 2):
            falling = [row[column] for row in table]
            assert falling == sorted(falling, reverse=True)


def test_the_gain_of_refinement_is_read_from_the_measured_figures() -> None:
    figures = [row for row in json.loads(FIGURES.read_text("utf-8")) if not row["centred"]]
    start = {(row["problem"], row["epsilon"]): row["accuracy"] for row in figures if row["rounds"] == 0}
    for rounds, table in _GAINS.items():
        bounds = [low for low, _, _ in table]
        for (low, median, worst), high in zip(table, [*bounds[1:], math.inf], strict=True):
            gained = [
                100 * (row["accuracy"] - start[row["problem"], row["epsilon"]])
                for row in figures
                if row["rounds"] == rounds and low <= row["eigenvalue_ratio"] < high
            ]
            assert median == pytest.approx(np.median(gained), abs=0.051)
            assert worst == pytest.approx(min(gained), abs=0.051)
    made = plan(20_000, 64, 10, epsilon=1.0, **COHORT)
    assert made.refinement_gain(1) is None
    for rounds, measured in ((3, 2), (4, 4), (99, 8)):
        row = next(row for row in reversed(_GAINS[measured]) if made.eigenvalue_ratio >= row[0])
        assert made.refinement_gain(rounds) == row[1:]


def test_an_impossible_plan_is_refused() -> None:
    for records, epsilon, delta in (
        (0, 1.0, 1e-5),
        (10, 0.0, 1e-5),
        (10, math.nan, 1e-5),
        (10, 1e-3, 1e-5),
        (10, 1.0, 1.0),
    ):
        with pytest.raises(CalibrationError):
            plan(records, 64, 10, epsilon=epsilon, delta=delta, **COHORT)
