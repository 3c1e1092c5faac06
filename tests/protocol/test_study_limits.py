"""The limits of a study's numbers and lists, as the specification states them."""

from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

from veilsum.protocol.statistics import RandomFeaturesFFC, StudyBlock
from veilsum.protocol.study import Judge, JudgeBins, Question, RecordRules, Windows, Withhold

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


def test_a_study_has_two_to_ten_thousand_classes() -> None:
    allowed = [allows(Question, "classes", [str(each) for each in range(n)]) for n in (1, 2, 10_000, 10_001)]
    assert allowed == [False, True, True, False]
