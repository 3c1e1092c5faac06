"""Small files laid out byte for byte as publishers ship theirs."""

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

RNG = np.random.default_rng(0)
Bytes = npt.NDArray[np.uint8]


def idx(array: Bytes) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder: Path, x: Sequence[Bytes], y: Sequence[Bytes]) -> None:
    folder.mkdir(parents=True)
    for part, images, labels in zip(("train", "t10k"), x, y, strict=True):
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))


def write_emnist(folder: Path, split: str, x: Bytes, y: Bytes) -> None:
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "gzip.zip", "w") as archive:
        for part in ("train", "test"):
            archive.writestr(f"gzip/emnist-{split}-{part}-images-idx3-ubyte.gz", gzip.compress(idx(x)))
            archive.writestr(f"gzip/emnist-{split}-{part}-labels-idx1-ubyte.gz", gzip.compress(idx(y)))


def tar(path: Path, files: Mapping[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def python2_pickle(content: Mapping[str, Any]) -> bytes:
    """Protocol 2 as Python 2 wrote CIFAR's batches: byte strings, and arrays rebuilt by numpy.core.multiarray."""
    out = io.BytesIO()
    out.write(b"\x80\x02}(")

    def put(value: Any) -> None:
        if isinstance(value, str):
            raw = value.encode()
            out.write(b"U" + bytes([len(raw)]) + raw)
        elif isinstance(value, int):
            out.write(b"J" + struct.pack("<i", value))
        elif isinstance(value, list):
            out.write(b"](")
            for item in value:
                put(item)
            out.write(b"e")
        else:
            raw = value.tobytes()
            out.write(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01")
            out.write(b"".join(b"J" + struct.pack("<i", side) for side in value.shape) + b"\x86")
            # dtype('u1') with its state; C order; the bytes.
            out.write(
                b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
            )
            out.write(b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb")

    for key, value in content.items():
        put(key)
        put(value)
    out.write(b"u.")
    return out.getvalue()


def cifar_rows(n: int) -> Bytes:
    return RNG.integers(256, size=(n, 3072), dtype=np.uint8)


def write_cifar10(folder: Path, rows: Sequence[Bytes], labels: Sequence[list[int]], *, binary: bool) -> None:
    names = ["train" if i < 5 else "test" for i in range(6)]
    parts = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    assert len(rows) == len(labels) == len(names)
    words = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    if binary:
        files = {
            f"cifar-10-batches-bin/{part}.bin": b"".join(
                bytes([c]) + row.tobytes() for c, row in zip(y, x, strict=True)
            )
            for part, x, y in zip(parts, rows, labels, strict=True)
        }
        files["cifar-10-batches-bin/batches.meta.txt"] = "\n".join(words).encode() + b"\n\n"
        tar(folder / "cifar-10-binary.tar.gz", files)
        return
    files = {
        f"cifar-10-batches-py/{part}": python2_pickle({"batch_label": part, "labels": y, "data": x})
        for part, x, y in zip(parts, rows, labels, strict=True)
    }
    files["cifar-10-batches-py/batches.meta"] = python2_pickle({"label_names": words})
    tar(folder / "cifar-10-python.tar.gz", files)


def write_cifar100(folder: Path, rows: Bytes, fine: list[int], *, binary: bool) -> None:
    words = [f"thing_{i}" for i in range(100)]
    coarse = [c // 5 for c in fine]
    if binary:
        body = b"".join(bytes([a, b]) + row.tobytes() for a, b, row in zip(coarse, fine, rows, strict=True))
        files = {f"cifar-100-binary/{part}.bin": body for part in ("train", "test")}
        files["cifar-100-binary/fine_label_names.txt"] = "\n".join(words).encode() + b"\n"
        tar(folder / "cifar-100-binary.tar.gz", files)
        return
    batch = python2_pickle({"fine_labels": fine, "coarse_labels": coarse, "data": rows})
    files = {f"cifar-100-python/{part}": batch for part in ("train", "test")}
    files["cifar-100-python/meta"] = python2_pickle({"fine_label_names": words, "coarse_label_names": []})
    tar(folder / "cifar-100-python.tar.gz", files)


def write_stl10(folder: Path, x: Bytes, y: Bytes) -> None:
    """Images (n, 96, 96, 3) become planes that run down the columns; labels count from 1."""
    planes = np.ascontiguousarray(x.transpose(0, 3, 2, 1)).tobytes()
    files = {f"stl10_binary/{part}_X.bin": planes for part in ("train", "test")}
    files |= {f"stl10_binary/{part}_y.bin": (y + 1).tobytes() for part in ("train", "test")}
    files["stl10_binary/class_names.txt"] = (
        b"airplane\nbird\ncar\ncat\ndeer\ndog\nhorse\nmonkey\nship\ntruck\n"
    )
    tar(folder / "stl10_binary.tar.gz", files)


def leaf(users: Mapping[str, tuple[Bytes, list[int]]]) -> str:
    data = {w: {"x": [(row / 255).ravel().tolist() for row in x], "y": y} for w, (x, y) in users.items()}
    return json.dumps(
        {"users": list(users), "num_samples": [len(y) for _, y in users.values()], "user_data": data}
    )


def picture(colour: tuple[int, int, int] | int, side: int = 8, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("L" if isinstance(colour, int) else "RGB", (side, side), colour).save(out, kind)
    return out.getvalue()


def tree(root: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def hostile_pickle() -> bytes:
    class Call:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return print, ("executed",)

    return pickle.dumps({"data": Call()}, protocol=2)
