import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.partition import Partition, dirichlet_partition, iid_partition


def is_partition(partition: Partition, records: int) -> bool:
    return bool(np.array_equal(np.sort(np.concatenate(partition.members)), np.arange(records)))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    members=st.integers(1, 12),
    alpha=st.sampled_from([0.001, 0.01, 0.1, 1.0, 100.0]),
    classes=st.integers(1, 7),
    min_size=st.integers(0, 8),
)
def test_dirichlet_deals_every_record_once_and_no_member_too_few(
    seed: int, members: int, alpha: float, classes: int, min_size: int
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=members * max(min_size, 1) + int(rng.integers(100)))
    partition = dirichlet_partition(labels, members, alpha, rng, min_size=min_size, max_retries=3)
    assert len(partition) == members
    assert is_partition(partition, len(labels))
    assert partition.sizes.min() >= min_size
    assert np.array_equal(partition.sizes, partition.label_counts.sum(axis=1))
    assert np.array_equal(partition.label_counts.sum(axis=0), np.bincount(labels))


def test_a_concentration_that_no_draw_can_satisfy_is_repaired_and_says_so() -> None:
    # Ten classes go to ten members at most, so two of twelve always start with nothing.
    labels = np.repeat(np.arange(10), 100)
    partition = dirichlet_partition(labels, 12, 0.001, np.random.default_rng(0), min_size=10, max_retries=2)
    assert partition.sizes.min() == 10
    assert partition.moved >= 20


def test_an_even_draw_needs_no_repair() -> None:
    labels = np.repeat(np.arange(10), 100)
    partition = dirichlet_partition(labels, 4, 100.0, np.random.default_rng(0), min_size=10)
    assert partition.moved == 0


def test_a_retry_takes_the_place_of_a_draw_with_too_few() -> None:
    labels = np.repeat(np.arange(2), 20)
    # With this seed the first draw starves a member and a later one does not.
    retried = dirichlet_partition(labels, 3, 0.5, np.random.default_rng(2), min_size=5)
    repaired = dirichlet_partition(labels, 3, 0.5, np.random.default_rng(2), min_size=5, max_retries=0)
    assert retried.moved == 0
    assert repaired.moved > 0


def test_lower_concentration_means_fewer_classes_a_member() -> None:
    labels = np.repeat(np.arange(10), 100)

    def classes_held(alpha: float) -> float:
        counts = dirichlet_partition(labels, 10, alpha, np.random.default_rng(0)).label_counts
        return float((counts > 0).sum(axis=1).mean())

    assert classes_held(0.05) < classes_held(0.5) < classes_held(50.0) == 10


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_a_concentration_must_be_positive(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be positive"):
        dirichlet_partition(np.zeros(9, dtype=np.int64), 3, alpha, np.random.default_rng(0))


@pytest.mark.parametrize("members", [0, 4])
def test_there_must_be_records_for_everybody(members: int) -> None:
    labels = np.zeros(3, dtype=np.int64)
    with pytest.raises(ValueError, match="3 records can't give"):
        iid_partition(labels, members, np.random.default_rng(0))
    with pytest.raises(ValueError, match="3 records can't give"):
        dirichlet_partition(labels, members, 1.0, np.random.default_rng(0))


def test_iid_parts_differ_by_one_record_at_most() -> None:
    labels = np.arange(23) % 4
    partition = iid_partition(labels, 5, np.random.default_rng(0))
    assert is_partition(partition, 23)
    assert sorted(partition.sizes.tolist()) == [4, 4, 5, 5, 5]


def test_the_digest_is_of_who_holds_what() -> None:
    labels = np.array([0, 1, 0, 1])

    def digest(*members: list[int]) -> str:
        return Partition.of([np.array(m, dtype=np.int64) for m in members], labels).digest

    assert digest([0, 1], [2, 3]) == digest([1, 0], [3, 2])
    deals = [([0, 1], [2, 3]), ([2, 3], [0, 1]), ([0], [1, 2, 3]), ([0, 1, 2, 3], [])]
    assert len({digest(*deal) for deal in deals}) == 4
    # Pinned: a hash that moved between versions would orphan every stored result.
    assert digest([0, 1], [2, 3]) == "5c5548f964793d7c14c0df87e86a30b10f228eaa3a33780433ded11b781ab977"
