import json
from pathlib import Path

import numpy as np
import pytest

from training.partition import Partition, PartitionError, dirichlet_partition, load_partition, save_partition

LABELS = np.repeat(np.arange(4), 25)


def dealt() -> Partition:
    return dirichlet_partition(LABELS, 6, 0.01, np.random.default_rng(0), min_size=5, max_retries=0)


def test_a_kept_partition_is_the_same_one(tmp_path: Path) -> None:
    partition = dealt()
    save_partition(partition, tmp_path / "deal.json")
    loaded = load_partition(tmp_path / "deal.json", LABELS)
    assert loaded.digest == partition.digest
    assert loaded.moved == partition.moved > 0
    assert np.array_equal(loaded.label_counts, partition.label_counts)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"members": [[0]]}, "has digest .*: it was changed"),
        ({"members": [[100]]}, "deals records that a data set of 100 doesn't have"),
        ({"members": [["a"]]}, "holds no partition: ValueError"),
        ({"members": 3}, "holds no partition: TypeError"),
        ({"members": []}, "its members are no lists of records"),
        ({"members": [[[0, 1], [2, 3]]]}, "its members are no lists of records"),
        ({"members": [[10**30]]}, "holds no partition: OverflowError"),
        ({"moved": -1}, "a repair can't have moved -1 of 100 records"),
        ({"moved": 101}, "a repair can't have moved 101 of 100 records"),
        ({"moved": "3"}, "a repair can't have moved '3'"),
        ({"format": "veilsum/partition/2"}, "its format is 'veilsum/partition/2'"),
    ],
)
def test_a_changed_file_is_refused(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    path = tmp_path / "deal.json"
    save_partition(dealt(), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(PartitionError, match=reason):
        load_partition(path, LABELS)


def test_another_file_and_no_file_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(PartitionError, match="holds no partition: KeyError: 'format'"):
        load_partition(tmp_path / "a.json", LABELS)
    with pytest.raises(FileNotFoundError):
        load_partition(tmp_path / "b.json", LABELS)


def test_a_description_has_the_sizes() -> None:
    members = [np.arange(10), np.arange(10, 40), np.arange(40, 100)]
    assert (
        Partition.of(members, LABELS).describe()
        == "3 members with 10 to 60 records (median 30) of 1 to 3 classes"
    )
    assert "3 moved by a repair" in Partition.of(members, LABELS, moved=3).describe()
