"""Read tables with named columns: .csv, .tsv and .parquet files. pyarrow, the extra `tables`, reads them in parts.

So a file takes little more memory than its features. Python's csv module only finds the line of a fault: pyarrow's errors quote values.
"""

import codecs
import csv
import gzip
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from client_sdk.records import is_canary_id, match_columns
from veilsum.protocol.errors import Misuse
from veilsum.study.canaries import CANARY_PREFIX

Array = npt.NDArray[Any]

_CSV_DELIMITERS = ",;\t|"
_CSV_BLOCK_BYTES = 2**20
"""Bytes that pyarrow parses at a time; no row may be longer."""
_DECODED_BYTES = 2**16
"""Bytes that are decoded at a time to find a fault."""
_LISTS_PER_BATCH, _PARQUET_BUFFER_BYTES = 2048, 2**20
_INDEX_COLUMN = re.compile(r"\s*|index|Unnamed: \d+|__index_level_\d+__")
"""Column names that pandas gives to the index of a data frame."""
_RUNNING_ROWS_MIN = 10
"""Rows from which a column that counts up by one is taken for row numbers."""
SEVERAL_LABELS_HELP = "A head chooses one class for each row: see Several labels in docs/data.md"
_NO_FEATURE_NAMES = frozenset({"id", "ids", "label", "labels"})
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?(nan|inf|infinity)", re.IGNORECASE)
_DATE_TEXT = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"
_INTEGER_TEXT = r"^-?\d+$"
_TRUTH_TEXT = r"^(?i:true|false)$"
_NUMBER_TEXT, _FRACTION_TEXT = r"^-?\d+([.,]\d*)?$", r"[.,]\d*[1-9]"


@dataclass(frozen=True)
class TableFormat:
    """How to read a table. The command line's options for it say what each does.

    Raises Misuse for an unknown encoding.
    """

    id_column: str | None = None
    label_column: str | None = None
    decimal_comma: bool = False
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        try:
            codecs.lookup(self.encoding)
        except LookupError as error:
            raise Misuse(
                f"--encoding {self.encoding}: unknown encoding; expected one such as utf-8 or cp1252"
            ) from error

    @property
    def names_columns(self) -> bool:
        return self.id_column is not None or self.label_column is not None

    @property
    def describes_text(self) -> bool:
        """Whether an option says how text is written."""
        return self.decimal_comma or codecs.lookup(self.encoding).name != "utf-8"


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a file, unchanged.

    Attributes:
        features: (n, dim).
        labels: (n,) class indices, or text.
        ids: (n,) record ids, or None.
        columns: the features' names; empty if the file names none.
    """

    features: Array
    labels: Array
    ids: Array | None
    columns: tuple[str, ...] = ()

    @property
    def is_canary(self) -> npt.NDArray[np.bool_]:
        """Which rows are canaries, (n,)."""
        if self.ids is None:
            return np.zeros(len(self.features), bool)
        return np.fromiter(map(is_canary_id, self.ids.tolist()), bool, len(self.features))

    def take_rows(self, taken: Any) -> "Table":
        """Return these rows: a mask, or places."""
        ids = None if self.ids is None else self.ids[taken]
        return Table(self.features[taken], self.labels[taken], ids, self.columns)

    def add_rows(self, other: "Table") -> "Table":
        """Return the table with another one's rows after its own; ids become text."""
        if not len(other.features):
            return self
        assert self.ids is not None
        assert other.ids is not None
        ids = np.array([str(each) for each in (*self.ids.tolist(), *other.ids.tolist())], object)
        labels = np.array([str(each) for each in (*self.labels.tolist(), *other.labels.tolist())], object)
        return replace(self, features=np.concatenate([self.features, other.features]), labels=labels, ids=ids)

    def order_columns(self, wanted: Sequence[str], whose: str) -> "Table":
        """Return the table with its columns in this order, unless it or `wanted` has no names. Raises Misuse as `match_columns`."""
        order = match_columns(self.columns, wanted, whose) if self.columns and wanted else None
        return (
            self if order is None else replace(self, features=self.features[:, order], columns=tuple(wanted))
        )


class _Roles(NamedTuple):
    """Which column holds what."""

    label: str
    ids: str | None
    features: list[str]

    @property
    def texts(self) -> list[str]:
        return [self.label] if self.ids is None else [self.label, self.ids]


