import re
from typing import Any

import pytest

from tests.support.refusals import refused
from tests.support.simulator import After, Federation, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import (
    Checking,
    Collecting,
    CoordinatorPhase,
    Ended,
    Failed,
    Freezing,
    Recovered,
    Revealing,
    Voiding,
)
from veilsum.protocol.errors import Misuse
from veilsum.protocol.messages import NO_CONTEXT, Erased, Receipt, Refusal, Reveal, VoidRequest, Vote
from veilsum.protocol.messages.base import Message

STAGES: tuple[type[CoordinatorPhase], ...] = (Collecting, Checking, Freezing, Revealing)


def at(stage: type[CoordinatorPhase]) -> tuple[Federation, Any]:
    federation = Federation(4)
    federation.begin()
    return federation, federation.run_until(stage)


def lives() -> dict[str, Any]:
    """Return one phase of each kind."""
    stages: tuple[type[CoordinatorPhase], ...] = (*STAGES, Recovered)
    phases = {stage.name: at(stage)[1] for stage in stages}
    voiding = at(Collecting)[1].cancel(0.0)
    federation, checking = at(Checking)
    federation.phase = checking.cancel(federation.now_s)
    erasing = voiding.pass_deadline(voiding.deadline_s)
    failed = at(Revealing)[1].cancel(0.0)
    phases |= {"voiding": voiding, "voided": federation.run_until(), "erasing": erasing, "failed": failed}
    for name, drop in (("erased", {}), ("lost", dict.fromkeys(range(4), After.CARD))):
        given_up = Federation(4, drop=drop)
        given_up.begin()
        given_up.now_s = given_up.phase.attempt.terms.latest_end_s
        given_up.phase = given_up.phase.pass_deadline(given_up.now_s)
        given_up.run_until()
        phases[name] = given_up.finish().phase
    return phases


LIVES, KEYS = lives(), Federation(4).keys


ANSWER_FIELDS: dict[Any, dict[str, Any]] = {
    Receipt: {"uploads": bytes(32), "dealers": (), "complaints": ()},
    Vote: {"outcome": bytes(32)},
    Refusal: {"cause": "policy-refused"},
    Reveal: {"outcome": bytes(32), "evicted": (), "runs": ()},
    Erased: {"revealed": bytes(32)},
}


def answer_to(phase: Any, form: Any, signer: str = "member-3", **changes: Any) -> Any:
    """Return an answer of member-3 in this phase's attempt."""
    values = {"context": phase.attempt.context, "member": "member-3", **ANSWER_FIELDS[form], **changes}
    return form.make_signed(KEYS[signer], **values)


@pytest.mark.parametrize("name", LIVES)
def test_a_phase_refuses_what_it_does_not_take(name: str) -> None:
    """`tests/docs/test_protocol.py` compares what it takes with the specification."""
    phase = LIVES[name]
    assert phase.name == name
    for form in {*Message.forms.values()} - {*phase.handlers, *phase.late}:
        message: Any = answer_to(phase, form) if form in ANSWER_FIELDS else object.__new__(form)
        with refused("wrong-phase"):
            phase.receive(message, 0.0)


@pytest.mark.parametrize("form", ANSWER_FIELDS)
@pytest.mark.parametrize("name", LIVES)
def test_an_answer_is_checked_before_it_is_late_or_out_of_place(name: str, form: Any) -> None:
    phase = LIVES[name]
    for answer, cause in (
        (answer_to(phase, form, context=bytes(32)), Cause.WRONG_CONTEXT),
        (answer_to(phase, form, member="sybil"), Cause.NOT_A_DECRYPTOR),
        (answer_to(phase, form, signer="member-2"), Cause.BAD_SIGNATURE),
    ):
        with refused(cause, answer.member):
            phase.receive(answer, 0.0)


