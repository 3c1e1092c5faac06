"""A member's checks of an opening, in the specification's order (wire: Openings)."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any

import pytest

from tests.protocol.counting import closed, count_rows, indicated
from tests.protocol.questions import GRADIENTS, MEAN_SUM, link
from tests.support.forging import again
from tests.support.refusals import refused
from tests.support.simulator import Federation
from veilsum.protocol.attempt import Attempt, Finished
from veilsum.protocol.counting import CountOutcome
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Opened, Ready
from veilsum.protocol.messages import NO_CONTEXT, Link, Opening, Survivor, Terms
from veilsum.protocol.opening_rules import (
    CountOutcomes,
    check_latest_end,
    check_places,
    check_repeats,
    check_step,
    earlier_contexts,
    link_of,
    next_step,
    repeated_link,
)
from veilsum.protocol.study import END_MAX_S

OTHER = b"\x09" * 32


def refused_unless(
    holds: bool,  # noqa: FBT001 - read as a sentence
    cause: str | None,
    party: str | EllipsisType,
) -> AbstractContextManager[object]:
    """Expect this refusal in the block, unless the checked condition holds."""
    return nullcontext() if holds or cause is None else refused(cause, party)


@dataclass
class Case:
    """A member between rounds, and the opening that it is shown."""

    phase: Ready
    opening: Opening
    key: SigningKey
    now_s: float

    def opens(self, member_key: SigningKey) -> None:
        """Raise the member's refusal of the opening, if any."""
        signed = again(self.opening, self.key)
        phase, _ = self.phase.receive(signed, member_key, self.now_s)
        assert isinstance(phase, Opened)

    def shown(self, **changes: Any) -> None:
        self.opening = replace(self.opening, **changes)

    def terms(self, **changes: Any) -> None:
        self.shown(terms=replace(self.opening.terms, **changes))

    def ready(self, **changes: Any) -> None:
        self.phase = replace(self.phase, **changes)

    def signed(self, key: SigningKey) -> None:
        self.key = key

    def knows(self, ended: Link) -> None:
        history = self.phase.history
        self.phase = self.phase.with_history(replace(history, settled=(*history.settled, ended)))


@pytest.fixture(scope="module")
def federation() -> Federation:
    """Seven members after their counts of classes and rows; the sum is opened next."""
    federation = indicated(drop={})
    count_rows(federation)
    return federation


@pytest.fixture
def case(federation: Federation) -> Case:
    opening = federation.opening(federation.terms())
    return Case(closed(federation).ready, opening, federation.coordinator, federation.now_s)

    # the cohort's id still follows from its original roster, which is not checked again


def test_an_honest_opening_is_opened(case: Case, federation: Federation) -> None:
    case.opens(federation.keys["member-0"])


def leave_unsettled(case: Case, federation: Federation) -> None:
    opening = replace(case.opening, sequence=77)
    elsewhere = Attempt(federation.roster, federation.study, federation.manifest, opening)
    case.phase = case.phase.with_history(case.phase.history.enter_attempt(elsewhere))


def expire(case: Case, _: Federation) -> None:
    # no decryptor: that one would erase
    case.ready(manifest=replace(case.phase.manifest, decryptors=case.phase.manifest.decryptors[1:]))
    case.terms(latest_end_s=int(case.now_s))


