"""A member's labelled records, and which of their rows a run sums (member: Ids, member: Selection).

The selection is stateless: the same secret, data and free ids give the same rows, so that neither a crash nor a restored backup draws
others.
"""

import copy
import hmac
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from client_sdk.errors import Misuse
from veilsum.calibration.errors import ShapeMismatch, WrongDtype
from veilsum.calibration.rows import any_labels, as_array, as_features, usable_rows
from veilsum.calibration.sparse_columns import HOLDERS_MIN
from veilsum.protocol.study import Content, Question
from veilsum.protocol.tags import Tag, info
from veilsum.study.canaries import CANARY_PREFIX, CanaryPack
from veilsum.study.canary_check import CanaryCheck, check_canaries

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
_ID_BYTES_MAX = 1024
_CANARY_KEY = CANARY_PREFIX.encode()
_DIGEST_BYTES = 32
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""The code points with the Unicode property White_Space."""
_FORMAT_CATEGORY = "Cf"
_WHOLE_NUMBER = re.compile(r"(-?)0*(0|[1-9][0-9]*)(\.0*)?")
COARSE_VALUES = 20
"""A column with fewer distinct values is coarse."""
_COARSE_REPEATS = 3
"""How often a coarse column's values stand beside its commonest, on average: more than the pairs that doubled rows or rounding to float16 make."""
_COARSE_ROWS_MAX, _COARSE_BLOCK = 4096, 1024
"""Rows that are looked at, drawn at random, and columns that are sorted at a time."""
_NAMES_SHOWN_MAX = 5
NO_IDS_MARK = bytes(_DIGEST_BYTES)
"""The mark of data without ids: any record may stand in it."""


