"""What a run's counts allow: the classes that are published, and whether enough rows stand behind a sum (protocol §8.3)."""

from collections.abc import Sequence
from itertools import pairwise

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.study import ROWS_LEVELS, Question

CLASSES_MIN = 2
"""Minimum published classes: a head of one class predicts nothing."""


def withheld_classes(question: Question, holders: Sequence[int]) -> tuple[int, ...]:
    """Return the classes with fewer than m of the (C,) `holders`, ascending; empty if the study withholds none."""
    if question.withhold is None:
        return ()
    floor = question.class_floor
    return tuple(label for label, held in enumerate(holders) if held < floor)


def check_withheld(
    question: Question, holders: Sequence[int], withheld: Sequence[int], *, repeats: bool
) -> None:
    """Check which classes a step leaves out by the (C,) `holders` (count-mismatch).

    A run that repeats another question's sum leaves out that sum's classes. So its own question must leave out no others.
    """
    rare = set(withheld_classes(question, holders))
    if rare - set(withheld) if repeats else rare ^ set(withheld):
        raise PeerFault(
            Cause.COUNT_MISMATCH,
            f"the terms withhold classes {list(withheld)}, by the counts it is {sorted(rare)}",
            ["coordinator"],
        )


def honest_rows(question: Question, reached: Sequence[int]) -> int:
    """Return the fewest rows of honest members behind the published classes.

    Args:
        question: of a study that withholds classes.
        reached: the sums of the step `rows`: how many members reached each of `ROWS_LEVELS`, (8,).
    """
    assert question.withhold is not None
    unsure = question.a + question.withhold.margin
    quarters = sum(
        (level - below) * max(0, members - unsure)
        for (below, level), members in zip(pairwise((0, *ROWS_LEVELS)), reached, strict=True)
    )
    return question.records.least * quarters // 4


def check_counts(question: Question, holders: Sequence[int], reached: Sequence[int] | None) -> None:
    """Refuse a run whose counts allow no sum.

    Args:
        question: of the study.
        holders: the sums of the step `count`, (C,).
        reached: the sums of the step `rows`, (8,); None before it, or if no class is withheld.

    Raises:
        PeerFault: count-mismatch, with what was found and what is needed.
    """
    withheld = withheld_classes(question, holders)
    if not withheld and reached is None:
        return  # the sum includes every selected row, and the study's rules guarantee enough of them
    published = len(holders) - len(withheld)
    if published < CLASSES_MIN:
        raise PeerFault(
            Cause.COUNT_MISMATCH,
            f"{published} of {len(holders)} classes are held by {question.class_floor} or more members, and a head needs {CLASSES_MIN}. "
            "Nothing was spent. Merge rare classes in a new study, or bring in more members that hold them",
            ["coordinator"],
        )
    if reached is not None and (rows := honest_rows(question, reached)) < question.rows_needed:
        raise PeerFault(
            Cause.COUNT_MISMATCH,
            f"the published classes may have as few as {rows} rows of honest members, and this study needs {question.rows_needed}. "
            "Nothing was spent. Merge rare classes in a new study, or bring in more members or rows",
            ["coordinator"],
        )