NOTHING: dict[str, Any] = {"count": NO_CONTEXT, "rows": NO_CONTEXT, "withheld": (), "evicted": ()}
CLAUSES: list[tuple[str, str, Callable[[Case, Federation], None]]] = [
    ("cohort", "wrong-cohort", lambda case, _: case.shown(cohort=OTHER)),
    ("signature", "bad-signature", lambda case, f: case.signed(f.admin)),
    ("card", "card-expired", lambda case, _: case.ready(expires_s=int(case.now_s))),
    (
        "revoked",
        "study-refused",
        lambda case, f: case.ready(roster=replace(case.phase.roster, revoked=(f.study.hash,))),
    ),
    ("expired", "terms-expired", expire),
    ("far", "terms-refused", lambda case, _: case.terms(latest_end_s=int(case.now_s) + END_MAX_S + 1)),
    ("behind", "wrong-sequence", lambda case, _: case.ready(sequence=9)),
    ("unsettled", "outcome-missing", leave_unsettled),
    (
        "chain",
        "chain-broken",
        lambda case, f: case.knows(link(f, reason="none", cohort=OTHER, context=OTHER, period="other-1")),
    ),
    ("hole", "chain-broken", lambda case, _: case.shown(sequence=5)),
    (
        "lost",
        "already-summed",
        lambda case, f: case.knows(
            link(f, reason="lost", cohort=OTHER, context=bytes([9] * 32), step=case.opening.terms.step)
        ),
    ),
    ("step", "terms-refused", lambda case, _: case.terms(step="refinement-1")),
    ("class", "terms-refused", lambda case, _: case.terms(withheld=(3, 4, 6))),
    ("material", "terms-refused", lambda case, _: case.terms(material=OTHER)),
    ("no count", "terms-refused", lambda case, _: case.terms(**NOTHING)),
    ("unknown count", "terms-refused", lambda case, _: case.terms(count=OTHER)),
    ("unknown rows", "terms-refused", lambda case, _: case.terms(rows=OTHER)),
    (
        "summed",
        "already-summed",
        lambda case, f: case.shown(
            links=(*case.opening.links, link(f, (1, 0), reason="none", cohort=OTHER, step="sum"))
        ),
    ),
    ("withheld", "count-mismatch", lambda case, _: case.terms(withheld=(3, 4))),
]
"""What breaks each clause of the page, in its order."""
ALONE = frozenset({"far", "class", "no count"})
"""Breaks that are tested alone: their terms would undo another break, or one behind them has the same cause."""


@pytest.mark.parametrize("at", range(len(CLAUSES)), ids=lambda at: CLAUSES[at][0])
def test_each_rule_is_checked_before_those_behind_it(case: Case, federation: Federation, at: int) -> None:
    own, cause, change = CLAUSES[at]
    for name, _, behind in reversed(CLAUSES[at + 1 :]):
        if not {own, name} & ALONE:
            behind(case, federation)
    change(case, federation)
    with refused(cause, ...):
        case.opens(federation.keys["member-0"])


def test_2_a_study_expires_whatever_its_cards_say(case: Case, federation: Federation) -> None:
    case.phase = replace(case.phase, expires_s=10**12)
    case.now_s = federation.content.notes.expires
    case.terms(latest_end_s=int(case.now_s) + 1)
    with refused("study-refused"):
        case.opens(federation.keys["member-0"])


# Clause 2


def attempt_of(federation: Federation, links: tuple[Link, ...] = (), **terms: Any) -> Attempt:
    opening = federation.opening(federation.terms())
    changed = {"terms": replace(opening.terms, **terms), "links": (*opening.links, *links)}
    return Attempt(
        federation.roster,
        federation.study,
        federation.manifest,
        again(opening, federation.coordinator, **changed),
    )


@pytest.mark.parametrize(
    ("ahead_s", "cause"),
    [(0, "terms-expired"), (1, None), (END_MAX_S, None), (END_MAX_S + 1, "terms-refused")],
)
def test_2_the_latest_end_lies_at_most_thirty_days_ahead(ahead_s: int, cause: str | None) -> None:
    federation = Federation(4)
    attempt = attempt_of(federation, latest_end_s=int(federation.now_s) + ahead_s)
    with refused_unless(cause is None, cause, ...):
        check_latest_end(attempt, federation.now_s)


# Clause 5


@pytest.mark.parametrize(
    ("before", "place", "whole"),
    [
        ([], (0, 0), True),
        ([(0, 0)], (0, 1), True),
        ([(0, 0)], (1, 0), True),
        ([(0, 0), (0, 1), (1, 0)], (2, 0), True),
        ([], (0, 1), False),
        ([], (1, 0), False),
        ([(0, 0)], (0, 0), False),
        ([(0, 0)], (0, 2), False),
        ([(0, 0)], (2, 0), False),
        ([(0, 0)], (1, 1), False),
        ([(1, 0)], (2, 0), False),
        ([(0, 0), (2, 0)], (3, 0), False),
        ([(1, 0), (0, 0)], (2, 0), False),
    ],
)
def test_5_places_follow_one_another(
    before: list[tuple[int, int]], place: tuple[int, int], *, whole: bool
) -> None:
    federation = Federation(3)
    elsewhere = link(federation, (7, 3), cohort=OTHER)
    opening = again(
        federation.opening(federation.terms()),
        federation.coordinator,
        links=(elsewhere, *(link(federation, each) for each in before)),
        sequence=place[0],
        attempt=place[1],
    )
    with refused_unless(whole, "chain-broken", "coordinator"):
        check_places(opening)


# Clause 6