@dataclass(frozen=True, repr=False, eq=False)
class Records:
    """A member's labelled records.

    Args:
        features: (n, dim) numbers, one or more rows per record: numpy, torch, pandas, or lists. Floats keep their type (float16,
            float32 or float64); integers become float64.
        labels: (n,) class indices, or class keys as text. NaN in a float column or None among keys marks a missing label.
        ids: (n,) text, bytes or integers that identify a record (a patient, an exam, a file) in every run. " 007 ", b"7", "7.0" and 7
            are the same id, and so are texts that look alike (`normalise_text`). Without ids the whole data set counts as one record.
        columns: the features' names; by default those of a data frame. A study that names its columns takes features by name.
        canaries: rows of the study's canary pack, which are compared with its features and never summed. Rows with ids `canary-…` among
            the others are moved here.

    Raises:
        WrongDtype, ShapeMismatch: features or labels have a wrong type or shape.
        Misuse: ids of another number or type, an empty id, or columns of another number or with a name twice; canaries without such ids, or
            both among the others and apart.
    """

    features: Any
    labels: Any
    ids: Any = None
    columns: Sequence[Any] | None = None
    canaries: "Records | None" = None
    keys: tuple[bytes, ...] = field(init=False)
    """The ids as bytes, one per row; all empty without ids."""

    _ROW_FIELDS: ClassVar[tuple[str, ...]] = ("features", "labels", "keys")
    """What holds a value for each row."""

    def __post_init__(self) -> None:
        names = getattr(self.features, "columns", ()) if self.columns is None else self.columns
        given = as_array(self.features)
        if given.ndim != 2 or not given.shape[1]:
            raise ShapeMismatch(f"features have shape {given.shape}, expected (n, dim), one row a record")
        matrix = as_features(given, given.shape[1])
        _set_field(self, "features", matrix)
        _set_field(self, "columns", _columns_of(names, matrix.shape[1]))
        _set_field(self, "labels", _labels_of(self.labels, len(matrix)))
        _set_field(
            self, "keys", (b"",) * len(matrix) if self.ids is None else _bytes_of(self.ids, len(matrix))
        )
        self._part_canaries()

    def _part_canaries(self) -> None:
        """Move the rows of canaries, in the order of their ids, out of the records, so that nothing that looks at records sees them."""
        is_canary = np.fromiter((key.startswith(_CANARY_KEY) for key in self.keys), bool, len(self.keys))
        given = self.canaries
        if given is not None:
            if given.canaries is not None and not len(given):
                given = given.canaries
            if not len(given) or not all(key.startswith(_CANARY_KEY) for key in given.keys):
                raise Misuse(f"canaries: expected Records whose ids all begin with {CANARY_PREFIX}")
            if is_canary.any():
                raise Misuse("canaries are both among the records and in canaries=: pass them in one place")
            _set_field(self, "canaries", given)
        elif is_canary.any():
            places = np.flatnonzero(is_canary)
            _set_field(self, "canaries", self._take_rows(sorted(places, key=self.keys.__getitem__)))
            kept = self._take_rows(np.flatnonzero(~is_canary))
            for name in ("ids", *self._ROW_FIELDS):
                _set_field(self, name, getattr(kept, name))

    def _take_rows(self, places: Sequence[int] | Integers) -> Self:
        part = copy.copy(self)
        for name in self._ROW_FIELDS:
            values = getattr(self, name)
            picked = (
                values[places] if isinstance(values, np.ndarray) else tuple(values[place] for place in places)
            )
            _set_field(part, name, picked)
        _set_field(part, "ids", part.keys)
        return part

    def index_labels(self, classes: Sequence[str]) -> Integers:
        """Return the labels' places among these class keys, (n,); −1 for a missing or unknown label."""
        if self.labels.dtype.kind != "O":
            inside = (self.labels >= 0) & (self.labels < len(classes))
            return np.where(inside, self.labels, -1).astype(np.int64)
        places = {key: place for place, key in enumerate(classes)}
        return np.array([places.get(label, -1) for label in self.labels.tolist()], np.int64)

    def find_usable_rows(self, classes: Sequence[str]) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the labels' places as `index_labels` does, and which rows can be summed, (n,) each."""
        labels = self.index_labels(classes)
        return labels, usable_rows(self.features, labels, len(classes))

    def usable_in(self, question: Question) -> tuple[Array, Integers]:
        """Return features and class indices of the rows that can be summed. Raises as `features_for`."""
        features = self.features_for(question)
        labels, usable = self.find_usable_rows(question.classes)
        return features[usable], labels[usable]

    def count_coarse_columns(self, question: Question) -> int:
        """Count the features that look like categories, codes or coarse measurements, over the rows that can be summed.

        Such a column has fewer than 20 distinct values, and its values other than the commonest stand in at least five rows (an exact sum
        leaves out rarer ones) and three times each, on average. So constant columns don't count, nor features that are zero in all but a
        few rows, as after a ReLU or GELU: what few rows have differs from row to row. The commonest value takes the place of zero, which
        standardising moves. Of many rows 4,096 are looked at.

        Raises as `features_for`.
        """
        matrix, _ = self.usable_in(question)
        if len(matrix) < COARSE_VALUES:
            return 0
        looked = min(len(matrix), _COARSE_ROWS_MAX)
        rows = matrix[np.sort(np.random.default_rng(0).choice(len(matrix), looked, replace=False))]
        # NumPy 2.4 leaves some float16 unsorted on processors with AVX-512, and as float32 they stay distinct.
        rows = rows.astype(np.promote_types(rows.dtype, np.float32), copy=False)
        coarse = 0
        for start in range(0, question.dim, _COARSE_BLOCK):
            block = np.sort(rows[:, start : start + _COARSE_BLOCK], axis=0)
            distinct = 1 + np.count_nonzero(block[1:] != block[:-1], axis=0)
            for column in block[:, distinct < COARSE_VALUES].T:
                _, times = np.unique(column, return_counts=True)
                others = len(column) - int(times.max())
                coarse += others >= max(HOLDERS_MIN, _COARSE_REPEATS * (len(times) - 1))
        return coarse

    def features_for(self, question: Question) -> Array:
        """Return the features in the order of the study's columns, (n, dim). Raises as `check_columns`."""
        matrix: Array = self.features
        order = self.check_columns(question)
        return matrix if order is None else matrix[:, order]

    def check_columns(self, question: Question) -> list[int] | None:
        """Return the places of the study's columns among the features, or None if they stand in its order or one of both has no names.

        Raises:
            Misuse: the study names other columns.
            ShapeMismatch: the features do not have the study's length.
        """
        if self.columns and question.columns:
            return match_columns(self.columns, question.columns, "the study's")
        if self.features.shape[1] != question.dim:
            raise ShapeMismatch(
                f"features have {self.features.shape[1]} columns; the study's extractor gives {question.dim}"
            )
        return None

    def check_canaries(self, content: Content, pack: CanaryPack) -> CanaryCheck:
        """Compare the canaries with a study's pack, of a study that names one. Raises as `check_columns`."""
        assert content.rehearsal is not None
        self.check_columns(content.question)
        own = self.canaries or Records(np.zeros((0, content.question.dim)), [], [])
        ids = [key.decode("utf-8", "replace") for key in own.keys]
        return check_canaries(
            pack,
            content.question,
            content.rehearsal.tolerance,
            ids,
            own.features_for(content.question),
            own.index_labels(content.question.classes),
        )

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        return f"<Records, {len(self)} rows>"


