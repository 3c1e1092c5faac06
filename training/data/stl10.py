"""STL-10 as Coates et al. 2011 ship it: stl10_binary.tar.gz, the labelled 5,000 and 8,000 images of 96 px."""

from __future__ import annotations

import tarfile

import numpy as np

from training.data.shelf import Images, Shelf

_SIDE = 96


def read_stl10(shelf: Shelf) -> tuple[Images, Images]:
    """Columns first: an image is three planes, each stored column by column; labels count from 1."""
    path = shelf.one_of("stl10_binary.tar.gz")
    try:
        with tarfile.open(path, "r:gz") as archive:
            names = tuple(_member(archive, "class_names.txt").decode().split())
            train, test = (
                Images(
                    _images(_member(archive, f"{part}_X.bin")),
                    np.frombuffer(_member(archive, f"{part}_y.bin"), np.uint8).astype(np.int64) - 1,
                    class_names=names,
                )
                for part in ("train", "test")
            )
    except (tarfile.TarError, OSError, EOFError, KeyError, ValueError) as error:
        raise shelf.broken(path, str(error)) from error
    return train, test


def _images(raw: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    planes = np.frombuffer(raw, np.uint8).reshape(-1, 3, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 3, 2, 1))


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(f"stl10_binary/{name}")
    if file is None:
        raise ValueError(f"{name} is no file")
    return file.read()
