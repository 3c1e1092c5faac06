from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix, log_loss

from calibration import (
    CalibrationError,
    ConfigMismatch,
    FFCStatistics,
    Head,
    LabelOutOfRange,
    NoRecords,
    ReliabilityStatistics,
    SumCheckFailed,
    SumsLattice,
    solve_ffc,
    solve_lda,
)
from calibration.centred import CentredHead
from calibration.reliability import LOSS_MAX, default_temperatures
from calibration.virtual import TukeyHead

DIGITS = load_digits()
ROWS = DIGITS.data / np.linalg.norm(DIGITS.data, axis=1, keepdims=True)
LABELS = DIGITS.target


def fitted(stop: int = 1000) -> FFCStatistics:
    statistics = FFCStatistics(64, 10, bias=True, track_records=False)
    statistics.update(ROWS[:stop], LABELS[:stop])
    return statistics


def judged(head: Head, part: slice, **settings: Any) -> ReliabilityStatistics:
    statistics = ReliabilityStatistics(head, **settings)
    statistics.update(ROWS[part], LABELS[part])
    return statistics


HEAD = solve_ffc(fitted())
HELD_OUT, TEST = slice(1000, 1400), slice(1400, None)


def test_losses_are_log_losses_and_the_confusion_is_the_confusion() -> None:
    ours = judged(HEAD, HELD_OUT, temperatures=[1.0, 0.1])
    assert ours.temperatures.tolist() == [0.1, 1.0]
    for index, temperature in enumerate(ours.temperatures):
        probabilities = HEAD.probabilities(ROWS[HELD_OUT], temperature=temperature)
        assert ours.losses[index] == pytest.approx(log_loss(LABELS[HELD_OUT], probabilities))
    predicted = HEAD.predict(ROWS[HELD_OUT])
    assert (ours.confusion == confusion_matrix(LABELS[HELD_OUT], predicted)).all()
    assert ours.accuracy == pytest.approx((predicted == LABELS[HELD_OUT]).mean())
    eights = LABELS[HELD_OUT] == 8
    assert ours.recalls[8] == pytest.approx((predicted[eights] == 8).mean())


@pytest.mark.parametrize("bins", [1, 15])
def test_the_calibration_error_is_that_of_its_definition(bins: int) -> None:
    ours = judged(HEAD, HELD_OUT, temperatures=[0.08], bins=bins)
    probabilities = HEAD.probabilities(ROWS[HELD_OUT], temperature=0.08)
    confidence, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == LABELS[HELD_OUT]
    expected = 0.0
    for b in range(bins):
        inside = (confidence >= b / bins) & ((confidence < (b + 1) / bins) | (b == bins - 1))
        if inside.any():
            expected += inside.mean() * abs(hit[inside].mean() - confidence[inside].mean())
        mean, accuracy, records = (column[b] for column in ours.diagram(0.1))
        assert records == inside.sum()
        assert mean == pytest.approx(confidence[inside].mean() if inside.any() else 0)
        assert accuracy == pytest.approx(hit[inside].mean() if inside.any() else 0)
    assert ours.calibration_errors[0] == pytest.approx(expected)


def test_one_round_turns_ridge_scores_into_probabilities_of_real_digits() -> None:
    lattice, pooled = SumsLattice(31), ReliabilityStatistics(HEAD)
    members = [judged(HEAD, slice(1000 + 100 * i, 1100 + 100 * i)) for i in range(4)]
    pooled.add_sums(lattice, np.sum([member.vector(lattice) for member in members], axis=0), members=4)
    pooled.check()
    plain = judged(HEAD, HELD_OUT)
    np.testing.assert_allclose(pooled.losses, plain.losses, atol=4 / 2 * 2.0**-31 * LOSS_MAX)
    np.testing.assert_allclose(pooled.calibration_errors, plain.calibration_errors, atol=1e-6)
    assert (pooled.confusion == plain.confusion).all()
    assert pooled.temperature == plain.temperature
    untouched = judged(HEAD, TEST, temperatures=[1.0]).calibration_errors[0]
    tempered = judged(HEAD, TEST, temperatures=[pooled.temperature]).calibration_errors[0]
    assert untouched > 0.6
    assert tempered < 0.06
    assert pooled.layout.elements == 33 * (3 * 15 + 1) + 100 + 1
    assert (sum(members[1:], members[0]).confusion == plain.confusion).all()


def test_lda_needs_hardly_any_temperature() -> None:
    assert 0.5 < judged(solve_lda(fitted()), HELD_OUT).temperature < 6


def test_a_record_moves_no_sum_by_more_than_one() -> None:
    head = Head(np.array([[1e3, -1e3, 0.0]]), None, (2,))
    for label, confused in ((1, [0, 1, 0]), (2, [0, 0, 1])):
        ours = ReliabilityStatistics(head, temperatures=[0.01])
        ours.update(np.ones((1, 1)), [label])
        assert np.abs(ours.vector(SumsLattice(20))).max() == 2**20
        assert ours.losses.tolist() == [LOSS_MAX]
        assert ours.confusion[:, 0].tolist() == confused
    assert default_temperatures()[16] == 1


def test_sums_that_no_records_give_are_refused() -> None:
    ours = judged(HEAD, HELD_OUT, temperatures=[0.1], bins=3)
    ours.check()
    for name, index, change, identity in (
        ("binned", (0, 0), 1, "bins"),
        ("hits", (0, 2), -1, "bins"),
        ("hits", (0, 0), 400, "bins"),
        ("hits", (0, 1), 0.5, "bins"),
        ("confusion", (0, 0), -400, "bins"),
        ("confusion", (0, 9), 1, "confusion"),
    ):
        false = judged(HEAD, HELD_OUT, temperatures=[0.1], bins=3)
        false._sums[name][index] += change
        with pytest.raises(SumCheckFailed) as caught:
            false.check()
        assert caught.value.identity == identity


def test_judgements_of_heads_that_only_score_otherwise_do_not_add_up() -> None:
    weights, empty = HEAD.weights, HEAD.empty_classes
    heads = [
        TukeyHead(weights, None, empty, None),
        TukeyHead(weights, None, empty, 0.5),
        *(CentredHead(weights, None, empty, np.full(len(weights), at)) for at in (0.0, 0.1)),
    ]
    for one, other in combinations(heads, 2):
        with pytest.raises(CalibrationError):
            ReliabilityStatistics(one).merge(ReliabilityStatistics(other))
    ReliabilityStatistics(heads[1]).merge(ReliabilityStatistics(heads[1]))


def test_what_can_not_be_judged() -> None:
    wrong: list[dict[str, Any]] = [
        {"temperatures": []},
        {"temperatures": [0.0]},
        {"temperatures": [np.nan]},
        {"bins": 0},
    ]
    for settings in wrong:
        with pytest.raises(CalibrationError, match="temperatures are above 0"):
            ReliabilityStatistics(HEAD, **settings)
    ours = ReliabilityStatistics(HEAD)
    with pytest.raises(NoRecords, match="no record was judged"):
        _ = ours.temperature
    with pytest.raises(CalibrationError, match="a temperature is above 0"):
        ours.diagram(0.0)
    with pytest.raises(LabelOutOfRange):
        ours.update(ROWS[:1], [10])
    with pytest.raises(ConfigMismatch, match="another head or grid"):
        ours.merge(ReliabilityStatistics(solve_ffc(fitted(), 7.0)))
    assert ours.records == 0
    assert ours.accuracy == 0
