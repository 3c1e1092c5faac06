"""A member's records. Which rows of them a run takes, and how ids are spelled, stands in assurance/vectors."""

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.errors import Misuse
from client_sdk.records import (
    Marks,
    Records,
    Selection,
    is_canary_id,
    normalise_id,
    normalise_text,
    select_again,
    select_held_out,
    select_rows,
    unsummed_rows,
)
from tests.support.id_texts import ID_TEXTS
from tests.support.simulator import simulated_content, simulated_question
from veilsum.calibration.errors import ShapeMismatch, WrongDtype
from veilsum.protocol.study import Question

SECRET, FEDERATION = b"s" * 32, b"f" * 32
RNG = np.random.default_rng(0)


def records(rows: int = 40, ids: Any = None, **changed: Any) -> Records:
    features = np.random.default_rng(1).standard_normal((rows, 3))
    labels = np.arange(rows) % 4
    return Records(changed.get("features", features), changed.get("labels", labels), ids)


def asked(rows_per_id: int = 1, most: int = 1000, least: int = 1) -> Question:
    # Limits of a handful of rows break the rules of CONTENT, which this is not about.
    whole = simulated_content(simulated_question(3), 0).question
    limits = whole.records.model_copy(update={"least": least, "most": most, "rows_per_id": rows_per_id})
    return whole.model_copy(update={"dim": 3, "records": limits})


def chosen(
    given: Records,
    *,
    rows_per_id: int = 1,
    most: int = 1000,
    least: int = 1,
    taken: frozenset[bytes] = frozenset(),
    held_out: float = 0.0,
) -> Selection:
    marks = Marks(SECRET, FEDERATION, held_out)
    return select_rows(given, asked(rows_per_id, most, least), marks, lambda keys: set(keys) - taken)


def rows_of(given: Records, found: Selection) -> list[int]:
    """Return the places of the selected rows."""
    return [int(np.flatnonzero((given.features == row).all(axis=1))[0]) for row in found.features]


def test_unusable_rows_are_skipped_and_counted() -> None:
    features = np.random.default_rng(1).standard_normal((6, 3))
    features[1, 0], features[2, 2], features[3] = np.nan, np.inf, 0
    given = records(6, list("abcdef"), features=features, labels=np.array([0, 1, 1, 1, 4, -1]))
    found = chosen(given)
    assert rows_of(given, found) == [0]
    assert found.unusable == 5


class Frame(np.ndarray):
    """An array whose columns have names, as a data frame's."""

    columns: Any = ("age", "sodium", "ldh")


def test_a_study_that_names_its_columns_takes_them_by_name() -> None:
    given = records(ids=[f"p{row}" for row in range(40)])
    question = asked().model_copy(update={"columns": ("ldh", "age", "sodium")})
    marks = Marks(SECRET, FEDERATION, 0.2)
    plain = select_rows(given, asked(), marks, set)
    for named in (
        Records(given.features, given.labels, given.ids, ["age", "sodium", "ldh"]),
        Records(given.features.view(Frame), given.labels, given.ids),
    ):
        found = select_rows(named, question, marks, set)
        np.testing.assert_array_equal(found.features, plain.features[:, [2, 0, 1]])
        again = select_again(named, question, marks, found.ranks, found.labels)
        np.testing.assert_array_equal(again, found.features)
        for rows in (named.usable_in(question), unsummed_rows(named, question, marks, found.ranks[:0])):
            np.testing.assert_array_equal(rows[0], given.features[:, [2, 0, 1]])
    with pytest.raises(Misuse, match=r"'ldh', 'sodium'.*'LDH', 'bmi'"):
        select_rows(
            Records(given.features, given.labels, columns=["age", "LDH", "bmi"]), question, marks, set
        )
    for unnamed in (given, Records(given.features, given.labels, columns=range(3))):
        assert unnamed.columns == ()
        assert unnamed.check_columns(question) is None
    for wrong in (["a", "b"], ["a", "b", "b"]):
        with pytest.raises(Misuse):
            Records(given.features, given.labels, columns=wrong)


def test_a_missing_label_in_a_float_column_is_an_unusable_row() -> None:
    given = records(3, list("abc"), labels=np.array([0.0, np.nan, -1.0]))
    found = chosen(given)
    assert (rows_of(given, found), found.unusable) == ([0], 2)


