"""What noisy tables say about heads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from numpy.polynomial import Polynomial
from scipy.optimize import brentq  # type: ignore[import-untyped]
from scipy.special import expit  # type: ignore[import-untyped]
from scipy.stats import norm  # type: ignore[import-untyped]

from veilsum.calibration.judge import (
    FINE_LIMIT,
    INTERVAL_ERRORS,
    SHARE_LIMIT,
    Figure,
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
from veilsum.calibration.reliability import default_temperatures

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


def test_classes_that_the_head_never_answers_have_no_recall_and_count_as_wrong() -> None:
    by_class = np.array([[100.0, 900.0], [200.0, 800.0], [0.0, 0.0], [1_000.0, 0.0]])  # of 3,000
    found = tables(changed={BY_CLASS: by_class}).judge(3, empty_classes=(2,))
    assert found.recalls[2] is None
    assert found.balanced_accuracy.value == pytest.approx((0.9 + 0.8) / 3)
    assert found.unanswered.value == pytest.approx(1 / 3, abs=0.01)
    names = [name for name, _ in list_figures(found, ("a", "b", "c"))]
    assert "recall of a" in names
    assert "recall of c" not in names
    assert names[-1] == "AUROC"
    assert [name for name in names if "head" in name] == [
        f"accuracy of head {number}" for number in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("ahead", "behind", "variance", "design", "chosen"),
    [
        (400, 0, 1.0, 1.0, 1),
        (0, 400, 1.0, 1.0, 0),
        (4, 0, 1.0, 1.0, 1),
        (60, 0, 40_000.0, 1.0, 0),
        (2_000, 0, 40_000.0, 1.0, 1),
        (1_500, 900, 40_000.0, 1.0, 1),
        (1_450, 900, 40_000.0, 1.0, 0),
        (1_500, 900, 1.0, 40.0, 0),
        (1_600, 900, 1.0, 40.0, 1),
    ],
)
def test_the_head_with_most_right_is_chosen_once_that_is_sure(
    ahead: int, behind: int, variance: float, design: float, chosen: int
) -> None:
    cells = np.zeros(8)
    cells[[0b00, 0b11, 0b10, 0b01]] = 1_000, 4_000, ahead, behind
    found = tables(variance, {JOINT: cells}, design=design).judge(2)
    assert found.chosen == chosen
    assert len(found.head_accuracies) == 2
    assert tables().judge(1).chosen == 0
    error = math.sqrt(design * (ahead + behind) + 2 * variance)
    assert chosen == (error <= 0.03 * cells.sum() or ahead - behind >= 2 * error) * (ahead > behind)
    cells[0b110] = 4_000
    assert tables(0.0, {JOINT: cells}).judge(3).chosen == 1
    cells[0b100] = 9_000
    assert tables(0.0, {JOINT: cells}).judge(3).chosen == 2


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


@pytest.mark.parametrize("records", range(150, 1_250, 100))
def test_what_is_not_stated_takes_more_records_than_were_judged(records: int) -> None:
    found = tables(400.0, records=records).judge(3)
    for name, figure in list_figures(found, ("a", "b", "c")):
        assert figure.is_stated or figure.records_needed > found.records, name


def test_tables_of_noise_alone_state_nothing() -> None:
    noise = np.random.default_rng(0)
    counts = {name: 30 * noise.standard_normal(table.shape) for name, table in tables().counts.items()}
    found = JudgedTables(SHAPES, counts, 900.0).judge(3, edges=np.arange(7.0))
    assert not any(each.is_stated for _, each in list_figures(found, ("a", "b", "c")))
    assert found.chosen == 0


@pytest.mark.parametrize("seed", range(40))
def test_figures_of_tables_that_a_member_made_up_are_computed_all_the_same(seed: int) -> None:
    """Every member saves them, so an error would end them all."""
    rng = np.random.default_rng(seed)
    false = {
        name: table + rng.integers(-1, 2, table.shape) * 2.0 ** rng.integers(0, 39, table.shape)
        for name, table in tables().counts.items()
    }
    found = JudgedTables(SHAPES, false, 900.0).judge(3, edges=np.arange(7.0))
    for _, each in list_figures(found, ("a", "b", "c")):
        assert not math.isnan(each.value + each.low + each.high)


def test_fewer_right_answers_than_none_leave_a_temperature_with_an_interval() -> None:
    impossible = np.tile([3e6, -1e6, 0.0], (SHAPES.confidence_bins, 1))
    found = tables(900.0, {BY_CONFIDENCE: impossible}).judge(3).calibration.temperature
    assert 0 <= found.low <= found.value <= found.high


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


@pytest.mark.parametrize("shares", [None, np.array([0.7, 0.2, 0.1])])
def test_the_temperature_of_a_scale_has_the_smallest_loss_at_the_class_shares(shares: Any) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [20, 300, 5])
    scores = rng.standard_normal((325, 3)) + np.eye(3)[labels]
    scores[labels == 1] *= 3
    scores[:, 2] = -np.inf  # never answered: its records are left out
    losses = []
    for temperature in default_temperatures():
        logs = scores / temperature
        logs -= np.log(np.exp(logs - logs.max(axis=1, keepdims=True)).sum(axis=1))[:, None] + logs.max(
            axis=1, keepdims=True
        )
        own = [np.maximum(logs[labels == label, label], -32) for label in (0, 1)]
        losses.append(
            -sum(each.sum() for each in own)
            if shares is None
            else -sum(share * each.mean() for share, each in zip(shares[:2], own, strict=True))
        )
    found = place_scale(None, 8, scores, labels, shares=shares)
    assert found.temperature == default_temperatures()[np.argmin(losses)]


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
    everyone = place_scale(1, 4, np.stack([-margins, margins], axis=1), np.ones_like(labels)).edges
    nobody = place_scale(1, 4, np.stack([-margins, margins], axis=1), np.zeros_like(labels)).edges
    for edges in (everyone, nobody):
        assert np.searchsorted(np.sort(2 * margins), edges) == pytest.approx([5_000, 10_000, 15_000], abs=1)
    never = np.stack([margins, np.full(20_000, -np.inf)], axis=1)
    rough = place_scale(1, 8, never, labels)
    assert rough.edges.tolist() == rough_scale(1, 8, rough.temperature).edges.tolist()
    np.testing.assert_allclose(rough_scale(1, 8, 0.5).edges, np.arange(-3, 4) / 2)
    assert not len(place_scale(None, 8, np.stack([-margins, margins], axis=1), labels).edges)
    assert not len(rough_scale(None, 8, 0.5).edges)


Ends = tuple[float, float, float, float, int]
"""Of a figure: value, low, high, error, needed records."""
Noisy = tuple[float, float]
"""A count and the variance of its noise."""
SCORED = np.array(
    [[400, -3], [500, 9], [380, 20], [300, 31], [190, 60], [90, 90], [45, 140], [20, 220]], float
)


def uneven(
    variance: float, design: float, lost: tuple[float, float] = (60, 40), bins: int = 8
) -> JudgedTables:
    """Tables of unlike cells that don't agree with each other; `lost` are a rare class's."""
    counts = {
        JOINT: np.array([300.0, 250, 60, 200, 70, 180, 440, 1_355]),
        BY_CLASS: np.array([[300.0, 1_700], [150, 600], lost, [31, 2]]),
        BY_CONFIDENCE: np.array(
            [[-3.0, 2, 2], [150, -4, -120], [120, 170, 160], [100, 400, 60], [90, 700, -100], [55, 980, 120]]
        ),
        BY_SCORE: SCORED[-bins:],
    }
    return JudgedTables(SHAPES, counts, variance, design)


def needed_of(sampling: float, noise: float, limit: float, more: float = 0) -> int:
    """Solve sampling/N + noise/N² = limit², add `more` records, and round up to two digits."""
    needed = max(Polynomial([-noise, -sampling, limit**2]).roots().real) + more
    rounded = Context(prec=2, rounding=ROUND_CEILING).create_decimal(float(needed))
    return min(10**9, max(1, math.ceil(rounded)))


def share(
    tables: JudgedTables, part: Noisy, rest: Noisy, limit: float, records: float, z: float = 2.1
) -> Ends:
    (a, u), (b, w) = part, rest
    noise_deviation = math.sqrt(u + w)
    n = max(a + b, noise_deviation, 1)
    value = min(1.0, max(0.0, a / (a + b))) if a + b > 0 else 0.5
    softened = (value * n + 1) / (n + 2)
    sampling, noise = tables.design * softened * (1 - softened), (1 - value) ** 2 * u + value**2 * w
    surely = max(n - noise_deviation, 1)
    p = Polynomial([0, 1])
    beyond = (a - (a + b) * p) ** 2 - z**2 * (p * (1 - p) * tables.design * n + (1 - p) ** 2 * u + p**2 * w)
    roots = np.sort(beyond.roots())
    bounded = len(roots) == 2 and beyond.coef[2] > 0 and np.isreal(roots).all()
    low, high = np.clip(roots, 0, 1) if bounded else (0, 1)
    error = math.sqrt(sampling / surely + noise / surely**2)
    times = records / n
    needed = needed_of(sampling * times, noise * times**2, limit, noise_deviation * times)
    return value, low, high, error, needed


def normal(
    value: float, sampling: float, noise: float, limit: float, records: float, least: float = 0
) -> Ends:
    """A figure with these variances over so many records."""
    error = math.sqrt(sampling + noise)
    low, high = max(least, value - 2.1 * error), min(1.0, value + 2.1 * error)
    needed = needed_of(records * sampling, records**2 * noise, limit)
    return min(1.0, max(least, value)), low, high, error, needed


def pooled(tables: JudgedTables, *, alone: bool) -> tuple[Noisy, Noisy]:
    """Sums over fewer cells hold less noise and count more."""
    by_class, by_confidence, joint = (tables.counts[name] for name in (BY_CLASS, BY_CONFIDENCE, JOINT))
    right = [by_class[:3, 1], by_confidence[:, 1], *([joint[1:2]] if alone else [])]
    wrong = [by_class[:, 0], by_confidence[:, 0], *([joint[:1]] if alone else [])]
    precisions = [sum(1 / len(cells) for cells in side) for side in (right, wrong)]
    sums = [sum(cells.sum() / len(cells) for cells in side) for side in (right, wrong)]
    return (
        (sums[0] / precisions[0], tables.variance / precisions[0]),
        (sums[1] / precisions[1], tables.variance / precisions[1]),
    )


def same(figure: Figure | None, expected: Ends, precision: float = 1e-9) -> bool:
    assert figure is not None
    found = (figure.value, figure.low, figure.high, figure.error, figure.records_needed)
    return found == pytest.approx(expected, rel=precision, abs=precision)


CASES = [
    *(uneven(0, 1), uneven(40, 2.5), uneven(40_000, 1), uneven(300, 3, (-50, 20)), uneven(0.1, 1, (900, -3))),
    uneven(1e18, 1),  # more records are needed than there are
    *(uneven(0, 1, (1.68, -0.68)), uneven(0.5, 1, (0.3, -0.3))),  # without an end, by a little
]
UNEVEN = pytest.mark.parametrize("tables", CASES)


@UNEVEN
def test_shares_are_those_of_their_formulas(tables: JudgedTables) -> None:
    v, edges = tables.variance, np.arange(7.0)
    for shown in (1, 2, 3):
        found = tables.judge(shown, edges=edges)
        right, wrong = pooled(tables, alone=shown == 1)
        records = right[0] + wrong[0]
        assert found.records == pytest.approx(records)
        assert same(found.accuracy, share(tables, right, wrong, 0.03, records))
        by_class = tables.counts[BY_CLASS]
        for row, recall in zip(by_class[:3], found.recalls, strict=True):
            assert same(recall, share(tables, (row[1], v), (row[0], v), 0.05, records))
        lacking, answered = by_class[3, 0], by_class[:3].sum()
        assert same(found.unanswered, share(tables, (lacking, v), (answered, 6 * v), 0.03, records))
        joint = tables.counts[JOINT][: 2**shown]
        for head, accuracy in enumerate(found.head_accuracies):
            right_of = sum(each for cell, each in enumerate(joint) if cell >> head & 1)
            noise = len(joint) / 2 * v
            z = {2: 2.38, 3: 2.53}[shown]
            expected = share(tables, (right_of, noise), (joint.sum() - right_of, noise), 0.03, joint.sum(), z)
            assert same(accuracy, expected)
        assert found.score is not None
        negative, positive = tables.counts[BY_SCORE].T
        for place, level in enumerate(found.score.levels, 1):
            called, below = (8 - place) * v, place * v
            true, missed = (positive[place:].sum(), called), (positive[:place].sum(), below)
            false, passed = (negative[place:].sum(), called), (negative[:place].sum(), below)
            assert level.threshold == edges[place - 1]
            assert same(level.recall, share(tables, true, missed, 0.05, records))
            assert same(level.false_alarms, share(tables, false, passed, 0.03, records))
            assert same(level.precision, share(tables, true, false, 0.05, records))


@UNEVEN
@pytest.mark.parametrize("empty", [(), (0,)])
def test_the_balanced_accuracy_is_that_of_its_formula(tables: JudgedTables, empty: tuple[int, ...]) -> None:
    v = tables.variance
    right, wrong = pooled(tables, alone=False)
    records = right[0] + wrong[0]
    value, sampling, noise, needed = 0.0, 0.0, 0.0, 0.0
    for row in (tables.counts[BY_CLASS][label] for label in range(3) if label not in empty):
        n = max(row.sum(), math.sqrt(2 * v), 1)
        ratio = row[1] / n
        recall = min(1.0, max(0.0, ratio))
        softened = (recall * n + 1) / (n + 2)
        value += (ratio - (2 * ratio - 1) * v / n**2) / 3
        sampling += tables.design * softened * (1 - softened) / n / 9
        noise += ((1 - recall) ** 2 + recall**2) * v / n**2 / 9
        needed = max(needed, records * math.sqrt(2 * v) / 0.2 / n)
    inside, low, high, error, enough = normal(value, sampling, noise, 0.03, records)
    if needed > records:
        error = max(error, 0.03 * 1.001)
        low, high = max(0.0, value - 2.1 * error), min(1.0, value + 2.1 * error)
    expected = inside, low, high, error, max(enough, needed_of(needed, 0, 1))
    assert same(tables.judge(3, empty_classes=empty).balanced_accuracy, expected)


@UNEVEN
@pytest.mark.parametrize("empty", [(), (2,), (1, 2)])
def test_the_calibration_is_that_of_its_formulas(tables: JudgedTables, empty: tuple[int, ...]) -> None:
    v, answered = tables.variance, 3 - len(empty)
    right, wrong = pooled(tables, alone=False)
    records = right[0] + wrong[0]
    found = tables.judge(3, empty_classes=empty, temperature=0.7).calibration
    width = (1 - 1 / answered) / 6
    expected_bins, gaps, sampling, noise = [], [], [], []
    for place, (no, yes, offset) in enumerate(tables.counts[BY_CONFIDENCE]):
        n, middle = no + yes, 1 / answered + width * (place + 0.5)
        held, counted = max(n, 1), max(n, 0)
        sure = min(middle + width / 2, max(middle - width / 2, (middle * n + width * offset) / held))
        accuracy = min(1, max(0, yes / held))
        softened = (accuracy * held + 1) / (held + 2)
        variance = tables.design * softened * (1 - softened) / held
        noise_on_it = ((1 - accuracy) ** 2 + accuracy**2) * v / held**2
        expected_bins.append((sure, accuracy, math.sqrt(variance + noise_on_it), counted))
        gaps.append(yes - middle * n - width * offset)
        sampling.append(tables.design * counted * (softened * (1 - sure) ** 2 + (1 - softened) * sure**2))
        noise.append(v * ((1 - middle) ** 2 + middle**2 + width**2))
    bins = np.stack([found.confidence, found.accuracy, found.accuracy_error, found.records], axis=1)
    assert bins == pytest.approx(np.array(expected_bins), rel=1e-9)
    square = records**2
    excess = normal(-sum(gaps) / records, sum(sampling) / square, sum(noise) / square, 0.03, records, -1)
    assert same(found.excess, excess)
    stated = [
        (sure, accuracy, max(0, accuracy - 2.1 * error), min(1, accuracy + 2.1 * error), error, 0)
        for sure, accuracy, error, _ in expected_bins
        if error <= 0.05 and excess[3] <= 0.03
    ]
    listed = [
        (sure, each.value, each.low, each.high, each.error, each.records_needed)
        for sure, each in found.list_stated_bins()
    ]
    assert np.array(listed) == pytest.approx(np.array(stated))
    # |Σ|d̂| − Σ|d|| is at most a sum of |x| of normal x: mean √(2/π)·σ, variance (1 − 2/π)·σ².
    deviations = np.sqrt(np.add(sampling, noise))
    reach = math.sqrt(2 / math.pi) * sum(deviations)
    reach = (reach + 2.1 * math.sqrt((1 - 2 / math.pi) * sum(deviations**2))) / records
    value = (
        sum(math.sqrt(max(0, gap**2 - each**2)) for gap, each in zip(gaps, deviations, strict=True)) / records
    )
    sizes = sum(map(abs, gaps)) / records
    low, high = max(0.0, min(value, sizes - reach)), min(1.0, max(value, sizes + reach))
    needed = needed_of(records * (reach / 2.1) ** 2, 0, 0.03)
    assert same(found.error, (value, low, high, reach / 2.1, needed))


@UNEVEN
@pytest.mark.parametrize("empty", [(), (2,)])
def test_the_temperature_has_most_likelihood_and_the_error_of_a_model_that_may_not_hold(
    tables: JudgedTables, empty: tuple[int, ...]
) -> None:
    answered, v = 3 - len(empty), tables.variance
    found = tables.judge(3, empty_classes=empty, temperature=0.7).calibration
    pool = pooled(tables, alone=False)
    records = pool[0][0] + pool[1][0]
    right, n = tables.counts[BY_CONFIDENCE][:, 1], tables.counts[BY_CONFIDENCE][:, :2].sum(axis=1)
    n = np.maximum(n, 0)
    margins = np.log(found.confidence / (1 - found.confidence)) + math.log(answered - 1)

    def chances(log_beta: float) -> Any:
        return expit(math.exp(log_beta) * margins - math.log(answered - 1))

    log_beta = brentq(lambda x: float(margins @ (right - n * chances(x))), -4, 4, xtol=1e-14)
    p, softened, beta = chances(log_beta), (right + 1) / (n + 2), math.exp(log_beta)
    slope = beta * (margins**2 * n * p * (1 - p)).sum()
    sampling = tables.design * (margins**2 * n * (softened * (1 - softened) + (softened - p) ** 2)).sum()
    noise = v * (margins**2 * ((1 - p) ** 2 + p**2)).sum()
    error = math.sqrt(sampling + noise) / slope
    needed = needed_of(records * sampling / slope**2, records**2 * noise / slope**2, 0.1)
    value, reach = 0.7 / beta, math.exp(min(700, 2.1 * error))
    assert same(found.temperature, (value, value / reach, value * reach, error, needed), 1e-7)


@pytest.mark.parametrize(
    ("column", "empty", "value", "needed"),
    [(1, (), 0.7 / 64, None), (0, (), 0.7 * 64, None), (2, (), 0.7, 10**9), (1, (1, 2), 0.7, 10**9)],
)
def test_a_temperature_that_no_record_tells_has_no_limits(
    column: int, empty: tuple[int, ...], value: float, needed: int | None
) -> None:
    """Records that are all right, all wrong, not there, or of one class."""
    table = np.zeros((5, 3))
    table[:, column] = 100 if column < 2 else 0
    judged = tables(changed={BY_CONFIDENCE: table}).judge(3, empty_classes=empty, temperature=0.7)
    found = judged.calibration.temperature
    assert found.value == pytest.approx(value)
    assert not found.is_stated
    assert needed in {None, found.records_needed}


@pytest.mark.parametrize("tables", [*CASES, uneven(40, 2, bins=3), uneven(40, 2, bins=2)])
def test_the_auroc_counts_pairs_and_has_the_error_of_its_formula(tables: JudgedTables) -> None:
    """Pairs in one bin follow from curves that are straight in normal deviates."""
    v, design = tables.variance, tables.design
    pool = pooled(tables, alone=False)
    records = pool[0][0] + pool[1][0]
    negative, positive = tables.counts[BY_SCORE].T
    bins = len(negative)
    sizes = [max(column.sum(), math.sqrt(bins * v), 1) for column in (negative, positive)]
    surely = [max(column.sum() - math.sqrt(bins * v), 1) for column in (negative, positive)]
    below = [(negative[:place].sum() + negative[place] / 2) / sizes[0] for place in range(bins)]
    above = [(positive[place + 1 :].sum() + positive[place] / 2) / sizes[1] for place in range(bins)]
    area = sum(positive * below) / sizes[1]
    sampling, noise = 0.0, 0.0
    for column, places, size in ((positive, below, surely[1]), (negative, above, surely[0])):
        spread = (np.clip(places, 0, 1) - min(1, area)) ** 2
        sampling += design * (sum(np.maximum(column, 0) * spread) + 0.25) / size**2
        noise += v * sum(spread) / size**2
    curved = curve_area(*(np.maximum(column, 0) + 0.5 for column in (negative, positive)))
    expected = normal(area + curved, sampling + (curved / 2) ** 2, noise, 0.05, records)
    needed = needed_of(records * sampling, records**2 * noise, 0.05)
    if (np.array([negative.sum(), positive.sum()]) < sizes).any():
        expected, needed = (expected[0], 0.0, 1.0, math.inf, 0), max(needed, needed_of(4 * records, 0, 1))
    score = tables.judge(3).score
    assert score is not None
    assert same(score.auroc, (*expected[:4], needed), 1e-6)
    assert score.positives == positive.sum()
    assert score.levels == ()


def curve_area(negative: Any, positive: Any) -> float:
    """Return what the ROC curve holds above the straight lines between its points."""
    false, true = (np.cumsum(column[::-1]) / column.sum() for column in (negative, positive))
    x, y = norm.ppf(false[:-1]), norm.ppf(true[:-1])
    slope = min(4, max(0.25, (y[-1] - y[0]) / (x[-1] - x[0]))) if len(x) > 1 else 1
    knots, heights = [x[0] - 20, *x, x[-1] + 20], [y[0] - 20 * slope, *y, y[-1] + 20 * slope]
    grid = np.linspace(-9, 9, 100_001)
    curve = np.trapezoid(norm.cdf(np.interp(grid, knots, heights)) * norm.pdf(grid), grid)
    return float(curve - np.trapezoid([0, *true], [0, *false]))


def test_expected_tables_hold_equal_classes_and_normal_scores() -> None:
    counts = expect_tables(SHAPES, 3_000, 0.0).counts
    assert counts[JOINT] == pytest.approx([450, 0, 0, 0, 0, 0, 0, 2_550])
    assert counts[BY_CLASS] == pytest.approx(np.array([[150, 850]] * 3 + [[0, 0]]))
    by_confidence = [[450 * square / 55, 2_550 * square / 55, 0] for square in (1, 4, 9, 16, 25)]
    assert counts[BY_CONFIDENCE] == pytest.approx(np.array(by_confidence))
    apart = math.sqrt(2) * NORMAL.inv_cdf(0.9)
    edges = [
        brentq(lambda x, k=k: norm.cdf(x + apart / 2) + norm.cdf(x - apart / 2) - k / 4, -9, 9)
        for k in range(1, 8)
    ]
    shares = [np.diff([0, *norm.cdf(np.array(edges) + sign * apart / 2), 1]) for sign in (1, -1)]
    assert counts[BY_SCORE] == pytest.approx(np.stack(shares, axis=1) * [2_000, 1_000], abs=6)
