"""What a member is told about the consortium's head beside its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from client_sdk.comparison import ClassRecall, Judgement, find_auroc
from veilsum.calibration import FFCStatistics, Head, solve_ffc


def fit(features: Any, labels: Any, classes: int) -> FFCStatistics:
    statistics = FFCStatistics(features.shape[1], classes, constant=True, normalise=True)
    statistics.update(features, labels)
    return statistics


def hospitals_of_uneven_labels(seed: int) -> Iterator[tuple[Any, Any, Head, Head]]:
    """Yield five hospitals' held-out digits, with the consortium's head and their own; their class shares are from a Dirichlet of .3."""
    features, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    parts: list[list[int]] = [[] for _ in range(5)]
    for label in range(10):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = (np.cumsum(rng.dirichlet(np.full(5, 0.3))) * len(rows)).astype(int)[:-1]
        for part, dealt in zip(parts, np.split(rows, cuts), strict=True):
            part.extend(dealt)
    dealt_rows = [rng.permutation(np.array(part)) for part in parts]
    cut = [(rows[len(rows) // 5 :], rows[: len(rows) // 5]) for rows in dealt_rows]
    summed = np.concatenate([rows for rows, _ in cut])
    head = solve_ffc(fit(features[summed], labels[summed], 10))
    for rows, held_out in cut:
        own = solve_ffc(fit(features[rows], labels[rows], 10))
        yield features[held_out], labels[held_out], head, own


def test_hospitals_with_uneven_labels_are_told_what_equal_shares_show_and_not_warned() -> None:
    seen = [
        Judgement.of_head(head, features, labels, own)
        for seed in range(4)
        for features, labels, head, own in hospitals_of_uneven_labels(seed)
    ]
    ahead_at_own_shares = [each for each in seen if (each.own_accuracy or 0) >= each.accuracy]
    ahead_at_equal_shares = [
        each for each in seen if (each.own_balanced_accuracy or 0) > each.balanced_accuracy
    ]
    assert len(ahead_at_own_shares) >= 8
    assert len(ahead_at_equal_shares) <= 6
    assert not any(each.worse for each in seen)


def test_a_hospital_whose_columns_are_reversed_is_warned() -> None:
    for features, labels, head, _ in hospitals_of_uneven_labels(0):
        reversed_columns = features[:, ::-1]
        half = len(labels) // 2
        own = solve_ffc(fit(reversed_columns[:half], labels[:half], 10))
        judged = Judgement.of_head(head, reversed_columns[half:], labels[half:], own)
        assert judged.accuracy < 0.75
        assert judged.worse or len(labels) - half < 30


def test_classes_that_a_member_lacks_are_not_held_against_the_consortium() -> None:
    """The own head can't confuse its two classes with others."""
    features, labels = load_digits(return_X_y=True)
    own_rows = np.flatnonzero(labels < 2)
    own = solve_ffc(fit(features[own_rows[:150]], labels[own_rows[:150]], 10))
    weights = solve_ffc(fit(features, labels, 10)).weights.copy()
    weights[:, 5] *= 3  # answers a third class too often
    head = Head(weights, None, ())
    judged = Judgement.of_head(head, features[own_rows[150:]], labels[own_rows[150:]], own)
    assert judged.accuracy < 0.9 < (judged.own_accuracy or 0)
    assert not judged.worse


@pytest.mark.parametrize(
    ("of_classes", "worse"),
    [
        (((5, 5, 0),), True),
        (((5, 4, 0),), False),
        (((100, 27, 0), (5, 0, 0)), False),
        (((100, 28, 0), (5, 0, 0)), True),
        (((100, 27, 0), (4, 0, 0)), True),
        (((100, 24, 1), (100, 1, 24)), False),
    ],
)
def test_a_head_is_worse_by_two_standard_errors_at_both_class_shares(
    of_classes: tuple[tuple[int, int, int], ...], *, worse: bool
) -> None:
    """Of each class: its records, those that only the member's own head labels correctly, and those that only the other does.

    At equal shares, classes of fewer than five records don't count.
    """
    heads = [
        Head(np.roll(np.vstack([np.eye(2), np.zeros((2, 2))]), 2 * own, axis=0), None, ()) for own in (0, 1)
    ]
    labels = np.repeat(np.arange(len(of_classes)), [records for records, _, _ in of_classes])
    places = np.concatenate([np.arange(records) for records, _, _ in of_classes])
    behind, ahead = np.array(of_classes)[labels, 1:].T
    wrong = np.stack([places < behind, (behind <= places) & (places < behind + ahead)])
    features = np.hstack([np.eye(2)[labels ^ each] for each in wrong])
    judged = Judgement.of_head(heads[0], features, labels, heads[1])
    assert judged.worse == worse
    assert judged.recalls == tuple(
        ClassRecall(label=label, records=n, recall=(n - missed) / n, own_recall=(n - own_missed) / n)
        for label, (n, missed, own_missed) in enumerate(of_classes)
    )
    blind = replace(heads[1], empty_classes=(0, 1))
    assert not Judgement.of_head(heads[0], features, labels, blind).worse


@pytest.fixture(scope="module")
def rare() -> Judgement:
    """One positive in a thousand, found by none of two heads at its maximum."""
    rng = np.random.default_rng(1)
    labels = (np.arange(120_000) % 1000 == 0).astype(np.int64)
    features = rng.standard_normal((len(labels), 12)) + 0.8 * labels[:, None] + 1.5
    half = len(labels) // 2
    head, own = (solve_ffc(fit(features[:rows], labels[:rows], 2)) for rows in (half, half // 10))
    return Judgement.of_head(head, features[half:], labels[half:], own, positive=1)


def test_rare_positives_are_judged_by_auroc_recall_and_a_threshold(rare: Judgement) -> None:
    assert rare.accuracy > 0.99
    assert rare.balanced_accuracy == 0.5
    found = rare.detection
    assert found is not None
    assert (found.label, found.positives, found.recall) == (1, 60, 0.0)
    assert found.auroc > 0.8
    assert found.own_auroc is not None
    assert found.threshold_recall > 0.6
    assert found.false_alarms < 0.4
    assert found.threshold_recall - found.false_alarms > 2 * (found.auroc - 0.5) * 0.6


def test_auroc_counts_ties_half() -> None:
    positive = np.array([True, True, False, False])
    assert find_auroc(np.array([2.0, 1.0, 1.0, 0.0]), positive) == pytest.approx(3.5 / 4)
    assert find_auroc(np.array([-np.inf, 1.0, -np.inf, 0.0]), positive) == pytest.approx(2.5 / 4)
