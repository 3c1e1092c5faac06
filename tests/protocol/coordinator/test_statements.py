"""What decryptors sign twice, or unasked, is found in every phase, noted, and shown by the transcript."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.protocol.transcripts import named, verdict
from tests.support.simulator import After, Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Failed, Freezing, Revealing, Voided, Voiding
from veilsum.protocol.coordinator.statements import Statements
from veilsum.protocol.messages import (
    NOTHING_REVEALED,
    Erased,
    Message,
    Receipt,
    Refusal,
    Reveal,
    Vote,
    void_hash,
)

LIAR, OTHER = "member-1", b"\x66" * 32


def answer_of(federation: Federation, form: Any, member: str = LIAR, **values: Any) -> Any:
    """Sign an answer of a member in the federation's attempt."""
    context = federation.phase.attempt.context
    return form.make_signed(federation.keys[member], **{"context": context, "member": member, **values})


def show(federation: Federation, *answers: Message) -> list[Cause]:
    """Show the coordinator answers, note what becomes of them, and return the causes of those that it refused."""
    before = len(federation.faults)
    for answer in answers:
        federation.phase = federation.take_reply(federation.phase, getattr(answer, "member", LIAR), answer)
    return [fault.cause for _, fault in federation.faults[before:]]


def vote(federation: Federation, member: str = LIAR, outcome: bytes = b"") -> Any:
    """Sign a vote, on the proposed survivors unless told otherwise."""
    proposed = federation.phase.setting.statements.asked[0]
    return answer_of(federation, Vote, member, outcome=outcome or proposed)


def second_receipt(federation: Federation) -> Any:
    """Sign another receipt than the one that was sent."""
    return answer_of(federation, Receipt, uploads=OTHER, dealers=("sybil",), complaints=())


def freezing() -> Federation:
    """Six members, t = 4: all have sent receipts, and the liar has signed the survivors."""
    federation = Federation(6)
    federation.phase = federation.reach(Freezing)
    assert show(federation, vote(federation)) == []
    return federation


def voiding() -> Federation:
    federation = freezing()
    federation.phase = federation.note_change(federation.phase.cancel(federation.now_s))
    assert isinstance(federation.phase, Voiding)
    return federation


def voided() -> Federation:
    federation = voiding()
    outcome = void_hash(federation.phase.attempt.context, "cancelled")
    show(federation, *(vote(federation, f"member-{number}", outcome) for number in (0, 2, 3, 4)))
    assert isinstance(federation.phase, Voided)
    return federation


def erasing() -> Federation:
    federation = voiding()
    federation.now_s = federation.phase.attempt.terms.latest_end_s
    federation.phase = federation.note_change(federation.phase.pass_deadline(federation.now_s))
    return federation


def erased() -> Federation:
    federation = erasing()
    for member in federation.ids:
        show(federation, answer_of(federation, Erased, member, revealed=NOTHING_REVEALED))
    assert federation.phase.name == "erased"
    return federation


def revealing() -> Federation:
    federation = freezing()
    show(federation, *(vote(federation, f"member-{number}") for number in (0, 2, 3)))
    assert isinstance(federation.phase, Revealing)
    return federation


def failed() -> Federation:
    federation = revealing()
    federation.phase = federation.note_change(federation.phase.cancel(federation.now_s))
    assert isinstance(federation.phase, Failed)
    return federation


def recovered() -> Federation:
    federation = Federation(6)
    federation.run_round()
    assert federation.phase.name == "recovered"
    return federation


LATER: tuple[Callable[[], Federation], ...] = (
    freezing,
    voiding,
    voided,
    erasing,
    erased,
    revealing,
    failed,
    recovered,
)
by_phase = pytest.mark.parametrize("reach", LATER, ids=lambda reach: reach.__name__)


def findings(federation: Federation) -> set[tuple[tuple[str, ...], str]]:
    """Return whom the transcript names, and for what, once the coordinator has signed it."""
    context = federation.phase.attempt.context
    federation.transcript = federation.transcript.sign(federation.coordinator, context)
    return {each for each in named(verdict(federation)) if each[1] != "outcome-missing"}