@pytest.mark.parametrize("wrong", [1.5, np.inf])
def test_a_label_that_is_no_whole_number_is_refused_by_its_row(wrong: float) -> None:
    with pytest.raises(WrongDtype, match=r"\brow 2\b") as refused:
        records(4, labels=np.array([0.0, np.nan, wrong, 2.5]))
    assert str(wrong) not in str(refused.value)


def test_labels_are_class_keys_too() -> None:
    """They are matched by key, not by the class's display name."""
    given = records(5, list("abcde"), labels=["b", "a", None, "unknown", float("nan")])
    found = chosen(given)
    assert (found.labels.tolist(), found.unusable) == ([1, 0], 3)
    assert records(2, list("ab"), labels=np.array(["d", "c"])).index_labels("abcd").tolist() == [3, 2]


def test_rows_that_judge_are_those_of_ids_that_were_held_out() -> None:
    ids = [f"p{row // 2}" for row in range(40)]
    given, marks = records(ids=ids), Marks(SECRET, FEDERATION, 0.3)
    out = [row for row in range(40) if marks.is_held_out(ids[row].encode())]
    assert 0 < len(out) < 40
    found = chosen(given, rows_per_id=2, held_out=0.3)
    features, labels = unsummed_rows(given, asked(2), marks, found.ranks)
    assert sorted(features[:, 0]) == sorted(given.features[out, 0])
    assert labels.tolist() == given.labels[out].tolist()


def test_no_run_takes_held_out_rows_whatever_it_needs() -> None:
    given = records(ids=[f"p{row}" for row in range(40)])
    found = chosen(given, held_out=0.5)
    assert 10 < len(found.labels) < 30
    assert found.held_out == 40 - len(found.labels)
    assert rows_of(given, chosen(given, least=35, held_out=0.5)) == rows_of(given, found)
    few = chosen(given, most=5, held_out=0.5)
    assert (len(few.labels), few.held_out, few.beyond) == (5, found.held_out, len(found.labels) - 5)
    assert chosen(records(ids=[f"p{row // 4}" for row in range(40)]), rows_per_id=2).beyond == 20
    # Reserved records are not counted twice.
    marks = Marks(SECRET, FEDERATION, 0.5)
    assert marks.count_held_out(given, asked()) == found.held_out
    taken = chosen(given, held_out=0.5, taken=frozenset(marks.mark_record(each) for each in given.keys))
    assert (taken.taken, taken.held_out) == (len(found.labels), found.held_out)


def test_ids_are_text_bytes_or_integers() -> None:
    keyed = [
        chosen(records(3, ids)).records
        for ids in (
            ["1", "2", "3"],
            [b"1", b"2", b"3"],
            [1, 2, 3],
            np.array([1, 2, 3]),
            np.array(["1", "2", "3"]),
            ["01", " 2", "0003 "],
            [b"01", b" 2", b"0003 "],
            np.array([b"01", b" 2", b"0003"]),
            ["1.0", "02.", "3\0"],  # a column of floats as text; and what numpy's arrays of text can't hold
        )
    ]
    assert len(set(keyed)) == 1
    digest = bytes(range(224, 256))  # no UTF-8
    assert records(1, [digest]).keys == (digest,)
    assert records(1, [digest + b"\0"]).keys == records(1, np.array([digest + b"\0"])).keys == (digest,)


@pytest.mark.parametrize("value", ["canary-1", b"canary-1", " \u200bcanary-", "other", b"canar\xff", 7, None])
def test_an_id_is_a_canary_s_by_its_beginning(value: object) -> None:
    assert is_canary_id(value) == ("canary-" in str(value))


@given(ID_TEXTS)
def test_a_normalised_id_stays_as_it_is(text: str) -> None:
    once = normalise_text(text)
    assert normalise_text(once) == once
    assert normalise_id(text.encode()) == normalise_id(once.encode()) == once.encode()


