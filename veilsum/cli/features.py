"""Read features, labels and ids from .npz, .safetensors, .parquet, .csv, .tsv and .pt files. Only .pt needs torch."""

import csv
import gzip
import hashlib
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from client_sdk.records import Records, normalise_text
from veilsum.calibration import CalibrationError
from veilsum.calibration.rows import as_array, unit_rows
from veilsum.protocol.errors import Misuse
from veilsum.system.files import write_durably

Array = npt.NDArray[Any]
Features = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.integer[Any]]

Part = tuple[Features, Labels]

LABEL_CLASSES_MAX = 65_535
_HOLD_OUT_DRAWS = 1 << 32
_ARRAY_NAMES = ("features", "labels", "ids")
_RECORD_COLUMN = b"veilsum calibration record 2 "
_INDEX_COLUMN = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")
"""Column names that pandas gives to the index of a data frame."""


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a file, unchanged.

    Attributes:
        features: (n, dim).
        labels: (n,) class indices, or text.
        ids: (n,) record ids, or None.
    """

    features: Features
    labels: Array
    ids: Array | None


@dataclass(frozen=True, repr=False, eq=False)
class FileRecords(Records):
    """Records of a file. The study decides whether an integer label is a class key, such as "7", or a class index."""

    texts: tuple[str, ...] = field(init=False)
    """The labels as written in the file; "" for a missing label."""

    def __post_init__(self) -> None:
        given = np.asarray(self.labels)
        super().__post_init__()
        texts = ("" if each is None or each != each else str(each).strip() for each in given.tolist())  # noqa: PLR0124 - NaN
        object.__setattr__(self, "texts", tuple(texts))

    def indices(self, classes: Sequence[str]) -> npt.NDArray[np.int64]:
        """Map labels to class indices, as `Records` does. If any class key is a number, integer labels are class keys."""
        numbers = any(key.lstrip("-").isdecimal() for key in classes)
        places = {normalise_text(key) if numbers else str(place): place for place, key in enumerate(classes)}
        places |= {key: place for place, key in enumerate(classes)}
        found = (places.get(text, places.get(normalise_text(text), -1)) for text in self.texts)
        return np.fromiter(found, np.int64, len(self.texts))


@dataclass(frozen=True, eq=False)
class Moments:
    """Public moments that standardise tabular features: (x − mean)/scale.

    The SHA-256 of the moments' file is the extractor of a study over standardised features, so that all members use the same moments.

    Attributes:
        mean: (dim,), subtracted from features.
        scale: (dim,), divisors above 0.
    """

    mean: Features
    scale: Features

    @classmethod
    def of_features(cls, features: Features) -> Self:
        """Compute mean and standard deviation of each column, over finite rows; the scale of a constant column is 1."""
        rows = features[np.isfinite(features).all(axis=1)].astype(np.float64)
        if not len(rows):
            raise Misuse("can't compute moments: every row holds NaN or infinity")
        # Rounding would give a constant column another mean and a tiny scale.
        varied, scale = rows.max(axis=0) > rows.min(axis=0), rows.std(axis=0)
        mean = np.where(varied, rows.mean(axis=0), rows[0])
        return cls(mean, np.where(varied & (scale > 0), scale, 1.0))

    @classmethod
    def load_moments(cls, path: Path) -> Self:
        """Read a file written by `save_moments`. Raises Misuse for any other file."""
        try:
            arrays = load_file(path)
            mean, scale = arrays["mean"], arrays["scale"]
        except (OSError, SafetensorError, KeyError) as error:
            raise Misuse(f"{path} does not hold moments: expected safetensors with mean and scale") from error
        shapes = mean.ndim == 1 and mean.shape == scale.shape
        if not (shapes and np.isfinite(mean).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise Misuse(f"{path}: expected a finite mean and a scale above 0 for each feature")
        return cls(mean, scale)

    def save_moments(self, path: Path) -> None:
        """Write the moments to a safetensors file."""
        write_durably(path, save({"mean": self.mean, "scale": self.scale}))

    def standardise(self, features: Array) -> Features:
        """Standardise (n, dim) features; returns float64."""
        if features.ndim != 2 or features.shape[1] != len(self.mean):
            raise Misuse(
                f"features have shape {features.shape}; the moments are of {len(self.mean)} features"
            )
        found: Features = (features.astype(np.float64) - self.mean) / self.scale
        return found


def moments_in(path: Path, parts: Sequence[Features]) -> Moments:
    """Read a file of moments; if it does not exist, compute it from these features and write it."""
    if not path.exists():
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise Misuse(
                f"files have {', '.join(map(str, sorted(widths)))} features, expected the same number in each"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        Moments.of_features(np.concatenate(parts)).save_moments(path)
    return Moments.load_moments(path)


class _Found(NamedTuple):
    arrays: dict[str, Array]
    names: list[str]
    """Everything in the file, for error messages."""


def read_table(path: Path, id_column: str | None = None) -> Table:
    """Read features, labels and ids.

    `.npz`, `.safetensors` and `.pt` hold arrays named `features`, `labels` and, optionally, `ids`. `.parquet`, `.csv` and `.tsv` have a
    column `label`, optionally a column of ids, and one column for each feature; in `.parquet` a column `features` may hold a list of
    numbers for each record instead. Text files may be gzipped (`.csv.gz`), and commas, semicolons, tabs or bars separate their columns.

    `id_column` names the id column, `id` by default.

    Raises:
        Misuse: the format is unknown; the file, an array or a column is missing; a column is repeated, or is the index of a data frame;
            or an array needs unpickling.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    kind = "".join(suffixes if suffixes[-1:] == [".gz"] else suffixes[-1:])
    reader = _READER_OF_SUFFIX.get(kind)
    if reader is None:
        raise Misuse(f"{path}: unknown format {kind or '(none)'}, expected {', '.join(_READER_OF_SUFFIX)}")
    if id_column is not None and reader not in {_read_csv, _read_parquet}:
        raise Misuse(f"--id-column is for tables: {kind} files hold an array `ids`")
    arrays, names = _read_arrays(path, reader, id_column)
    missing = [name for name in ("features", "labels") if name not in arrays]
    if missing:
        kind_of = "column" if reader in {_read_csv, _read_parquet} else "array"
        wanted = ["label" if kind_of == "column" and name == "labels" else name for name in missing]
        raise Misuse(
            f"{path} has no {' and no '.join(missing)}: its {kind_of}s are {', '.join(names) or 'none'}. Add or rename "
            + " and ".join(f"the {kind_of} {name!r}" for name in wanted)
        )
    features = arrays["features"]
    if features.ndim != 2 or not features.shape[1]:
        raise Misuse(f"{path}: features have shape {features.shape}, expected (n, dim), one row a record")
    if features.dtype.kind not in "fiub":  # a later error would quote a value
        raise Misuse(f"{path}: features are {features.dtype}, expected numbers")
    if not len(features):
        raise Misuse(f"{path} holds no records")
    return Table(features, arrays["labels"], arrays.get("ids"))


