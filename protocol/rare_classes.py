"""Which classes a sum leaves out, because too few members hold them (protocol §8.3)."""

from collections.abc import Sequence

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.study import Question


def class_floor(question: Question) -> int:
    """m: the fewest holders with which a class is published. The study withholds rare classes."""
    assert question.withhold is not None
    margin = question.withhold.margin
    floor = question.a + question.h_min + margin
    if question.has("ccvr") and not question.thin_classes:
        # A class's second moment needs two rows a dimension of honest members.
        rows = -(-2 * question.dim // question.records.least_per_class)
        floor = max(floor, rows + question.a + margin)
    return floor


def withheld_classes(question: Question, holders: Sequence[int]) -> tuple[int, ...]:
    """The classes that fewer than m members hold, ascending; none where the study does not withhold.

    Args:
        question: of the study.
        holders: (C,) how many members hold each class.
    """
    if question.withhold is None:
        return ()
    floor = class_floor(question)
    return tuple(label for label, held in enumerate(holders) if held < floor)


def check_enough_rows(question: Question, holders: Sequence[int]) -> None:
    """Refuse a sum with too few rows of honest members behind the classes that it publishes (indicator-mismatch)."""
    assert question.withhold is not None
    withheld, missing = set(withheld_classes(question, holders)), question.a + question.withhold.margin
    honest = sum(max(0, held - missing) for label, held in enumerate(holders) if label not in withheld)
    rows = question.records.least_per_class * honest
    if rows < (wanted := question.rows_unsolved):
        raise PeerFault(
            Cause.INDICATOR_MISMATCH,
            f"the classes that can be published hold as few as {rows} rows of honest members, and {question.width} dimensions "
            f"need {wanted}: bring more members, or sign a study with a higher least_per_class",
            ["coordinator"],
        )
