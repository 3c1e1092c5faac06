from pathlib import Path

import numpy as np
import pytest

from training.data.catalogue import load_dataset
from training.data.folder import DataError

from .published import (
    RNG,
    cifar_rows,
    hostile_pickle,
    python2_pickle,
    tar,
    write_cifar10,
    write_cifar100,
    write_stl10,
)

ROWS = [cifar_rows(2) for _ in range(6)]
LABELS = [[i, 9 - i] for i in range(6)]


@pytest.mark.parametrize("binary", [False, True], ids=["python", "binary"])
def test_cifar_10_in_both_of_its_archives(tmp_path: Path, *, binary: bool) -> None:
    write_cifar10(tmp_path / "cifar-10", ROWS, LABELS, binary=binary)
    train, test = load_dataset("cifar-10", tmp_path, checksums={})
    assert train.x.shape == (10, 3, 32, 32)
    assert np.array_equal(train.x.reshape(10, -1).numpy(), np.concatenate(ROWS[:5]))
    assert train.y.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert np.array_equal(test.x.reshape(2, -1).numpy(), ROWS[5])
    assert test.y.tolist() == [5, 4]
    assert train.class_names[3] == "cat"


@pytest.mark.parametrize("binary", [False, True], ids=["python", "binary"])
def test_cifar_100_has_its_fine_labels(tmp_path: Path, *, binary: bool) -> None:
    write_cifar100(tmp_path / "cifar-100", ROWS[0], [99, 12], binary=binary)
    train, test = load_dataset("cifar-100", tmp_path, checksums={})
    assert train.y.tolist() == test.y.tolist() == [99, 12]
    assert np.array_equal(train.x.reshape(2, -1).numpy(), ROWS[0])
    assert (train.classes, train.class_names[99]) == (100, "thing_99")


def test_a_pickle_that_calls_something_is_refused_and_calls_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {f"cifar-100-python/{name}": hostile_pickle() for name in ("train", "test", "meta")}
    tar(tmp_path / "cifar-100" / "cifar-100-python.tar.gz", files)
    with pytest.raises(DataError, match="print"):
        load_dataset("cifar-100", tmp_path, checksums={})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "not found"),
        ({"cifar-10-batches-py/data_batch_1": b"\x80\x02]."}, "not found|indices"),
        (
            {f"cifar-10-batches-py/{n}": python2_pickle({"a": 1}) for n in ("data_batch_1", "batches.meta")},
            "not found",
        ),
    ],
)
def test_an_archive_that_lacks_a_batch_is_named(tmp_path: Path, files: dict[str, bytes], reason: str) -> None:
    tar(tmp_path / "cifar-10" / "cifar-10-python.tar.gz", files)
    with pytest.raises(DataError, match=rf"cifar-10-python\.tar\.gz .*({reason})"):
        load_dataset("cifar-10", tmp_path, checksums={})


def test_images_are_columns_first_and_labels_count_from_one(tmp_path: Path) -> None:
    x = RNG.integers(256, size=(2, 96, 96, 3), dtype=np.uint8)
    write_stl10(tmp_path / "stl-10", x, np.array([0, 9], np.uint8))
    train, test = load_dataset("stl-10", tmp_path, checksums={})
    assert np.array_equal(train.x.permute(0, 2, 3, 1).numpy(), x)
    assert test.y.tolist() == [0, 9]
    assert train.class_names[7] == "monkey"
