"""Which of a member's rows a run sums, decided by their ids and a secret alone (docs/protocol-next.md §7.1, §7.2).

The selection is stateless: the same secret, data and free ids give the same rows, so that neither a crash nor a restored backup draws
others.
"""

import hmac
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from calibration.rows import any_labels, as_array, as_features, usable_rows
from client_sdk.errors import Misuse
from protocol.tags import Tag, info

Rows = npt.NDArray[np.int64]
SECRET_BYTES = 32
_ID_BYTES_MAX = 1024


@dataclass(frozen=True, repr=False, eq=False)
class Records:
    """A member's labelled records.

    Args:
        features: (n, dim) float16, float32 or float64, numpy or torch, one row a record or several.
        labels: (n,) class indices; a float column is taken too, where a missing label is NaN.
        ids: (n,) text, bytes or integers that recognise a record (a patient, an exam, a file) in every run. Without ids the whole
            data set counts as one record.

    Raises:
        WrongDtype, ShapeMismatch: features or labels of another type or shape.
        Misuse: ids of another number or type, or an empty one.
    """

    features: Any
    labels: Any
    ids: Any = None
    keys: tuple[bytes, ...] = field(init=False)
    """The ids as bytes, one a row; one empty id for all rows where there are none."""

    def __post_init__(self) -> None:
        width = np.shape(self.features)[1] if np.ndim(self.features) == 2 else 0
        matrix = as_features(self.features, width)
        _set(self, "features", matrix)
        _set(self, "labels", any_labels(self.labels, len(matrix), missing=True))
        _set(self, "keys", (b"",) * len(matrix) if self.ids is None else _bytes_of(self.ids, len(matrix)))

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"<Records, {len(self)} rows>"


@dataclass(frozen=True)
class Limits:
    """What a study says of a member's records.

    Attributes:
        classes: C; other labels are not summed.
        rows_per_id: most rows of one id; without ids it does not apply.
        most: most rows; None where the vector is clipped instead.
    """

    classes: int
    rows_per_id: int
    most: int | None


@dataclass(frozen=True, repr=False, eq=False)
class Selection:
    """The rows that a run sums, and what was skipped: for the member's eyes only.

    Attributes:
        rows: (k,) indices of the selected rows, ascending.
        records: HMACs of the ids that have a row selected, sorted.
        unusable: rows with NaN or infinity, of zeros, or with a label that is no class.
        taken: usable rows whose records are not free.
        beyond: usable rows of free records beyond `rows_per_id` or `most`.
    """

    rows: Rows
    records: tuple[bytes, ...]
    unusable: int
    taken: int
    beyond: int

    def __repr__(self) -> str:
        return f"<Selection of {len(self.rows)} rows, {len(self.records)} records>"


def select(
    records: Records,
    limits: Limits,
    *,
    secret: bytes,
    federation: bytes,
    free: Callable[[Sequence[bytes]], Collection[bytes]],
) -> Selection:
    """Select the rows of a run.

    Args:
        records: all that the member has.
        limits: the study's.
        secret: 32 bytes of this installation.
        federation: its id, 32 bytes.
        free: says which of these keyed ids may be used.
    """
    usable = usable_rows(records.features, records.labels, limits.classes)
    ids = dict.fromkeys(records.keys[row] for row in np.flatnonzero(usable).tolist())
    keyed = {each: _mac(secret, Tag.RECORD, federation, each) for each in ids}
    allowed = set(free(tuple(keyed.values())))
    places = dict[bytes, int]()
    by_id = dict[bytes, list[tuple[bytes, int]]]()
    taken = 0
    for row, each in enumerate(records.keys):
        # Unusable rows keep their places, so that mending one row draws no other ones.
        place = places[each] = places.get(each, -1) + 1
        if not usable[row]:
            continue
        if keyed[each] not in allowed:
            taken += 1
            continue
        rank = _mac(secret, Tag.ROW, federation, each, place.to_bytes(4, "little"))
        by_id.setdefault(each, []).append((rank, row))
    most_each = len(records) if records.ids is None else limits.rows_per_id
    ranked = sorted(pair for rows in by_id.values() for pair in sorted(rows)[:most_each])
    kept = sorted(row for _, row in ranked[: limits.most])
    return Selection(
        np.array(kept, np.int64),
        tuple(sorted({keyed[records.keys[row]] for row in kept})),
        int(np.count_nonzero(~usable)),
        taken,
        int(np.count_nonzero(usable)) - taken - len(kept),
    )


def _mac(secret: bytes, tag: Tag, *fields: bytes) -> bytes:
    return hmac.digest(secret, info(tag, *fields), "sha256")


def _bytes_of(ids: Any, rows: int) -> tuple[bytes, ...]:
    """Ids as bytes: text in UTF-8, integers in decimal digits."""
    values = as_array(ids).tolist() if not isinstance(ids, list | tuple) else list(ids)
    if len(values) != rows:
        raise Misuse(f"{len(values)} ids for {rows} rows: pass one id a row")
    found = []
    for row, value in enumerate(values):
        match value:
            case str():
                encoded = value.encode("utf-8", "surrogatepass")
            case bytes():
                encoded = value
            case int() if not isinstance(value, bool):
                encoded = str(value).encode()
            case _:
                raise Misuse(
                    f"the id in row {row} is a {type(value).__name__}: ids are text, bytes or integers"
                )
        if not 0 < len(encoded) <= _ID_BYTES_MAX:
            raise Misuse(f"the id in row {row} has {len(encoded)} bytes: an id has 1 to {_ID_BYTES_MAX}")
        found.append(encoded)
    return tuple(found)


def _set(records: Records, name: str, value: object) -> None:
    object.__setattr__(records, name, value)  # frozen: only while it is being made
