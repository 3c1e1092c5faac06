"""Read features, labels and ids from .npz, .safetensors, .parquet, .csv and .tsv files. Tables need pyarrow."""

import hashlib
import math
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from client_sdk.records import Records, normalise_text
from veilsum.calibration import CalibrationError
from veilsum.calibration.rows import row_blocks, unit_rows
from veilsum.cli.moments import Moments
from veilsum.cli.tables import Array, Table, TableFormat, read_csv, read_parquet
from veilsum.protocol.errors import Misuse
from veilsum.protocol.forms import count_noun
from veilsum.protocol.study import Question

Features = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.integer[Any]]

Part = tuple[Features, Labels]

LABEL_CLASSES_MAX = 65_535
_HOLD_OUT_DRAWS = 1 << 32
_ARRAY_NAMES = ("features", "labels", "ids")
_RECORD_COLUMN = b"veilsum calibration record 2 "
_OTHER_SHARE = re.compile(r"\d+([.,]\d+)?\s*%|\d+,\d+")
"""Percentages, and shares with a decimal comma."""
_PLAIN = TableFormat()


@dataclass(frozen=True, repr=False, eq=False)
class FileRecords(Records):
    """Records of a file. The study decides whether an integer label is a class key, such as "7", or a class index.

    Attributes:
        moments_digest: SHA-256 of the file of moments that standardised them; None if they are as in the file.
    """

    moments_digest: str | None = None
    texts: tuple[str, ...] = field(init=False)
    """The labels as written in the file; "" for a missing label."""

    _ROW_FIELDS: ClassVar[tuple[str, ...]] = (*Records._ROW_FIELDS, "texts")  # noqa: SLF001 - of its subclass

    def __post_init__(self) -> None:
        given = np.asarray(self.labels).reshape(-1)
        texts = ("" if each is None or each != each else str(each).strip() for each in given.tolist())  # noqa: PLR0124 - NaN
        object.__setattr__(self, "texts", tuple(map(sys.intern, texts)))  # few are distinct
        super().__post_init__()

    def check_columns(self, question: Question) -> list[int] | None:
        """As `Records` does. Raises Misuse, too, if the study's extractor is not the file of moments."""
        if self.moments_digest not in {None, question.extractor}:
            raise Misuse(
                f"the records are standardised by moments with SHA-256 {self.moments_digest}; the study's extractor is {question.extractor}"
            )
        return super().check_columns(question)

    def index_labels(self, classes: Sequence[str]) -> npt.NDArray[np.int64]:
        """Map labels to class indices, as `Records` does. If any class key is a number, integer labels are class keys."""
        numbers = any(key.lstrip("-").isdecimal() for key in classes)
        places = {normalise_text(key) if numbers else str(place): place for place, key in enumerate(classes)}
        places |= {key: place for place, key in enumerate(classes)}
        found = (places.get(text, places.get(normalise_text(text), -1)) for text in self.texts)
        return np.fromiter(found, np.int64, len(self.texts))


_Arrays = tuple[dict[str, Array], list[str]]
"""The arrays that are read, and the names of all, for error messages."""


