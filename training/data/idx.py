"""MNIST's idx files, compressed by gzip: MNIST, Fashion-MNIST, EMNIST.

Big-endian: two zero bytes, the type (8: unsigned bytes), the number of dimensions, each dimension as 32 bits, then
the elements, the last dimension fastest.
"""

from __future__ import annotations

import gzip
import struct
import zipfile
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from training.data.shelf import Images, Shelf

if TYPE_CHECKING:
    from pathlib import Path

_UNSIGNED_BYTE = 8


def read_mnist(shelf: Shelf) -> tuple[Images, Images]:
    """Four files, in the data set's folder: MNIST and Fashion-MNIST share their names."""
    train, test = (
        Images(
            _read(shelf, shelf.one_of(f"{part}-images-idx3-ubyte.gz")),
            _read(shelf, shelf.one_of(f"{part}-labels-idx1-ubyte.gz")).astype(np.int64),
        )
        for part in ("train", "t10k")
    )
    return train, test


def read_emnist(shelf: Shelf, split: str) -> tuple[Images, Images]:
    """One split of `gzip.zip` as NIST ships it (Cohen et al. 2017); images are stored transposed, letters count from 1."""
    path = shelf.one_of("gzip.zip")
    train, test = (_emnist(shelf, path, f"emnist-{split}-{part}") for part in ("train", "test"))
    return train, test


def _emnist(shelf: Shelf, path: Path, stem: str) -> Images:
    try:
        with zipfile.ZipFile(path) as archive:
            images, labels = (
                parse(gzip.decompress(archive.read(f"gzip/{stem}-{kind}-ubyte.gz")))
                for kind in ("images-idx3", "labels-idx1")
            )
    except (zipfile.BadZipFile, KeyError, OSError, EOFError, ValueError) as error:
        raise shelf.broken(path, str(error)) from error
    first = 1 if "-letters-" in stem else 0
    return Images(np.ascontiguousarray(images.transpose(0, 2, 1)), labels.astype(np.int64) - first)


def _read(shelf: Shelf, path: Path) -> npt.NDArray[np.uint8]:
    try:
        return parse(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError) as error:
        raise shelf.broken(path, str(error)) from error


def parse(raw: bytes) -> npt.NDArray[np.uint8]:
    """The array in an idx file.

    Raises:
        ValueError: if it is none, is not of unsigned bytes, or its length is not what its header says.
    """
    if len(raw) < 4 or raw[:2] != b"\0\0":
        raise ValueError("it does not begin like an idx file")
    kind, dimensions = raw[2], raw[3]
    start = 4 + 4 * dimensions
    if kind != _UNSIGNED_BYTE or len(raw) < start:
        raise ValueError("it is no idx file of unsigned bytes")
    shape = struct.unpack(f">{dimensions}I", raw[4:start])
    if len(raw) - start != prod(shape):
        raise ValueError(f"it has {len(raw) - start} elements, its header says {prod(shape)}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()
