"""Classes that a sum leaves out because too few members hold them (protocol §8.3)."""

from collections.abc import Sequence

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.study import Question


def withheld_classes(question: Question, holders: Sequence[int]) -> tuple[int, ...]:
    """List classes with fewer than m holders, ascending; empty if the study does not withhold.

    Args:
        question: the study's question.
        holders: (C,) number of members that hold each class.
    """
    if question.withhold is None:
        return ()
    return tuple(label for label, held in enumerate(holders) if held < question.class_floor)


def check_enough_rows(question: Question, holders: Sequence[int]) -> None:
    """Refuse a sum that withholds classes and covers too few rows of honest members (indicator-mismatch)."""
    assert question.withhold is not None
    withheld, missing = set(withheld_classes(question, holders)), question.a + question.withhold.margin
    if not withheld:
        return  # every selected row is in the sum, and rule 1 of §4.1 has counted them
    honest = sum(max(0, held - missing) for label, held in enumerate(holders) if label not in withheld)
    rows = question.records.least_per_class * honest
    if rows < (wanted := question.rows_wanted):
        raise PeerFault(
            Cause.INDICATOR_MISMATCH,
            f"the classes that can be published hold as few as {rows} rows of honest members, and this study "
            f"needs {wanted}: take a new period, with more members or a study with a higher least_per_class",
            ["coordinator"],
        )
