"""Gradient descent under noise: its gradients, its steps and the final head."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from veilsum.calibration import Head
from veilsum.calibration.head import log_softmax
from veilsum.calibration.lattice import FeaturesLattice
from veilsum.calibration.privacy.integer_sums import GradientSums
from veilsum.calibration.privacy.noisy_sums import Descent, NoisyGradient, NoisySums, whiten_rows
from veilsum.calibration.privacy.release import gradient_release
from veilsum.calibration.rows import with_constant

RNG = np.random.default_rng(0)
STEPS = 16


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def summed(rows: Any, labels: Any, weights: Any) -> Any:
    sums = GradientSums(gradient_release(*weights.shape), weights)
    for start in range(0, len(rows), 50):
        sums.update(rows[start : start + 50], labels[start : start + 50])
    return FeaturesLattice().decode(sums.flat, 2).reshape(weights.shape)


def test_short_residuals_give_four_times_the_gradient_of_the_loss() -> None:
    labels = RNG.integers(0, 4, 120)
    rows = unit(0.05 * RNG.normal(size=(120, 6)) + np.eye(4, 6)[labels])
    weights = 6 * np.eye(6, 4) + RNG.normal(size=(6, 4)) / 10

    def loss(moved: Any) -> float:
        return -float(log_softmax(rows @ moved)[np.arange(120), labels].sum())

    probabilities = np.exp(log_softmax(rows @ weights))
    assert np.linalg.norm(probabilities - np.eye(4)[labels], axis=1).max() < 0.25
    gradient = summed(rows, labels, weights) / 4
    for at in ((0, 0), (5, 3)):
        step = np.zeros((6, 4))
        step[at] = 1e-5
        slope = (loss(weights + step) - loss(weights - step)) / 2e-5
        assert slope == pytest.approx(gradient[at], abs=0.05)


def test_a_long_residual_is_cut() -> None:
    weights = np.array([[40.0, 0.0]])
    found = summed(np.ones((1, 1)), np.ones(1, int), weights)  # r = (1, −1)
    assert found == pytest.approx(math.sqrt(0.5) * np.array([[1.0, -1.0]]), abs=1e-3)


def noisy(rows: Any, labels: Any, deviation: float, *, constant: bool) -> NoisySums:
    return NoisySums(
        rows.T @ rows, rows.T @ np.eye(labels.max() + 1)[labels], deviation, deviation, constant, None
    )


@pytest.mark.parametrize("constant", [False, True])
def test_without_noise_it_beats_the_head_that_it_starts_from(*, constant: bool) -> None:
    digits = load_digits()
    rows, labels = unit(digits.data - digits.data[:900].mean(axis=0)), digits.target
    full = with_constant(rows) if constant else rows
    sums = noisy(full[:900], labels[:900], 1e-3, constant=constant)
    descent = Descent.from_sums(sums)
    start = descent.make_head(constant=constant)
    assert start.weights == pytest.approx(sums.solution.weights * math.log(81))
    white = whiten_rows(full, descent.whitening)
    losses = []
    for step in range(1, STEPS + 1):
        scores = log_softmax(white[:900] @ descent.weights)
        losses.append(-scores[np.arange(900), labels[:900]].mean())
        gradient = NoisyGradient(summed(white[:900], labels[:900], descent.weights), 1e-3)
        descent = descent.take_step(gradient, step, STEPS)
    assert losses[-1] < losses[0] / 2
    head = descent.make_head(constant=constant)
    before, after = ((each.predict(rows[900:]) == labels[900:]).mean() for each in (start, head))
    assert after > before
    # A row's scores are those of the whitened row, times its length.
    np.testing.assert_array_equal(head.predict(rows), (white @ descent.weights).argmax(axis=1))


def test_whitened_rows_keep_their_mean_square_length_and_have_it_alike_in_all_directions() -> None:
    rows = unit(RNG.normal(size=(500, 8)) * np.arange(1, 9))
    descent = Descent.from_sums(noisy(rows, RNG.integers(0, 3, 500), 1e-6, constant=False))
    assert ((rows @ descent.whitening) ** 2).sum(axis=1).mean() == pytest.approx(1)
    values = np.linalg.eigvalsh((rows @ descent.whitening).T @ (rows @ descent.whitening))
    assert values.max() / values.min() == pytest.approx(1, abs=1e-5)
    assert descent.rate == 600 / 500


def test_steps_by_hand() -> None:
    descent = Descent(np.eye(2), np.ones((2, 2)), 0.5)
    gradient = np.array([[1.0, 0.0], [0.0, -1.0]])
    quiet = [descent.take_step(NoisyGradient(gradient, 1e-9), step, 4).weights for step in (1, 4)]
    assert quiet[0] == pytest.approx(np.ones((2, 2)) - 0.5 * gradient)
    assert quiet[1] == pytest.approx(np.ones((2, 2)) - 0.25 * gradient)  # √(1/4) of the first
    # The squares 1, ¾, ½ and ¼ add up to 2.5: all steps leave noise of deviation 1.2.
    loud = descent.take_step(NoisyGradient(gradient, 10.0), 4, 4)
    assert loud.weights == pytest.approx(np.ones((2, 2)) - 0.5 * 1.2 / (math.sqrt(2.5) * 10) * gradient)
    assert (loud.rate, loud.whitening is descent.whitening) == (0.5, True)


def test_drowned_sums_start_a_descent_all_the_same() -> None:
    descent = Descent.from_sums(NoisySums(-np.eye(3), np.ones((3, 2)), 1.0, 1.0, False, None))
    assert np.isfinite(descent.whitening).all()
    assert np.isfinite(descent.weights).all()
    assert descent.rate == 600
    given = Descent.from_sums(NoisySums(np.zeros((3, 3)), np.ones((3, 2)), 1e-9, 1.0, False, 0.0))
    assert np.isfinite(given.weights).all()


def test_a_whitened_row_follows_from_that_row_alone() -> None:
    rows, whitening = RNG.normal(size=(301, 40)), RNG.normal(size=(40, 40))
    rows[7] = 0
    whole = whiten_rows(rows, whitening)
    for each in (0, 7, 300):
        np.testing.assert_array_equal(whiten_rows(rows[each : each + 1], whitening)[0], whole[each])
    assert whole[7].tolist() == [1.0, *[0.0] * 39]
    assert whole[0] == pytest.approx(unit((whitening @ rows[0])[None])[0], abs=1e-5)
    assert isinstance(Descent(np.eye(2), np.ones((2, 2)), 1.0).make_head(constant=False), Head)
