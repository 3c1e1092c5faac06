"""After the latest end: reports arrive, or the admin closes the attempt (wire: Ends)."""

from dataclasses import replace

import pytest

from tests.support import forging
from tests.support.forging import erased
from tests.support.refusals import refused
from tests.support.simulator import After, Federation, of
from veilsum.protocol.coordinator import (
    Checking,
    ClosedByAdmin,
    Collecting,
    CoordinatorPhase,
    Erasing,
    Failed,
    Freezing,
    Revealing,
    VoidedByErasure,
    Voiding,
)
from veilsum.protocol.errors import Misuse
from veilsum.protocol.messages import ErasureRequest


def overdue(stage: type[CoordinatorPhase], federation: Federation) -> Federation:
    """Drive the attempt into this phase, then past its latest end."""
    federation.begin()
    phase = federation.run_until(stage)
    federation.now_s = phase.attempt.terms.latest_end_s
    federation.phase = phase.pass_deadline(federation.now_s)
    return federation


@pytest.fixture
def federation() -> Federation:
    """Six members, t = 4, q = 4, in an attempt past its latest end; no member has reported yet."""
    return overdue(Checking, Federation(6))


def erasing(federation: Federation) -> Erasing:
    assert isinstance(federation.phase, Erasing)
    return federation.phase


@pytest.mark.parametrize("stage", [Collecting, Checking, Freezing, Revealing])
def test_whatever_has_not_ended_by_the_latest_end_is_erasing(stage: type[CoordinatorPhase]) -> None:
    phase = erasing(overdue(stage, Federation(5)))
    assert (phase.certificate is not None) == (stage is Revealing)
    assert phase.fault.cause == ("quorum-lost" if stage is Revealing else "terms-expired")
    assert phase.deadline_s is None
    with pytest.raises(Misuse):
        phase.pass_deadline(phase.attempt.terms.latest_end_s)


def test_void_is_asked_for_until_the_latest_end(federation: Federation) -> None:
    federation = Federation(5, drop=dict.fromkeys(range(5), After.RECEIPT))
    phase = federation.reach(Voiding)
    assert phase.deadline_s == phase.attempt.terms.latest_end_s
    with pytest.raises(Misuse):
        phase.pass_deadline(federation.now_s)
    after = of(Erasing, phase.pass_deadline(phase.attempt.terms.latest_end_s))
    assert isinstance(phase, Voiding)
    assert after.fault is phase.fault


def test_no_window_reaches_beyond_the_latest_end() -> None:
    federation = Federation(5)
    federation.begin(terms=federation.terms(latest_end_s=int(federation.now_s) + 60))
    assert federation.phase.deadline_s == federation.now_s + 60
    assert federation.run_until(Checking).deadline_s == federation.phase.attempt.terms.latest_end_s


def test_decryptors_are_asked_until_they_report(federation: Federation) -> None:
    phase = erasing(federation)
    assert phase.waiting_for() == federation.ids
    assert phase.request_for("member-0") == ErasureRequest(phase.attempt.context)
    after = of(Erasing, federation.after(erased(federation, "member-0")))
    assert after.request_for("member-0") is None
    assert after.waiting_for() == federation.ids[1:]
    assert after.receive(erased(federation, "member-0"), federation.now_s) is after


def test_who_holds_no_shares_is_not_asked() -> None:
    federation = overdue(Checking, Federation(5, decryptors=(1, 2, 3, 4)))
    assert federation.phase.request_for("member-0") is None
    assert isinstance(federation.phase.request_for("member-1"), ErasureRequest)


def test_enough_reports_of_nothing_end_the_attempt_as_void(federation: Federation) -> None:
    told = erased(federation, "member-5", revealed=b"\x01" * 32)
    three = of(
        Erasing,
        federation.after(told, *(erased(federation, m) for m in ("member-2", "member-0", "member-4"))),
    )
    assert three.silent_decryptors == ("member-0", "member-2", "member-4")
    phase = of(VoidedByErasure, three.receive(erased(federation, "member-1"), federation.now_s))
    assert phase.fault is erasing(federation).fault
    assert [each.member for each in phase.closing.reports] == ["member-0", "member-1", "member-2", "member-4"]
    phase.attempt.check_erasure(phase.closing)
    assert phase.link.reason == "erased"
    assert {phase.request_for(member) for member in federation.ids} == {phase.closing}
    assert phase.receive(erased(federation, "member-3"), federation.now_s) is phase
    assert phase.cancel(federation.now_s, "again") is phase


def test_the_operator_may_close_a_certified_attempt_without_a_sum() -> None:
    federation = overdue(Revealing, Federation(5))
    phase = of(Failed, erasing(federation).cancel(federation.now_s, "no sum"))
    assert phase.certificate is erasing(federation).certificate
    assert (phase.fault.cause, phase.fault.detail) == ("cancelled", "no sum")
    assert phase.link.reason == "none"
    uncertified = overdue(Checking, Federation(5)).phase
    assert uncertified.cancel(federation.now_s, "no sum") is uncertified


def test_the_admins_signature_closes_the_attempt(federation: Federation) -> None:
    closing = forging.lost(federation)
    phase = of(ClosedByAdmin, erasing(federation).receive(closing, federation.now_s))
    assert phase.fault is erasing(federation).fault
    assert phase.closing == closing
    assert [phase.request_for(member) for member in federation.ids] == [closing] * 6
    assert phase.receive(closing, federation.now_s) is phase


def test_a_lost_that_does_not_hold_closes_nothing(federation: Federation) -> None:
    for message, cause in (
        (forging.lost(federation, context=bytes(32)), "wrong-context"),
        (replace(forging.lost(federation), signature=bytes(64)), "bad-signature"),
    ):
        with refused(cause, "admin"):
            erasing(federation).receive(message, federation.now_s)


# Whole attempts


def certified_without_a_sum(revealing: int) -> Federation:
    """Six members, t = 4, q = 4: some have revealed by the latest end, and the others are away."""
    federation = Federation(6, drop=dict.fromkeys(range(6 - revealing), After.VOTE), restart=True)
    federation.begin()
    federation.run_until()
    return federation


def test_a_certified_attempt_is_closed_for_a_repeat_once_erasure_is_out_of_reach() -> None:
    phase = of(Failed, certified_without_a_sum(3).phase)
    assert (phase.fault.cause, phase.link.reason) == ("quorum-lost", "none")
    # a third decryptor may lie that it revealed as well
    federation = certified_without_a_sum(2)
    certificate = erasing(federation).certificate
    assert certificate is not None
    lie = erased(federation, "member-0", revealed=certificate.outcome)
    assert isinstance(federation.after(lie), Failed)
