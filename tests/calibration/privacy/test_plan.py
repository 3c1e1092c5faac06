import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.noisy_recipes import TRIED, Figure, losses
from veilsum.calibration import CalibrationError
from veilsum.calibration.privacy.accountant import gdp_mu
from veilsum.calibration.privacy.plan import LOSSES_BY_RECIPE, MOST_ACCURATE_RECIPE, Outlook, Plan, plan
from veilsum.calibration.privacy.trial import TRIAL_OFF_BY
from veilsum.protocol.study import NOISY_BITS, RECIPES

COHORT: dict[str, Any] = {"members": 12, "survivors_min": 8, "colluders": 3}
ALL: dict[str, Any] = {"members": 12, "survivors_min": 12, "colluders": 0}
FIGURES = Path(__file__).parents[3] / "benchmarks" / "figures" / "noisy_recipes.json"


def planned(
    records: int, dim: int, classes: int, *, recipe: str = "sum", epsilon: float = 1.0, **more: Any
) -> Plan:
    return plan(
        records, dim, classes, recipe=recipe, shares=dict(RECIPES[recipe]), epsilon=epsilon, **COHORT | more
    )


def figures() -> list[Figure]:
    return [Figure.of_json(row) for row in json.loads(FIGURES.read_text("utf-8"))]


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
    made = planned(60_000, 64, 10, recipe=MOST_ACCURATE_RECIPE)
    assert list(made.rounds) == [step for step, _ in RECIPES[MOST_ACCURATE_RECIPE]]
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
    assert {recipe: losses(measured, recipe) for recipe in RECIPES} == LOSSES_BY_RECIPE
    for held_out in (True, False):
        problems = {(each.problem, each.kind): each.kind for each in measured if each.held_out == held_out}
        assert len(problems) >= 12
        assert {"balanced", "1:10", "1:100"} <= {*problems.values()}


def kind_of(figure: Figure) -> str:
    """Return how even the classes are; tables of numbers are a kind of their own."""
    return "table" if figure.problem.startswith("table") else figure.kind


