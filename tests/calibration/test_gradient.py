"""Clipped gradients of a logistic head: what they add up to, how far one record moves them, where their steps lead."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from calibration import CalibrationError, FeaturesLattice, Head
from calibration.centred import CentredHead, centred
from calibration.gradient import GradientSums, logistic_start, stepped
from calibration.privacy import Neighbours
from calibration.privacy.mechanism import gradient_layout
from calibration.privacy.sensitivity import gradient_sensitivity

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, 120)
ROWS = RNG.normal(size=(120, 6)) + 2 * np.eye(4, 6)[LABELS]
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
HEAD = Head(3 * RNG.normal(size=(6, 4)), RNG.normal(size=4), ())
LATTICE = FeaturesLattice(16)


def empty(head: Head, clip: float, lattice: FeaturesLattice = LATTICE) -> GradientSums:
    layout = gradient_layout(head.dim + (head.bias is not None), head.classes)
    return GradientSums(layout, lattice, head, clip=clip)


def summed(
    head: Head,
    rows: np.ndarray,
    labels: np.ndarray,
    clip: float,
    lattice: FeaturesLattice = LATTICE,
) -> np.ndarray:
    """G in units of the clip, (l, C)."""
    sums = empty(head, clip, lattice)
    for start in range(0, len(rows), 50):
        sums.update(rows[start : start + 50], labels[start : start + 50])
    assert sums.records == len(rows)
    return lattice.decode(sums.flat, 2).reshape(-1, head.classes)


def plain(head: Head, rows: np.ndarray, labels: np.ndarray, clip: float) -> np.ndarray:
    """One record after the other, by the book."""
    total = np.zeros((rows.shape[1] + (head.bias is not None), head.classes))
    for z, y in zip(rows, labels, strict=True):
        scores = z @ head.weights + (0 if head.bias is None else head.bias)
        p = np.exp(scores) / np.exp(scores).sum()
        full = z if head.bias is None else np.append(z, 1) / math.sqrt(2)
        gradient = np.outer(full, p - np.eye(head.classes)[y])
        total += gradient * min(1, clip / np.linalg.norm(gradient))
    return total


@pytest.mark.parametrize("head", [HEAD, Head(HEAD.weights, None, ())])
@pytest.mark.parametrize("clip", [0.3, 1.0, 2.0])
def test_it_is_the_sum_of_each_record_s_clipped_gradient(head: Head, clip: float) -> None:
    told = summed(head, 5 * ROWS, LABELS, clip)
    np.testing.assert_allclose(told * clip, plain(head, ROWS, LABELS, clip), atol=120 * 2.0**-15)


def test_the_gradient_is_that_of_the_loss() -> None:
    def loss(head: Head) -> float:
        return -float(np.log(head.probabilities(ROWS)[np.arange(120), LABELS]).sum())

    gradient, small = 2 * summed(HEAD, ROWS, LABELS, 2.0), 1e-5
    for row, column in ((0, 0), (5, 3)):
        moved = HEAD.weights.copy()
        moved[row, column] += small * math.sqrt(0.5)  # V and W are of (z, 1)/√2
        slope = (loss(Head(moved, HEAD.bias, ())) - loss(HEAD)) / small
        assert slope == pytest.approx(gradient[row, column], abs=5e-3)
    assert HEAD.bias is not None
    moved_bias = HEAD.bias + small * math.sqrt(0.5) * np.eye(4)[2]
    slope = (loss(Head(HEAD.weights, moved_bias, ())) - loss(HEAD)) / small
    assert slope == pytest.approx(gradient[6, 2], abs=5e-3)


def test_no_record_moves_the_integers_by_more_than_was_promised() -> None:
    rng, lattice = np.random.default_rng(1), FeaturesLattice(6)  # coarse: every rounding shows
    rows = rng.normal(size=(300, 6))
    rows[:150] = np.sign(rows[:150])  # all values alike, so that rounding up would lengthen most
    rows[150:200] = np.eye(6)[rng.integers(0, 6, 50)]
    labels = rng.integers(0, 4, 300)
    for clip, scale in ((0.1, 1.0), (1.0, 30.0), (math.sqrt(2), 1e4)):
        head = Head(scale * HEAD.weights, HEAD.bias, ())
        moves = []
        for z, y in zip(rows, labels, strict=True):
            moves.append(summed(head, z[None], np.array([y]), clip, lattice))
        lengths = np.array([np.linalg.norm(move) for move in moves])
        assert lengths.max() <= gradient_sensitivity()
        assert lengths.max() > 0.97
        apart = [np.linalg.norm(a - b) for a, b in pairwise(moves)]
        assert max(apart) <= gradient_sensitivity(Neighbours.REPLACE)
    # the worst there is: an opposite row of the same class where the head knows nothing
    blank = Head(np.zeros((6, 4)), None, ())
    ends = [summed(blank, sign * ROWS[:1], LABELS[:1], 0.5, FeaturesLattice(12)) for sign in (1, -1)]
    assert 1.99 < np.linalg.norm(ends[0] - ends[1]) <= gradient_sensitivity(Neighbours.REPLACE)


def test_newton_s_like_steps_never_raise_the_loss_and_end_where_gradients_vanish() -> None:
    head: Head = logistic_start(Head(ROWS.T @ np.eye(4)[LABELS] / 60, None, ()))
    inverse, losses = np.asarray(np.linalg.inv(ROWS.T @ ROWS), np.float64), []
    for _ in range(300):
        gradient = summed(head, ROWS, LABELS, 2.0)
        losses.append(-np.log(head.probabilities(ROWS)[np.arange(120), LABELS]).mean())
        head = stepped(head, 2 * gradient, inverse, 2.0)
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(losses))
    assert np.linalg.norm(gradient) < 2e-2


def test_the_start_takes_a_perfect_ridge_head_to_nine_tenths() -> None:
    ideal = logistic_start(Head(np.eye(5), None, ()))
    np.testing.assert_allclose(ideal.probabilities(np.eye(5)).diagonal(), 0.9)
    assert logistic_start(Head(np.ones((3, 1)), np.ones(1), ())).bias == pytest.approx(math.log(9))


def test_a_centred_head_and_classes_without_records() -> None:
    centre = ROWS.mean(axis=0)
    head = CentredHead(HEAD.weights, None, (2,), centre)
    own = LABELS != 2
    told = summed(head, ROWS[own], LABELS[own], 2.0)
    assert not told[:, 2].any()
    kept = [0, 1, 3]
    expected = plain(
        Head(HEAD.weights[:, kept], None, ()),
        centred(ROWS[own], centre),
        np.searchsorted(kept, LABELS[own]),
        2.0,
    )
    np.testing.assert_allclose(2 * told[:, kept], expected, atol=120 * 2.0**-14)
    moved = stepped(head, 2 * told, np.eye(6), 1.0)
    assert isinstance(moved, CentredHead)
    np.testing.assert_allclose(moved.weights, HEAD.weights - 2 * told)


def test_what_can_not_be_refined() -> None:
    with pytest.raises(CalibrationError, match="clipped to a length above 0"):
        empty(HEAD, 0.0)
    for bad in (
        Head(1e300 * HEAD.weights, None, ()),
        Head(HEAD.weights, np.full(4, np.nan), ()),
        Head(HEAD.weights, None, (0, 1, 2, 3)),
    ):
        with pytest.raises(CalibrationError, match="can't be refined"):
            empty(bad, 1.0)