@pytest.mark.parametrize(
    ("question", "step", "material", "fits"),
    [
        ({}, "sum", False, True),
        ({}, "sum", True, False),
        (MEAN_SUM, "mean", False, True),
        (MEAN_SUM, "mean", True, False),
        (MEAN_SUM, "sum", True, True),
        (MEAN_SUM, "sum", False, False),
    ],
    ids=str,
)
def test_6_material_is_there_exactly_if_the_step_takes_it(
    question: dict[str, Any], step: str, *, material: bool, fits: bool
) -> None:
    federation = Federation(4, question=question)
    links = (link(federation, step="mean", reason="none"),) if step == "sum" and question else ()
    attempt = attempt_of(federation, links, step=step, material=OTHER if material else NO_CONTEXT)
    with refused_unless(fits, "terms-refused", "coordinator"):
        check_step(attempt)


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"reason": "cancelled"}, False),
        ({"reason": "lost"}, False),
        ({"period": "another"}, False),
        ({"question": OTHER}, False),
        ({"step": "sum"}, False),
        ({"step": "gradient-2"}, False),
    ],
    ids=str,
)
def test_6_a_noisy_step_follows_the_step_before_it(change: dict[str, Any], *, fits: bool) -> None:
    federation = Federation(4, question=GRADIENTS)
    before = link(federation, **{"step": "gradient-1", "reason": "none", **change})
    attempt = attempt_of(federation, (before,), step="gradient-2", material=OTHER)
    with refused_unless(fits, "terms-refused", "coordinator"):
        check_step(attempt)


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"repeats": OTHER}, False),
        ({"reason": "lost"}, False),
        ({"period": "another"}, False),
        ({"question": OTHER}, False),
        ({"step": "sum"}, False),
        ({"context": bytes([3] * 32)}, False),
    ],
    ids=str,
)
def test_6_a_sum_rests_on_a_certified_count(change: dict[str, Any], *, fits: bool) -> None:
    federation = Federation(5, margin=1)
    counted = link(federation, **{"step": "count", "reason": "none", "context": OTHER, **change})
    attempt = attempt_of(federation, (counted,), step="sum", count=OTHER)
    with refused_unless(fits, "terms-refused", "coordinator"):
        check_step(attempt)
    if fits:
        assert earlier_contexts(attempt) == (OTHER,)


@pytest.mark.parametrize(("margin", "step"), [(None, "sum"), (1, "count")])
def test_6_no_other_step_rests_on_one(margin: int | None, step: str) -> None:
    federation = Federation(5, margin=margin)
    assert earlier_contexts(attempt_of(federation)) == ()
    check_step(attempt_of(federation, step=step))
    counted = link(federation, step="count", reason="none", context=OTHER)
    with refused("terms-refused", "coordinator"):
        check_step(attempt_of(federation, (counted,), step=step, count=OTHER))


# Clause 7


@pytest.mark.parametrize(
    ("change", "fresh"),
    [
        ({"reason": "none"}, False),
        ({"reason": "none", "cohort": OTHER}, False),
        ({"reason": "lost"}, False),
        ({"reason": "cancelled"}, True),
        ({"reason": "erased"}, True),
        ({"reason": "none", "period": "another"}, True),
        ({"reason": "none", "question": OTHER}, True),
        ({"reason": "none", "step": "count"}, True),
        ({"reason": "none", "repeats": OTHER}, True),
        ({"reason": "lost", "repeats": OTHER}, True),
    ],
    ids=str,
)
def test_7_a_step_of_a_period_is_certified_once_or_lost_once(change: dict[str, Any], *, fresh: bool) -> None:
    attempt = attempt_of(federation := Federation(4), (link(federation, **change),))
    with refused_unless(fresh, "already-summed", "coordinator"):
        check_step(attempt)


# The next step, by OPEN-15 to OPEN-19


CERTIFIED = {"count": OTHER, "rows": bytes([8] * 32), "sum": bytes([7] * 32)}
ALL, RARE, ONE, NO_ROWS, MANY_ROWS = (5,) * 4, (5, 5, 5, 0), (5, 0, 0, 0), (0,) * 8, (5,) * 8
COUNTED, ROWS = ("count", "none"), ("rows", "none")


def found_by(
    federation: Federation,
    holders: tuple[int, ...] | None,
    reached: tuple[int, ...] | None,
    *,
    lost: tuple[int, int] = (0, 0),
    evicted: tuple[int, int] = (0, 0),
) -> CountOutcomes:
    """Return the outcomes of a count and its rows, which the last `lost` members missed and the first `evicted` were evicted from."""
    ids, least = federation.ids, federation.manifest.survivors_min
    found = [
        None if sums is None else CountOutcome(sums, ids[: len(ids) - missing], ids[:false], least)
        for sums, missing, false in zip((holders, reached), lost, evicted, strict=True)
    ]
    return dict(zip((CERTIFIED["count"], CERTIFIED["rows"]), found, strict=True)).get


