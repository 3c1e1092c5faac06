from typing import Any

import numpy as np
import pytest

from calibration.errors import ShapeMismatch, WrongDtype
from client_sdk.errors import Misuse
from client_sdk.selection import Limits, Records, Selection, select

SECRET, FEDERATION = b"s" * 32, b"f" * 32
RNG = np.random.default_rng(0)


def records(rows: int = 40, ids: Any = None, **changed: Any) -> Records:
    features = np.random.default_rng(1).standard_normal((rows, 3))
    labels = np.arange(rows) % 4
    return Records(changed.get("features", features), changed.get("labels", labels), ids)


def chosen(
    given: Records,
    *,
    rows_per_id: int = 1,
    most: int | None = 1000,
    taken: frozenset[bytes] = frozenset(),
    secret: bytes = SECRET,
    federation: bytes = FEDERATION,
) -> Selection:
    limits = Limits(classes=4, rows_per_id=rows_per_id, most=most)
    return select(given, limits, secret=secret, federation=federation, free=lambda keys: set(keys) - taken)


def test_every_usable_row_of_its_own_id_is_taken() -> None:
    found = chosen(records(ids=[f"p{row}" for row in range(40)]))
    assert found.rows.tolist() == list(range(40))
    assert len(found.records) == 40
    assert (found.unusable, found.taken, found.beyond) == (0, 0, 0)
    assert repr(found) == "<Selection of 40 rows, 40 records>"


def test_unusable_rows_are_skipped_and_counted() -> None:
    features = np.random.default_rng(1).standard_normal((6, 3))
    features[1, 0], features[2, 2], features[3] = np.nan, np.inf, 0
    found = chosen(records(6, list("abcdef"), features=features, labels=np.array([0, 1, 1, 1, 4, -1])))
    assert found.rows.tolist() == [0]
    assert found.unusable == 5


def test_a_missing_label_in_a_float_column_is_an_unusable_row() -> None:
    found = chosen(records(3, list("abc"), labels=np.array([0.0, np.nan, 1.5])))
    assert (found.rows.tolist(), found.unusable) == ([0], 2)


def test_at_most_so_many_rows_of_an_id_and_in_all() -> None:
    ids = [f"p{row // 4}" for row in range(40)]
    two = chosen(records(ids=ids), rows_per_id=2)
    assert np.bincount(two.rows // 4).tolist() == [2] * 10
    assert two.beyond == 20
    five = chosen(records(ids=ids), rows_per_id=2, most=5)
    assert len(five.rows) == 5
    assert set(five.rows) < set(two.rows)
    assert len(chosen(records(ids=ids), rows_per_id=2, most=None).rows) == 20


def test_the_selection_does_not_depend_on_other_ids_or_on_the_order_of_ids() -> None:
    """The ranks follow from the secret, the id and the row's place among the id's rows, whatever stands around them."""
    ids = np.array([f"p{row % 10}" for row in range(40)])
    given = records(ids=ids)
    first = set(chosen(given, most=7).rows.tolist())
    groups = RNG.permutation(10)
    order = np.concatenate([np.flatnonzero(ids == f"p{each}") for each in groups])
    moved = Records(given.features[order], given.labels[order], ids[order])
    assert {int(order[row]) for row in chosen(moved, most=7).rows} == first
    assert first == set(chosen(given, most=7).rows.tolist())


def test_a_mended_row_draws_no_other_rows_of_its_id() -> None:
    ids = ["p"] * 8
    whole = records(8, ids)
    best = chosen(whole).rows[0]
    others = [row for row in range(8) if row != best]
    damaged = whole.features.copy()
    damaged[others[0]] = np.nan
    assert chosen(Records(damaged, whole.labels, ids)).rows.tolist() == [best]


def test_spent_records_are_skipped_and_counted() -> None:
    given = records(ids=[row // 2 for row in range(40)])
    first = chosen(given, most=5)
    second = chosen(given, taken=frozenset(first.records))
    assert not set(first.records) & set(second.records)
    assert not set(first.rows // 2) & set(second.rows // 2)
    assert second.taken == 10
    assert len(second.rows) == 15


@pytest.mark.parametrize("changed", [{"secret": b"t" * 32}, {"federation": b"g" * 32}])
def test_keys_and_ranks_are_of_one_secret_and_federation(changed: dict[str, Any]) -> None:
    given = records(ids=[row // 4 for row in range(40)])
    one, other = chosen(given), chosen(given, **changed)
    assert not set(one.records) & set(other.records)
    assert one.rows.tolist() != other.rows.tolist()


def test_without_ids_the_data_set_is_one_record() -> None:
    given = records()
    found = chosen(given, rows_per_id=1, most=7)
    assert (len(found.rows), len(found.records)) == (7, 1)
    assert len(chosen(given, taken=frozenset(found.records)).rows) == 0


def test_ids_are_text_bytes_or_integers() -> None:
    keyed = [
        chosen(records(3, ids)).records
        for ids in (
            ["1", "2", "3"],
            [b"1", b"2", b"3"],
            [1, 2, 3],
            np.array([1, 2, 3]),
            np.array(["1", "2", "3"]),
        )
    ]
    assert len(set(keyed)) == 1


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["a"], "1 ids for 40 rows"),
        ([1.5] * 40, "row 0 is a float"),
        ([None] * 40, "row 0 is a NoneType"),
        ([True] * 40, "row 0 is a bool"),
        (["a"] * 39 + [""], "row 39 has 0 bytes"),
        (["a" * 1025] * 40, "1025 bytes"),
    ],
)
def test_ids_that_recognise_nothing_are_refused(ids: Any, said: str) -> None:
    with pytest.raises(Misuse, match=said):
        records(ids=ids)


def test_wrong_shapes_and_types_raise_at_construction() -> None:
    with pytest.raises(ShapeMismatch):
        records(features=np.zeros(40))
    with pytest.raises(ShapeMismatch):
        records(labels=np.zeros(39, int))
    with pytest.raises(WrongDtype):
        records(features=np.zeros((40, 3), int))
    with pytest.raises(WrongDtype):
        records(labels=["a"] * 40)
    assert repr(records()) == "<Records, 40 rows>"
    assert len(records()) == 40