@pytest.mark.parametrize("recipe", RECIPES)
def test_its_interval_holds_for_data_it_was_not_fitted_to(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind, with all tables of a data set left out."""
    measured = figures()
    inside = dict[str, list[bool]]()
    for name in {each.data for each in measured}:
        others = [each for each in measured if each.data != name]
        monkeypatch.setitem(LOSSES_BY_RECIPE, recipe, losses(others, recipe))
        for each in measured:
            if each.data == name:
                made = planned(
                    each.records, each.dim, each.classes, recipe=recipe, epsilon=each.epsilon, largest=each.largest,
                    constant=True, **ALL,
                )  # fmt: skip
                assert made.ratio == pytest.approx(each.ratio)
                _, least, most = made.expected_loss()
                inside.setdefault(kind_of(each), []).append(least <= round(each.lost(recipe), 1) <= most)
    assert sum(map(len, inside.values())) == len(measured)
    for kind, held in inside.items():
        assert sum(held) >= 0.95 * len(held), kind


@pytest.mark.parametrize("recipe", [recipe for recipe, steps in RECIPES.items() if len(steps) > 2])
def test_gradients_are_not_below_the_majority_and_near_tuned_descent(recipe: str) -> None:
    """On held-out problems, up to two of a thousand test records."""
    held_out = [each for each in figures() if each.tuned is not None]
    assert len({(each.problem, each.kind) for each in held_out}) == 24
    for each in held_out:
        assert each.recipes[recipe].accuracy >= each.majority - 0.2
    for epsilon in {each.epsilon for each in held_out}:
        ahead = [
            each.recipes[recipe].accuracy - each.tuned.accuracy
            for each in held_out
            if each.epsilon == epsilon and each.tuned is not None
        ]
        assert np.mean(ahead) >= -0.5


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_study_is_called_good_below_the_majority(recipe: str) -> None:
    for each in figures():
        made = planned(
            each.records,
            each.dim,
            each.classes,
            recipe=recipe,
            epsilon=each.epsilon,
            largest=each.largest,
            constant=True,
            **ALL,
        )
        if made.outlook is Outlook.GOOD:
            assert each.recipes[recipe].accuracy >= each.majority - 0.2, each


@pytest.mark.parametrize("recipe", RECIPES)
def test_trials_on_a_part_of_the_records_are_as_near_as_they_say(recipe: str) -> None:
    tried = [each for each in figures() if each.trial is not None]
    assert len(tried) >= 12
    assert {each.epsilon for each in tried} == set(TRIED)
    inside = dict[str, list[bool]]()
    for each in tried:
        assert each.trial is not None
        off = abs(each.lost(recipe) - each.trial[recipe])
        inside.setdefault(kind_of(each), []).append(off <= TRIAL_OFF_BY)
    for kind, near in inside.items():
        assert sum(near) >= 0.95 * len(near), kind


def test_a_loss_is_good_up_to_4_points_and_weak_up_to_10() -> None:
    verdicts = [Outlook.of_loss(lost) for lost in (4.0, 4.1, 10.0, 10.1)]
    assert verdicts == [Outlook.GOOD, Outlook.WEAK, Outlook.WEAK, Outlook.HOPELESS]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("records", [100, 5_000, 40_000, 10**6])
@pytest.mark.parametrize("largest", [None, 0.93])
def test_an_interval_exceeds_the_table_by_its_margins_and_not_the_headroom(
    recipe: str, records: int, largest: float | None
) -> None:
    made = planned(records, 32, 4, largest=largest, epsilon=0.7)
    share = 1 / 4 if largest is None else largest
    headroom = (1 - share) / (1 - 1 / 4)
    assert made.headroom == pytest.approx(headroom)
    row = [each for each in LOSSES_BY_RECIPE[recipe] if each[0] <= made.ratio][-1]
    median, least, most = (headroom * each for each in row[1:])
    low = max(-100 * (1 - share), least - 5 - abs(least) / 4)
    high = min(100 * (1 - share), most + 5 + abs(most) / 4)
    assert made.expected_loss(recipe) == (round(median, 1), round(low, 1), round(high, 1))


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_estimate_at_an_end_of_the_table_says_at_which(recipe: str) -> None:
    second, last = LOSSES_BY_RECIPE[recipe][1][0], LOSSES_BY_RECIPE[recipe][-1][0]
    for records in (100, 5_000, 20_000, 40_000, 10**6):
        made = planned(records, 32, 4, recipe=recipe, epsilon=0.7)
        expected = "first" if made.ratio < second else "last" if made.ratio >= last else None
        assert made.table_end == expected


def test_a_larger_class_takes_more_records_for_the_same_verdict() -> None:
    even, uneven = (
        planned(1_000, 32, 2, recipe=MOST_ACCURATE_RECIPE, epsilon=0.5, largest=largest)
        for largest in (None, 0.95)
    )
    assert uneven.ratio == pytest.approx(even.ratio / 10)
    assert even.outlook is Outlook.GOOD
    assert uneven.outlook is not Outlook.GOOD
    least, most = uneven.expected_loss()[1:]
    assert -5 <= least < most <= 5
    for largest in (0.4, 1.0):
        with pytest.raises(CalibrationError, match="largest of 2 classes"):
            planned(3_000, 32, 2, largest=largest)


def test_its_advice_names_the_best_recipe_first_and_makes_a_good_study() -> None:
    made = planned(20_000, 64, 10, epsilon=0.5)
    assert made.outlook is not Outlook.GOOD
    assert made.factor > 1
    recipe, records, epsilon, dim, *_ = made.list_remedies()
    assert recipe.startswith(f"the recipe {MOST_ACCURATE_RECIPE}")
    enough = int(records.split()[0].replace(",", ""))
    assert planned(enough, 64, 10, epsilon=0.5).outlook is Outlook.GOOD
    assert planned(enough - 200, 64, 10, epsilon=0.5).outlook is not Outlook.GOOD
    for less, outlooks in ((0, {Outlook.GOOD}), (1, {Outlook.WEAK, Outlook.HOPELESS})):
        assert planned(20_000, 64, 10, epsilon=float(epsilon.split()[-1]) - less / 100).outlook in outlooks
        assert planned(20_000, int(dim.split()[3]) + less, 10, epsilon=0.5).outlook in outlooks
    assert len(planned(enough, 64, 10, epsilon=0.5).list_remedies()) == 1
    assert planned(60_000, 128, 10, recipe=MOST_ACCURATE_RECIPE, epsilon=2.0).list_remedies() == ()


def test_it_advises_a_larger_quorum_only_where_that_helps() -> None:
    made = planned(20_000, 128, 10, members=50, survivors_min=8, colluders=5)
    assert any(re.match(r"n_min − a .*\b4\.1 times", each) for each in made.list_remedies())
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