@pytest.mark.parametrize(
    ("chain", "holders", "reached", "expected"),
    [
        ((), None, None, "count"),
        ((("count", "quorum-lost"), ("count", "erased")), None, None, "count"),
        ((("count", "lost"),), None, None, None),
        ((COUNTED,), None, None, None),  # without a result, and never repeated
        ((COUNTED,), ALL, None, "sum"),
        ((COUNTED,), RARE, None, "rows"),
        ((COUNTED,), ONE, None, None),
        ((COUNTED, ("rows", "cancelled")), RARE, None, "rows"),
        ((COUNTED, ("rows", "lost")), RARE, None, None),
        ((COUNTED, ROWS), RARE, None, None),
        ((COUNTED, ROWS), RARE, NO_ROWS, None),
        ((COUNTED, ROWS), RARE, MANY_ROWS, "sum"),
        ((COUNTED, ROWS, ("sum", "cancelled")), RARE, MANY_ROWS, "sum"),
        ((COUNTED, ROWS, ("sum", "none")), RARE, MANY_ROWS, None),
        ((COUNTED, ("sum", "cancelled")), ALL, None, "sum"),
        ((COUNTED, ("sum", "none")), ALL, None, None),
        ((COUNTED, ("sum", "lost")), ALL, None, None),
    ],
    ids=str,
)
def test_a_run_goes_on_at_the_first_step_that_may_be_opened(
    chain: tuple[tuple[str, str], ...],
    holders: tuple[int, ...] | None,
    reached: tuple[int, ...] | None,
    expected: str | None,
) -> None:
    federation = Federation(5, margin=1)
    question, period = federation.content.question, federation.manifest.period
    links = [
        link(
            federation,
            (0, place),
            step=step,
            reason=reason,
            context=CERTIFIED[step] if reason == "none" else bytes([place] * 32),
        )
        for place, (step, reason) in enumerate(chain)
    ]
    outcomes = found_by(federation, holders, reached)
    assert next_step(question, period, links, outcomes) == expected
    assert next_step(question, "another", links, outcomes) == "count"
    if expected is not None:
        withheld = () if holders == ALL or expected == "count" else (3,)
        named = {"count": CERTIFIED["count"]} if expected != "count" else {}
        named |= {"rows": CERTIFIED["rows"]} if expected == "sum" and withheld else {}
        check_step(attempt_of(federation, tuple(links), step=expected, withheld=withheld, **named))


@pytest.mark.parametrize(
    ("chain", "lost", "evicted", "expected"),
    [
        ((COUNTED,), (1, 0), (0, 0), "rows"),
        ((COUNTED,), (1, 0), (1, 0), None),  # three are left, and four are needed
        ((COUNTED, ROWS), (0, 1), (0, 0), "sum"),
        ((COUNTED, ROWS), (0, 1), (0, 1), None),
        ((COUNTED, ROWS), (0, 0), (1, 1), "sum"),  # the same member twice
    ],
    ids=str,
)
def test_a_run_is_over_if_too_few_are_left_that_were_counted(
    chain: tuple[tuple[str, str], ...], lost: tuple[int, int], evicted: tuple[int, int], expected: str | None
) -> None:
    federation = Federation(5, margin=1)
    assert federation.manifest.survivors_min == 4
    links = [
        link(federation, (0, place), step=step, reason=reason, context=CERTIFIED[step])
        for place, (step, reason) in enumerate(chain)
    ]
    outcomes = found_by(federation, RARE, MANY_ROWS, lost=lost, evicted=evicted)
    assert next_step(federation.content.question, federation.manifest.period, links, outcomes) == expected


def no_sums(_context: bytes) -> None:
    """No count has a result."""


@pytest.mark.parametrize(
    ("change", "expected"),
    [({}, None), ({"reason": "lost"}, None), ({"reason": "cancelled"}, "sum"), ({"cohort": OTHER}, "sum")],
    ids=str,
)
def test_a_run_that_repeats_has_one_step_and_one_cohort(change: dict[str, Any], expected: str | None) -> None:
    federation = Federation(4)
    cohort, run = federation.manifest.cohort, (federation.content.question, federation.manifest.period)
    first = link(federation, reason="none", context=OTHER, cohort=bytes(32))
    repeat = link(federation, **{"reason": "none", "repeats": OTHER, **change})
    assert next_step(*run, [first], no_sums, repeats=OTHER, cohort=cohort) == "sum"
    assert next_step(*run, [first, repeat], no_sums, repeats=OTHER, cohort=cohort) == expected
    assert next_step(*run, [repeat], no_sums, repeats=bytes([3] * 32), cohort=OTHER) is None


