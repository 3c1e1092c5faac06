"""CIFAR-10, CIFAR-100 and STL-10 from their publishers' tar archives."""

import io
import pickle
import tarfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.data.folder import DataFolder, Images

Array = np.ndarray[Any, np.dtype[Any]]

_CIFAR_PIXELS = 3 * 32 * 32
_STL10_SIDE = 96


@dataclass(frozen=True)
class _Layout:
    python: str
    binary: str
    train: tuple[str, ...]
    test: str
    names: tuple[str, bytes, str]  # the files with the class names, and the key in the first
    labels: bytes
    label_bytes: int


_CIFAR10_LAYOUT = _Layout(
    "cifar-10-batches-py",
    "cifar-10-batches-bin",
    tuple(f"data_batch_{i}" for i in range(1, 6)),
    "test_batch",
    ("batches.meta", b"label_names", "batches.meta.txt"),
    b"labels",
    1,
)
_CIFAR100_LAYOUT = _Layout(
    "cifar-100-python",
    "cifar-100-binary",
    ("train",),
    "test",
    ("meta", b"fine_label_names", "fine_label_names.txt"),
    b"fine_labels",
    2,
)


def read_cifar10(folder: DataFolder) -> tuple[Images, Images]:
    """Read cifar-10-python.tar.gz or cifar-10-binary.tar.gz."""
    return _read_cifar(folder, "cifar-10", _CIFAR10_LAYOUT)


def read_cifar100(folder: DataFolder) -> tuple[Images, Images]:
    """Read cifar-100-python.tar.gz or cifar-100-binary.tar.gz, with the 100 fine classes."""
    return _read_cifar(folder, "cifar-100", _CIFAR100_LAYOUT)


def read_stl10(folder: DataFolder) -> tuple[Images, Images]:
    """Read the labelled 5,000 and 8,000 images of stl10_binary.tar.gz (Coates et al. 2011).

    An image is three planes, each stored column by column; labels count from 1.
    """
    path = folder.one_of("stl10_binary.tar.gz")
    with folder.reword_errors(path), tarfile.open(path, "r:gz") as archive:
        names = tuple(_read_member(archive, "stl10_binary/class_names.txt").decode().split())

        def images(part: str) -> Images:
            raw, labels = (_read_member(archive, f"stl10_binary/{part}_{kind}.bin") for kind in ("X", "y"))
            planes = np.frombuffer(raw, np.uint8).reshape(-1, 3, _STL10_SIDE, _STL10_SIDE)
            x = np.ascontiguousarray(planes.transpose(0, 3, 2, 1))
            return Images(x, np.frombuffer(labels, np.uint8).astype(np.int64) - 1, class_names=names)

        return images("train"), images("test")


def _read_cifar(folder: DataFolder, stem: str, layout: _Layout) -> tuple[Images, Images]:
    path = folder.one_of(f"{stem}-python.tar.gz", f"{stem}-binary.tar.gz")
    reader = _read_python if path.name.endswith("-python.tar.gz") else _read_binary
    with folder.reword_errors(path), tarfile.open(path, "r:gz") as archive:
        return reader(archive, layout)


def _read_python(archive: tarfile.TarFile, layout: _Layout) -> tuple[Images, Images]:
    meta, key, _ = layout.names
    files = {
        name: _unpickle_arrays(_read_member(archive, f"{layout.python}/{name}"))
        for name in (*layout.train, layout.test, meta)
    }
    names = tuple(name.decode() for name in files[meta][key])

    def images(*parts: str) -> Images:
        x = np.concatenate([np.asarray(files[part][b"data"], np.uint8) for part in parts])
        y = np.concatenate([np.asarray(files[part][layout.labels], np.int64) for part in parts])
        return Images(_interleave_planes(x), y, class_names=names)

    return images(*layout.train), images(layout.test)


def _read_binary(archive: tarfile.TarFile, layout: _Layout) -> tuple[Images, Images]:
    names = tuple(_read_member(archive, f"{layout.binary}/{layout.names[2]}").decode().split())

    def images(*parts: str) -> Images:
        raw = b"".join(_read_member(archive, f"{layout.binary}/{part}.bin") for part in parts)
        rows = np.frombuffer(raw, np.uint8).reshape(-1, layout.label_bytes + _CIFAR_PIXELS)
        # CIFAR-100 has the coarse label first.
        y = rows[:, layout.label_bytes - 1].astype(np.int64)
        return Images(_interleave_planes(rows[:, layout.label_bytes :]), y, class_names=names)

    return images(*layout.train), images(layout.test)


def _interleave_planes(rows: Array) -> Array:
    # A row is the red plane, then green, then blue.
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _read_member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is not a file")
    return file.read()


class _ArraysOnly(pickle.Unpickler):
    """Build lists, strings and numpy arrays, and refuse to call anything else that a pickle names."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if module.startswith("numpy") and name == "_reconstruct":
            return _empty_array
        raise pickle.UnpicklingError(f"it names {module}.{name}, which CIFAR's files don't")


def _empty_array(kind: type[Array], shape: tuple[int, ...], code: bytes | str) -> Array:
    # The empty array that a pickle fills by its state; numpy's own function moves between modules with its versions.
    return np.ndarray.__new__(kind, shape, np.dtype(code.decode() if isinstance(code, bytes) else code))


def _unpickle_arrays(raw: bytes) -> dict[bytes, Any]:
    content: dict[bytes, Any] = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
    return content
