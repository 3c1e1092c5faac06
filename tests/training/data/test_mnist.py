import json
from pathlib import Path

import numpy as np
import pytest

from training.data.catalogue import load_dataset
from training.data.folder import DataError
from training.data.mnist import parse_idx

from .published import RNG, idx, leaf, write_emnist, write_mnist

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
    "raw",
    [b"", b"\1\0\x08\1", b"\0\0\x0d\1\0\0\0\0", b"\0\0\x08\3\0\0\0\1", idx(X[0])[:-1], idx(X[0]) + b"\0"],
)
def test_bytes_that_are_no_idx_file_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"idx|2352"):
        parse_idx(raw)


def test_a_broken_file_is_named_with_where_to_fetch_it(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", X, Y)
    path = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz .* https"):
        load_dataset("mnist", tmp_path, checksums={})
    (tmp_path / "emnist-digits").mkdir()
    (tmp_path / "emnist-digits" / "gzip.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"gzip\.zip"):
        load_dataset("emnist-digits", tmp_path, checksums={})


def test_writers_are_groups_over_both_parts(tmp_path: Path) -> None:
    x = RNG.integers(256, size=(5, 28, 28), dtype=np.uint8)
    for part, users in {
        "train": {"f0001_41": (x[:2], [3, 61]), "f0000_14": (x[2:3], [0])},
        "test": {"f0000_14": (x[3:4], [10]), "f9": (x[4:], [36])},
    }.items():
        folder = tmp_path / "femnist" / "data" / part
        folder.mkdir(parents=True)
        (folder / "all_data_0.json").write_text(leaf(users))
    train, test = load_dataset("femnist", tmp_path)
    assert train.groups is not None
    assert test.groups is not None
    assert train.group_names == ("f0000_14", "f0001_41", "f9")
    assert train.groups.tolist() == [1, 1, 0]
    assert test.groups.tolist() == [0, 2]
    assert train.y.tolist() == [3, 61, 0]
    assert np.array_equal(train.x[:, 0].numpy(), x[:3])


def test_pixels_in_bytes_and_labels_between_classes_are_refused(tmp_path: Path) -> None:
    for pixel, label, wrong in ((255, 0, "pixels"), (float("nan"), 0, "pixels"), (1, 0.7, "labels")):
        users = {"f9": {"x": [[pixel] * 784], "y": [label]}}
        for part in ("train", "test"):
            (tmp_path / "femnist" / part).mkdir(parents=True, exist_ok=True)
            (tmp_path / "femnist" / part / "a.json").write_text(json.dumps({"user_data": users}))
        with pytest.raises(DataError, match=rf"a\.json .*ValueError: {wrong}"):
            load_dataset("femnist", tmp_path)


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train/.*femnist.* https://github\.com"):
        load_dataset("femnist", tmp_path)
    for part in ("train", "test"):
        (tmp_path / "femnist" / part).mkdir(parents=True)
    with pytest.raises(DataError, match=r"train/\*\.json"):
        load_dataset("femnist", tmp_path)
    for part in ("train", "test"):
        (tmp_path / "femnist" / part / "a.json").write_text('{"users": []}')
    with pytest.raises(DataError, match=r"a\.json .*KeyError: 'user_data'"):
        load_dataset("femnist", tmp_path)
    for part in ("train", "test"):
        (tmp_path / "femnist" / part / "a.json").write_text('{"user_data": {}}')
    with pytest.raises(DataError, match="femnist"):
        load_dataset("femnist", tmp_path)