def read_table(path: Path, form: TableFormat = _PLAIN) -> Table:
    """Read features, labels and ids.

    `.npz` and `.safetensors` hold arrays named `features`, `labels` and, optionally, `ids`. `.parquet`, `.csv` and `.tsv` have a
    column `label`, optionally a column of ids, and one column for each feature; in `.parquet` a column `features` may hold a list of
    numbers for each record instead. Text files may be gzipped (`.csv.gz`), and commas, semicolons, tabs or bars separate their columns.

    Raises:
        Misuse: the format is unknown; the file, an array or a column is missing; a column is repeated, or numbers the rows; an array needs
            unpickling; or `form` has an option that this format lacks.
        OSError: the file can't be opened.
        MemoryError: its records don't fit into this machine's memory.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    kind = "".join(suffixes if suffixes[-1:] == [".gz"] else suffixes[-1:])
    read_named, read_arrays = _TABLE_READERS.get(kind), _ARRAY_READERS.get(kind)
    if read_named is None and read_arrays is None:
        known = ", ".join([*_ARRAY_READERS, *_TABLE_READERS])
        hint = ". Put features and labels into one .npz by numpy.savez" if kind == ".npy" else ""
        raise Misuse(f"{path}: unknown format {kind or '(none)'}, expected {known}{hint}")
    if form.names_columns and read_named is None:
        raise Misuse(
            f"--id-column and --label-column are for tables: {kind} files hold arrays `labels` and `ids`"
        )
    if form.describes_text and read_named is not read_csv:
        raise Misuse(f"--decimal-comma and --encoding are for .csv and .tsv files, not {kind}")
    if not path.is_file():
        raise Misuse(f"{path} does not exist, or is not a file")
    path.open("rb").close()  # the parsers would take a file that may not be read for a damaged one
    try:
        if read_named is not None:
            return read_named(path, form)
        assert read_arrays is not None
        arrays, names = read_arrays(path)
    except (Misuse, MemoryError):
        raise
    except Exception as error:  # each parser has its own errors, which may quote the file
        raise Misuse(
            f"can't read {path} as {path.suffix}: it is damaged, has another format, or holds Python objects "
            f"({type(error).__name__}). Turn objects into text with .astype(str)"
        ) from error
    return _take_arrays(path, arrays, names)


def _take_arrays(path: Path, arrays: dict[str, Array], names: list[str]) -> Table:
    if missing := [name for name in ("features", "labels") if name not in arrays]:
        raise Misuse(
            f"{path} has no {' and no '.join(missing)}: its arrays are {', '.join(names) or 'none'}. Add or rename "
            + " and ".join(f"the array {name!r}" for name in missing)
        )
    features = arrays["features"]
    if features.ndim != 2 or not features.shape[1]:
        raise Misuse(f"{path}: features have shape {features.shape}, expected (n, dim), one row a record")
    if features.dtype.kind not in "fiub":  # a later error would quote a value
        raise Misuse(f"{path}: features are {features.dtype}, expected numbers")
    if not len(features):
        raise Misuse(f"{path} holds no records")
    return Table(features, arrays["labels"], arrays.get("ids"))


def read_records(path: Path, form: TableFormat = _PLAIN, standardise: Path | None = None) -> FileRecords:
    """Read records, and standardise them by a file of moments: only a study whose extractor is that file takes them.

    Raises Misuse as `read_table` does, and if features, labels or ids have a wrong shape or type, or the moments don't fit.
    """
    table = read_table(path, form)
    if standardise is None:
        with of_file(path):
            return make_records(table)
    found, digest = Moments.load_moments(standardise), hashlib.sha256(standardise.read_bytes()).hexdigest()
    with of_file(path):
        return make_records(found.standardise_table(table), digest)


def make_records(table: Table, moments_digest: str | None = None) -> FileRecords:
    """Make records of a table. Raises Misuse or CalibrationError for values of a wrong type."""
    return FileRecords(table.features, table.labels, table.ids, table.columns, moments_digest=moments_digest)


def read_tables(paths: Sequence[Path], form: TableFormat) -> list[Table]:
    """Read the files of one command. Raises Misuse as `read_table` does, and if columns that have names differ from the first file's.

    Columns stand in the order of the first file that names them.
    """
    tables, first = list[Table](), ("", tuple[str, ...]())
    for path in paths:
        table = read_table(path, form)
        if not first[1]:
            first = (f"those of {path}", table.columns)
        with of_file(path):
            tables.append(table.order_columns(first[1], first[0]))
    return tables


def class_keys(parts: Sequence[FileRecords]) -> list[str]:
    """Return class keys for records without a study: `class-0` and so on if all labels are class indices, else the sorted labels.

    Raises:
        Misuse: the labels are numbers that are not class indices, or there are too few or too many classes.
    """
    labels = {normalise_text(text) for part in parts for text in part.texts} - {""}
    if all(map(_is_number, labels)):
        indices = set(filter(is_class_index, labels))
        for part in parts if indices < labels else ():
            for row, text in enumerate(part.texts):
                if text and normalise_text(text) not in indices:
                    raise Misuse(
                        f"labels are numbers, but the one in row {row} (counted from 0) is not a class index from 0 to {LABEL_CLASSES_MAX - 1}: "
                        "number the classes from 0, leave missing labels empty, or write class keys as text"
                    )
        if len(labels) != 1:  # without any label, each command says which rows it can't use
            return [f"class-{index}" for index in range(max([1, *map(int, labels)]) + 1)]
    keys = sorted(labels)
    if not 2 <= len(keys) <= LABEL_CLASSES_MAX:
        raise Misuse(
            f"labels have {count_noun(len(keys), 'class', 'classes')}, expected 2 to {LABEL_CLASSES_MAX:,}"
        )
    return keys


def is_class_index(label: str) -> bool:
    """Whether a label in `normalise_text`'s spelling is a class index."""
    # Python reads no whole number of very many digits.
    return label.isdecimal() and len(label) <= len(str(LABEL_CLASSES_MAX)) and int(label) < LABEL_CLASSES_MAX


