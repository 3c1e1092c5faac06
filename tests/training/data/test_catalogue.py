import hashlib
from pathlib import Path

import numpy as np
import pytest

from training.data.catalogue import DATASET_NAMES, SOURCES, load_dataset
from training.data.folder import DataError

from .published import write_mnist

X = [np.zeros((2, 28, 28), np.uint8)] * 2


def test_digits_need_no_folder() -> None:
    split = load_dataset("digits", seed=3)
    assert split.train.shape == (1, 8, 8)
    assert load_dataset("digits", side=16).test.shape == (1, 16, 16)


def test_vectors_have_no_side() -> None:
    with pytest.raises(DataError, match="side"):
        load_dataset("tests.training.own:load", side=16)


def test_the_folder_comes_from_an_argument_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VEILSUM_DATA", raising=False)
    with pytest.raises(DataError, match="VEILSUM_DATA"):
        load_dataset("mnist")
    monkeypatch.setenv("VEILSUM_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="nowhere"):
        load_dataset("mnist")
    write_mnist(tmp_path / "mnist", X, [np.zeros(2, np.uint8)] * 2)
    monkeypatch.setenv("VEILSUM_DATA", str(tmp_path))
    assert len(load_dataset("mnist", checksums={}).train) == 2


def test_a_name_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(DataError, match=r"'imagenet'.*cifar-10, .*digits"):
        load_dataset("imagenet")
    assert len(DATASET_NAMES) == len(SOURCES) + 1


def test_a_file_that_is_not_the_published_one_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", X, [np.zeros(2, np.uint8)] * 2)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz .*[0-9a-f]{32}.* f68b3c2d"):
        load_dataset("mnist", tmp_path)
    sums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in (tmp_path / "mnist").iterdir()}
    assert len(load_dataset("mnist", tmp_path, checksums=sums).test) == 2


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_what_is_missing_is_named_with_where_it_goes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=r"http|name the folder"):
        load_dataset(name, tmp_path)


def test_labels_beyond_the_classes_are_not_as_published(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", X, [np.array([10, 0], np.uint8)] * 2)
    with pytest.raises(DataError, match=r"MNIST .*labels .*0\.\.9"):
        load_dataset("mnist", tmp_path, checksums={})
