"""Features and labels from files: .npz, .npy, .safetensors, .parquet, .csv. No torch needed."""

import csv
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibration import CalibrationError
from calibration.digest import digests_of
from calibration.rows import as_features, as_labels, check_rows, unit_rows
from protocol.errors import Misuse

Array = npt.NDArray[Any]
Features = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.integer[Any]]

Part = tuple[Features, Labels]

MAX_CLASSES = 65_535
_DRAWS = 1 << 32
_WANTED = ("features", "labels")
_INDEX = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")
"""What pandas calls a column that was a data frame's index."""


class _Found(NamedTuple):
    arrays: dict[str, Array]
    names: list[str]
    """Of everything in the file, for whoever looks for what is missing."""


def read_features(path: Path, labels: Path | None = None) -> tuple[Features, Labels]:
    """Features (n, dim) and labels (n,), as they stand in the files.

    `.npz` and `.safetensors` hold arrays named `features` and `labels`, bfloat16 among them. `.npy` holds the features and takes
    the labels from a second `.npy`. `.parquet` and `.csv` have a column `label`; every other column is a feature, or, in
    `.parquet`, the column `features` holds a list of numbers for each record, and `label` is the only other one.

    Raises:
        Misuse: a form that isn't read, a missing file, array or column, a column of a repeated name or that was a data frame's
            index, or an array that needs unpickling.
    """
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise Misuse(f"{path} is not one of {', '.join(_READERS)}")
    arrays, names = _read(path, reader)
    if labels is not None:
        if "labels" in arrays:
            raise Misuse(f"{path} has labels of its own: leave out --labels")
        arrays["labels"] = _read(labels, _npy).arrays["features"]
    missing = [name for name in _WANTED if name not in arrays]
    if missing == ["labels"] and path.suffix == ".npy":
        raise Misuse(f"{path} has no labels: pass --labels FILE.npy, or save both in one .npz")
    if missing:
        raise Misuse(f"{path} has no {' and no '.join(missing)}: it holds {', '.join(names) or 'nothing'}")
    return arrays["features"], arrays["labels"]


def checked_features(
    path: Path, labels: Path | None = None, *, normalise: bool, classes: int = MAX_CLASSES
) -> tuple[Features, Labels]:
    """As `read_features`, refused at once where statistics would refuse them hours later.

    Raises:
        Misuse: also wrong shapes or types, NaN, rows not of length 1, labels out of range, no records.
    """
    features, y = read_features(path, labels)
    if features.ndim != 2 or not features.shape[1]:
        raise Misuse(f"{path}: features have shape {features.shape}, not (n, dim): one row a record")
    if not len(features):
        raise Misuse(f"{path} holds no records")
    with of_file(path):
        matrix = as_features(features, features.shape[1])
        indices = as_labels(y, len(matrix), classes)
        check_rows(matrix, normalise=normalise)
    return matrix, indices


def split(features: Features, labels: Labels, share: float) -> tuple[Part, Part]:
    """Records to fit and records to hold out, in their order.

    A record's own digest decides, so that every run holds out the same ones, and copies of a record stay together.

    Args:
        features: (n, dim), none without direction.
        labels: (n,).
        share: to hold out, from 0 below 1.
    """
    if not share:
        return (features, labels), (features[:0], labels[:0])
    rows, _ = unit_rows(features)
    limit = int(share * _DRAWS)
    drawn = (
        int.from_bytes(digest[-8:], "little") % _DRAWS for digest in digests_of(rows, labels.astype(np.int64))
    )
    held = np.fromiter((each < limit for each in drawn), bool, len(labels))
    return (features[~held], labels[~held]), (features[held], labels[held])


@contextmanager
def of_file(path: Path) -> Iterator[None]:
    """Within the block an error about statistics is told with the file's name, as Misuse."""
    try:
        yield
    except CalibrationError as error:
        raise Misuse(f"{path}: {error}") from error


def _read(path: Path, reader: Any) -> _Found:
    if not path.is_file():
        raise Misuse(f"{path} does not exist, or is not a file")
    try:
        found: _Found = reader(path)
    except Misuse:
        raise
    except Exception as error:  # each parser fails in its own ways on a damaged file
        raise Misuse(
            f"{path} is not a readable {path.suffix} of plain numbers: {str(error) or type(error).__name__}"
        ) from error
    return found


def _npz(path: Path) -> _Found:
    if not zipfile.is_zipfile(path):
        raise Misuse(f"{path} is not an .npz archive: write it with numpy.savez")
    with np.load(path, allow_pickle=False) as archive:
        return _Found({name: archive[name] for name in _WANTED if name in archive.files}, archive.files)


def _npy(path: Path) -> _Found:
    with path.open("rb") as file:  # numpy.load would try pickle on what is no .npy
        return _Found({"features": np.lib.format.read_array(file, allow_pickle=False)}, ["features"])


