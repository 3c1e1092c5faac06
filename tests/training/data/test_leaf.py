import json
from pathlib import Path

import numpy as np
import pytest

from training.data import DataError, load_dataset
from training.data.catalogue import SOURCES

from .published import RNG, leaf


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
    for pixel, label, reason in (
        (255, 0, r"pixels lie in 0\.\.1"),
        (float("nan"), 0, "pixels lie"),
        (1, 0.7, "labels are float64, not integers"),
    ):
        users = {"f9": {"x": [[pixel] * 784], "y": [label]}}
        for part in ("train", "test"):
            (tmp_path / "femnist" / part).mkdir(parents=True, exist_ok=True)
            (tmp_path / "femnist" / part / "a.json").write_text(json.dumps({"user_data": users}))
        with pytest.raises(DataError, match=rf"a\.json can't be read: ValueError: {reason}"):
            load_dataset("femnist", tmp_path)


def test_paper_is_white_as_leaf_writes_it() -> None:
    mean, std = SOURCES["femnist"].moments
    assert (1 - mean[0]) / std[0] < 0.3  # a blank pixel is close to the mean, and ink far below it
    assert mean[0] / std[0] > 5


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"data/train/ or train/ is not in .*femnist: get it from https://github\.com"
    ):
        load_dataset("femnist", tmp_path)
    for part in ("train", "test"):
        (tmp_path / "femnist" / part).mkdir(parents=True)
    with pytest.raises(DataError, match=r"train/\*\.json is not in"):
        load_dataset("femnist", tmp_path)
    for part in ("train", "test"):
        (tmp_path / "femnist" / part / "a.json").write_text('{"users": []}')
    with pytest.raises(DataError, match=r"a\.json can't be read: KeyError: 'user_data'"):
        load_dataset("femnist", tmp_path)
