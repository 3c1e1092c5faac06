from pathlib import Path

import numpy as np
import pytest

from training.data import DataError, load_dataset

from .published import RNG, tar, write_stl10


def test_images_are_columns_first_and_labels_count_from_one(tmp_path: Path) -> None:
    x = RNG.integers(256, size=(2, 96, 96, 3), dtype=np.uint8)
    write_stl10(tmp_path / "stl-10", x, np.array([0, 9], np.uint8))
    train, test = load_dataset("stl-10", tmp_path, checksums={})
    assert np.array_equal(train.x.permute(0, 2, 3, 1).numpy(), x)
    assert test.y.tolist() == [0, 9]
    assert train.class_names[7] == "monkey"


def test_an_archive_without_its_files_is_named(tmp_path: Path) -> None:
    tar(tmp_path / "stl-10" / "stl10_binary.tar.gz", {"stl10_binary/class_names.txt": b"bird"})
    with pytest.raises(DataError, match=r"stl10_binary\.tar\.gz can't be read"):
        load_dataset("stl-10", tmp_path, checksums={})
