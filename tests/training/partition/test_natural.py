import numpy as np
import pytest

from training.partition import natural_partition

LABELS = np.array([0, 1, 0, 1, 2, 2])


def test_each_group_is_a_member() -> None:
    partition = natural_partition(LABELS, np.array([7, 3, 7, 3, 3, 9]))
    assert [member.tolist() for member in partition.members] == [[1, 3, 4], [0, 2], [5]]
    assert partition.label_counts.tolist() == [[0, 2, 1], [2, 0, 0], [0, 0, 1]]


def test_small_groups_may_be_left_out() -> None:
    groups = np.array([7, 3, 7, 3, 3, 9])
    assert natural_partition(LABELS, groups, min_size=2).sizes.tolist() == [3, 2]
    with pytest.raises(ValueError, match="no group has 4 records; the largest has 3"):
        natural_partition(LABELS, groups, min_size=4)


def test_data_without_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="no natural members; deal it by class, shards or quantity"):
        natural_partition(LABELS, None)
