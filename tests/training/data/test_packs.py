import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from training.data.catalogue import load_dataset
from training.data.folder import DataError

from .published import RNG

X = RNG.integers(256, size=(6, 32, 32), dtype=np.uint8)


def test_an_array_pack_in_two_parts_stands_in_for_the_publishers_files(tmp_path: Path) -> None:
    y = np.array([1, 2, 3, 4], np.uint8)
    np.savez(tmp_path / "fashion_mnist.npz", x_train=X[:4], y_train=y, x_test=X[4:], y_test=y[:2])
    train, test = load_dataset("fashion-mnist", tmp_path, checksums={})
    assert np.array_equal(train.x[:, 0].numpy(), X[:4])
    assert test.y.tolist() == [1, 2]
    (tmp_path / "fashion_mnist.npz").rename(tmp_path / "mnist.npz")
    for name in ("mnist", "fashion-mnist"):
        with pytest.raises(DataError, match=r"is not in|mnist\.npz .* 06af5dfe"):
            load_dataset(name, tmp_path)
    (tmp_path / "fashion-mnist").mkdir()
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz .*fashion-mnist: "):
        load_dataset("fashion-mnist", tmp_path, checksums={})


def test_a_pack_marks_its_test_records_and_names_its_groups(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "pacs32.npz",
        x=np.repeat(X[..., None], 3, axis=3),
        y=np.arange(6, dtype=np.uint8),
        domain=np.array([0, 0, 1, 1, 2, 3], np.uint8),
        is_test=np.array([0, 1, 0, 0, 0, 1], bool),
        domain_names=np.array(["a", "b", "c", "d"]),
        class_names=np.array(list("uvwxyz!")),
    )
    train, test = load_dataset("pacs-32", tmp_path, checksums={})
    assert train.groups is not None
    assert train.y.tolist() == [0, 2, 3, 4]
    assert train.groups.tolist() == [0, 1, 1, 2]
    assert test.y.tolist() == [1, 5]
    assert train.group_names == ("a", "b", "c", "d")
    assert train.x.shape == (4, 3, 32, 32)


def test_spoken_digits_are_held_out_by_their_index(tmp_path: Path) -> None:
    arrays = {"x": X, "y": np.arange(6, dtype=np.uint8), "index": np.array([0, 4, 5, 49, 3, 9], np.uint8)}
    np.savez(tmp_path / "fsdd_logmel32.npz", speaker=np.array([0, 0, 1, 1, 2, 2], np.uint8), **arrays)  # type: ignore[arg-type]
    train, test = load_dataset("spoken-digits", tmp_path, checksums={})
    assert train.groups is not None
    assert test.y.tolist() == [0, 1, 4]
    assert train.groups.tolist() == [1, 1, 2]


def test_a_jpeg_pack_shares_headers_among_its_records(tmp_path: Path) -> None:
    bodies, heads = [], []
    for grey in (10, 200, 90):
        out = io.BytesIO()
        Image.new("RGB", (32, 32), (grey, grey, 50)).save(out, "JPEG", quality=95)
        raw = out.getvalue()
        cut = raw.index(b"\xff\xda")
        heads.append(raw[:cut])
        bodies.append(raw[cut:])
    assert len(set(heads)) == 1
    offsets = np.cumsum([0, *map(len, bodies)])
    parts: dict[str, Any] = {}
    for part in ("train", "test"):
        parts |= {
            f"body_{part}": np.frombuffer(b"".join(bodies), np.uint8),
            f"offsets_{part}": offsets,
            f"head_id_{part}": np.zeros(3, np.uint16),
            f"y_{part}": np.array([3, 1, 2], np.uint8),
        }
    np.savez(
        tmp_path / "cifar10_jpegpack.npz",
        heads=np.frombuffer(heads[0], np.uint8),
        head_offsets=np.array([0, len(heads[0])]),
        class_names=np.array(list("abcdefghij")),
        **parts,
    )
    train, _ = load_dataset("cifar-10-jpeg", tmp_path, checksums={})
    assert train.y.tolist() == [3, 1, 2]
    assert np.allclose(train.x.float().mean((2, 3)), [[10, 10, 50], [200, 200, 50], [90, 90, 50]], atol=3)
    assert train.class_names == tuple("abcdefghij")


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"x": X}, "KeyError"),
        ({"x": X.astype(np.float32), "y": np.arange(6)}, "float32 .*uint8"),
        ({"x": np.array([{}], dtype=object), "y": np.arange(1)}, "allow_pickle"),
        ({"x": X, "y": np.arange(6, dtype=np.uint8)}, "KeyError: 'index'"),
        ({"x": X, "y": np.full(6, 0.7), "is_test": np.zeros(6)}, "labels .*float64"),
        ({"x": X, "y": np.arange(5), "is_test": np.zeros(6)}, r"labels .*\(5,\).*\(6,\)"),
        ({"x": X, "y": np.arange(6), "is_test": np.zeros(5)}, "IndexError"),
        ({"x": X, "y": np.arange(6), "domain": np.arange(5), "is_test": np.zeros(6)}, r"groups .*\(5,\)"),
    ],
)
def test_another_npz_is_refused(tmp_path: Path, arrays: dict[str, Any], reason: str) -> None:
    np.savez(tmp_path / "pacs32.npz", **arrays)
    with pytest.raises(DataError, match=rf"pacs32\.npz .*{reason}"):
        load_dataset("pacs-32", tmp_path, checksums={})


def test_a_missing_pack_and_a_broken_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pacs32\.npz"):
        load_dataset("pacs-32", tmp_path, checksums={})
    for content in (b"PK\3\4 cut off", b"", b"\x93NUMPY"):
        (tmp_path / "pacs32.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"pacs32\.npz"):
            load_dataset("pacs-32", tmp_path, checksums={})
    with (tmp_path / "pacs32.npz").open("wb") as file:
        np.save(file, X)
    with pytest.raises(DataError, match="TypeError"):
        load_dataset("pacs-32", tmp_path, checksums={})
    with pytest.raises(DataError, match="d964a454"):
        load_dataset("pacs-32", tmp_path)
