"""A draft, unedited, leads from its counts to a sum."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from veilsum.protocol.counting import CountOutcome, withheld_classes
from veilsum.protocol.errors import Misuse
from veilsum.protocol.messages import NO_CONTEXT, NO_REASON, Link
from veilsum.protocol.opening_rules import next_step
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import COUNT_STEP, ROWS_STEP, SUM_STEP, Content
from veilsum.study.draft import draft_template, parse_draft
from veilsum.study.vectors import compute_vector

PERIOD = "2026"


def drafted_text(members: int, dim: int, classes: int) -> str:
    return draft_template(
        "study.toml",
        name="ct-2026",
        extractor="ab" * 32,
        dim=dim,
        classes=[f"class-{label}" for label in range(classes)],
        members=members,
        today=datetime.now(UTC).date(),
        why_not_listable="CT scans",
    )


def drafted(members: int, dim: int, classes: int) -> Content:
    return parse_draft(drafted_text(members, dim, classes), "study.toml")


def counted_sums(content: Content, step: str, withheld: tuple[int, ...], rows: list[Any]) -> tuple[int, ...]:
    """Return the sums of a count over these members' rows."""
    members, numbers = len(rows), content.question.smallest.quorum
    spec = RoundSpec(
        content, bytes(32), PERIOD, step, withheld, members, numbers.survivors_min, content.question.elements
    )
    return tuple(np.sum([compute_vector(spec, *each) for each in rows], axis=0).tolist())


def certified(content: Content, step: str) -> Link:
    context = step.encode().ljust(32, b"\1")
    digest = content.question.digest
    return Link(bytes(32), 0, 0, digest, PERIOD, step, NO_CONTEXT, context, NO_REASON, survivors=b"\2" * 32)


def steps_until_sum(content: Content, rows: list[Any]) -> list[str | None]:
    """Return the steps of a run in which all members are counted, and as many as the margin drop out after the count."""
    question = content.question
    assert question.withhold is not None
    links, outcomes = list[Link](), dict[bytes, CountOutcome]()
    members, least = len(rows), question.smallest.quorum.survivors_min
    withheld: tuple[int, ...] = ()
    steps = [next_step(question, PERIOD, links, outcomes.get)]
    while (step := steps[-1]) in {COUNT_STEP, ROWS_STEP}:
        assert step is not None
        link = certified(content, step)
        links.append(link)
        found = counted_sums(content, step, withheld, rows)
        names = [str(place) for place in range(members - len(rows), members)]
        outcomes[link.context] = CountOutcome(found, names, (), least)
        if step == COUNT_STEP:
            withheld = withheld_classes(question, found)
            rows = rows[question.withhold.margin :]
        steps.append(next_step(question, PERIOD, links, outcomes.get))
    return steps


@pytest.mark.parametrize("classes", [2, 3, 9])
@pytest.mark.parametrize("dim", [64, 512])
@pytest.mark.parametrize("members", [5, 12, 50])
def test_members_with_the_fewest_rows_have_a_sum(members: int, dim: int, classes: int) -> None:
    """One of them lacks the last class. The others have as many rows of each class."""
    content = drafted(members, dim, classes)
    question, rng = content.question, np.random.default_rng(classes)
    least = question.records.least
    rows: list[Any] = [
        (rng.standard_normal((least, dim), np.float32), np.arange(least) % (classes - (place == 0)))
        for place in range(members)
    ]
    steps = steps_until_sum(content, rows)
    assert steps[0] == COUNT_STEP
    assert steps[-1] == SUM_STEP, steps


@pytest.mark.parametrize(("field", "at"), [("name", "notes.name"), ("extractor", "question.extractor")])
def test_a_quotation_mark_in_a_draft_is_refused_where_it_stands(field: str, at: str) -> None:
    values: dict[str, Any] = {"name": "ct-2026", "extractor": "ab" * 32, field: 'a "b"'}
    text = draft_template("s", dim=8, classes=["x", "y"], members=5, today=datetime.now(UTC).date(), **values)
    with pytest.raises(Misuse, match=at):
        parse_draft(text, "s")


def test_a_class_that_few_members_of_a_draft_hold_is_withheld_and_its_rows_are_counted() -> None:
    content, rng = drafted(12, 64, 3), np.random.default_rng(1)
    most = 4 * content.question.records.least
    rows: list[Any] = [
        (rng.standard_normal((most, 64), np.float32), np.arange(most) % (3 if place < 3 else 2))
        for place in range(content.question.members_min)
    ]
    assert steps_until_sum(content, rows) == [COUNT_STEP, ROWS_STEP, SUM_STEP]


def test_a_draft_asks_for_rows_of_each_class_and_lets_a_member_miss() -> None:
    assert drafted(50, 64, 9).question.records.least == 45
    assert drafted(5, 64, 2).question.members_min == 4


def test_the_judge_that_a_draft_proposes_can_be_used() -> None:
    text = drafted_text(8, 32, 3)
    block = text[text.index("# [question.judge]") : text.index("[question.windows]")]
    judge = parse_draft(
        text.replace(block, re.sub("^# ", "", block, flags=re.MULTILINE)), "study.toml"
    ).question.judge
    assert judge is not None
    assert (judge.heads, judge.bins.confidence, judge.bins.score) == (3, 5, 8)