def read_parquet(path: Path, form: TableFormat) -> Table:
    """Read a table with one column for each feature, or with a column `features` of lists of numbers."""
    pa = _load_pyarrow(path)
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    with parquet.ParquetFile(path, pre_buffer=False, buffer_size=_PARQUET_BUFFER_BYTES) as file:
        schema = file.schema_arrow
        roles = _assign_columns(path, schema.names, form, _index_names(schema))
        kinds = [_plain_type(schema.field(name).type) for name in roles.features]
        lists = "features" in roles.features and _is_list(schema.field("features").type)
        if lists:
            if others := sorted({*roles.features} - {"features"}):
                raise Misuse(
                    f"{path}: column {', '.join(others)} is neither label nor id, and features are lists: remove it, or name it by "
                    "--id-column"
                )
            kinds = [kinds[0].value_type]
        strange = [
            name
            for name, kind in zip(roles.features, kinds, strict=True)
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind))
        ]
        if strange:
            what = "features hold" if lists else f"column {', '.join(strange)} holds"
            raise Misuse(
                f"{path}: {what} other values, expected numbers: name a column of ids by --id-column, and remove other columns or convert "
                "them to numbers"
            )
        dtype = np.result_type(
            *(np.float64 if pa.types.is_integer(kind) else kind.to_pandas_dtype() for kind in kinds)
        )
        if lists:
            batches = file.iter_batches(batch_size=_LISTS_PER_BATCH)
            features, texts = _gather_rows(path, batches, roles, dtype, rows_of_lists=file.metadata.num_rows)
        else:  # a reader of all columns at a time would hold the dictionaries of all
            features = np.empty((file.metadata.num_rows, len(roles.features)), dtype)
            for place, name in enumerate(roles.features):
                features[:, place] = _decode_column(file.read([name]).column(0)).to_numpy()
            texts = [_decode_column(file.read([name]).column(0)) for name in roles.texts]
        if not len(features):
            raise Misuse(f"{path} holds no records, only the names of {len(schema.names)} columns")
    ids = None if roles.ids is None else _read_ids(path, roles.ids, texts[1])
    columns = () if lists else tuple(roles.features)
    _refuse_row_numbers(path, features, columns)
    return Table(features, _read_labels(path, texts[0]), ids, columns)


def read_csv(path: Path, form: TableFormat) -> Table:
    """Read a table with a header; commas, semicolons, tabs or bars separate its columns. It may be gzipped."""
    pa = _load_pyarrow(path)
    from pyarrow import csv as arrow_csv  # noqa: PLC0415 - an extra

    header, delimiter = _read_header(path, form)
    _check_header(path, header, form.label_column or "label")
    roles = _assign_columns(path, header, form)
    types = {name: pa.string() if name in roles.texts else pa.float64() for name in header}
    try:
        with (
            pa.input_stream(str(path), compression="gzip" if _is_gzipped(path) else None) as stream,
            arrow_csv.open_csv(
                stream,
                arrow_csv.ReadOptions(block_size=_CSV_BLOCK_BYTES, encoding=form.encoding),
                arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                arrow_csv.ConvertOptions(
                    column_types=types,
                    strings_can_be_null=False,
                    decimal_point="," if form.decimal_comma else ".",
                ),
            ) as batches,
        ):
            features, texts = _gather_rows(path, batches, roles, np.dtype(np.float64))
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        fault = _find_fault(path, form, header, delimiter, roles)
        raise Misuse(fault) from error
    ids = None
    if roles.ids is not None:
        _check_id_texts(path, roles.ids, texts[1])
        ids = _read_ids(path, roles.ids, texts[1])
    _refuse_row_numbers(path, features, roles.features)
    return Table(features, _to_integers(texts[0]), ids, tuple(roles.features))


def _load_pyarrow(path: Path) -> Any:
    try:
        import pyarrow  # noqa: ICN001, PLC0415 - an extra
    except ImportError as error:
        raise Misuse(f"reading {path} needs an extra: pip install 'veilsum[tables]'") from error
    return pyarrow