@given(st.integers())
def test_an_integer_is_its_digits(number: int) -> None:
    assert records(1, [number]).keys == records(1, [f" 0{number} " if number >= 0 else str(number)]).keys


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["a"], r"\b1\b.*\b40\b"),
        (7, r"\b1\b.*\b40\b"),
        (set(range(40)), r"\b1\b.*\b40\b"),
        ([1.5] * 40, "row 0 .*float"),
        ([None] * 40, "row 0 .*NoneType"),
        ([True] * 40, "row 0 .*bool"),
        ([np.float64(1)] * 40, "row 0 .*float64"),
        (np.arange(40.0), "row 0 .*float"),
        (np.arange(40).astype("M8[D]"), "row 0 .*datetime64"),
        ([dt.date(2026, 1, 1)] * 40, "row 0 .*date"),
        (["a"] * 39 + ["b\udc80"], "row 39 "),
        (["a"] * 39 + [" "], r"row 39 .*\b0 bytes.* remove the row"),
        (["a"] * 39 + ["\u200b\0"], r"row 39 .*\b0 bytes"),
        (["a" * 1025] * 40, "1025 bytes"),
        ([10**5000] * 40, "8,192 bits"),
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
    with pytest.raises(ShapeMismatch, match=r"expected \(n, dim\)"):
        Records([], [])
    with pytest.raises(ShapeMismatch, match="argmax"):
        records(labels=np.eye(40))
    with pytest.raises(ShapeMismatch):  # multi-label
        records(labels=np.ones((40, 4)))
    with pytest.raises(WrongDtype):
        records(features=np.array([["a"] * 3] * 40))
    with pytest.raises(WrongDtype, match=r"astype\(str\)"):
        records(labels=[b"a"] * 40)
    with pytest.raises(WrongDtype, match=r"\brow 1\b.*\bint\b"):
        records(labels=np.array(["a", 1] * 20, object))
    with pytest.raises(ShapeMismatch, match=r"\b3\b.*\b10\b"):
        records().check_columns(asked().model_copy(update={"dim": 10}))
    assert repr(records()) == "<Records, 40 rows>"
    assert len(records()) == 40