def read_records(path: Path, id_column: str | None = None, *, moments: Moments | None = None) -> FileRecords:
    """Read records. Raises Misuse as `read_table` does, and if features, labels or ids have a wrong shape or type."""
    rows = read_table(path, id_column)
    with of_file(path):
        features = rows.features if moments is None else moments.standardise(rows.features)
        return FileRecords(features, rows.labels, rows.ids)


def class_keys(parts: Sequence[FileRecords]) -> list[str]:
    """Return class keys for records without a study: `class-0` and so on if all labels are class indices, else the sorted labels.

    Raises:
        Misuse: the labels are numbers that are not class indices, or there are too few or too many classes.
    """
    labels = {normalise_text(text) for part in parts for text in part.texts} - {""}
    if all(map(_is_number, labels)):
        if not all(label.isdecimal() and int(label) < LABEL_CLASSES_MAX for label in labels):
            raise Misuse(
                f"labels are numbers, but not class indices from 0 to {LABEL_CLASSES_MAX - 1}: number the classes from 0, leave "
                "missing labels empty, or write class keys as text"
            )
        return [f"class-{index}" for index in range(max([1, *map(int, labels)]) + 1)]
    keys = sorted(labels)
    if not 2 <= len(keys) <= LABEL_CLASSES_MAX:
        raise Misuse(f"labels are of {len(keys)} classes, expected 2 to {LABEL_CLASSES_MAX}")
    return keys