# Clause 8


def repeating(federation: Federation, links: tuple[Link, ...], **terms: Any) -> Attempt:
    """An attempt whose cohort repeats `OTHER`; its manifest isn't checked."""
    attempt = attempt_of(federation, links, **terms)
    return replace(attempt, manifest=replace(attempt.manifest, repeats=OTHER))


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"question": bytes([3] * 32)}, True),
        ({"context": bytes([3] * 32)}, False),
        ({"reason": "lost"}, False),
        ({"reason": "erased"}, False),
        ({"period": "another"}, False),
        ({"step": "count"}, False),
        ({"repeats": bytes([3] * 32)}, False),
    ],
    ids=str,
)
def test_8_the_links_hold_what_is_repeated(change: dict[str, Any], *, fits: bool) -> None:
    federation = Federation(4)
    certified = link(federation, **{"context": OTHER, "reason": "none", **change})
    attempt = repeating(federation, (certified,))
    assert repeated_link(attempt_of(federation)) is None
    check_step(attempt)  # a repeated run is not fresh
    assert earlier_contexts(attempt) == (OTHER,)
    if fits:
        assert repeated_link(attempt) == link_of(attempt.opening.links, OTHER) == certified
    else:
        with refused("repeat-mismatch", "coordinator"):
            repeated_link(attempt)


def finished_of(federation: Federation, terms: Terms, **question: Any) -> Finished:
    study = federation.study_of(**question)
    return Finished(OTHER, study, terms, (Survivor("member-0", bytes(32)),))


EXTRACTOR = "ab" * 32
JUDGE = {"epsilon": 1.0, "delta": 1e-6, "heads": 1, "positive": None, "bins": {"confidence": 5, "score": 8}}


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"extractor": EXTRACTOR}, True),
        ({"extractor": EXTRACTOR, "dim": 12}, True),
        ({"extractor": EXTRACTOR, "columns": [f"f{place}" for place in range(10)]}, True),
        ({"extractor": EXTRACTOR, "constant": True}, False),
        ({"extractor": EXTRACTOR, "ring_bits": 48}, True),
        ({"extractor": EXTRACTOR, "judge": JUDGE}, False),
        ({"dim": 12}, False),
        ({"constant": True}, False),
        ({"ring_bits": 48}, False),
        ({"extractor": EXTRACTOR, "classes": ["a", "b", "c"]}, False),
        (
            {
                "extractor": EXTRACTOR,
                "records": {"least": 51, "most": 500, "least_per_class": 5, "rows_per_id": 1},
            },
            False,
        ),
        ({"extractor": EXTRACTOR, "loss": 99}, False),
        ({"extractor": EXTRACTOR, "a": 2, "members_min": 5, "members_max": 6}, False),
    ],
    ids=str,
)
def test_8_questions_differ_in_the_extractor_and_what_follows_from_it(
    change: dict[str, Any], *, fits: bool
) -> None:
    federation = Federation(6)
    attempt = repeating(federation, ())
    finished = finished_of(federation, attempt.terms, **change)
    with refused_unless(fits, "repeat-mismatch", "coordinator"):
        check_repeats(attempt, finished)


def test_8_a_member_repeats_only_what_it_was_in() -> None:
    federation = Federation(4)
    attempt = repeating(federation, ())
    other = replace(finished_of(federation, attempt.terms), context=bytes([3] * 32))
    for finished in (None, other):
        with refused("repeat-mismatch", "coordinator"):
            check_repeats(attempt, finished)


@pytest.mark.parametrize("change", [{"count": bytes([3] * 32)}, {"withheld": (1,)}, {"evicted": ("a",)}])
def test_8_a_repeated_run_leaves_out_what_the_repeated_one_did(change: dict[str, Any]) -> None:
    federation = Federation(5, margin=1)
    attempt = repeating(federation, (), step="sum", count=bytes([4] * 32), withheld=(2,))
    finished = finished_of(federation, replace(attempt.terms, latest_end_s=5))
    check_repeats(attempt, finished)
    changed = replace(finished, terms=replace(finished.terms, **change))
    with refused("count-mismatch", "coordinator"):
        check_repeats(attempt, changed)
