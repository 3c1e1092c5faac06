"""CIFAR-10 and CIFAR-100 as Krizhevsky ships them: the archives for Python and for C."""

from __future__ import annotations

import io
import pickle
import tarfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.data.shelf import Images, Shelf

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class _Layout:
    python: str
    binary: str
    train: tuple[str, ...]
    test: str
    names: tuple[str, bytes, str]  # the files with the classes' names, and the key in the first
    labels: bytes
    label_bytes: int


_CIFAR10 = _Layout(
    "cifar-10-batches-py",
    "cifar-10-batches-bin",
    tuple(f"data_batch_{i}" for i in range(1, 6)),
    "test_batch",
    ("batches.meta", b"label_names", "batches.meta.txt"),
    b"labels",
    1,
)
_CIFAR100 = _Layout(
    "cifar-100-python",
    "cifar-100-binary",
    ("train",),
    "test",
    ("meta", b"fine_label_names", "fine_label_names.txt"),
    b"fine_labels",
    2,
)


def read_cifar10(shelf: Shelf) -> tuple[Images, Images]:
    """cifar-10-python.tar.gz or cifar-10-binary.tar.gz."""
    return _read(shelf, "cifar-10", _CIFAR10)


def read_cifar100(shelf: Shelf) -> tuple[Images, Images]:
    """cifar-100-python.tar.gz or cifar-100-binary.tar.gz, with the 100 fine classes."""
    return _read(shelf, "cifar-100", _CIFAR100)


def _read(shelf: Shelf, stem: str, layout: _Layout) -> tuple[Images, Images]:
    path = shelf.one_of(f"{stem}-python.tar.gz", f"{stem}-binary.tar.gz")
    reader = _python if path.name.endswith("-python.tar.gz") else _binary
    try:
        with tarfile.open(path, "r:gz") as archive:
            return reader(archive, layout)
    except (
        tarfile.TarError,
        pickle.UnpicklingError,
        OSError,
        EOFError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise shelf.broken(path, f"{type(error).__name__}: {error}") from error


def _python(archive: tarfile.TarFile, layout: _Layout) -> tuple[Images, Images]:
    meta, key, _ = layout.names
    files = {
        name: _unpickle(_member(archive, f"{layout.python}/{name}"))
        for name in (*layout.train, layout.test, meta)
    }
    names = tuple(name.decode() for name in files[meta][key])

    def images(*parts: str) -> Images:
        x = np.concatenate([np.asarray(files[part][b"data"], np.uint8) for part in parts])
        y = np.concatenate([np.asarray(files[part][layout.labels], np.int64) for part in parts])
        return Images(_interleaved(x), y, class_names=names)

    return images(*layout.train), images(layout.test)


def _binary(archive: tarfile.TarFile, layout: _Layout) -> tuple[Images, Images]:
    text = _member(archive, f"{layout.binary}/{layout.names[2]}").decode()
    names = tuple(text.split())

    def images(*parts: str) -> Images:
        raw = b"".join(_member(archive, f"{layout.binary}/{part}.bin") for part in parts)
        rows = np.frombuffer(raw, np.uint8).reshape(-1, layout.label_bytes + _PIXELS)
        # CIFAR-100 has the coarse label first.
        y = rows[:, layout.label_bytes - 1].astype(np.int64)
        return Images(_interleaved(rows[:, layout.label_bytes :]), y, class_names=names)

    return images(*layout.train), images(layout.test)


def _interleaved(rows: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    # A row is the red plane, then green, then blue.
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    return file.read()


class _ArraysOnly(pickle.Unpickler):
    """Builds lists, strings and numpy arrays, and calls nothing else that a pickle names."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if module.startswith("numpy") and name == "_reconstruct":
            return _reconstruct
        raise pickle.UnpicklingError(f"it names {module}.{name}, which CIFAR's files don't")


def _reconstruct(
    kind: type[np.ndarray[Any, Any]], shape: tuple[int, ...], code: bytes | str
) -> np.ndarray[Any, Any]:
    # The empty array that a pickle fills by its state; numpy's own function moves between modules with its versions.
    return np.ndarray.__new__(kind, shape, np.dtype(code.decode() if isinstance(code, bytes) else code))


def _unpickle(raw: bytes) -> dict[bytes, Any]:
    content: dict[bytes, Any] = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
    return content