@pytest.mark.parametrize(
    ("second", "cause"),
    [
        (lambda federation: vote(federation, outcome=OTHER), Cause.ALREADY_VOTED),
        (second_receipt, Cause.CONFLICT),
    ],
    ids=["vote", "receipt"],
)
@by_phase
def test_a_second_answer_is_refused_noted_and_proves_its_sender_false(
    reach: Callable[[], Federation], second: Callable[[Federation], Message], cause: Cause
) -> None:
    federation = reach()
    before = federation.phase
    assert show(federation, second(federation)) == [cause]
    assert federation.phase is before or cause is Cause.CONFLICT
    known = federation.phase.setting.statements
    assert Statements.from_entries(before.attempt, federation.transcript.entries) == known
    assert findings(federation) == {((LIAR,), cause)}


@by_phase
def test_a_vote_that_nobody_asked_for_is_refused_noted_and_a_dispute(reach: Callable[[], Federation]) -> None:
    federation = reach()
    other = vote(federation, "member-5", OTHER)
    if "member-5" in federation.phase.setting.statements.votes:
        assert show(federation, other) == [Cause.ALREADY_VOTED]
        return
    assert show(federation, other) == [Cause.SURVIVORS_INVALID]
    assert findings(federation) == {(("member-5", "coordinator"), "survivors-invalid")}


@by_phase
def test_what_was_sent_before_changes_nothing_and_is_not_noted_again(reach: Callable[[], Federation]) -> None:
    federation = reach()
    before, noted = federation.phase, federation.transcript.entries
    receipt = next(
        each
        for each in federation.transcript.decode_messages()
        if isinstance(each, Receipt) and each.member == LIAR
    )
    assert show(federation, receipt, vote(federation)) == []
    assert federation.phase is before
    assert federation.transcript.entries == noted


@pytest.mark.parametrize("reach", [erasing, erased, voided, recovered], ids=lambda reach: reach.__name__)
def test_a_late_vote_on_survivors_that_were_proposed_is_honest(reach: Callable[[], Federation]) -> None:
    federation = reach()
    assert show(federation, vote(federation, "member-5")) == []
    assert findings(federation) == set()


def test_of_two_late_votes_the_second_is_refused() -> None:
    federation = erasing()
    void = vote(federation, "member-5", void_hash(federation.phase.attempt.context, "cancelled"))
    assert show(federation, vote(federation, "member-5"), void) == [Cause.ALREADY_VOTED]
    assert findings(federation) == {(("member-5",), "already-voted")}


def test_a_vote_before_anything_was_asked_is_out_of_place() -> None:
    federation = Federation(4, drop=dict.fromkeys(range(4), After.CARD))
    federation.begin()
    federation.now_s = federation.phase.attempt.terms.latest_end_s
    federation.phase = federation.phase.pass_deadline(federation.now_s)
    assert federation.phase.name == "erasing"
    unasked = answer_of(federation, Vote, outcome=OTHER)
    assert show(federation, unasked) == [Cause.WRONG_PHASE]


@pytest.mark.parametrize("reach", [revealing, failed, recovered, voided], ids=lambda reach: reach.__name__)
def test_a_reveal_for_another_outcome_than_the_certificates_is_noted(reach: Callable[[], Federation]) -> None:
    federation = reach()
    reveal = answer_of(federation, Reveal, outcome=OTHER, evicted=(), runs=())
    assert show(federation, reveal) == [Cause.REVEAL_MISSHAPEN]
    assert findings(federation) == {((LIAR,), "reveal-misshapen")}


@pytest.mark.parametrize("reach", [erasing, erased], ids=lambda reach: reach.__name__)
def test_a_reveal_without_a_certificate_is_out_of_place(reach: Callable[[], Federation]) -> None:
    federation = reach()
    assert show(federation, answer_of(federation, Reveal, outcome=OTHER, evicted=(), runs=())) == [
        Cause.WRONG_PHASE
    ]


def test_a_second_report_is_noted_also_after_the_end() -> None:
    federation = erased()
    assert show(federation, answer_of(federation, Erased, revealed=OTHER)) == [Cause.CONFLICT]
    assert findings(federation) == {((LIAR,), "conflict")}


def test_a_second_refusal_is_ignored_once_its_question_is_over() -> None:
    federation = freezing()
    assert show(federation, answer_of(federation, Refusal, "member-4", cause="policy-refused")) == []
    federation.phase = federation.note_change(federation.phase.cancel(federation.now_s))
    noted = federation.transcript.entries
    assert show(federation, answer_of(federation, Refusal, "member-4", cause="chain-broken")) == []
    assert federation.transcript.entries == noted
