from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix, log_loss

from calibration import (
    FFCStatistics,
    Head,
    LabelOutOfRange,
    Reliability,
    solve_ffc,
    solve_lda,
)
from calibration.reliability import BINS, LOSS_MAX, default_temperatures

DIGITS = load_digits()
ROWS = DIGITS.data / np.linalg.norm(DIGITS.data, axis=1, keepdims=True)
LABELS = DIGITS.target


def fitted(stop: int = 1000) -> FFCStatistics:
    statistics = FFCStatistics(64, 10, bias=True)
    statistics.update(ROWS[:stop], LABELS[:stop])
    return statistics


def judged(head: Head, part: slice, **settings: Any) -> Reliability:
    return Reliability.of(head, ROWS[part], LABELS[part], **settings)


HEAD = solve_ffc(fitted())
HELD_OUT, TEST = slice(1000, 1400), slice(1400, None)


def test_losses_are_log_losses_and_the_confusion_is_the_confusion() -> None:
    ours = judged(HEAD, HELD_OUT, temperatures=[0.1, 1.0])
    for index, temperature in enumerate(ours.temperatures):
        probabilities = HEAD.probabilities(ROWS[HELD_OUT], temperature=temperature)
        assert ours.losses[index] == pytest.approx(log_loss(LABELS[HELD_OUT], probabilities))
    predicted = HEAD.predict(ROWS[HELD_OUT])
    assert (ours.confusion == confusion_matrix(LABELS[HELD_OUT], predicted)).all()
    assert ours.accuracy == pytest.approx((predicted == LABELS[HELD_OUT]).mean())
    eights = LABELS[HELD_OUT] == 8
    assert ours.recalls[8] == pytest.approx((predicted[eights] == 8).mean())


def test_the_calibration_error_is_that_of_its_definition() -> None:
    ours = judged(HEAD, HELD_OUT, temperatures=[0.08])
    probabilities = HEAD.probabilities(ROWS[HELD_OUT], temperature=0.08)
    confidence, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == LABELS[HELD_OUT]
    expected = 0.0
    for b in range(BINS):
        inside = (confidence >= b / BINS) & ((confidence < (b + 1) / BINS) | (b == BINS - 1))
        if inside.any():
            expected += inside.mean() * abs(hit[inside].mean() - confidence[inside].mean())
        mean, accuracy, records = (column[b] for column in ours.diagram)
        assert records == inside.sum()
        assert mean == pytest.approx(confidence[inside].mean() if inside.any() else 0)
        assert accuracy == pytest.approx(hit[inside].mean() if inside.any() else 0)
    assert ours.calibration_errors[0] == pytest.approx(expected)


def test_records_held_out_turn_ridge_scores_into_probabilities_of_real_digits() -> None:
    temperature = judged(HEAD, HELD_OUT).temperature
    untouched = judged(HEAD, TEST, temperatures=[1.0]).calibration_errors[0]
    tempered = judged(HEAD, TEST, temperatures=[temperature]).calibration_errors[0]
    assert untouched > 0.6
    assert tempered < 0.06


def test_lda_needs_hardly_any_temperature() -> None:
    assert 0.5 < judged(solve_lda(fitted()), HELD_OUT).temperature < 6


def test_a_class_that_is_never_answered_costs_no_more_than_the_least_likely_one() -> None:
    head = Head(np.array([[1e3, -1e3, 0.0]]), None, (2,))
    for label, confused in ((1, [0, 1, 0]), (2, [0, 0, 1])):
        ours = Reliability.of(head, np.ones((1, 1)), [label], temperatures=[0.01])
        assert ours.losses.tolist() == [LOSS_MAX]
        assert ours.confusion[:, 0].tolist() == confused
    assert default_temperatures()[16] == 1


def test_what_can_not_be_judged() -> None:
    with pytest.raises(LabelOutOfRange):
        Reliability.of(HEAD, ROWS[:1], [10])
    none = Reliability.of(HEAD, ROWS[:0], LABELS[:0])
    assert (none.records, none.accuracy, none.calibration_errors.max()) == (0, 0, 0)
