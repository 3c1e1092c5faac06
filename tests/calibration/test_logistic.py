"""Logistic heads: fits on features, and steps along summed gradients."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tests.calibration.records import clouds, unit
from veilsum.calibration import CalibrationError, FeaturesLattice, Head, fit_logistic, fit_logistic_sgd
from veilsum.calibration.logistic import _cross_entropy, logistic_start, stepped
from veilsum.calibration.privacy import GradientSums, gradient_release


def test_the_minimum_is_scikit_learn_s() -> None:
    rows, labels = clouds(400, 8, 4, noise=2.0)
    theirs = LogisticRegression(C=1 / (400 * 1e-3), tol=1e-10, max_iter=10_000).fit(rows, labels)
    ours = fit_logistic(rows, labels, 4, penalty=1e-3, tolerance=1e-9)
    np.testing.assert_allclose(ours[:-1].T, theirs.coef_, atol=1e-5)
    intercept = theirs.intercept_ - theirs.intercept_.mean()
    np.testing.assert_allclose(ours[-1] - ours[-1].mean(), intercept, atol=1e-5)


def test_the_fit_s_gradient_is_that_of_the_loss() -> None:
    rows, labels = clouds(30, 4, 3)
    parameters = np.random.default_rng(0).standard_normal((5, 3))
    _, gradient = _cross_entropy(rows, labels, parameters)
    for index in np.ndindex(5, 3):
        step = np.zeros((5, 3))
        step[index] = 1e-6
        ahead, behind = (_cross_entropy(rows, labels, parameters + sign * step)[0] for sign in (1, -1))
        assert gradient[index] == pytest.approx((ahead - behind) / 2e-6, abs=1e-8)


def test_it_stops_after_the_steps_and_where_rounding_hides_any_descent() -> None:
    rows, labels = clouds(50, 4, 2)
    assert not fit_logistic(rows, labels, 2, steps=0).any()
    rough = fit_logistic(rows, labels, 2, tolerance=0.0, penalty=1.0)
    np.testing.assert_allclose(rough, fit_logistic(rows, labels, 2, penalty=1.0, tolerance=1e-8), atol=1e-7)
    for records, penalty in ((0, 1.0), (1, 0.0)):
        with pytest.raises(CalibrationError):
            fit_logistic(np.ones((records, 2)), np.zeros(records, np.int64), 2, penalty=penalty)


def test_sgd_is_its_update_rule() -> None:
    rows, labels = clouds(10, 3, 2)
    rng, start = np.random.default_rng(0), np.ones((4, 2))
    ours = fit_logistic_sgd(rows, labels, 2, rng, start=start, epochs=2, batch=10, rate=0.5)
    parameters, velocity = start, np.zeros((4, 2))
    for _ in range(2):
        velocity = 0.9 * velocity + _cross_entropy(rows, labels, parameters)[1] + 1e-5 * parameters
        parameters = parameters - 0.5 * velocity
    np.testing.assert_allclose(ours, parameters, atol=1e-12)
    assert (start == 1).all()
    near = fit_logistic_sgd(rows, labels, 2, np.random.default_rng(0), epochs=300, batch=4, rate=0.5)
    assert ((rows @ near[:-1] + near[-1]).argmax(axis=1) == labels).all()


RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, 120)
ROWS = unit(RNG.normal(size=(120, 6)) + 2 * np.eye(4, 6)[LABELS])
BIAS = RNG.normal(size=4)
HEAD = Head(3 * RNG.normal(size=(6, 4)), BIAS, ())


def summed(head: Head) -> Any:
    """G, (l, C)."""
    sums = GradientSums(
        gradient_release(head.dim + (head.bias is not None), head.classes), head.weights, head.bias
    )
    for start in range(0, len(ROWS), 50):
        sums.update(ROWS[start : start + 50], LABELS[start : start + 50])
    return FeaturesLattice().decode(sums.flat, 2).reshape(-1, head.classes)


def test_the_summed_gradient_is_that_of_the_loss() -> None:
    def loss(head: Head) -> float:
        return -float(np.log(head.probabilities(ROWS)[np.arange(120), LABELS]).sum())

    gentle = Head(0.1 * HEAD.weights, 0.1 * BIAS, ())  # no residual is longer than 1
    gradient, small = summed(gentle), 1e-5
    for row, column in ((0, 0), (5, 3)):
        moved = gentle.weights.copy()
        moved[row, column] += small * math.sqrt(0.5)  # V and W are of (z, 1)/√2
        slope = (loss(Head(moved, gentle.bias, ())) - loss(gentle)) / small
        assert slope == pytest.approx(gradient[row, column], abs=5e-2)


def test_steps_never_raise_the_loss_and_end_where_gradients_vanish() -> None:
    head: Head = logistic_start(Head(ROWS.T @ np.eye(4)[LABELS] / 60, None, ()))
    inverse, losses = np.asarray(np.linalg.inv(ROWS.T @ ROWS), np.float64), []
    for _ in range(300):
        gradient = summed(head)
        losses.append(-np.log(head.probabilities(ROWS)[np.arange(120), LABELS]).mean())
        head = stepped(head, gradient, inverse)
    assert losses[-1] < losses[0]
    assert np.linalg.norm(gradient) < 0.2
    assert all(later <= earlier + 1e-3 for earlier, later in pairwise(losses))


def test_the_start_and_a_step_by_hand() -> None:
    ideal = logistic_start(Head(np.eye(5), None, ()))
    np.testing.assert_allclose(ideal.probabilities(np.eye(5)).diagonal(), 0.9)
    assert logistic_start(Head(np.ones((3, 1)), np.ones(1), ())).bias == pytest.approx(math.log(9))
    head = Head(HEAD.weights, HEAD.bias, (), centre=ROWS.mean(axis=0))
    moved = stepped(head, np.ones((7, 4)), np.eye(7))
    assert moved.centre is head.centre
    assert moved.bias is not None
    np.testing.assert_allclose(moved.weights, HEAD.weights - math.sqrt(2))
    np.testing.assert_allclose(moved.bias, BIAS - math.sqrt(2))