def test_the_same_rows_are_found_under_another_extractor() -> None:
    ids = [f"p{row // 2}" for row in range(40)]
    given = records(ids=ids)
    found = chosen(given, most=9)
    order = RNG.permutation(20)
    kept = np.concatenate(
        [np.arange(2 * each, 2 * each + 2) for each in order if each != rows_of(given, found)[0] // 2]
    )
    other = Records(np.arange(200.0).reshape(40, 5)[kept], given.labels[kept], [ids[row] for row in kept])
    marks, wide = Marks(SECRET, FEDERATION, 0.0), asked().model_copy(update={"dim": 5})
    features = select_again(other, wide, marks, found.ranks, found.labels)
    expected = np.arange(200.0).reshape(40, 5)[rows_of(given, found)]
    expected[0] = 0  # its record is missing from the other features
    assert np.array_equal(features, expected)
    with pytest.raises(ShapeMismatch):
        select_again(other, asked(), marks, found.ranks, found.labels)


def test_rows_in_another_order_never_take_each_other_s_labels() -> None:
    given = records()
    found = chosen(given)
    moved = Records(given.features[::-1], given.labels[::-1])  # 0 1 2 3 … becomes 3 2 1 0 …
    again = select_again(moved, asked(), Marks(SECRET, FEDERATION, 0.0), found.ranks, found.labels)
    assert not again.any()
    moved = Records(np.roll(given.features, 4, axis=0), np.roll(given.labels, 4))
    again = select_again(moved, asked(), Marks(SECRET, FEDERATION, 0.0), found.ranks, found.labels)
    assert np.array_equal(again, moved.features)


def test_a_row_keeps_its_rank_for_life() -> None:
    """Reservations name their rows by rank: a release that derives another one finds none of them again."""
    first, second = Marks(SECRET, FEDERATION, 0.0).rank_rows(records(2, ["a", "a"]))
    assert first.hex() == "03cc149d3ff384bfeb93720302cc265ebe41adad780d905a2c047804c1c75ac0"
    assert second.hex() == "c1bf0ba724dc6e45d291f4d77f870f2b13b9be288cf119fc6902c0543d2bb7e3"


def test_held_out_rows_that_a_judgement_does_not_take_are_counted_by_why() -> None:
    marks = Marks(SECRET, FEDERATION, 0.5)
    ids = [f"p{row}" for row in range(40)]
    held_out = [each for each in ids if marks.is_held_out(each.encode())]
    drawn = [each for each in held_out if marks.is_drawn(each.encode(), "judge-1")]
    judged = {marks.mark_record(each.encode()) for each in (drawn[0], *held_out[:3])}
    given = records(80, ids=[each for each in ids for _ in range(2)])
    found = select_held_out(given, asked(), marks, "judge-1", lambda keys: set(keys) - judged)
    wanted = {marks.mark_record(each.encode()) for each in drawn} - judged
    assert set(found.records) == wanted
    assert 0 < len(wanted) == len(found.labels)
    rows = 2 * len(held_out)
    assert (found.taken, found.held_out) == (2 * len(judged), 0)
    assert found.beyond == rows - found.taken - len(found.labels)


def coarse_columns(features: Any) -> int:
    matrix = np.asarray(features)
    whole = simulated_content(simulated_question(3), 0).question
    question = whole.model_copy(update={"dim": matrix.shape[1]})
    return Records(matrix, np.zeros(len(matrix), int)).count_coarse_columns(question)


def relu(rows: int, dim: int = 200, share: float = 0.5) -> Any:
    """Features of which about this share are not zero."""
    rng = np.random.default_rng(rows)
    return rng.exponential(size=(rows, dim)) * (rng.random((rows, dim)) < share)


def gelu(values: Any) -> Any:
    return 0.5 * values * (1 + np.tanh(0.8 * (values + 0.045 * values**3)))


@pytest.mark.parametrize("rows", [100, 5_000])
@pytest.mark.parametrize("values", [2, 5, 19])
def test_columns_of_categories_and_coarse_codes_are_counted(rows: int, values: int) -> None:
    rng = np.random.default_rng(values)
    table = rng.integers(0, values, (max(rows, 5 * values), 7)).astype(float)
    assert coarse_columns(table) == 7
    assert coarse_columns((table - table.mean(axis=0)) / table.std(axis=0)) == 7
    mixed = np.hstack([rng.standard_normal((len(table), 30)), table, np.zeros((len(table), 2))])
    assert coarse_columns(mixed) == 7


def test_a_rare_flag_is_counted_from_five_rows_on() -> None:
    flag = np.arange(200) < np.array([[4], [5]])
    assert coarse_columns(np.hstack([np.ones((200, 1)), flag.T])) == 1


def test_a_column_of_twenty_values_is_not_coarse() -> None:
    assert [coarse_columns(np.resize(np.arange(values) + 1.0, (400, 1))) for values in (19, 20)] == [1, 0]


def test_of_many_rows_4096_are_looked_at() -> None:
    flags = np.repeat(np.eye(820), 5, axis=0)  # the last column's rows are too few in any case
    assert [coarse_columns(flags[:rows]) for rows in (4_096, 4_097)] == [819, 818]


def test_one_hot_columns_of_many_categories_are_counted() -> None:
    assert coarse_columns(np.tile(np.eye(200), (10, 1))) == 200


@pytest.mark.parametrize("rows", [1, 19, 40, 2_000])
@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_features_of_networks_are_not_coarse(rows: int, kind: Any) -> None:
    for share in (0.01, 0.1, 0.5, 1):
        features = relu(rows, share=share).astype(kind)
        assert coarse_columns(features) == 0
        assert coarse_columns(np.repeat(features, 2, axis=0)) == 0, "doubled rows"
        assert coarse_columns(features - features.mean(axis=0)) == 0, "centred: zeros have moved"
    values = np.random.default_rng(rows).standard_normal((rows, 200))
    assert coarse_columns(gelu(values).astype(kind)) == 0
    assert coarse_columns(gelu(3 * values - 6).astype(kind)) == 0  # most are almost zero


def test_rows_that_are_not_summed_and_few_rows_have_no_coarse_columns() -> None:
    table = np.tile([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]], (30, 1))
    assert coarse_columns(table) == 2
    assert coarse_columns(table[:19]) == 0
    whole = simulated_content(simulated_question(3), 0).question.model_copy(update={"dim": 3})
    assert Records(table, np.full(60, -1)).count_coarse_columns(whole) == 0
