from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import FFCStatistics, RecordsNotTracked


@given(st.integers(0, 2**32), st.lists(st.integers(0, 12), max_size=3))
@settings(deadline=None, max_examples=40)
def test_neither_order_nor_batches_change_it(seed: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    rows, labels = rng.standard_normal((12, 7)), rng.integers(0, 3, 12)
    whole, parts = (FFCStatistics(7, 3, normalise=True) for _ in range(2))
    whole.update(rows, labels)
    order = rng.permutation(12)
    for batch in np.split(order, sorted(cuts)):
        parts.update(np.asfortranarray(rows[batch]), labels[batch])
    assert parts.records_digest == whole.records_digest
    parts.update(rows[:1], labels[:1])
    assert parts.records_digest != whole.records_digest, "a repeated record must show"


def test_the_digest_is_the_sum_of_the_records_hashes() -> None:
    statistics = FFCStatistics(2, 2)
    statistics.update(np.array([[1.0, -0.0], [0.0, 1.0]]), np.array([0, 1]))
    tag = b"veilsum calibration record 2 "
    records = [
        tag + np.array([1.0, 0.0], "<f8").tobytes() + bytes(8),
        tag + np.array([0.0, 1.0], "<f8").tobytes() + b"\1" + bytes(7),
    ]
    total = sum(int.from_bytes(hashlib.sha256(record).digest(), "little") for record in records)
    assert statistics.records_digest == (total % 2**256).to_bytes(32, "little")
    assert statistics.record_digests == b"".join(hashlib.sha256(record).digest()[:16] for record in records)


def test_a_record_has_one_name_with_a_bias_and_without() -> None:
    rng = np.random.default_rng(1)
    rows, labels = rng.standard_normal((5, 3)), rng.integers(0, 2, 5)
    names = set()
    for bias in (False, True):
        statistics = FFCStatistics(3, 2, normalise=True, bias=bias)
        statistics.update(rows, labels)
        names.add((statistics.records_digest, statistics.record_digests))
    assert len(names) == 1
    assert len(names.pop()[1]) == 5 * 16


def test_it_adds_over_merges_and_starts_at_zero() -> None:
    rows, labels = np.eye(4), np.array([0, 1, 1, 0])
    first, second, both = (FFCStatistics(4, 2) for _ in range(3))
    assert first.records_digest == bytes(32)
    first.update(rows[:3], labels[:3])
    second.update(rows[3:], labels[3:])
    both.update(rows, labels)
    assert (first + second).records_digest == both.records_digest
    assert (first + second).record_digests == both.record_digests


def test_a_label_is_part_of_the_record() -> None:
    digests = set()
    for label in (0, 1):
        statistics = FFCStatistics(2, 2)
        statistics.update(np.eye(2)[:1], np.array([label]))
        digests.add(statistics.records_digest)
    assert len(digests) == 2


def test_untracked_statistics_say_so() -> None:
    for name in ("records_digest", "record_digests"):
        with pytest.raises(RecordsNotTracked, match="track_records=True"):
            getattr(FFCStatistics(2, 2, track_records=False), name)
