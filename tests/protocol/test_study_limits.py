"""The limits of a study's numbers and lists, as the specification states them."""

from collections.abc import Callable
from math import inf, nextafter
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

from veilsum.protocol.statistics import FFC, RandomFeaturesFFC, StudyBlock
from veilsum.protocol.study import (
    CCVRHead,
    Judge,
    JudgeBins,
    Noise,
    Notes,
    Question,
    RecordRules,
    Rehearsal,
    Windows,
    Withhold,
)

MONTH_S = 2_592_000
LIMITS: list[tuple[type[StudyBlock], str, int, int]] = [
    *((RecordRules, name, 1, 2**32 - 1) for name in ("least", "most", "least_per_class", "rows_per_id")),
    (Withhold, "margin", 0, 10_000),
    (Judge, "heads", 1, 3),
    (JudgeBins, "confidence", 2, 20),
    (JudgeBins, "score", 2, 32),
    *((Windows, name, 1, MONTH_S) for name in ("enrol", "upload", "answer")),
    (Question, "dim", 2, 65_536),
    *((Question, name, 3, 10_000) for name in ("members_min", "members_max", "h_min")),
    (Question, "a", 0, 10_000),
    (Question, "loss", 0, 374),
    (RandomFeaturesFFC, "size", 2, 65_536),
]


def allows(block: type[StudyBlock], field: str, value: Any) -> bool:
    try:
        TypeAdapter(get_type_hints(block, include_extras=True)[field]).validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(("block", "field", "least", "most"), LIMITS)
def test_a_number_of_a_study_has_these_limits(
    block: type[StudyBlock], field: str, least: int, most: int
) -> None:
    step = 2 if block is RandomFeaturesFFC else 1
    assert [allows(block, field, each) for each in (least - step, least, most, most + step)] == [
        *(False, True, True, False)
    ]


def test_random_features_come_in_pairs() -> None:
    assert not allows(RandomFeaturesFFC, "size", 3)


@pytest.mark.parametrize(
    ("field", "make", "least", "most"),
    [
        ("classes", lambda count: [str(each) for each in range(count)], 2, 10_000),
        ("statistics", lambda count: [FFC()] * count, 1, 3),
    ],
)
def test_a_study_has_this_many_classes_and_statistics(
    field: str, make: Callable[[int], list[Any]], least: int, most: int
) -> None:
    allowed = [allows(Question, field, make(count)) for count in (least - 1, least, most, most + 1)]
    assert allowed == [False, True, True, False]


@pytest.mark.parametrize("field", ["purpose", "why_not_listable", "why_not_withheld"])
def test_a_text_for_people_has_at_most_1024_characters(field: str) -> None:
    assert [allows(Notes, field, "é" * length) for length in (0, 1024, 1025)] == [True, True, False]


@pytest.mark.parametrize(
    ("block", "field", "most"),
    [
        *((block, "epsilon", 10.0) for block in (Noise, Judge)),
        *((block, "delta", 1e-5) for block in (Noise, Judge)),
        (CCVRHead, "power", 1.0),
        (Rehearsal, "tolerance", 1.0),
    ],
)
def test_a_real_of_a_study_is_above_zero_and_has_this_limit(
    block: type[StudyBlock], field: str, most: float
) -> None:
    values = (0.0, nextafter(0, 1), most, nextafter(most, inf))
    assert [allows(block, field, each) for each in values] == [False, True, True, False]


def test_an_attempt_takes_one_window_for_uploads_and_three_for_answers() -> None:
    assert Windows(enrol=1, upload=60, answer=7).attempt_s == 81