def _assign_columns(path: Path, names: Sequence[str], form: TableFormat, index: Sequence[str] = ()) -> _Roles:
    """Find the columns of labels, ids and features. Raises Misuse for names that are missing, repeated or no feature's."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise Misuse(f"{path}: several columns are named {', '.join(twice)}")
    label = "label" if form.label_column is None else form.label_column
    ids = "id" if form.id_column is None else form.id_column
    for name, option in ((label, "--label-column"), (form.id_column, "--id-column")):
        if name is not None and name not in names:
            raise Misuse(
                f"{path} has no column {name}; it has: {', '.join(names)}. Rename the column, or name it by {option}"
            )
    if label == ids:
        raise Misuse(f"{path}: column {label} can't hold both labels and ids")
    found = _Roles(label, ids if ids in names else None, [each for each in names if each not in {label, ids}])
    if indices := [name for name in found.features if _INDEX_COLUMN.fullmatch(name) or name in index]:
        raise Misuse(
            f"{path}: column {', '.join(map(repr, indices))} is the index of a data frame, not a feature: write the file with "
            "index=False, or name it by --id-column if it identifies records"
        )
    if ours := [name for name in found.features if name.casefold() in _NO_FEATURE_NAMES]:
        raise Misuse(
            f"{path}: column {', '.join(ours)} is not a feature: name the columns of labels and ids by --label-column and --id-column, "
            "and remove others"
        )
    if not found.features:
        raise Misuse(f"{path} has no features: its columns are {', '.join(names)}")
    return found


def _index_names(schema: Any) -> list[str]:
    """Return the columns that hold a data frame's index, as pandas records them; a range has no column."""
    about = schema.pandas_metadata or {}
    return [each for each in about.get("index_columns", ()) if isinstance(each, str)]


def _gather_rows(
    path: Path, batches: Iterable[Any], roles: _Roles, dtype: np.dtype[Any], *, rows_of_lists: int = 0
) -> tuple[Array, list[Any]]:
    """Gather batches into (n, dim) features of this type, and a chunked array for each column of text.

    With `rows_of_lists`, a column `features` holds that many lists.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra

    lists = rows_of_lists > 0
    features, rows, texts = np.empty((0, 0), dtype), 0, list[list[Any]]([[] for _ in roles.texts])
    for batch in batches:
        end = rows + batch.num_rows
        width = features.shape[1] if lists else len(roles.features)
        if lists and batch.num_rows:
            width = _list_length(path, batch.column("features"), rows, width)
        if not features.shape[1]:
            features = np.empty((rows_of_lists, width), dtype)
        if end > len(features):  # the memory is moved, not copied
            features.resize((max(end, len(features) * 5 // 4), width), refcheck=False)
        if lists:
            flat = batch.column("features").flatten().to_numpy(zero_copy_only=False)
            features[rows:end] = flat.reshape(-1, width)
        else:
            for place, name in enumerate(roles.features):
                features[rows:end, place] = _decode_column(batch.column(name)).to_numpy(zero_copy_only=False)
        for parts, name in zip(texts, roles.texts, strict=True):
            parts.append(_decode_column(batch.column(name)))
        rows = end
    if not rows:
        raise Misuse(
            f"{path} holds no records, only the names of {len([*roles.texts, *roles.features])} columns"
        )
    features.resize((rows, features.shape[1]), refcheck=False)
    return features, [pa.chunked_array(parts) for parts in texts]


def _list_length(path: Path, column: Any, first: int, known: int) -> int:
    """Return the length that all lists of a column have. Raises Misuse for a list that is missing, or of another length.

    Args:
        path: the file, for the error.
        column: the lists of rows from `first` on.
        first: the first row.
        known: the length of the rows before; 0 without any.
    """
    from pyarrow import compute  # noqa: PLC0415 - an extra

    lengths = compute.fill_null(compute.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    expected = known or int(lengths[0])
    odd = np.flatnonzero((lengths != expected) | (lengths < 1))
    if len(odd):
        found = int(lengths[odd[0]])
        what = {-1: "are missing", 0: "are an empty list"}.get(
            found, f"have length {found}, those of row 0 {expected}"
        )
        raise Misuse(
            f"{path}: features of row {first + odd[0]} (counted from 0) {what}; expected a list of one length in each row"
        )
    return expected


def _is_list(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415 - an extra

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _plain_type(kind: Any) -> Any:
    """Return the type of a dictionary's values; other types unchanged."""
    from pyarrow import types  # noqa: PLC0415 - an extra

    return kind.value_type if types.is_dictionary(kind) else kind


