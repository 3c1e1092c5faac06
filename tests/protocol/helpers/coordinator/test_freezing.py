"""Votes, refusals, VOID, and the admin's word."""

from dataclasses import replace
from typing import Any

from protocol.causes import Cause
from protocol.helpers.coordinator import Freezing, Lost, Summing, Voided, Voiding
from protocol.helpers.messages import ClientSet, HelperCertificate, HelperLost, HelperVoidRequest
from protocol.helpers.simulator import HelperFederation
from protocol.messages.outcome import void_hash
from tests.protocol.helpers.coordinator.answers import after, cause, receipt, refusal, vote


def test_helpers_have_their_time_to_vote(federation: HelperFederation, freezing: Freezing) -> None:
    assert freezing.deadline_s == federation.now_s + freezing.setting.windows.freeze_s


def test_votes_are_helpers_on_the_proposal(federation: HelperFederation, freezing: Freezing) -> None:
    good = vote(federation, "helper-0", freezing.outcome)
    for changed, expected in (
        (vote(federation, "helper-0", freezing.outcome, context=bytes(32)), Cause.WRONG_CONTEXT),
        (vote(federation, "client-0", freezing.outcome), Cause.NOT_A_DECRYPTOR),
        (replace(good, signature=bytes(64)), Cause.BAD_SIGNATURE),
        (vote(federation, "helper-0", bytes(32)), Cause.ALREADY_VOTED),
    ):
        assert cause(freezing.receive, changed, 0.0) == expected
    once = after(freezing, good)
    assert after(once, good) is once
    assert once.waiting_for() == federation.helpers[1:]
    assert once.request_for("helper-0") is None
    assert after(once, receipt(federation, "helper-3")) is once
    phase = after(once, *(vote(federation, helper, freezing.outcome) for helper in federation.helpers[2:]))
    assert isinstance(phase, Summing)
    assert [signed.member for signed in phase.certificate.votes] == ["helper-0", "helper-2", "helper-3"]
    federation.attempt.check_certificate(phase.certificate)


def test_two_refusals_end_the_attempt_and_say_why(federation: HelperFederation, freezing: Freezing) -> None:
    bad = replace(refusal(federation, "helper-0"), signature=bytes(64))
    assert cause(freezing.receive, bad, 0.0) == Cause.BAD_SIGNATURE
    other = refusal(federation, "helper-0", context=bytes(32))
    assert cause(freezing.receive, other, 0.0) == Cause.WRONG_CONTEXT
    assert cause(freezing.receive, refusal(federation, "client-0"), 0.0) == Cause.NOT_A_DECRYPTOR
    one = after(freezing, refusal(federation, "helper-0"), refusal(federation, "helper-0"))
    assert isinstance(one, Freezing)
    assert cause(one.receive, refusal(federation, "helper-0", cause="x"), 0.0) == Cause.CONFLICT
    phase = after(one, refusal(federation, "helper-1"))
    assert isinstance(phase, Voiding)
    assert phase.fault.detail == "helper-0: ledger-refused, helper-1: ledger-refused"


def test_with_one_vote_signed_void_can_still_be_had(federation: HelperFederation, freezing: Freezing) -> None:
    phase = after(freezing, vote(federation, "helper-2", freezing.outcome)).expire(0.0)
    assert isinstance(phase, Voiding)
    assert phase.fault.cause == Cause.QUORUM_LOST
    assert phase.waiting_for() == ("helper-0", "helper-1", "helper-3")
    assert phase.request_for("helper-2") is None
    request = phase.request_for("helper-0")
    assert request == HelperVoidRequest(federation.attempt.context, "quorum-lost")
    outcome = void_hash(federation.attempt.context, "quorum-lost")
    good = vote(federation, "helper-0", outcome)
    for changed, expected in (
        (vote(federation, "helper-0", outcome, context=bytes(32)), Cause.WRONG_CONTEXT),
        (replace(good, signature=bytes(64)), Cause.BAD_SIGNATURE),
        (vote(federation, "helper-2", freezing.outcome), Cause.ALREADY_VOTED),
    ):
        assert cause(phase.receive, changed, 0.0) == expected
    waiting = after(phase, good, good, refusal(federation, "helper-1")).expire(0.0)
    assert (waiting.deadline_s, waiting.waiting_for()) == (None, ("helper-1", "helper-3"))
    ended = after(waiting, *(vote(federation, helper, outcome) for helper in ("helper-1", "helper-3")))
    assert isinstance(ended, Voided)
    assert ended.closing.ended.reason == "quorum-lost"
    assert isinstance(ended.closing, HelperCertificate)
    federation.attempt.check_certificate(ended.closing)
    assert ended.cancel(0.0) is ended
    assert ended.request_for("helper-2") == ended.closing
    assert after(ended, good) is ended


def test_with_two_votes_signed_it_waits_for_the_others_or_the_admin(
    federation: HelperFederation, freezing: Freezing
) -> None:
    two = after(freezing, *(vote(federation, helper, freezing.outcome) for helper in federation.helpers[:2]))
    for waiting in (two.expire(0.0), two.cancel(0.0, "enough"), *refused_twice(federation, two)):
        assert isinstance(waiting, Freezing)
        assert waiting.deadline_s is None
        assert isinstance(after(waiting, vote(federation, "helper-3", freezing.outcome)), Summing)


def refused_twice(federation: HelperFederation, phase: Freezing) -> list[Any]:
    return [after(phase, *(refusal(federation, helper) for helper in federation.helpers[2:]))]


def test_the_admin_closes_what_can_have_no_certificate(
    federation: HelperFederation, freezing: Freezing
) -> None:
    told = (ClientSet(freezing.survivors),)
    context = federation.attempt.context
    good = HelperLost.make(federation.admin, context=context, family="exact", floor=5, sets=told)
    false = HelperLost.make(federation.coordinator, context=context, family="exact", floor=5, sets=told)
    other = HelperLost.make(federation.admin, context=bytes(32), family="exact", floor=5, sets=told)
    for phase in (freezing, freezing.cancel(0.0)):
        assert cause(phase.receive, false, 0.0) == Cause.BAD_SIGNATURE
        assert cause(phase.receive, other, 0.0) == Cause.WRONG_CONTEXT
        ended = after(phase, good)
        assert isinstance(ended, Lost)
        assert ended.fault.cause == Cause.QUORUM_LOST
        assert ended.closing.ended.sets == told