@dataclass(frozen=True, repr=False, eq=False)
class Selection:
    """The rows that a run sums, and how many were skipped. Only the member sees these numbers.

    Attributes:
        features: (k, dim) the selected rows.
        labels: (k,) their class indices.
        ranks: (k, 32) uint8, the HMACs that identify each row under any extractor.
        records: HMACs of the ids that have a row selected, sorted.
        unusable: rows with NaN or infinity, of zeros, or with a label that is not a class of the study.
        taken: usable rows of records that are reserved, spent, counted three times or without budget.
        held_out: usable rows of records that are held out, for life.
        beyond: usable rows of free records beyond `rows_per_id` or `most`.
        counted_out: of the rows taken, those of records that are taken only because too many runs count them.
    """

    features: Array
    labels: Integers
    ranks: Array
    records: tuple[bytes, ...]
    unusable: int
    taken: int
    held_out: int
    beyond: int
    counted_out: int = 0

    def __repr__(self) -> str:
        return f"<Selection of {len(self.labels)} rows, {len(self.records)} records>"


@dataclass(frozen=True, repr=False)
class Marks:
    """Derives the pseudonyms of this installation's records in one federation.

    Args:
        secret: 32 bytes of this installation.
        federation: its id, 32 bytes.
        held_out_share: of its records, as chosen with the secret.
    """

    secret: bytes
    federation: bytes
    held_out_share: float

    def mark_record(self, identifier: bytes) -> bytes:
        """Return a record's mark in the ledger: an HMAC, or `NO_IDS_MARK` for data without ids."""
        if not identifier:
            return NO_IDS_MARK
        return hmac.digest(self.secret, info(Tag.RECORD, self.federation, identifier), "sha256")

    def is_held_out(self, identifier: bytes) -> bool:
        """Whether a record is in no count and no sum, for life: by its id alone, and never for data without ids (member: Ids)."""
        if not identifier:
            return False
        drawn = hmac.digest(self.secret, info(Tag.HELD_OUT, self.federation, identifier), "sha256")
        return int.from_bytes(drawn[:8], "big") < self.held_out_share * (1 << 64)

    def count_held_out(self, records: Records, question: Question) -> int:
        """Count the usable rows of records that are held out."""
        _, usable = records.find_usable_rows(question.classes)
        return sum(rows for each, rows in _count_rows(records, usable).items() if self.is_held_out(each))

    def is_drawn(self, identifier: bytes, period: str) -> bool:
        """Whether a held-out record that was never judged is judged in a period: by its id alone, in every second one (periods: Judgements)."""
        drawn = hmac.digest(
            self.secret, info(Tag.JUDGED, self.federation, period.encode(), identifier), "sha256"
        )
        return drawn[0] < 128

    def rank_rows(self, records: Records) -> Iterator[bytes]:
        """Yield the rank of each row, in order.

        Unusable rows keep their places, so that mending one row does not change which others are selected.
        """
        places = dict[bytes, int]()
        for each in records.keys:
            place = places[each] = places.get(each, -1) + 1
            fields = info(Tag.ROW, self.federation, each, place.to_bytes(4, "little"))
            yield hmac.digest(self.secret, fields, "sha256")