def _decode_column(column: Any) -> Any:
    """Replace a dictionary's codes by its values: numpy would make a missing entry the dictionary's last one."""
    kind = _plain_type(column.type)
    return column if kind == column.type else column.cast(kind)


def _read_labels(path: Path, column: Any) -> Array:
    """Return labels: text with "" for a missing label, or numbers with NaN for one."""
    from pyarrow import types  # noqa: PLC0415 - an extra

    if _is_list(column.type):
        raise Misuse(f"{path}: labels are lists. {SEVERAL_LABELS_HELP}")
    if types.is_string(column.type) or types.is_large_string(column.type):
        return _share_texts(column)
    values: Array = column.to_numpy()
    return values


def _share_texts(column: Any) -> Array:
    """Return texts as an object array that holds equal ones once, "" for a missing one."""
    encoded = column.fill_null("").combine_chunks().dictionary_encode()
    texts: Array = np.array(encoded.dictionary.to_pylist(), object)[encoded.indices.to_numpy()]
    return texts


def _read_ids(path: Path, name: str, column: Any) -> Array:
    """Return ids as an object array of text, bytes or integers, "" for a missing one (member: ID-1)."""
    from pyarrow import types  # noqa: PLC0415 - an extra

    kind = column.type
    texts = types.is_string(kind) or types.is_large_string(kind)
    binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    if not (texts or types.is_integer(kind) or binary):
        _refuse_ids(path, name, str(kind))
    ids = np.empty(len(column), object)
    ids[:] = ["" if each is None else each for each in column.to_pylist()]
    return ids


def _check_id_texts(path: Path, name: str, column: Any) -> None:
    """Refuse a column of text that another format would hold as dates, truth values or fractions: one rule for all formats (member: ID-1)."""
    from pyarrow import compute  # noqa: PLC0415 - an extra

    is_canary = compute.starts_with(column, CANARY_PREFIX)
    held = column.filter(compute.and_not(compute.not_equal(column, ""), is_canary))
    if not len(held):
        return

    def all_match(pattern: str) -> bool:
        return bool(compute.all(compute.match_substring_regex(held, pattern)).as_py())

    if all_match(_DATE_TEXT):
        _refuse_ids(path, name, "dates")
    if all_match(_TRUTH_TEXT):
        _refuse_ids(path, name, "truth values")
    if all_match(_NUMBER_TEXT) and compute.any(compute.match_substring_regex(held, _FRACTION_TEXT)).as_py():
        _refuse_ids(path, name, "numbers with a fraction")


def _refuse_ids(path: Path, name: str, what: str) -> None:
    raise Misuse(
        f"{path}: column {name} holds {what}; ids are text, bytes or integers that identify a record. Name another column by "
        "--id-column, or write ids as text that is no date or fraction"
    )


def _refuse_row_numbers(path: Path, features: Array, columns: Sequence[str]) -> None:
    """Refuse a named column that only numbers the rows (Misuse)."""
    for place, name in enumerate(columns if len(features) >= _RUNNING_ROWS_MIN else ()):
        column = features[:, place]
        if column[1] - column[0] == 1 and (np.diff(column) == 1).all():
            raise Misuse(
                f"{path}: column {name!r} numbers the rows, so it is not a feature: remove it, or name it by --id-column if it identifies "
                "records"
            )


