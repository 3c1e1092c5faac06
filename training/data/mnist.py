"""MNIST's relatives: idx files of MNIST, Fashion-MNIST and EMNIST, and FEMNIST as LEAF's scripts write it."""

import gzip
import json
import struct
import zipfile
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from training.data.folder import DataFolder, Images, whole_numbers

Labelled = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]

_UNSIGNED_BYTE = 8
_IMAGE_SIDE = 28


def read_mnist(folder: DataFolder) -> tuple[Images, Images]:
    """Read the four idx files of MNIST or Fashion-MNIST."""

    def read(name: str) -> npt.NDArray[np.uint8]:
        path = folder.one_of(f"{name}-ubyte.gz")
        with folder.reword_errors(path):
            return parse_idx(gzip.decompress(path.read_bytes()))

    train, test = (
        Images(read(f"{part}-images-idx3"), read(f"{part}-labels-idx1").astype(np.int64))
        for part in ("train", "t10k")
    )
    return train, test


def read_emnist(folder: DataFolder, split: str) -> tuple[Images, Images]:
    """Read a split of NIST's `gzip.zip` (Cohen et al. 2017). Images are stored transposed; letters count from 1."""
    path = folder.one_of("gzip.zip")
    first = 1 if split == "letters" else 0

    def images(archive: zipfile.ZipFile, part: str) -> Images:
        x, y = (
            parse_idx(gzip.decompress(archive.read(f"gzip/emnist-{split}-{part}-{kind}-ubyte.gz")))
            for kind in ("images-idx3", "labels-idx1")
        )
        return Images(np.ascontiguousarray(x.transpose(0, 2, 1)), y.astype(np.int64) - first)

    with folder.reword_errors(path), zipfile.ZipFile(path) as archive:
        return images(archive, "train"), images(archive, "test")


def parse_idx(raw: bytes) -> npt.NDArray[np.uint8]:
    """Parse an idx file of unsigned bytes.

    Big-endian: two zero bytes, the type (8: unsigned bytes), the number of dimensions, each dimension as 32 bits, then
    the elements, the last dimension fastest.
    """
    if len(raw) < 4 or raw[:2] != b"\0\0":
        raise ValueError("it does not begin like an idx file")
    kind, dimensions = raw[2], raw[3]
    start = 4 + 4 * dimensions
    if kind != _UNSIGNED_BYTE or len(raw) < start:
        raise ValueError("it is not an idx file of unsigned bytes")
    shape = struct.unpack(f">{dimensions}I", raw[4:start])
    if len(raw) - start != prod(shape):
        raise ValueError(f"it has {len(raw) - start} elements, its header says {prod(shape)}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()


def read_femnist(folder: DataFolder) -> tuple[Images, Images]:
    """Read FEMNIST's `train/*.json` and `test/*.json` (Caldas et al. 2018).

    Each file has "users", "num_samples" and "user_data": {writer: {"x": [784 numbers in 0..1, …], "y": [0..61, …]}}.
    A record's group is its writer; writers are numbered by name over both parts.
    """
    files = {
        part: sorted(folder.find_folder(f"data/{part}", part).glob("*.json")) for part in ("train", "test")
    }
    for part, found in files.items():
        if not found:
            raise folder.missing_error(f"{part}/*.json")
    content = {part: [_by_writer(folder, path) for path in found] for part, found in files.items()}
    for part, data in content.items():
        if not any(data):
            raise folder.missing_error(f"a writer's record of {part}/")
    writers = sorted({writer for data in content.values() for each in data for writer in each})
    index = {writer: i for i, writer in enumerate(writers)}
    train, test = (
        Images(
            np.concatenate([x for each in data for x, _ in each.values()]),
            np.concatenate([y for each in data for _, y in each.values()]),
            np.concatenate([np.full(len(y), index[w]) for each in data for w, (_, y) in each.items()]),
            group_names=tuple(writers),
        )
        for data in content.values()
    )
    return train, test


def _by_writer(folder: DataFolder, path: Path) -> dict[str, Labelled]:
    with folder.reword_errors(path):
        users = json.loads(path.read_text("utf-8"))["user_data"]
        return {
            writer: (_to_bytes(np.asarray(own["x"], np.float64)), whole_numbers(own["y"], "labels"))
            for writer, own in users.items()
        }


def _to_bytes(x: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    if not ((x >= 0) & (x <= 1)).all():  # NaN fails both
        raise ValueError("pixels lie in 0..1")
    return np.rint(255 * x).astype(np.uint8).reshape(-1, _IMAGE_SIDE, _IMAGE_SIDE)
