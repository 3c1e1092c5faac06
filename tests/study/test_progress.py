"""A run's next action, its ends, and what is said of each."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from tests.support.simulator import Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.counting import CountOutcome
from veilsum.protocol.messages import NO_CONTEXT, NO_REASON, Link
from veilsum.protocol.messages.opening import ERASED_REASON, LOST_REASON, SPENDING_REASONS
from veilsum.protocol.opening_rules import next_step
from veilsum.protocol.rest import CohortView, NoiseView, Problem, RoundView, SpecView
from veilsum.study.progress import (
    DECLINED_ADVICE,
    EndCost,
    RunAction,
    RunEnd,
    explain_failed_cohort,
    find_other_sums,
    next_action,
    next_repeat,
    reason_of,
    run_over,
)

NOISE = {"epsilon": 1.0, "delta": 1e-7, "unit": "record", "recipe": "sum"}
NOISY = {"noise": NOISE, "ring_bits": 48}


def links(*made: tuple[str, bytes, bytes, str]) -> tuple[Any, tuple[Link, ...]]:
    """Make a study's question, and links of its period "p": step, context, repeats and reason."""
    question = Federation(5, margin=1).content.question
    return question, tuple(
        Link(
            cohort=bytes(32),
            sequence=place,
            attempt=0,
            question=question.digest,
            period="p",
            step=step,
            repeats=repeats,
            context=context,
            reason=reason,
            survivors=bytes(32) if reason != NO_REASON else b"s" * 32,
        )
        for place, (step, context, repeats, reason) in enumerate(made)
    )


def read_counts(context: bytes) -> CountOutcome | None:
    """A counts holders of all classes, B leaves one out, C counts many rows, and D has no result."""
    sums = {A: (5, 5, 5, 5), B: (5, 5, 5, 0), C: (5,) * 8}.get(context)
    return None if sums is None else CountOutcome(sums, Federation(5).ids, (), 4)


A, B, C, D = (bytes([value]) * 32 for value in range(1, 5))


@pytest.mark.parametrize(
    ("made", "done", "expected"),
    [
        ((), "", RunAction("count")),
        ((("count", A, NO_CONTEXT, NO_REASON),), "A", RunAction("sum")),
        ((("count", D, NO_CONTEXT, NO_REASON),), "", RunAction(None, last_round=D.hex()[:16])),
        (
            (("count", B, NO_CONTEXT, NO_REASON), ("rows", D, NO_CONTEXT, NO_REASON)),
            "B",
            RunAction(None, last_round=D.hex()[:16]),
        ),
        (
            (
                ("count", A, NO_CONTEXT, NO_REASON),
                ("sum", B, NO_CONTEXT, NO_REASON),
                ("sum", C, B, NO_REASON),
                ("sum", D, B, NO_REASON),
            ),
            "AD",
            RunAction(None, last_round=D.hex()[:16]),
        ),
    ],
)
def test_the_next_step_is_the_first_without_a_result(made: Any, done: str, expected: RunAction) -> None:
    question, chain = links(*made)
    finished = {{"A": A, "B": B, "C": C, "D": D}[name].hex()[:16] for name in done}
    assert next_action(question, "p", chain, read_counts, finished.__contains__) == expected
    assert next_action(question, "another", chain, read_counts, finished.__contains__) == RunAction("count")


def test_a_period_that_was_summed_under_another_extractor_is_repeated() -> None:
    question, chain = links(("count", A, NO_CONTEXT, NO_REASON), ("sum", B, NO_CONTEXT, NO_REASON))
    other, larger = (
        type(question).model_validate({**question.model_dump(), **changes})
        for changes in ({"extractor": "cd" * 32}, {"extractor": "cd" * 32, "a": question.a + 1})
    )
    asked = {question.digest: question}.get
    assert find_other_sums(other, "p", chain, asked) == [chain[1]]
    assert next_repeat(other, chain[1], chain, lambda _: False) == RunAction("sum", repeats=B.hex())
    own = replace(chain[1], question=other.digest, context=C, repeats=B)
    done = RunAction(None, last_round=C.hex()[:16])
    assert next_repeat(other, chain[1], (*chain, own), lambda _: True) == done
    assert next_repeat(other, chain[1], (*chain, own), lambda _: False) == RunAction("sum", B.hex())
    # No other run, period or question does, nor one whose own run has begun over fresh records.
    for wanted, period, shown in (
        (question, "p", chain),
        (other, "q", chain),
        (larger, "p", chain),
        (other, "p", (chain[0], replace(chain[1], reason=LOST_REASON))),
        (other, "p", (*chain, replace(chain[0], question=other.digest))),
    ):
        assert find_other_sums(wanted, period, shown, asked) == []
    assert find_other_sums(other, "p", chain, lambda _: None) == []


def test_a_noisy_step_is_never_repeated() -> None:
    question = Federation(4, question=NOISY).content.question
    _, [link] = links(("sum", A, NO_CONTEXT, NO_REASON))
    own = replace(link, question=question.digest)
    assert next_action(question, "p", (own,), read_counts, lambda _: False) == RunAction(
        None, last_round=A.hex()[:16]
    )


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        ((("count", A, NO_CONTEXT, NO_REASON), ("sum", B, NO_CONTEXT, LOST_REASON)), Cause.ALREADY_SUMMED),
        ((("count", A, NO_CONTEXT, NO_REASON), ("sum", B, NO_CONTEXT, NO_REASON)), Cause.ALREADY_SUMMED),
        ((("count", A, NO_CONTEXT, LOST_REASON),), Cause.ALREADY_SUMMED),
        ((("count", B, NO_CONTEXT, NO_REASON), ("rows", D, NO_CONTEXT, NO_REASON)), Cause.COUNT_MISMATCH),
        ((("count", D, NO_CONTEXT, NO_REASON),), Cause.COUNT_MISMATCH),
    ],
)
def test_a_run_is_over_for_what_its_last_attempt_came_to(made: Any, cause: Cause) -> None:
    question, chain = links(*made)
    assert run_over(question, "p", chain, read_counts, NO_CONTEXT).cause is cause