def select_rows(
    records: Records, question: Question, marks: Marks, free: Callable[[Sequence[bytes]], Collection[bytes]]
) -> Selection:
    """Select the rows of a run.

    Args:
        records: all records of the member.
        question: of the study.
        marks: of this installation.
        free: returns those of the given records that the run may take.

    Raises:
        ShapeMismatch: the features are not as long as the study's.
        Misuse: the study names other columns; or it adds noise and the records have no ids. Its guarantee is per record, and ids identify
            records.
    """
    if question.noise is not None and records.ids is None:
        raise Misuse("a study with noise needs ids: pass one for each row, such as a patient's or an exam's")
    # A noisy vector is clipped instead: otherwise one record would decide about another one's.
    most = question.records.most if question.noise is None else None
    return _select_free(records, question, marks, free, lambda each: not marks.is_held_out(each), most=most)


def _count_rows(records: Records, usable: npt.NDArray[np.bool_]) -> Counter[bytes]:
    """Count the usable rows of each record."""
    return Counter(key for key, fine in zip(records.keys, usable, strict=True) if fine)


def _select_free(
    records: Records,
    question: Question,
    marks: Marks,
    free: Callable[[Sequence[bytes]], Collection[bytes]],
    is_meant: Callable[[bytes], bool],
    *,
    is_drawn: Callable[[bytes], bool] = lambda _: True,
    most: int | None = None,
) -> Selection:
    """Select the `most` rows of least rank, at most `rows_per_id` of each, of the free records that are meant and drawn."""
    features = records.features_for(question)
    labels, usable = records.find_usable_rows(question.classes)
    rows_of = _count_rows(records, usable)
    keyed = {each: marks.mark_record(each) for each in rows_of if is_meant(each)}
    allowed = set(free(tuple(keyed.values())))
    by_id = {each: list[tuple[bytes, int]]() for each in keyed if keyed[each] in allowed and is_drawn(each)}
    for row, rank in enumerate(marks.rank_rows(records)):
        if usable[row] and (each := records.keys[row]) in by_id:
            by_id[each].append((rank, row))
    rows_per_id = len(records) if records.ids is None else question.records.rows_per_id
    ranked = sorted(pair for pairs in by_id.values() for pair in sorted(pairs)[:rows_per_id])
    chosen = sorted((row, rank) for rank, row in ranked[:most])
    rows = np.array([row for row, _ in chosen], np.int64)
    meant = sum(rows_of[each] for each in keyed)
    taken = sum(rows_of[each] for each in keyed if keyed[each] not in allowed)
    return Selection(
        features[rows],
        labels[rows],
        np.frombuffer(b"".join(rank for _, rank in chosen), np.uint8).reshape(-1, _DIGEST_BYTES),
        tuple(sorted({keyed[records.keys[row]] for row in rows})),
        unusable=int(np.count_nonzero(~usable)),
        taken=taken,
        held_out=rows_of.total() - meant,
        beyond=meant - taken - len(rows),
    )


