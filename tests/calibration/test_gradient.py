"""Clipped gradients of a logistic head: what they add up to, how far one record moves them, where their steps lead."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from calibration import CalibrationError, FeaturesLattice, Head, SumsLattice
from calibration.centred import CentredHead, centred
from calibration.errors import HeadroomExceeded, LabelOutOfRange, NotUnitNorm
from calibration.gradient import GradientStatistics, logistic_start, stepped
from calibration.privacy import Neighbours
from calibration.privacy.sensitivity import gradient_sensitivity

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, 120)
ROWS = RNG.normal(size=(120, 6)) + 2 * np.eye(4, 6)[LABELS]
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
HEAD = Head(3 * RNG.normal(size=(6, 4)), RNG.normal(size=4), ())


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
    statistics = GradientStatistics(head, clip=clip)
    for batch in (slice(0, 50), slice(50, 120)):
        statistics.update(ROWS[batch], LABELS[batch])
    assert statistics.records == 120
    np.testing.assert_allclose(statistics.total * clip, plain(head, ROWS, LABELS, clip), atol=1e-12)
    lattice = FeaturesLattice(12)
    whole = GradientStatistics(head, clip=clip, lattice=lattice)
    whole.update(5 * ROWS, LABELS, normalise=True)
    np.testing.assert_allclose(lattice.decode(whole.total, 2), statistics.total, atol=120 * 2.0**-12)
    real = SumsLattice(31).decode(statistics.vector(SumsLattice(31)))
    np.testing.assert_allclose(real, [*statistics.total.ravel(), 120], atol=2.0**-31)
    np.testing.assert_array_equal(whole.vector(lattice), [*whole.total.ravel(), 120])


def test_the_gradient_is_that_of_the_loss() -> None:
    def loss(head: Head) -> float:
        return -float(np.log(head.probabilities(ROWS)[np.arange(120), LABELS]).sum())

    statistics = GradientStatistics(HEAD, clip=2.0)
    statistics.update(ROWS, LABELS)
    gradient, small = 2 * statistics.total, 1e-5
    for row, column in ((0, 0), (5, 3)):
        moved = HEAD.weights.copy()
        moved[row, column] += small * math.sqrt(0.5)  # V and W are of (z, 1)/√2
        slope = (loss(Head(moved, HEAD.bias, ())) - loss(HEAD)) / small
        assert slope == pytest.approx(gradient[row, column], abs=1e-3)
    assert HEAD.bias is not None
    moved_bias = HEAD.bias + small * math.sqrt(0.5) * np.eye(4)[2]
    slope = (loss(Head(HEAD.weights, moved_bias, ())) - loss(HEAD)) / small
    assert slope == pytest.approx(gradient[6, 2], abs=1e-3)


def test_no_record_moves_the_integers_by_more_than_was_promised() -> None:
    rng, lattice = np.random.default_rng(1), FeaturesLattice(6)  # coarse: every rounding shows
    rows = rng.normal(size=(300, 6))
    rows[:150] = np.sign(rows[:150])  # all values alike, so that rounding up would lengthen most
    rows[150:200] = np.eye(6)[rng.integers(0, 6, 50)]
    labels, unit = rng.integers(0, 4, 300), lattice.unit(2)
    for clip, scale in ((0.1, 1.0), (1.0, 30.0), (math.sqrt(2), 1e4)):
        head = Head(scale * HEAD.weights, HEAD.bias, ())
        moves = []
        for z, y in zip(rows, labels, strict=True):
            one = GradientStatistics(head, clip=clip, lattice=lattice)
            one.update(z[None], np.array([y]), normalise=True)
            moves.append(one.total / unit)
        lengths = np.array([np.linalg.norm(move) for move in moves])
        assert lengths.max() <= gradient_sensitivity()
        assert lengths.max() > 0.97
        apart = [np.linalg.norm(a - b) for a, b in pairwise(moves)]
        assert max(apart) <= gradient_sensitivity(Neighbours.REPLACE)
    # the worst there is: an opposite row of the same class where the head knows nothing
    blank, ends = Head(np.zeros((6, 4)), None, ()), []
    for sign in (1, -1):
        end = GradientStatistics(blank, clip=0.5, lattice=FeaturesLattice(12))
        end.update(sign * ROWS[:1], LABELS[:1])
        ends.append(end.total / 4**12)
    assert 1.99 < np.linalg.norm(ends[0] - ends[1]) <= gradient_sensitivity(Neighbours.REPLACE)


def test_newton_s_like_steps_never_raise_the_loss_and_end_where_gradients_vanish() -> None:
    head: Head = logistic_start(Head(ROWS.T @ np.eye(4)[LABELS] / 60, None, ()))
    inverse, losses = np.asarray(np.linalg.inv(ROWS.T @ ROWS), np.float64), []
    for _ in range(300):
        statistics = GradientStatistics(head, clip=2.0)
        statistics.update(ROWS, LABELS)
        losses.append(-np.log(head.probabilities(ROWS)[np.arange(120), LABELS]).mean())
        head = stepped(head, 2 * statistics.total, inverse, 2.0)
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(losses))
    assert np.linalg.norm(statistics.total) < 1e-2


def test_the_start_takes_a_perfect_ridge_head_to_nine_tenths() -> None:
    ideal = logistic_start(Head(np.eye(5), None, ()))
    np.testing.assert_allclose(ideal.probabilities(np.eye(5)).diagonal(), 0.9)
    assert logistic_start(Head(np.ones((3, 1)), np.ones(1), ())).bias == pytest.approx(math.log(9))


def test_a_centred_head_and_classes_without_records() -> None:
    centre = ROWS.mean(axis=0)
    head = CentredHead(HEAD.weights, None, (2,), centre)
    own = LABELS != 2
    statistics = GradientStatistics(head, clip=2.0)
    statistics.update(ROWS[own], LABELS[own])
    assert not statistics.total[:, 2].any()
    kept = [0, 1, 3]
    expected = plain(
        Head(HEAD.weights[:, kept], None, ()),
        centred(ROWS[own], centre),
        np.searchsorted(kept, LABELS[own]),
        2.0,
    )
    np.testing.assert_allclose(2 * statistics.total[:, kept], expected, atol=1e-12)
    moved = stepped(head, 2 * statistics.total, np.eye(6), 1.0)
    assert isinstance(moved, CentredHead)
    np.testing.assert_allclose(moved.weights, HEAD.weights - 2 * statistics.total)


def test_what_is_refused_adds_nothing() -> None:
    statistics = GradientStatistics(HEAD, clip=1.0)
    with pytest.raises(NotUnitNorm):
        statistics.update(np.vstack([ROWS[:3], 2 * ROWS[3]]), LABELS[:4])
    with pytest.raises(LabelOutOfRange):
        statistics.update(ROWS[:2], np.array([0, 4]))
    assert (statistics.records, np.abs(statistics.total).max()) == (0, 0)
    with pytest.raises(CalibrationError, match="clipped to a length above 0"):
        GradientStatistics(HEAD, clip=0.0)
    for bad in (
        Head(1e300 * HEAD.weights, None, ()),
        Head(HEAD.weights, np.full(4, np.nan), ()),
        Head(HEAD.weights, None, (0, 1, 2, 3)),
    ):
        with pytest.raises(CalibrationError, match="can't be judged or refined"):
            GradientStatistics(bad, clip=1.0)
    full = GradientStatistics(HEAD, clip=1.0, lattice=FeaturesLattice(20))
    full.records = 1 << 22
    with pytest.raises(HeadroomExceeded, match="leave int64"):
        full.update(ROWS, LABELS)