def divide_records(
    features: Features, labels: Labels, ids: Sequence[bytes] | None, bounds: Sequence[float]
) -> list[Part]:
    """Divide (n, dim) features, no row all zeros, and (n,) labels into one part for each interval of 0 to 1 between `bounds`.

    The digest of a row's id, or of the row if there are no ids, determines its part. So every run has the same parts, and all rows of one
    record are in one part: otherwise a head would be judged on records whose other rows it was fitted to.
    """
    if ids is None:
        rows = (unit_rows(features)[0] + 0.0).astype("<f8")  # −0.0 as 0.0
        ids = [
            row.tobytes() + int(label).to_bytes(8, "little") for row, label in zip(rows, labels, strict=True)
        ]
    drawn = [
        int.from_bytes(hashlib.sha256(_RECORD_COLUMN + each).digest()[-8:], "little")
        % _HOLD_OUT_DRAWS
        / _HOLD_OUT_DRAWS
        for each in ids
    ]
    places = np.searchsorted(bounds, drawn, side="right")
    return [(features[places == part], labels[places == part]) for part in range(len(bounds) + 1)]


def held_out_from(given: str | None) -> float | Path | None:
    """Read `--held-out`: a share of the records, or a file. Raises Misuse for a share that leaves no records."""
    if given is None:
        return None
    try:
        share = float(given)
    except ValueError:
        return Path(given)
    if not 0 < share < 1:
        raise Misuse(f"--held-out {given}: expected a share between 0 and 1, or a file")
    return share


@contextmanager
def of_file(*paths: Path) -> Iterator[None]:
    """Re-raise errors about records as Misuse, which names their files."""
    try:
        yield
    except (CalibrationError, Misuse) as error:
        raise Misuse(f"{', '.join(map(str, paths))}: {error}") from error


def _read_arrays(path: Path, reader: Any, id_column: str | None) -> _Found:
    if not path.is_file():
        raise Misuse(f"{path} does not exist, or is not a file")
    try:
        found: _Found = reader(path, id_column)
    except Misuse:
        raise
    except CalibrationError as error:
        raise Misuse(f"{path}: {error}") from error
    except Exception as error:  # each parser has its own errors, which may quote the file
        raise Misuse(
            f"can't read {path} as {path.suffix}: it is damaged, of another format, not UTF-8, or holds Python objects, which "
            f".astype(str) turns into text ({type(error).__name__})"
        ) from error
    return found


def _read_npz(path: Path, _id_column: str | None) -> _Found:
    if not zipfile.is_zipfile(path):
        raise Misuse(f"{path} is not an .npz archive: write it with numpy.savez")
    with np.load(path, allow_pickle=False) as archive:
        return _Found({name: archive[name] for name in _ARRAY_NAMES if name in archive.files}, archive.files)


def _read_safetensors(path: Path, _id_column: str | None) -> _Found:
    from safetensors import safe_open  # noqa: PLC0415 - only this format needs it

    with safe_open(path, framework="numpy") as file:
        names = list(file.keys())
        kinds = {name: file.get_slice(name).get_dtype() for name in _ARRAY_NAMES if name in names}
        strange = [
            f"{name} of {kind}"
            for name, kind in kinds.items()
            if kind not in _SAFE_DTYPES or (kind == "BF16" and name != "features")
        ]
        if strange:
            raise Misuse(
                f"{path} holds {', '.join(strange)}; expected {', '.join(_SAFE_DTYPES)}; BF16 for features alone"
            )
        found = {
            name: _read_bfloat16(path, name) if kind == "BF16" else file.get_tensor(name)
            for name, kind in kinds.items()
        }
    return _Found(found, names)


