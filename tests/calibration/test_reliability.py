from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss

from tests.calibration.records import digits, ffc
from veilsum.calibration import Head, Reliability, solve_ffc, solve_lda
from veilsum.calibration.errors import NotUnitNorm
from veilsum.calibration.reliability import LOSS_MAX, default_temperatures

TRAIN, (TEST_ROWS, TEST_LABELS) = digits()
STATISTICS = ffc(*TRAIN, 10, constant=True)
HEAD = solve_ffc(STATISTICS)
HELD_OUT, TEST = (TEST_ROWS[:300], TEST_LABELS[:300]), (TEST_ROWS[300:], TEST_LABELS[300:])


def judged(records: Any, *temperatures: float) -> Reliability:
    return Reliability.of(HEAD, *records, temperatures=temperatures or None)


def test_losses_are_log_losses_and_hits_are_right_predictions() -> None:
    rows, labels = HELD_OUT
    ours = judged(HELD_OUT, 0.1, 1.0)
    for index, temperature in enumerate(ours.temperatures):
        probabilities = HEAD.probabilities(rows, temperature=temperature)
        assert ours.losses[index] == pytest.approx(log_loss(labels, probabilities))
    predicted = HEAD.predict(rows)
    assert ours.accuracy == pytest.approx((predicted == labels).mean())
    with pytest.raises(NotUnitNorm):
        Reliability.of(HEAD, 2 * rows, labels)
    assert Reliability.of(HEAD, 2 * rows, labels, normalise=True).accuracy == ours.accuracy


def test_no_array_is_in_its_representation() -> None:
    assert repr(judged(HELD_OUT)) == "<Reliability, 300 records>"


def test_the_calibration_error_is_that_of_its_definition() -> None:
    ours = judged(HELD_OUT, 0.08)
    probabilities = HEAD.probabilities(HELD_OUT[0], temperature=0.08)
    confidence, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == HELD_OUT[1]
    expected = 0.0
    for b in range(15):
        inside = (confidence >= b / 15) & ((confidence < (b + 1) / 15) | (b == 14))
        if inside.any():
            expected += inside.mean() * abs(hit[inside].mean() - confidence[inside].mean())
    assert ours.calibration_errors[0] == pytest.approx(expected)


def test_a_hold_out_set_turns_ridge_scores_into_probabilities() -> None:
    assert judged(TEST, 1.0).calibration_errors[0] > 0.6
    assert judged(TEST, judged(HELD_OUT).temperature).calibration_errors[0] < 0.06
    assert 0.5 < Reliability.of(solve_lda(STATISTICS), *HELD_OUT).temperature < 6  # LDA hardly needs one


def test_a_class_that_is_never_answered_costs_no_more_than_the_least_likely_one() -> None:
    head = Head(np.array([[1e3, -1e3, 0.0]]), None, (2,))
    for label in (1, 2):
        ours = Reliability.of(head, np.ones((1, 1)), [label], temperatures=[0.01])
        assert ours.losses.tolist() == [LOSS_MAX]
        assert ours.accuracy == 0
    np.testing.assert_allclose(default_temperatures(), 10 ** (-4 + np.arange(49) / 8))


def test_without_records_all_is_zero() -> None:
    ours = judged((TEST_ROWS[:0], TEST_LABELS[:0]))
    assert ours.accuracy == 0
    assert not ours.losses.any()
    assert not ours.calibration_errors.any()


def test_no_errors_make_a_head_no_surer_than_they_can_tell() -> None:
    # log(1 + e^(−1/τ)) is 10⁻⁶ at τ = 0.072.
    ours = Reliability.of(Head(np.eye(2), None, ()), np.eye(2), [0, 1])
    assert 0.05 < ours.temperature < 0.072


def test_scores_of_many_classes_find_their_temperature() -> None:
    # One in ten is wrong, and p = e^(0.001/τ)/(e^(0.001/τ) + 39) = 0.9 at τ = 0.001/log(9 · 39).
    labels = np.arange(40)
    labels[:4] = labels[4:8]
    ours = Reliability.of(Head(0.001 * np.eye(40), None, ()), np.eye(40), labels)
    assert ours.temperature == pytest.approx(0.001 / np.log(9 * 39), rel=0.16)
