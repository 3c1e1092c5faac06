"""Clipped gradients of a logistic head: what they add up to, how far one record moves them, where their steps lead."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from calibration import FeaturesLattice, Head
from calibration.gradient import logistic_start, stepped
from calibration.moments import GradientSums
from calibration.privacy import gradient_release

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, 120)
ROWS = RNG.normal(size=(120, 6)) + 2 * np.eye(4, 6)[LABELS]
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
BIAS = RNG.normal(size=4)
HEAD = Head(3 * RNG.normal(size=(6, 4)), BIAS, ())
LATTICE = FeaturesLattice()


def summed(head: Head, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """G, (l, C)."""
    release = gradient_release(head.dim + (head.bias is not None), head.classes)
    sums = GradientSums(release, head.weights, head.bias)
    for start in range(0, len(rows), 50):
        sums.update(rows[start : start + 50], labels[start : start + 50])
    return LATTICE.decode(sums.flat, 2).reshape(-1, head.classes)


def plain(head: Head, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """One record after the other, by the book."""
    total = np.zeros((rows.shape[1] + (head.bias is not None), head.classes))
    for z, y in zip(rows, labels, strict=True):
        scores = z @ head.weights + (0 if head.bias is None else head.bias)
        p = np.exp(scores) / np.exp(scores).sum()
        full = z if head.bias is None else np.append(z, 1) / math.sqrt(2)
        gradient = np.outer(full, p - np.eye(head.classes)[y])
        total += gradient * min(1, 1 / np.linalg.norm(gradient))
    return total


@pytest.mark.parametrize("head", [HEAD, Head(HEAD.weights, None, ())])
def test_it_is_the_sum_of_each_record_s_clipped_gradient(head: Head) -> None:
    np.testing.assert_allclose(summed(head, ROWS, LABELS), plain(head, ROWS, LABELS), atol=120 * 2.0**-11)


def test_the_gradient_is_that_of_the_loss() -> None:
    def loss(head: Head) -> float:
        return -float(np.log(head.probabilities(ROWS)[np.arange(120), LABELS]).sum())

    gentle = Head(0.1 * HEAD.weights, 0.1 * BIAS, ())  # no residual is longer than 1
    gradient, small = summed(gentle, ROWS, LABELS), 1e-5
    for row, column in ((0, 0), (5, 3)):
        moved = gentle.weights.copy()
        moved[row, column] += small * math.sqrt(0.5)  # V and W are of (z, 1)/√2
        slope = (loss(Head(moved, gentle.bias, ())) - loss(gentle)) / small
        assert slope == pytest.approx(gradient[row, column], abs=5e-2)


def test_newton_s_like_steps_never_raise_the_loss_and_end_where_gradients_vanish() -> None:
    head: Head = logistic_start(Head(ROWS.T @ np.eye(4)[LABELS] / 60, None, ()))
    inverse, losses = np.asarray(np.linalg.inv(ROWS.T @ ROWS), np.float64), []
    for _ in range(300):
        gradient = summed(head, ROWS, LABELS)
        losses.append(-np.log(head.probabilities(ROWS)[np.arange(120), LABELS]).mean())
        head = stepped(head, gradient, inverse)
    assert losses[-1] < losses[0]
    assert np.linalg.norm(gradient) < 0.2
    assert all(later <= earlier + 1e-3 for earlier, later in pairwise(losses))


def test_the_start_takes_a_perfect_ridge_head_to_nine_tenths() -> None:
    ideal = logistic_start(Head(np.eye(5), None, ()))
    np.testing.assert_allclose(ideal.probabilities(np.eye(5)).diagonal(), 0.9)
    assert logistic_start(Head(np.ones((3, 1)), np.ones(1), ())).bias == pytest.approx(math.log(9))


def test_a_step_keeps_what_a_head_maps_features_by() -> None:
    head = Head(HEAD.weights, HEAD.bias, (), centre=ROWS.mean(axis=0))
    moved = stepped(head, np.ones((7, 4)), np.eye(7))
    assert moved.centre is head.centre
    assert moved.bias is not None
    np.testing.assert_allclose(moved.weights, HEAD.weights - math.sqrt(2))
    np.testing.assert_allclose(moved.bias, BIAS - math.sqrt(2))
