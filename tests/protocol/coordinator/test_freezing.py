from typing import Any

import pytest

from tests.support.simulator import Federation, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, CoordinatorPhase, Freezing, Revealing, Voiding
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Deliveries, Freeze, Refusal, Vote, survivors_hash


@pytest.fixture
def federation() -> Federation:
    """Six members, t = 4: member-5 has sent no receipt, the others wait for the proposal."""
    federation = Federation(6)
    phase: CoordinatorPhase = federation.reach(Checking)
    for member in federation.ids[:5]:
        request = phase.request_for(member)
        assert request is not None
        federation.phases[member], (receipt,) = federation.ask(member, request)
        phase = phase.receive(receipt, federation.now_s)
    federation.phase = phase.pass_deadline(federation.now_s)
    return federation


def freezing(federation: Federation) -> Freezing:
    assert isinstance(federation.phase, Freezing)
    return federation.phase


def vote(federation: Federation, member: str, key: SigningKey | None = None, **changes: Any) -> Vote:
    phase = freezing(federation)
    values = {
        "context": phase.attempt.context,
        "member": member,
        "outcome": survivors_hash(phase.attempt.context, phase.survivors),
        **changes,
    }
    return Vote.make_signed(key or federation.keys[member], **values)


def refusal(federation: Federation, member: str, **changes: Any) -> Refusal:
    values = {"context": freezing(federation).attempt.context, "member": member, "cause": "survivors-invalid"}
    return Refusal.make_signed(federation.keys[member], **{**values, **changes})


def test_who_holds_shares_is_asked_and_who_does_not_yet_is_handed_its_boxes(federation: Federation) -> None:
    phase = freezing(federation)
    assert phase.waiting_for() == federation.ids
    assert isinstance(phase.request_for("member-0"), Freeze)
    assert isinstance(phase.request_for("member-5"), Deliveries)


def test_a_threshold_of_votes_is_a_certificate(federation: Federation) -> None:
    three = of(
        Freezing, federation.after(*(vote(federation, m) for m in ("member-4", "member-0", "member-2")))
    )
    assert three.waiting_for() == ("member-1", "member-3", "member-5")
    assert three.request_for("member-4") is None
    phase = of(Revealing, three.receive(vote(federation, "member-1"), federation.now_s))
    phase.attempt.check_certificate(phase.certificate)
    assert [v.member for v in phase.certificate.votes] == ["member-0", "member-1", "member-2", "member-4"]
    assert phase.certificate.survivors == freezing(federation).survivors
    assert tuple(phase.receipts) == federation.ids[:5]


def test_refusals_that_leave_no_threshold_void_the_attempt_for_the_first_reason(
    federation: Federation,
) -> None:
    said = refusal(federation, "member-3", cause="own-upload-changed")
    two = of(Freezing, federation.after(said, refusal(federation, "member-1")))
    assert two.waiting_for() == ("member-5",)  # it alone can still make a certificate possible
    phase = of(Voiding, two.receive(refusal(federation, "member-0"), federation.now_s))
    assert phase.fault.cause is Cause.OWN_UPLOAD_CHANGED
    assert phase.fault.parties == ("member-3",)


def test_a_reason_of_the_members_own_policy_is_called_so(federation: Federation) -> None:
    phase = of(
        Voiding,
        federation.after(*(refusal(federation, member, cause="mondays") for member in federation.ids[:3])),
    )
    assert phase.fault.cause is Cause.POLICY_REFUSED


def test_who_refused_may_still_sign_and_who_signed_may_not_refuse(federation: Federation) -> None:
    phase = of(Freezing, federation.after(refusal(federation, "member-3"), vote(federation, "member-3")))
    assert set(phase.votes) == {"member-3"}
    after = federation.after(vote(federation, "member-0"))
    assert after.receive(refusal(federation, "member-0"), federation.now_s) is after


@pytest.mark.parametrize("count", [1, 3])
def test_at_the_deadline_too_few_votes_void_the_attempt_and_name_the_missing(
    federation: Federation, count: int
) -> None:
    """Members that have not signed are asked for VOID, even if they are too few."""
    votes = [vote(federation, member) for member in federation.ids[:count]]
    phase = of(Voiding, federation.after(*votes).pass_deadline(federation.now_s))
    assert phase.fault.cause is Cause.QUORUM_LOST
    assert phase.fault.parties == phase.waiting_for() == federation.ids[count:]
