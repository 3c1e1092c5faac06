from pathlib import Path

import numpy as np
import pytest

from training.data import DataError, load_dataset
from training.data.idx import parse

from .published import idx, write_emnist, write_mnist

X = [np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28), np.full((2, 28, 28), 7, np.uint8)]
Y = [np.array([5, 0, 4], np.uint8), np.array([7, 2], np.uint8)]


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_four_files_are_images_and_labels(tmp_path: Path, name: str) -> None:
    write_mnist(tmp_path / name, X, Y)
    train, test = load_dataset(name, tmp_path, checksums={})
    assert train.x.shape == (3, 1, 28, 28)
    assert np.array_equal(train.x[:, 0].numpy(), X[0])
    assert train.y.tolist() == [5, 0, 4]
    assert test.y.tolist() == [7, 2]
    assert len(train.mean) == len(train.std) == 1


def test_emnist_is_stored_transposed_and_its_letters_count_from_one(tmp_path: Path) -> None:
    write_emnist(tmp_path / "emnist-letters", "letters", X[0], np.array([1, 26, 13], np.uint8))
    train, _ = load_dataset("emnist-letters", tmp_path, checksums={})
    assert train.y.tolist() == [0, 25, 12]
    assert train.classes == 26
    assert np.array_equal(train.x[1, 0].numpy(), X[0][1].T)
    write_emnist(tmp_path / "emnist-digits", "digits", X[0], np.array([1, 9, 0], np.uint8))
    assert load_dataset("emnist-digits", tmp_path, checksums={}).train.y.tolist() == [1, 9, 0]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "does not begin like an idx file"),
        (b"\1\0\x08\1", "does not begin like an idx file"),
        (b"\0\0\x0d\1\0\0\0\0", "no idx file of unsigned bytes"),
        (b"\0\0\x08\3\0\0\0\1", "no idx file of unsigned bytes"),
        (idx(X[0])[:-1], "it has 2351 elements, its header says 2352"),
        (idx(X[0]) + b"\0", "it has 2353 elements, its header says 2352"),
    ],
)
def test_bytes_that_are_no_idx_file_are_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(raw)


def test_a_broken_file_is_named_with_where_to_fetch_it(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", X, Y)
    path = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(
        DataError, match=r"train-labels-idx1-ubyte\.gz can't be read: .*; fetch it again from https"
    ):
        load_dataset("mnist", tmp_path, checksums={})
    (tmp_path / "emnist-digits").mkdir()
    (tmp_path / "emnist-digits" / "gzip.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"gzip\.zip can't be read"):
        load_dataset("emnist-digits", tmp_path, checksums={})
