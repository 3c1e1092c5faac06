from typing import Any

import pytest

from tests.support.simulator import Federation, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Freezing, Voiding
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import VoidRequest, Vote, void_hash

FAULT = PeerFault(Cause.BOX_REFUSED, "a box", ["member-1"])


@pytest.fixture
def federation() -> Federation:
    """Six members, t = 4, are asked to sign VOID; member-0 has signed survivors."""
    federation = Federation(6)
    phase = federation.reach(Freezing)
    signed = vote(federation, "member-0", outcome=phase.outcome)
    federation.phase = phase.receive(signed, federation.now_s).give_up(FAULT)
    return federation


def vote(federation: Federation, member: str, key: SigningKey | None = None, **changes: Any) -> Vote:
    context = federation.phase.attempt.context
    values = {"context": context, "member": member, "outcome": void_hash(context, "box-refused"), **changes}
    return Vote.make_signed(key or federation.keys[member], **values)


def test_those_who_have_not_signed_are_asked_for_void_and_told_why(federation: Federation) -> None:
    assert federation.phase.waiting_for() == federation.ids[1:]
    request = VoidRequest(federation.phase.attempt.context, "box-refused")
    assert federation.phase.request_for("member-1") == request
    assert federation.phase.request_for("member-0") is None
    assert federation.after(vote(federation, "member-1")).request_for("member-1") is None


def test_a_late_vote_on_the_survivors_is_harmless_and_spends_its_decryptor(federation: Federation) -> None:
    proposed = federation.phase.setting.statements.asked[0]
    late = vote(federation, "member-3", outcome=proposed)
    phase = of(Voiding, federation.after(late))
    assert phase.waiting_for() == ("member-1", "member-2", "member-4", "member-5")
    assert phase.votes == {}
    # and again, as after a lost answer
    assert phase.receive(late, federation.now_s) is phase


def test_an_attempt_that_is_given_up_cannot_be_given_up_again(federation: Federation) -> None:
    assert federation.phase.cancel(federation.now_s, "again") is federation.phase
