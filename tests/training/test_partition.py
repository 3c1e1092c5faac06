import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.partition import (
    Partition,
    dirichlet_partition,
    iid_partition,
    natural_partition,
    quantity_partition,
    shard_partition,
)


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
    # Every byte: a hash that moved between versions would orphan every stored result.
    expected = b"veilsum/partition/1"
    for rows in ([1, 3], [2]):
        expected += struct.pack(f"<Q{len(rows)}q", len(rows), *rows)
    moved = Partition.of([np.array([3, 1]), np.array([2])], labels, moved=3)
    assert moved.digest == digest([3, 1], [2]) == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize(("classes", "held"), [(10, 2), (10, 5), (100, 20)])
def test_every_scene_of_fedetf_deals_500_records_to_each_of_a_hundred_members(
    classes: int, held: int
) -> None:
    labels = np.repeat(np.arange(classes), 50_000 // classes)
    partition = shard_partition(labels, 100, held, np.random.default_rng(0))
    assert partition.sizes.tolist() == [500] * 100
    assert (np.sort(partition.label_counts, axis=1)[:, -held:] == 500 // held).all()
    assert len(np.unique(np.concatenate(partition.members))) == 50_000


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32), members=st.integers(1, 30), classes=st.integers(1, 8), held=st.integers(1, 8)
)
def test_disjoint_shards_deal_a_class_to_as_many_members_as_any_other(
    seed: int, members: int, classes: int, held: int
) -> None:
    labels = np.repeat(np.arange(classes), 40)
    if held > classes:
        with pytest.raises(ValueError, match=rf"\b{classes} classes"):
            shard_partition(labels, members, held, np.random.default_rng(seed))
        return
    partition = shard_partition(labels, members, held, np.random.default_rng(seed))
    holders = (partition.label_counts > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1
    assert ((partition.label_counts > 0).sum(axis=1) == held).all()
    dealt = np.concatenate(partition.members)
    assert len(np.unique(dealt)) == len(dealt) == 40 * np.count_nonzero(holders)


def test_quantities_differ_and_classes_do_not() -> None:
    labels = np.arange(20_000) % 4
    partition = quantity_partition(labels, 5, 0.3, np.random.default_rng(1), min_size=100)
    assert is_partition(partition, 20_000)
    assert partition.sizes.min() >= 100
    assert partition.sizes.max() > 3 * partition.sizes.min()
    largest = partition.label_counts[partition.sizes.argmax()] / partition.sizes.max()
    assert np.abs(largest - 0.25).max() < 0.02
    for beta in (0.0, np.inf):  # an infinite one would deal all records to one member
        with pytest.raises(ValueError, match="beta"):
            quantity_partition(labels, 5, beta, np.random.default_rng(0))


LABELS = np.array([0, 1, 0, 1, 2, 2])


def test_each_group_is_a_member() -> None:
    partition = natural_partition(LABELS, np.array([7, 3, 7, 3, 3, 9]))
    assert [member.tolist() for member in partition.members] == [[1, 3, 4], [0, 2], [5]]
    assert partition.label_counts.tolist() == [[0, 2, 1], [2, 0, 0], [0, 0, 1]]