# Ends


def shown(state: str, *, noisy: bool = False, step: str = "sum", **values: Any) -> RoundView:
    """A round's view in a state, as a coordinator shows it."""
    spec = SpecView.model_construct(noise=NoiseView.model_construct() if noisy else None, step=step)
    return RoundView.model_construct(
        **{
            "round": "0123456789abcdef",
            "state": state,
            "spec": spec,
            "fault": None,
            "waiting_for": ("m-1", "m-2"),
            "survivors": (),
            "reported": ("m-0",),
            "reports_min": 3,
            **values,
        }
    )


def test_each_state_of_a_round_is_on_its_way_or_has_its_advice() -> None:
    states = get_args(RoundView.model_fields["state"].annotation)
    without = {"collecting", "checking", "freezing", "revealing", "recovered", "done"}
    assert {state for state in states if RunEnd.of_round(shown(state)) is None} == without


@pytest.mark.parametrize(
    ("view", "end"),
    [
        (shown("failed"), RunEnd.FAILED),
        (shown("failed", noisy=True), RunEnd.FAILED_NOISY),
        (shown("erasing"), RunEnd.ERASING),
        (shown("erasing", survivors=("m-0",)), RunEnd.ERASING_CERTIFIED),
        (shown("erasing", survivors=("m-0",), noisy=True), RunEnd.ERASING),
        (shown("lost", noisy=True), RunEnd.LOST),
        (shown("lost", step="count"), RunEnd.FAILED_COUNT),
        (shown("failed", step="rows"), RunEnd.FAILED_COUNT),
        (shown("erasing", step="rows", survivors=("m-0",)), RunEnd.ERASING_COUNT),
        (shown("voided", step="count"), RunEnd.VOIDED),
    ],
)
def test_an_end_depends_on_the_noise_and_on_what_is_certified(view: RoundView, end: RunEnd) -> None:
    assert RunEnd.of_round(view) is end


@pytest.mark.parametrize(
    ("end", "reason", "noisy"),
    [
        (RunEnd.VOIDED, "cancelled", False),
        (RunEnd.ERASED, ERASED_REASON, False),
        (RunEnd.FAILED, NO_REASON, False),
        (RunEnd.FAILED_NOISY, NO_REASON, True),
        (RunEnd.LOST, LOST_REASON, False),
        (RunEnd.LOST, LOST_REASON, True),
    ],
)
def test_what_is_said_of_an_end_is_what_the_chain_allows(end: RunEnd, reason: str, *, noisy: bool) -> None:
    question = Federation(4, question=NOISY if noisy else {}).content.question
    _, [link] = links(("sum", A, NO_CONTEXT, reason))
    chain = [replace(link, question=question.digest)]
    action = next_action(question, "p", chain, read_counts, lambda _: False)
    assert (
        (end.cost in {EndCost.SPENT, EndCost.LOST})
        == (reason in SPENDING_REASONS)
        == (next_step(question, "p", chain, read_counts) is None)
    )
    assert end.ends_run == (action.step is None)
    assert end.repeatable == (action.repeats is not None)


def test_the_reason_of_an_end_is_its_fault() -> None:
    assert reason_of(shown("voided")) == "no reason given"
    fault = Problem.model_construct(cause="quorum-lost", detail="2 votes", parties=("m-1",))
    assert reason_of(shown("voided", fault=fault)) == "quorum-lost: 2 votes [m-1]"
    assert (
        reason_of(shown("voided", fault=fault.model_copy(update={"parties": ()}))) == "quorum-lost: 2 votes"
    )


@pytest.mark.parametrize(
    ("period", "cards", "paired", "missing", "declined"),
    [
        ("2026-11", ("m-0", "m-1"), (), "m-2", True),
        ("2026-11", ("m-0", "m-1"), ("m-0",), "m-1, m-2", True),
        ("2026-11", ("m-0", "m-1", "m-2"), (), "", False),
        ("rehearsal-1", ("m-0", "m-1"), (), "m-2", False),  # the next has another name anyway
    ],
)
@pytest.mark.parametrize("another", [True, False])
def test_a_cohort_that_did_not_form_names_who_is_missing_and_what_a_no_means(
    period: str,
    cards: tuple[str, ...],
    paired: tuple[str, ...],
    missing: str,
    *,
    declined: bool,
    another: bool,
) -> None:
    fault = Problem.model_construct(cause="cohort-too-small", detail="2 of 3", parties=())
    members = ("m-0", "m-1", "m-2")
    view = CohortView.model_construct(
        period=period, members=members, cards=cards, paired=paired, fault=fault if another else None
    )
    said = explain_failed_cohort(view, another=another)
    assert (f"declined: {missing}" in said) is bool(missing)
    assert (DECLINED_ADVICE in said, "in a moment" in said) == (declined, another)
    assert ("2 of 3" in said, RunEnd.COHORT_FAILED.operator in said) == (another, not another)