def _to_integers(column: Any) -> Array:
    """Convert labels of a text file to int64 if all are integers; otherwise return their texts."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import compute  # noqa: PLC0415 - an extra

    plain = compute.utf8_trim_whitespace(column)
    try:
        if compute.all(compute.match_substring_regex(plain, _INTEGER_TEXT)).as_py():
            found: Array = plain.cast(pa.int64()).to_numpy()
            return found
    except pa.ArrowInvalid:  # beyond 64 bits
        pass
    return _share_texts(column)


def _is_gzipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


@contextmanager
def _opened_text(path: Path, form: TableFormat) -> Iterator[IO[str]]:
    """Open a text file, and turn a fault of its encoding into Misuse, which names the line."""
    encoding = "utf-8-sig" if codecs.lookup(form.encoding).name == "utf-8" else form.encoding
    try:
        opened: Any = gzip.open if _is_gzipped(path) else open
        with opened(path, "rt", newline="", encoding=encoding) as file:
            yield file
    except UnicodeDecodeError as error:
        raise Misuse(
            f"{path}: line {_undecodable_line(path, encoding)} isn't {form.encoding}: pass the file's encoding, such as --encoding cp1252 for "
            "older Windows programs"
        ) from error


def _undecodable_line(path: Path, encoding: str) -> int:
    """Return the first line, from 1, that a file's encoding can't decode; the last one if the file ends within a character."""
    opened: Any = gzip.open if _is_gzipped(path) else open
    decoder, line = codecs.getincrementaldecoder(encoding)(), 1
    with opened(path, "rb") as file:
        while chunk := file.read(_DECODED_BYTES):
            before = decoder.getstate()
            try:
                line += decoder.decode(chunk).count("\n")
            except UnicodeDecodeError:
                decoder.setstate(before)
                return line + _decode_until_fault(decoder, chunk).count("\n")
    return line


def _decode_until_fault(decoder: codecs.IncrementalDecoder, chunk: bytes) -> str:
    """Return the text before the first byte that can't be decoded."""
    text = ""
    with suppress(UnicodeDecodeError):
        for place in range(len(chunk)):
            text += decoder.decode(chunk[place : place + 1])
    return text


def _read_header(path: Path, form: TableFormat) -> tuple[list[str], str]:
    """Return the names of the columns, and what separates them."""
    with _opened_text(path, form) as file:
        names = file.readline()
        file.seek(0)
        delimiter = max(_CSV_DELIMITERS, key=names.count)  # csv.Sniffer also guesses letters
        return next(csv.reader(file, delimiter=delimiter), []), delimiter


def _check_header(path: Path, header: Sequence[str], label: str) -> None:
    """Refuse a text file whose first line names no column of labels (Misuse), without quoting it: without a header, it is a record."""
    if label in header:
        return
    expected = "expected a header with label, a name for each feature and, optionally, id"
    if not header:
        raise Misuse(f"{path} is empty, or its first line is; {expected}")
    known = {label.casefold(), f"{label.casefold()}s"}
    if near := [name for name in header if name.strip().casefold() in known]:
        raise Misuse(
            f"{path}: its first line names {near[0]!r}, expected {label!r}: rename the column, or pass --label-column {shlex.quote(near[0])}"
        )
    raise Misuse(
        f"{path}: its first line names no column {label}; {expected}. --label-column names another column of labels"
    )


def _find_fault(path: Path, form: TableFormat, header: Sequence[str], delimiter: str, roles: _Roles) -> str:
    """Say where a text file that pyarrow refused breaks the format, without quoting the file."""
    from pyarrow import csv as arrow_csv  # noqa: PLC0415 - an extra

    missing = {*arrow_csv.ConvertOptions().null_values}
    with _opened_text(path, form) as file:
        reader = csv.reader(file, delimiter=delimiter)
        next(reader)
        first = reader.line_num + 1  # first line of the next row: a quoted cell may hold line breaks
        for row in reader:
            if row and len(row) != len(header):
                return f"{path}: line {first} does not have the {len(header)} columns of the first line"
            for name, text in zip(header, row, strict=False):
                plain = text.strip()
                if name in roles.texts or plain in missing or _is_number(plain, comma=form.decimal_comma):
                    continue
                hint = (
                    f"{'leave out' if form.decimal_comma else 'pass'} --decimal-comma"
                    if _is_number(plain, comma=not form.decimal_comma)
                    else "name a column of ids by --id-column, one of labels by --label-column, remove other columns of text, and leave the cell "
                    "of a missing value empty"
                )
                return f"{path}: line {first}, column {name} does not hold a number: {hint}"
            first = reader.line_num + 1
    return f"{path}: a row is longer than {_CSV_BLOCK_BYTES >> 20} MiB, or a quoted cell does not end"


def _is_number(text: str, *, comma: bool) -> bool:
    """Whether pyarrow reads this text as a number."""
    return not (comma and "." in text) and bool(_NUMBER.fullmatch(text.replace(",", ".") if comma else text))