def select_canaries(records: Records, question: Question) -> Selection:
    """Return the canaries, each class repeated in turn until a rehearsal has as many rows as the study needs (periods: Rehearsals).

    Raises:
        ShapeMismatch, Misuse: as `select_rows`.
        Misuse: the records come without canaries of the study's classes.
    """
    canaries, limits = records.canaries, question.records
    features, labels = (
        (np.zeros((0, question.dim)), np.zeros(0, np.int64))
        if canaries is None
        else canaries.usable_in(question)
    )
    present = np.unique(labels)
    if not len(present):
        raise Misuse(
            "a rehearsal sums canaries, and these records have none: add the rows of the study's canary pack, with its ids"
        )
    share = max(1, limits.most // len(present))
    each = min(max(limits.least_per_class, -(-limits.least // len(present))), share)
    rows = np.concatenate([np.resize(np.flatnonzero(labels == label), each) for label in present])
    ranks = np.zeros((len(rows), _DIGEST_BYTES), np.uint8)
    return Selection(features[rows], labels[rows], ranks, (), 0, 0, 0, 0)


def select_held_out(
    records: Records,
    question: Question,
    marks: Marks,
    period: str,
    unjudged: Callable[[Sequence[bytes]], Collection[bytes]],
) -> Selection:
    """Select the rows that judge heads in a period: about half of the held-out records that were never judged (periods: Judgements).

    A record's own draw decides whether it is taken: one record more or less changes nothing about the others.

    Args:
        records: all records of the member; none of them is held out if they have no ids.
        question: of the study.
        marks: of this installation.
        period: of the run.
        unjudged: returns those of the given records that were never judged.

    Raises:
        ShapeMismatch, Misuse: as `select_rows`.
    """
    found = _select_free(
        records,
        question,
        marks,
        unjudged,
        marks.is_held_out,
        is_drawn=lambda each: marks.is_drawn(each, period),
    )
    return replace(found, held_out=0)


def unsummed_rows(records: Records, question: Question, marks: Marks, ranks: Array) -> tuple[Array, Integers]:
    """Return features and class indices of the usable rows of records that a run did not sum: those without a row among these ranks."""
    summed = {rank.tobytes() for rank in ranks}
    features = records.features_for(question)
    labels, usable = records.find_usable_rows(question.classes)
    found = list(marks.rank_rows(records))
    inside = np.array([rank in summed for rank in found], bool)
    if records.ids is not None:
        keys = {key for key, summed_ in zip(records.keys, inside, strict=True) if summed_}
        inside = np.array([key in keys for key in records.keys], bool)
    usable &= ~inside
    return features[usable], labels[usable]


def select_again(records: Records, question: Question, marks: Marks, ranks: Array, labels: Integers) -> Array:
    """Return the features of the rows with these ranks under another extractor, (k, dim); zeros for a row that is missing or has another label.

    Rows without ids are recognised by their order.
    """
    given, own = records.features_for(question), records.index_labels(question.classes)
    rows = {rank: row for row, rank in enumerate(marks.rank_rows(records))}
    features = np.zeros((len(ranks), question.dim), given.dtype)
    for place, (rank, label) in enumerate(zip(ranks, labels, strict=True)):
        if (row := rows.get(rank.tobytes())) is not None and own[row] == label:
            features[place] = given[row]
    return features


def match_columns(held: Sequence[str], wanted: Sequence[str], whose: str) -> list[int] | None:
    """Return the place of each wanted column among those held, or None if all stand in this order.

    Raises Misuse for other columns than those wanted; `whose` says whose they are.
    """
    if [*held] == [*wanted]:
        return None
    places = {name: place for place, name in enumerate(held)}
    lacking, strange = [each for each in wanted if each not in places], sorted({*held} - {*wanted})
    if lacking or strange:
        raise Misuse(
            f"columns differ from {whose}: missing {_list_names(lacking)}; unknown {_list_names(strange)}. Rename, add or remove columns"
        )
    return [places[each] for each in wanted]


def order_by_name(features: Any, wanted: Sequence[str]) -> Any:
    """Return features in the order of wanted columns, if both have names. Raises Misuse as `match_columns`."""
    held = _columns_of(getattr(features, "columns", ()), len(getattr(features, "columns", ())))
    order = match_columns(held, wanted, "the study's") if held and wanted else None
    return features if order is None else as_array(features)[:, order]


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN_MAX} more" if len(names) > _NAMES_SHOWN_MAX else ""
    return ", ".join(map(repr, names[:_NAMES_SHOWN_MAX])) + more if names else "none"


def _columns_of(names: Any, dim: int) -> tuple[str, ...]:
    """Return the features' names, or none if a data frame only numbers its columns."""
    found = tuple(names)
    if not all(isinstance(each, str) for each in found):
        return ()
    if found and (len(found) != dim or len({*found}) != dim):
        raise Misuse(f"columns: got {len({*found})} different names for {dim} features: pass one for each")
    return found


def _labels_of(labels: Any, rows: int) -> Array:
    """Convert labels to integer class indices, or to an object array of class keys with None for a missing label."""
    found = as_array(labels)
    if found.dtype.kind == "S":
        raise WrongDtype("labels are bytes: pass text by labels.astype(str), or class indices")
    if found.dtype.kind not in "UO" or not found.size:
        return any_labels(found, rows, missing=True)
    if found.shape != (rows,):
        raise ShapeMismatch(f"labels have shape {found.shape}, expected ({rows},)")
    keys = np.empty(rows, object)
    for row, label in enumerate(found.tolist()):
        # pandas has NaN among text.
        missing = label is None or (isinstance(label, float) and math.isnan(label))
        if not missing and not isinstance(label, str):
            raise WrongDtype(
                f"the label in row {row} is of type {type(label).__name__}: pass class indices by labels.astype(int), or class keys as "
                "text, None for a missing one"
            )
        keys[row] = label if isinstance(label, str) else None
    return keys


def _bytes_of(ids: Any, rows: int) -> tuple[bytes, ...]:
    """Convert ids to bytes that do not depend on the file format or program (member: Ids)."""
    values = ids if isinstance(ids, list | tuple) else np.atleast_1d(as_array(ids))
    if isinstance(values, np.ndarray) and values.dtype.kind not in "mM":  # nanoseconds would become integers
        values = values.tolist()
    if len(values) != rows:
        raise Misuse(f"{len(values)} ids for {rows} rows: pass one id a row")
    found = []
    for row, value in enumerate(values):
        match value:
            case str():
                encoded = _encode_text(value, row)
            case bytes():
                encoded = normalise_id(value)
            case int() | np.integer() if not isinstance(value, bool | np.timedelta64):
                if int(value).bit_length() > 8 * _ID_BYTES_MAX:
                    raise Misuse(f"the id in row {row} is an integer of over {8 * _ID_BYTES_MAX:,} bits")
                encoded = str(int(value)).encode()
            case _:
                raise Misuse(
                    f"the id in row {row} is a {type(value).__name__}: ids are text, bytes or integers"
                )
        if not encoded:
            raise Misuse(
                f"the id in row {row} is missing or blank (0 bytes): give each row an id, or remove the rows without one"
            )
        if len(encoded) > _ID_BYTES_MAX:
            raise Misuse(f"the id in row {row} has {len(encoded)} bytes: an id has 1 to {_ID_BYTES_MAX}")
        found.append(encoded)
    return tuple(found)


def _encode_text(value: str, row: int) -> bytes:
    try:
        return normalise_text(value).encode()
    except UnicodeEncodeError as error:
        raise Misuse(
            f"the id in row {row} is not valid text (lone surrogates): read its file in the right encoding"
        ) from error


def normalise_id(value: bytes) -> bytes:
    """Spell UTF-8 as `normalise_text` does. Strip trailing zeros from other bytes, such as a digest: numpy drops them."""
    try:
        return normalise_text(value.decode()).encode()
    except UnicodeDecodeError:
        return value.rstrip(b"\0")


def is_canary_id(value: object) -> bool:
    """Whether an id is a canary's."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return isinstance(text, str) and normalise_text(text).startswith(CANARY_PREFIX)


def normalise_text(text: str) -> str:
    """Spell text in one way: NFKC, without format characters, surrounding white space and trailing NULs; a whole number as its digits.

    Normalised text stays as it is (member: Ids).
    """
    plain, before = text, None
    while plain != before:  # what is removed may have kept characters apart that NFKC composes
        before = plain
        composed = unicodedata.normalize("NFKC", plain)
        visible = "".join(each for each in composed if unicodedata.category(each) != _FORMAT_CATEGORY)
        plain = visible.lstrip(_WHITE_SPACE).rstrip(_WHITE_SPACE + "\0")
    if (whole := _WHOLE_NUMBER.fullmatch(plain)) is None:
        return plain
    return whole[2] if whole[2] == "0" else whole[1] + whole[2]


def _set_field(records: Records, name: str, value: object) -> None:
    object.__setattr__(records, name, value)  # frozen: only while it is being made