_SAFE_DTYPES = ("F16", "BF16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64")
"""Supported safetensors types: numpy's, and bfloat16."""


def _read_bfloat16(path: Path, name: str) -> Array:
    """Read a bfloat16 array as float32, which holds each value exactly. The caller has checked the file's header."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        about = json.loads(file.read(size))[name]
        start, end = about["data_offsets"]
        file.seek(8 + size + start)
        halves = np.frombuffer(file.read(end - start), "<u2")
    return (halves.astype(np.uint32) << 16).view(np.float32).reshape(about["shape"])


def _read_parquet(path: Path, id_column: str | None) -> _Found:
    try:
        from pyarrow import parquet  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise Misuse("reading .parquet needs its extra: pip install 'veilsum[parquet]'") from error
    with parquet.ParquetFile(path) as file:
        table = file.read()
    about = table.schema.pandas_metadata or {}
    index = [each for each in about.get("index_columns", ()) if each not in ("label", id_column)]
    _check_names(path, table.column_names, index)
    columns = {name: _column_values(table.column(name)) for name in table.column_names}
    if "features" in columns and columns["features"].ndim == 2:  # embeddings in one column of lists
        ids = _take_ids(path, columns, id_column)
        if others := sorted({*columns} - {"features", "label"}):
            raise Misuse(
                f"{path}: column {', '.join(others)} is neither label nor id, and features are lists: remove it, or rename it id"
            )
        labels = {"labels": _to_texts(columns["label"])} if "label" in columns else {}
        return _Found({"features": columns["features"], **labels, **ids}, list(columns))
    return _read_columns(path, columns, id_column)


def _column_values(column: Any) -> Array:
    """Return a column's values; for a column of lists of one length, a matrix."""
    from pyarrow import types  # noqa: PLC0415 - an extra

    if types.is_dictionary(column.type):  # a missing entry would become the dictionary's last one
        column = column.cast(column.type.value_type)
    values: Array = column.to_numpy()
    if values.dtype == object and len(values) and all(isinstance(each, np.ndarray) for each in values):
        return as_array(list(values))
    return values


def _to_texts(values: Array) -> Array:
    """Convert an object array of text or bytes to numpy's type, with "" for missing values. Other arrays are unchanged."""
    if values.dtype != object:
        return values
    found = ["" if each is None else each for each in values]
    return np.array(found) if {type(each) for each in found} in ({str}, {bytes}) else values


def _read_pt(path: Path, _id_column: str | None) -> _Found:
    """Read a dictionary of tensors that `torch.save` wrote; other objects are not unpickled."""
    try:
        import torch  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise Misuse("reading .pt needs an extra: pip install 'veilsum[training]'") from error
    held = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(held, dict):
        raise Misuse(f"{path} holds a {type(held).__name__}, expected a dictionary with features and labels")
    given = {name: held[name] for name in _ARRAY_NAMES if name in held}
    if (
        getattr(given.get("features"), "dtype", None) == torch.bfloat16
    ):  # never for labels: bfloat16 can't represent 257
        given["features"] = given["features"].float()
    return _Found({name: as_array(each) for name, each in given.items()}, [str(name) for name in held])


_CSV_DELIMITERS = ",;\t|"


