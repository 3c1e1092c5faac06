"""Trial runs, with noise that is known."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.calibration.records import clouds, ffc
from veilsum.calibration import solve_ffc
from veilsum.calibration.privacy.noisy_sums import Descent, NoisyGradient, solve_noisy
from veilsum.calibration.privacy.plan import MOST_ACCURATE_RECIPE, Outlook
from veilsum.calibration.privacy.trial import (
    Trial,
    clip_gradient,
    find_noisy_mean,
    noisy_head,
    noisy_sums,
    try_recipe,
)
from veilsum.protocol.study import RECIPES

ONES: Any = SimpleNamespace(standard_normal=lambda shape=(): np.ones(shape))
"""Draws noise of one deviation everywhere."""


@pytest.mark.parametrize(("classes", "weight"), [(3, 1), (30, 2)])
def test_sums_have_the_noise_of_a_mechanism(classes: int, weight: int) -> None:
    rows, labels = clouds(40, 4, 3)
    found, deviation = noisy_sums(rows, labels, classes, 0.3, ONES), math.sqrt(1 + weight**2) / 0.3
    noise = deviation * (math.sqrt(0.5) + (1 - math.sqrt(0.5)) * np.eye(4))
    np.testing.assert_allclose(found.V, rows.T @ rows + noise)
    np.testing.assert_allclose(found.U, rows.T @ np.eye(classes)[labels] + deviation / weight)
    assert (found.deviation, found.column_deviation) == (deviation, deviation / weight)
    assert (found.constant, found.ridge) == (True, None)


def test_a_mean_has_the_noise_of_its_step_and_is_no_longer_than_a_row() -> None:
    rows, _ = clouds(40, 4, 3)
    sums, root = rows.sum(axis=0), math.sqrt(0.5)
    np.testing.assert_allclose(find_noisy_mean(rows, 5.0, ONES), (sums * root + 0.2) / (40 * root + 0.2))
    np.testing.assert_allclose(find_noisy_mean(rows[:0], 5.0, ONES), [0.2] * 4)
    np.testing.assert_allclose(find_noisy_mean(rows[:0], 0.01, ONES), [0.5] * 4)


def test_a_gradient_is_the_sum_of_rows_times_clipped_residuals() -> None:
    rows, labels = clouds(40, 4, 3)
    weights = 3 * np.random.default_rng(0).standard_normal((4, 3))
    expected = np.zeros((4, 3))
    for row, label in zip(rows, labels, strict=True):
        odds = np.exp(row @ weights)
        residual = odds / odds.sum() - np.eye(3)[label]
        expected += np.outer(row, residual / max(0.25, np.linalg.norm(residual)))
    np.testing.assert_allclose(clip_gradient(rows, labels, weights), expected)


def test_four_fifths_are_fitted_with_their_share_of_the_noise_and_the_others_judge() -> None:
    rows, labels = clouds(203, 6, 3, noise=2.0)
    order = np.random.default_rng(0).permutation(203)
    judging = np.arange(203) % 5 == 0
    fitted, judged = order[~judging], order[judging]
    shares = dict(RECIPES["mean+sum"])
    found = try_recipe(rows, labels, 3, shares, 40.0, draws=2)
    exact = solve_ffc(ffc(rows[fitted], labels[fitted], 3, constant=True)).predict(rows[judged])
    heads = [
        noisy_head(rows[fitted], labels[fitted], 3, shares, 50.0, np.random.default_rng(seed))
        for seed in (0, 1)
    ]
    hits = np.array([head.predict(rows[judged], normalise=True) == labels[judged] for head in heads])
    assert found.exact == pytest.approx(100 * (exact == labels[judged]).mean())
    assert found.noisy == pytest.approx(100 * hits.mean())
    assert found.majority == pytest.approx(100 * np.bincount(labels[judged]).max() / 41)
    recalls = [hits[:, labels[judged] == label].mean() for label in range(3)]
    assert found.balanced == pytest.approx(100 * np.mean(recalls))
    assert found.lost == found.exact - found.noisy


def test_the_head_of_a_sum_is_solved_from_rows_with_a_constant() -> None:
    rows, labels = clouds(60, 4, 3)
    with_constant = np.column_stack([3 * rows, np.ones(60)]) / math.sqrt(10)
    sums = noisy_sums(with_constant, labels, 3, 2 * math.sqrt(0.36), ONES)
    expected: Any = solve_noisy(sums.V, sums.U, sums.deviation, constant=True)
    head: Any = noisy_head(rows, labels, 3, {"sum": 0.36}, 2.0, ONES)
    np.testing.assert_allclose(head.weights, expected.weights)
    np.testing.assert_allclose(head.bias, expected.bias)
    centred: Any = noisy_head(rows, labels, 3, {"mean": 0.04, "sum": 0.96}, 2.0, ONES)
    np.testing.assert_allclose(centred.centre, find_noisy_mean(rows, 0.4, ONES))


def test_gradient_steps_follow_a_sum() -> None:
    rows, labels = clouds(60, 4, 3)
    with_constant = np.column_stack([3 * rows, np.ones(60)]) / math.sqrt(10)
    descent = Descent.from_sums(noisy_sums(with_constant, labels, 3, 2 * math.sqrt(0.4), ONES))
    white = with_constant @ descent.whitening
    white /= np.linalg.norm(white, axis=1, keepdims=True)
    shares = {"sum": 0.4, "first": 0.25, "second": 0.35}
    for step, name in ((1, "first"), (2, "second")):
        deviation = 1 / (2 * math.sqrt(shares[name]))
        gradient = clip_gradient(white, labels, descent.weights) + deviation
        descent = descent.take_step(NoisyGradient(gradient, deviation), step, 2)
    expected: Any = descent.make_head(constant=True)
    head: Any = noisy_head(rows, labels, 3, shares, 2.0, ONES)
    np.testing.assert_allclose(head.weights, expected.weights)
    np.testing.assert_allclose(head.bias, expected.bias)


def test_a_trial_that_is_right_no_more_often_than_one_answer_is_hopeless() -> None:
    assert Trial(96.0, 95.5, 91.0, 80.0).judge_loss(0.2) is Outlook.GOOD
    assert Trial(91.5, 91.0, 91.0, 50.0).judge_loss(0.2) is Outlook.HOPELESS
    assert (
        Trial(96.0, 93.0, 91.0, 60.0).judge_loss(0.2) is Outlook.HOPELESS
    )  # 3 points, of 9 above the majority


def test_a_trial_tells_what_noise_costs() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, 2_000)
    rows = 0.4 * rng.standard_normal((2_000, 16)) + np.eye(4, 16)[labels] + 1
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    lost = {
        mu: [
            try_recipe(rows, labels, 4, dict(RECIPES[recipe]), mu).lost
            for recipe in ("sum", MOST_ACCURATE_RECIPE)
        ]
        for mu in (0.02, 50.0)
    }
    assert abs(lost[50.0][1]) < 2
    assert lost[0.02][0] > 20
    assert lost[0.02][1] < lost[0.02][0]