@pytest.mark.parametrize("name", [name for name in LIVES if LIVES[name].late])
def test_an_honest_answer_to_an_earlier_question_changes_nothing(name: str) -> None:
    phase = LIVES[name]
    known = phase.setting.statements
    for form in {Receipt, Refusal}.intersection(phase.late):
        if (form, "member-3") not in known.digests:
            assert phase.receive(answer_to(phase, form), 0.0) is phase
    if Vote in phase.late and known.asked:
        assert phase.receive(answer_to(phase, Vote, outcome=known.asked[0]), 0.0) is phase
    if Reveal in phase.late and isinstance(phase, Recovered | Failed):
        outcome = phase.certificate.outcome
        assert phase.receive(answer_to(phase, Reveal, outcome=outcome), 0.0) is phase


@pytest.mark.parametrize("stage", [Collecting, Checking])
def test_an_attempt_cancelled_before_a_vote_asks_for_void(stage: type[CoordinatorPhase]) -> None:
    federation, phase = at(stage)
    voiding = of(Voiding, phase.cancel(federation.now_s, "the wrong extractor"))
    fault = voiding.fault
    assert (fault.cause, fault.parties, fault.detail) == (
        Cause.CANCELLED,
        ("operator",),
        "the wrong extractor",
    )
    assert voiding.request_for("member-0") == VoidRequest(phase.attempt.context, "cancelled")
    assert of(Voiding, phase.cancel(federation.now_s)).fault.detail == Cause.CANCELLED.summary


def test_a_damaged_chunk_is_asked_for_again_while_uploads_are_collected() -> None:
    federation, before = at(Collecting)
    for member in federation.ids[:2]:
        before = federation.serve_member(before, member)
    member = "member-1"
    assert before.request_for(member) is None
    after = before.chunk_damaged(member, 0)
    assert (after.whole_count, after.missing_chunks(member)) == (before.whole_count - 1, (0,))
    assert after.request_for(member) == before.attempt.opening
    assert member in after.waiting_for()
    assert after.chunk_damaged(member, 0) is after
    assert after.chunk_stored(member, 0, federation.now_s).stored == before.stored


@pytest.mark.parametrize(
    ("name", "end"), [("checking", "voiding"), ("freezing", "voiding"), ("revealing", "failed")]
)
def test_a_chunk_damaged_later_ends_the_attempt_and_names_no_member(name: str, end: str) -> None:
    after = LIVES[name].chunk_damaged("member-1", 0)
    assert after.name == end
    assert (after.fault.cause, after.fault.parties) == (Cause.STORAGE_DAMAGED, ("coordinator",))
    assert {"chunk 0", "member-1"} <= {*re.findall(r"chunk \d|member-\d", after.fault.detail)}


@pytest.mark.parametrize(
    "name", sorted(LIVES.keys() - {"collecting", *("checking", "freezing", "revealing")})
)
def test_a_damaged_chunk_moves_nothing_that_needs_no_chunks(name: str) -> None:
    assert LIVES[name].chunk_damaged("member-1", 0) is LIVES[name]
    # nor one of a member that was not certified
    assert LIVES["revealing"].chunk_damaged("nobody", 0) is LIVES["revealing"]


@pytest.mark.parametrize("name", ["recovered", "voided", "failed", "erased", "lost"])
def test_an_end_is_an_end(name: str) -> None:
    phase = of(Ended, LIVES[name])
    assert phase.deadline_s is None
    assert phase.waiting_for() == ()
    assert phase.cancel(0.0, "too late") is phase
    with pytest.raises(Misuse, match=name):
        phase.pass_deadline(0.0)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("recovered", "none"),
        ("failed", "none"),
        ("voided", "cancelled"),
        ("erased", "erased"),
        ("lost", "lost"),
    ],
)
def test_an_end_is_a_link_of_the_chain(name: str, reason: str) -> None:
    link, attempt = LIVES[name].link, LIVES[name].attempt
    assert (link.context, link.reason) == (attempt.context, reason)
    certified = LIVES[name].closing.outcome if reason == "none" else NO_CONTEXT
    assert link.survivors == certified


@pytest.mark.parametrize(
    ("stage", "window_s"), [(Collecting, 3600.0), (Checking, 300.0), (Freezing, 300.0), (Revealing, 86_400.0)]
)
def test_every_phase_waits_its_window(stage: type[CoordinatorPhase], window_s: float) -> None:
    federation, phase = at(stage)
    begun_s = 1_000_000.0 if stage is Revealing else federation.now_s
    assert phase.deadline_s == begun_s + window_s