def _read_csv(path: Path, id_column: str | None) -> _Found:
    """Read a table with a header. The column `label` holds labels; the other columns are features, or ids."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8-sig") as file:
        names = file.readline()
        file.seek(0)
        delimiter = max(_CSV_DELIMITERS, key=names.count)  # csv.Sniffer also guesses letters
        reader = csv.reader(file, delimiter=delimiter)
        header, lines, rows = next(reader, []), list[int](), list[list[str]]()
        first = reader.line_num + 1  # first line of the next row: a quoted cell may hold line breaks
        for row in reader:
            if row:  # not a blank line
                lines.append(first)
                rows.append(row)
            first = reader.line_num + 1
    if "label" not in header:
        # Don't quote the line: without a header, it is a record.
        raise Misuse(
            f"{path}: its first line names no column label; expected a header with label, a name for each feature and, optionally, id"
        )
    _check_names(path, header)
    if not rows:
        raise Misuse(f"{path} holds no records, only the names of {len(header)} columns")
    for line, row in zip(lines, rows, strict=True):
        if len(row) != len(header):
            raise Misuse(f"{path}: line {line} does not have the {len(header)} columns of the first line")
    columns = dict(zip(header, map(np.array, zip(*rows, strict=True)), strict=True))
    ids = "id" if id_column is None else id_column
    values = {
        name: _to_integers(each)
        if name == "label"
        else each
        if name == ids
        else _to_numbers(path, name, each, lines)
        for name, each in columns.items()
    }
    return _read_columns(path, values, id_column)


def _to_integers(texts: Array) -> Array:
    """Convert a column of text to int64 if all values are integers; otherwise return it unchanged."""
    try:
        return texts if _has_underscore(texts).any() else texts.astype(np.int64)
    except (ValueError, OverflowError):
        return texts


def _to_numbers(path: Path, name: str, texts: Array, lines: Sequence[int]) -> Array:
    """Convert a column of text to float64, with NaN for empty text or NA. Raises Misuse, which names the first bad line, not its text."""
    texts = np.where((texts == "") | (texts == "NA"), "nan", texts)
    texts = np.where(_has_underscore(texts), "not a number", texts)
    try:
        return texts.astype(np.float64)
    except (ValueError, OverflowError):
        line = next(line for line, text in zip(lines, texts.tolist(), strict=True) if not _is_number(text))
    raise Misuse(
        f"{path}: line {line}, column {name} does not hold a number: name a column of ids by --id-column, remove other columns "
        "of text, and write numbers with a decimal point"
    )


def _has_underscore(texts: Array) -> npt.NDArray[np.bool_]:
    """Mark texts with an underscore, which numpy would read as numbers, as Python does: 1_0 is a label, not 10."""
    return np.char.find(texts, "_") >= 0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _check_names(path: Path, names: Sequence[str], index: Sequence[Any] = ()) -> None:
    """Refuse repeated columns, and a data frame's index, which is not a feature (Misuse)."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise Misuse(f"{path}: several columns are named {', '.join(twice)}")
    if indices := [name for name in names if _INDEX_COLUMN.fullmatch(name) or name in index]:
        raise Misuse(
            f"{path}: column {', '.join(map(repr, indices))} is the index of a data frame, not a feature: write the file with "
            "index=False"
        )


def _take_ids(path: Path, columns: dict[str, Array], id_column: str | None) -> dict[str, Array]:
    """Take the id column out of the columns."""
    name = "id" if id_column is None else id_column
    if name in columns:
        return {"ids": _to_texts(columns.pop(name))}
    if id_column is not None:
        raise Misuse(f"{path} has no column {id_column}; it has: {', '.join(columns)}")
    return {}


def _read_columns(path: Path, columns: dict[str, Array], id_column: str | None) -> _Found:
    """Read labels and ids from their columns, and one feature from each other column."""
    found = _Found({}, list(columns))
    found.arrays.update(_take_ids(path, columns, id_column))
    if (labels := columns.pop("label", None)) is not None:
        found.arrays["labels"] = _to_texts(labels)
    if ours := [name for name in columns if name.casefold() in {"id", "ids", "label", "labels"}]:
        raise Misuse(
            f"{path}: column {', '.join(ours)} is not a feature: name labels label and ids id, or pass --id-column; remove others"
        )
    strange = [name for name, values in columns.items() if values.dtype.kind not in "fiu" or values.ndim != 1]
    if strange:
        raise Misuse(
            f"{path}: column {', '.join(strange)} does not hold numbers: name a column of ids by --id-column, and remove other columns or "
            "convert them to numbers"
        )
    if columns:
        found.arrays["features"] = np.column_stack(list(columns.values()))
    return found


_READER_OF_SUFFIX = {
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".pt": _read_pt,
    ".parquet": _read_parquet,
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), _read_csv),
}
