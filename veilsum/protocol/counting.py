"""What a run's counts allow: the classes that are published, and whether enough rows and members stand behind a sum (member: Enough rows)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.study import ROWS_LEVELS, Question

CLASSES_MIN = 2
"""Minimum published classes: a head of one class predicts nothing."""


@dataclass(frozen=True)
class CountOutcome:
    """What a certified `count` or `rows` found.

    Attributes:
        sums: members that hold each class, (C,); of `rows`, members that reach each level, (8,).
        survivors: the certified set, with or without `evicted`.
        evicted: certified members that proved false.
        survivors_min: n_min of its cohort.
    """

    sums: Sequence[int]
    survivors: Collection[str]
    evicted: Collection[str]
    survivors_min: int


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
            f"classes held by at least {question.class_floor} members: {published} of {len(holders)}. A head needs {CLASSES_MIN}. "
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


def find_counted_members(counts: Sequence[CountOutcome]) -> tuple[set[str], set[str]]:
    """Return the members that the first of these counts counted, and those that all did; evicted ones are in neither."""
    evicted = {member for each in counts for member in each.evicted}
    first, *others = ({*each.survivors} - evicted for each in counts)
    return first, first.intersection(*others)


def check_outcomes(question: Question, counts: Sequence[CountOutcome]) -> None:
    """Refuse a run whose certified counts, `count` and then `rows`, allow no further step.

    Raises:
        PeerFault: count-mismatch, as `check_counts`, or if too few members are left that were counted.
    """
    check_counts(question, counts[0].sums, counts[1].sums if counts[1:] else None)
    _, counted = find_counted_members(counts)
    if len(counted) < (least := counts[-1].survivors_min):
        raise PeerFault(
            Cause.COUNT_MISMATCH,
            f"{len(counted)} members were counted and not evicted, and the next step needs {least}. Nothing was spent. Take a new period: "
            "the same records may take part in it",
            ["coordinator"],
        )
