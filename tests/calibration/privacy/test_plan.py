import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.noisy_checks import Check
from benchmarks.noisy_recipes import COLUMNS, TRIED, Figure, losses
from veilsum.calibration import CalibrationError
from veilsum.calibration.privacy.accountant import gdp_mu
from veilsum.calibration.privacy.plan import LOSSES_BY_RECIPE, Outlook, Plan, plan
from veilsum.calibration.privacy.trial import TRIAL_OFF_BY, points_lost
from veilsum.protocol.study import NOISY_BITS, RECIPES

COHORT: dict[str, Any] = {"members": 12, "survivors_min": 8, "colluders": 3}
ALL: dict[str, Any] = {"members": 12, "survivors_min": 12, "colluders": 0}
FIGURES = Path(__file__).parents[3] / "benchmarks" / "figures" / "noisy_recipes.json"
CHECKS = FIGURES.with_name("noisy_checks.json")
BEST = "mean+sum+gradients"


def planned(
    records: int, dim: int, classes: int, *, recipe: str = "sum", epsilon: float = 1.0, **more: Any
) -> Plan:
    return plan(
        records, dim, classes, recipe=recipe, shares=dict(RECIPES[recipe]), epsilon=epsilon, **COHORT | more
    )


def figures() -> list[Figure]:
    return [Figure(**row) for row in json.loads(FIGURES.read_text("utf-8"))]


def test_its_figures_are_those_of_the_mechanism() -> None:
    made = planned(60_000, 256, 10)
    sigma = math.sqrt(2) / gdp_mu(1, 1e-5)
    assert made.sums.mechanism.sigma == pytest.approx(sigma)
    assert made.sums.epsilon == pytest.approx(1, rel=1e-6)
    assert made.sums.excess == pytest.approx(math.sqrt(12 / 5))
    assert made.sums.deviation == pytest.approx(sigma * math.sqrt(12 / 5))
    assert made.ratio == pytest.approx(60_000 * gdp_mu(1, 1e-5) / math.sqrt(12 / 5) / 2560)
    assert made.sums.elements == 256 * 257 // 2 + 2560
    assert 60_000 * 4**12 + made.sums.mechanism.noise_tail < 2 ** (NOISY_BITS - 1)
    several = planned(10_000, 64, 100, constant=True, rows_per_unit=3)
    assert (several.sums.mechanism.sensitivity, several.dim) == (3 * math.sqrt(5), 65)
    assert planned(10_000, 64, 100).mean_error is None


def test_every_step_of_a_chain_is_planned() -> None:
    made = planned(60_000, 64, 10, recipe=BEST)
    assert list(made.rounds) == [step for step, _ in RECIPES[BEST]]
    spent = math.sqrt(sum(each.mechanism.mu**2 for each in made.rounds.values()))
    assert spent == pytest.approx(made.mu) == pytest.approx(gdp_mu(1.0, 1e-5))


def test_the_mean_of_a_noisy_round_is_off_by_what_its_plan_says() -> None:
    made = planned(1_000, 50, 10, recipe="mean+sum", epsilon=4.0)
    noise = np.random.default_rng(0).standard_normal((200, 50)) * made.rounds["mean"].deviation
    assert made.mean_error == pytest.approx(
        np.linalg.norm(noise * math.sqrt(2) / 1_000, axis=1).mean(), rel=0.02
    )


def test_the_tables_are_the_measured_figures() -> None:
    measured = figures()
    assert {recipe: losses(measured, recipe) for recipe in COLUMNS} == LOSSES_BY_RECIPE
    assert len({(each.problem, each.epsilon) for each in measured}) >= 12
    assert len({each.kind for each in measured}) == 3