def divide_records(
    features: Features, labels: Labels, ids: Sequence[bytes] | None, share: float
) -> tuple[Part, Part]:
    """Divide (n, dim) features, no row all zeros, and (n,) labels into a share that is held out and the rest.

    The digest of a row's id, or of the row if there are no ids, determines its part. So every run has the same parts, and all rows of one
    record are in one part: otherwise a head would be judged on records whose other rows it was fitted to.
    """
    held = np.array(
        [
            int.from_bytes(hashlib.sha256(_RECORD_COLUMN + each).digest()[-8:], "little") % _HOLD_OUT_DRAWS
            < share * _HOLD_OUT_DRAWS
            for each in (_row_bytes(features, labels) if ids is None else ids)
        ],
        bool,
    )
    return (features[held], labels[held]), (features[~held], labels[~held])


def _row_bytes(features: Features, labels: Labels) -> Iterator[bytes]:
    """Yield what identifies each row without an id: its direction and its label."""
    for block in row_blocks(*features.shape):
        rows = (unit_rows(features[block], first=block.start)[0] + 0.0).astype("<f8")  # −0.0 as 0.0
        for row, label in zip(rows, labels[block], strict=True):
            yield row.tobytes() + int(label).to_bytes(8, "little")


def held_out_from(given: str | None) -> float | Path | None:
    """Read `--held-out`: a share of the records, or a file. Raises Misuse for a share that leaves no records."""
    if given is None:
        return None
    try:
        share = float(given)
    except ValueError:
        if not _OTHER_SHARE.fullmatch(given):
            return Path(given)
        share = math.nan
    if not 0 < share < 1:
        raise Misuse(f"--held-out {given}: expected a share between 0 and 1, such as 0.2, or a file")
    return share


@contextmanager
def of_file(*paths: Path) -> Iterator[None]:
    """Re-raise errors about records as Misuse, which names their files."""
    try:
        yield
    except (CalibrationError, Misuse) as error:
        raise Misuse(f"{', '.join(map(str, paths))}: {error}") from error


def _read_npz(path: Path) -> _Arrays:
    if not zipfile.is_zipfile(path):
        raise Misuse(f"{path} is not an .npz archive: write it with numpy.savez")
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in _ARRAY_NAMES if name in archive.files}, archive.files


def _read_safetensors(path: Path) -> _Arrays:
    from safetensors import safe_open  # noqa: PLC0415 - only this format needs it

    with safe_open(path, framework="numpy") as file:
        names = list(file.keys())
        kinds = {name: file.get_slice(name).get_dtype() for name in _ARRAY_NAMES if name in names}
        if strange := [f"{name} of {kind}" for name, kind in kinds.items() if kind not in _SAFE_DTYPES]:
            raise Misuse(f"{path} holds {', '.join(strange)}; expected {', '.join(_SAFE_DTYPES)}")
        return {name: file.get_tensor(name) for name in kinds}, names


_SAFE_DTYPES = ("F16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64")
"""Supported safetensors types: numpy's."""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


_ARRAY_READERS: dict[str, Callable[[Path], _Arrays]] = {".npz": _read_npz, ".safetensors": _read_safetensors}
_TABLE_READERS: dict[str, Callable[[Path, TableFormat], Table]] = {
    ".parquet": read_parquet,
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), read_csv),
}