def _safetensors(path: Path) -> _Found:
    from safetensors import safe_open  # noqa: PLC0415 - only this form needs it

    with safe_open(path, framework="numpy") as file:
        names = list(file.keys())
        kinds = {name: file.get_slice(name).get_dtype() for name in _WANTED if name in names}
        if strange := [f"{name} of {kind}" for name, kind in kinds.items() if kind not in _SAFE]:
            raise Misuse(f"{path} holds {', '.join(strange)}: read are {', '.join(_SAFE)}")
        found = {
            name: _bfloat16(path, name) if kind == "BF16" else file.get_tensor(name)
            for name, kind in kinds.items()
        }
    return _Found(found, names)


_SAFE = ("F16", "BF16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64")
"""Types of safetensors that are read: numpy's, and the upper half of float32."""


def _bfloat16(path: Path, name: str) -> Array:
    """An array of bfloat16 as float32, which holds each exactly; of a file whose header was checked before."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        about = json.loads(file.read(size))[name]
        start, end = about["data_offsets"]
        file.seek(8 + size + start)
        halves = np.frombuffer(file.read(end - start), "<u2")
    return (halves.astype(np.uint32) << 16).view(np.float32).reshape(about["shape"])


def _parquet(path: Path) -> _Found:
    try:
        from pyarrow import parquet  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise Misuse("reading .parquet needs its extra: pip install 'veilsum[parquet]'") from error
    with parquet.ParquetFile(path) as file:
        table = file.read()
    about = table.schema.pandas_metadata or {}
    _check_names(
        path, table.column_names, [each for each in about.get("index_columns", ()) if each != "label"]
    )
    columns = {name: _column(table.column(name)) for name in table.column_names}
    if (
        "features" in columns and columns["features"].ndim == 2
    ):  # embeddings are mostly kept as one column of lists
        if others := sorted({*columns} - {"features", "label"}):
            raise Misuse(
                f"{path}: column {', '.join(others)} stands beside the lists in `features` and would be left out: keep only "
                "`features` and `label`"
            )
        labels = {"labels": columns["label"]} if "label" in columns else {}
        return _Found({"features": columns["features"], **labels}, list(columns))
    return _columns(path, columns)


def _column(column: Any) -> Array:
    """A column's values; of a column of lists of one length its rows."""
    values: Array = column.to_numpy()
    if values.dtype == object and len(values) and all(isinstance(each, np.ndarray) for each in values):
        return np.stack(list(values))
    return values


def _csv(path: Path) -> _Found:
    """A header line with a column `label`; every other column is a feature."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    if not header:
        raise Misuse(f"{path} is empty: its first line names the columns, `label` and one for each feature")
    _check_names(path, header)
    if not rows:
        raise Misuse(f"{path} holds no records, only the names of {len(header)} columns")
    ragged = [number for number, row in enumerate(rows, 2) if len(row) != len(header)]
    if ragged:
        raise Misuse(f"{path}: line {ragged[0]} has not the {len(header)} columns of the first line")
    texts = zip(header, map(np.array, zip(*rows, strict=True)), strict=True)
    return _columns(path, {name: _numbers(path, name, each) for name, each in texts})


def _numbers(path: Path, name: str, texts: Array) -> Array:
    """A column's texts as labels or as features; Misuse names the first that is no number."""
    wanted = np.int64 if name == "label" else np.float64
    try:
        return texts.astype(wanted)
    except (ValueError, OverflowError):
        line, text = next(
            (line, text) for line, text in enumerate(texts.tolist(), 2) if not _is(wanted, text)
        )
    what = f"{path}: {text!r} in line {line}, column {name}, is no "
    if name == "label":
        raise Misuse(
            f"{what}class index: write whole numbers from 0, the same for the same class at all members"
        )
    raise Misuse(f"{what}number: mend it, or leave the column out at all members")


def _is(wanted: type[np.generic], text: str) -> bool:
    try:
        np.array(text).astype(wanted)
    except (ValueError, OverflowError):
        return False
    return True


def _check_names(path: Path, names: Sequence[str], index: Sequence[Any] = ()) -> None:
    """Refuse a column that would hide another of its name, and a data frame's index, which is no feature (Misuse)."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise Misuse(f"{path} has several columns of the name {', '.join(twice)}: give each its own")
    if indices := [name for name in names if _INDEX.fullmatch(name) or name in index]:
        raise Misuse(
            f"{path}: column {', '.join(map(repr, indices))} is a data frame's index and no feature: write the file with "
            "index=False"
        )


def _columns(path: Path, columns: dict[str, Array]) -> _Found:
    """Features in a column each, and the labels in theirs."""
    found = _Found({}, list(columns))
    if (labels := columns.pop("label", None)) is not None:
        found.arrays["labels"] = labels
    strange = [name for name, values in columns.items() if values.dtype.kind not in "fiu" or values.ndim != 1]
    if strange:
        raise Misuse(f"{path}: no numbers in column {', '.join(strange)}; a feature is a column of its own")
    if columns:
        found.arrays["features"] = np.column_stack(list(columns.values()))
    return found


_READERS = {".npz": _npz, ".npy": _npy, ".safetensors": _safetensors, ".parquet": _parquet, ".csv": _csv}