@pytest.mark.parametrize("recipe", RECIPES)
def test_its_interval_holds_for_data_it_was_not_fitted_to(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = figures()
    inside = []
    for name in {each.data for each in measured}:
        monkeypatch.setitem(
            LOSSES_BY_RECIPE, recipe, losses([each for each in measured if each.data != name], recipe)
        )
        for each in measured:
            if each.data == name:
                made = planned(
                    each.records, each.dim, each.classes, recipe=recipe, epsilon=each.epsilon, **ALL
                )
                _, least, most = made.expected_loss()
                inside.append(least <= each.exact - getattr(each, COLUMNS[recipe]) <= most)
    assert len(inside) == len(measured)
    assert sum(inside) >= 0.95 * len(inside)


@pytest.mark.parametrize("recipe", RECIPES)
def test_its_interval_holds_in_other_settings(recipe: str) -> None:
    checks = [Check(**row) for row in json.loads(CHECKS.read_text("utf-8"))]
    assert len(checks) >= 12
    assert {each.kind for each in checks} == {each.kind for each in figures()}
    inside = []
    for each in checks:
        made = planned(each.records, each.dim, each.classes, recipe=recipe, epsilon=each.epsilon, **ALL)
        _, least, most = made.expected_loss()
        inside.append(least <= each.exact - getattr(each, COLUMNS[recipe]) <= most)
    assert sum(inside) >= 0.95 * len(inside)


@pytest.mark.parametrize("place", range(len(COLUMNS)))
def test_trials_on_a_part_of_the_records_are_as_near_as_they_say(place: int) -> None:
    column = list(COLUMNS.values())[place]
    tried = [each for each in figures() if each.trial is not None]
    assert len(tried) >= 12
    assert {each.epsilon for each in tried} == set(TRIED)
    off = [abs(each.exact - getattr(each, column) - each.trial[place]) for each in tried if each.trial]
    assert sum(each <= TRIAL_OFF_BY for each in off) >= 0.95 * len(off)


def test_its_advice_names_the_best_recipe_first_and_makes_a_good_study() -> None:
    made = planned(20_000, 64, 10, epsilon=0.5)
    assert made.outlook is not Outlook.GOOD
    assert made.factor > 1
    recipe, records, epsilon, dim, *_ = made.list_remedies()
    assert recipe.startswith(f"the recipe {BEST}")
    enough = int(records.split()[0].replace(",", ""))
    assert planned(enough, 64, 10, epsilon=0.5).outlook is Outlook.GOOD
    assert planned(enough - 200, 64, 10, epsilon=0.5).outlook is not Outlook.GOOD
    assert planned(20_000, 64, 10, epsilon=float(epsilon.split()[-1])).outlook is Outlook.GOOD
    assert planned(20_000, int(dim.split()[3]), 10, epsilon=0.5).outlook is Outlook.GOOD
    assert len(planned(enough, 64, 10, epsilon=0.5).list_remedies()) == 1
    assert planned(60_000, 128, 10, recipe=BEST, epsilon=2.0).list_remedies() == ()


def test_it_advises_a_larger_quorum_only_where_that_helps() -> None:
    made = planned(20_000, 128, 10, members=50, survivors_min=8, colluders=5)
    assert any(
        each.startswith("n_min − a closer to n: the noise is 4.1 times") for each in made.list_remedies()
    )
    hopeless = planned(300, 512, 100, epsilon=5.0)
    assert [each.split()[-1] for each in hopeless.list_remedies()[1:]] == ["records"]


def test_loss_falls_with_records_and_budget() -> None:
    for recipe in RECIPES:
        by_records = [
            planned(records, 64, 10, recipe=recipe).expected_loss() for records in (100, 10_000, 10**6)
        ]
        assert by_records == sorted(by_records, reverse=True)
        for column in (1, 2, 3):
            falling = [row[column] for row in LOSSES_BY_RECIPE[recipe]]
            assert falling == sorted(falling, reverse=True)
        assert all(least <= median <= most for _, median, least, most in LOSSES_BY_RECIPE[recipe])


def test_a_trial_tells_what_noise_costs() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, 2_000)
    rows = 0.4 * rng.standard_normal((2_000, 16)) + np.eye(4, 16)[labels] + 1
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    lost = {
        mu: [points_lost(rows, labels, 4, dict(RECIPES[recipe]), mu) for recipe in ("sum", BEST)]
        for mu in (0.02, 50.0)
    }
    assert abs(lost[50.0][1]) < 2
    assert lost[0.02][0] > 20
    assert lost[0.02][1] < lost[0.02][0]


def test_an_impossible_plan_is_refused() -> None:
    for records, epsilon, delta in (
        (0, 1.0, 1e-5),
        (10, 0.0, 1e-5),
        (10, math.nan, 1e-5),
        (10, 1e-3, 1e-5),
        (10, 1.0, 1.0),
    ):
        with pytest.raises(CalibrationError):
            planned(records, 64, 10, epsilon=epsilon, delta=delta)
