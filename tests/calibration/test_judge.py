"""What noisy tables say about heads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from veilsum.calibration.judge import (
    CHOICE_LIMIT,
    FINE_LIMIT,
    INTERVAL_ERRORS,
    SHARE_LIMIT,
    JudgedTables,
    expect_tables,
    list_figures,
)
from veilsum.calibration.judge_tables import (
    BY_CLASS,
    BY_CONFIDENCE,
    BY_SCORE,
    JOINT,
    TableShapes,
    confidence_places,
    place_scale,
    positive_margins,
    rough_scale,
)

SHAPES = TableShapes(heads=3, classes=3, confidence_bins=5, score_bins=8, positive=1)
NORMAL = NormalDist()


def tables(
    variance: float = 0.0, changed: Mapping[str, Any] = {}, *, records: float = 3_000, design: float = 1.0
) -> JudgedTables:
    """The tables of a good head, some of them `changed`."""
    expected = expect_tables(SHAPES, records, variance, design)
    return JudgedTables(SHAPES, {**expected.counts, **changed}, variance, design)


def test_a_share_has_wilsons_interval_without_noise_and_a_wider_one_with_noise() -> None:
    plain = tables().judge(3).accuracy
    p, n, z = 0.85, 3_000, INTERVAL_ERRORS
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert (plain.low, plain.high) == pytest.approx((middle - reach, middle + reach))
    noisy, alike = tables(400.0).judge(3).accuracy, tables(design=4.0).judge(3).accuracy
    assert plain.value == noisy.value == alike.value == pytest.approx(p)
    assert alike.error == pytest.approx(2 * plain.error, rel=1e-2)
    assert noisy.high - noisy.low > plain.high - plain.low


def test_the_accuracy_is_pooled_from_the_tables_with_least_noise() -> None:
    """Columns of 1, 5 and 3 or 4 cells: the more cells, the more noise, and the less a table counts."""
    cells = np.zeros(8)
    cells[[0, 1]] = 900, 2_100  # the joint table says 70 %, the others 85 %
    alone, several = (tables(400.0, {JOINT: cells}).judge(shown).accuracy for shown in (1, 3))
    assert 0.70 < alone.value < 0.75
    assert several.value == pytest.approx(0.85)  # the joint table of several heads chooses, and is left out
    cells[[0, 1]] = 450, 2_550
    assert tables(400.0, {JOINT: cells}).judge(1).accuracy.error < several.error


def test_classes_that_the_head_never_answers_have_no_recall_and_count_as_wrong() -> None:
    by_class = np.array([[100.0, 900.0], [200.0, 800.0], [0.0, 0.0], [1_000.0, 0.0]])  # of 3,000
    found = tables(changed={BY_CLASS: by_class}).judge(3, empty_classes=(2,))
    assert found.recalls[2] is None
    assert found.balanced_accuracy.value == pytest.approx((0.9 + 0.8) / 3)
    assert found.unanswered.value == pytest.approx(1 / 3, abs=0.01)
    names = [name for name, _ in list_figures(found, ("a", "b", "c"))]
    assert "recall of a" in names
    assert "recall of c" not in names
    assert [name for name in names if "head" in name] == [
        f"accuracy of head {number}" for number in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("ahead", "variance", "chosen"),
    [(400, 1.0, 1), (-400, 1.0, 0), (4, 1.0, 1), (60, 40_000.0, 0), (2_000, 40_000.0, 1)],
)
def test_the_head_with_most_right_is_chosen_once_that_is_sure(
    ahead: int, variance: float, chosen: int
) -> None:
    cells = np.zeros(8)
    cells[[0b00, 0b11]] = 1_000, 4_000
    cells[0b10 if ahead > 0 else 0b01] = abs(ahead)
    found = tables(variance, {JOINT: cells}).judge(2)
    assert found.chosen == chosen
    assert len(found.head_accuracies) == 2
    sure = math.sqrt(abs(ahead) + 2 * variance) / cells.sum() <= CHOICE_LIMIT
    assert sure or chosen == (ahead == 2_000)


def test_confidences_that_fit_have_no_error_and_others_tell_the_temperature() -> None:
    """Of two classes P(right) = 1/(1 + e^(−m)); at twice the temperature the head says half of the margin."""
    shapes = TableShapes(1, 2, 5, 2, None)
    middles = 0.5 + 0.1 * (np.arange(5) + 0.5)
    margins = np.log(middles / (1 - middles))
    for factor in (1.0, 2.0, 0.5):
        right = 1_000 / (1 + np.exp(-factor * margins))
        table = np.stack([1_000 - right, right, np.zeros(5)], axis=1)
        counts = {**expect_tables(shapes, 5_000, 0.0).counts, BY_CONFIDENCE: table}
        found = JudgedTables(shapes, counts, 0.0).judge(1, temperature=0.3).calibration
        assert found.temperature.value == pytest.approx(0.3 / factor, rel=1e-6)
        assert found.temperature.low < found.temperature.value < found.temperature.high
        gaps = right / 1_000 - middles
        assert found.excess.value == pytest.approx(-gaps.mean(), abs=1e-3)
        assert found.error.low <= np.abs(gaps).mean() <= found.error.high
        assert found.error.is_stated


def test_an_offset_moves_a_bins_confidence() -> None:
    counts = tables().counts
    moved = counts[BY_CONFIDENCE].copy()
    moved[:, 2] = 0.25 * moved[:, :2].sum(axis=1)  # a quarter of a bin above the middle
    before, after = (each.judge(3).calibration for each in (tables(), tables(changed={BY_CONFIDENCE: moved})))
    width = (1 - 1 / 3) / 5
    assert after.confidence == pytest.approx(before.confidence + width / 4)
    assert after.excess.value == pytest.approx(before.excess.value + width / 4)


@pytest.mark.parametrize(("apart", "spread"), [(0.5, 1.0), (1.8, 1.0), (2.5, 1.5)])
def test_auroc_is_that_of_the_scores_and_not_of_the_bins(apart: float, spread: float) -> None:
    edges = np.linspace(-1.5, 3, 7)
    below = [
        np.array([0, *(NORMAL.cdf((edge - mean) / deviation) for edge in edges), 1])
        for mean, deviation in ((0, 1), (apart, spread))
    ]
    by_score = np.stack([30_000 * np.diff(below[0]), 10_000 * np.diff(below[1])], axis=1)
    found = tables(changed={BY_SCORE: by_score}).judge(1, edges=edges).score
    assert found is not None
    assert found.auroc.value == pytest.approx(NORMAL.cdf(apart / math.hypot(1, spread)), abs=0.003)
    assert found.positives == pytest.approx(10_000)
    level = found.levels[3]
    assert level.threshold == edges[3]
    assert level.recall.value == pytest.approx(1 - below[1][4])
    assert level.false_alarms.value == pytest.approx(1 - below[0][4])
    called = by_score[4:].sum(axis=0)
    assert level.precision.value == pytest.approx(called[1] / called.sum())


def test_what_is_not_stated_says_how_many_records_would_do() -> None:
    few = tables(100.0, records=150).judge(3)
    assert not few.accuracy.is_stated
    assert few.accuracy.limit == SHARE_LIMIT
    assert few.recalls[0] is not None
    assert few.recalls[0].limit == FINE_LIMIT
    enough = tables(100.0, records=1.3 * few.accuracy.records_needed).judge(3)
    assert enough.accuracy.is_stated
    assert not tables(100.0, records=0.5 * few.accuracy.records_needed).judge(3).accuracy.is_stated


def test_tables_of_noise_alone_state_nothing() -> None:
    noise = np.random.default_rng(0)
    counts = {name: 30 * noise.standard_normal(table.shape) for name, table in tables().counts.items()}
    found = JudgedTables(SHAPES, counts, 900.0).judge(3, edges=np.arange(7.0))
    assert not any(each.is_stated for _, each in list_figures(found, ("a", "b", "c")))
    assert found.chosen == 0


def test_confidences_fall_into_even_bins_above_that_of_a_guess() -> None:
    sure = np.array([1 / 3, 0.5, 0.99])
    scores = np.log(np.stack([sure, (1 - sure) / 2, (1 - sure) / 2], axis=1))
    bins, offsets = confidence_places(scores, 1.0, 4)
    assert bins.tolist() == [0, 1, 3]
    assert offsets.tolist() == [-128, -128, 113]
    scores[:, 1:] = -np.inf  # a head that answers one class is sure
    assert [each.tolist() for each in confidence_places(scores, 1.0, 4)] == [[3] * 3, [128] * 3]


def test_a_class_that_is_never_answered_scores_lowest() -> None:
    scores = np.array([[0.2, -np.inf, 0.1], [0.2, 0.5, 0.1]])
    assert positive_margins(scores, 1).tolist() == [-np.inf, pytest.approx(0.3)]


def test_edges_part_positives_and_others_evenly() -> None:
    rng = np.random.default_rng(0)
    labels = (np.arange(20_000) % 100 == 0).astype(np.int64)
    margins = rng.standard_normal(len(labels)) + 2 * labels
    scale = place_scale(1, 8, np.stack([-margins / 2, margins / 2], axis=1), labels)
    level = np.searchsorted(scale.edges, margins)
    shares = (
        sum(np.bincount(level[labels == each], minlength=8) / (labels == each).sum() for each in (0, 1)) / 2
    )
    assert shares == pytest.approx(np.full(8, 1 / 8), abs=0.01)
    assert (np.diff(scale.edges) > 0).all()
    assert len(rough_scale(1, 8, 0.5).edges) == 7
    assert not len(rough_scale(None, 8, 0.5).edges)
