from dataclasses import replace

import pytest

from tests.support.forging import resign
from tests.support.simulator import After, Federation, of
from veilsum.protocol.coordinator import Freezing
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import Checked, Voted, load_phase
from veilsum.protocol.messages import (
    Deliveries,
    Freeze,
    Message,
    Receipt,
    Refusal,
    Vote,
)


@pytest.fixture
def federation() -> Federation:
    """Six members, of whom member-5 has not uploaded, wait for the proposal."""
    federation = Federation(6, drop={5: After.OPENING})
    federation.reach(Freezing)
    return federation


@pytest.fixture
def freeze(federation: Federation) -> Freeze:
    return of(Freeze, federation.phase.request_for("member-0"))


def refusal(federation: Federation, freeze: Freeze) -> str:
    """Why member-0 signs nothing; it stays as it was."""
    phase, replies = federation.ask("member-0", freeze)
    assert phase is federation.phases["member-0"]
    (reply,) = replies
    assert isinstance(reply, Refusal)
    reply.verify(federation.keys["member-0"].public, "member-0")
    assert reply.context == freeze.context
    return reply.cause


def test_its_own_upload_is_looked_at_before_the_others(federation: Federation, freeze: Freeze) -> None:
    phases = [federation.phases[member] for member in ("member-1", "member-3")]
    other, own = (
        resign(federation, phase.uploads[0], salt=bytes(32)).header
        for phase in phases
        if isinstance(phase, Checked)
    )
    headers = (freeze.headers[0], other, freeze.headers[2], own, *freeze.headers[4:])
    reply = federation.answered("member-3", replace(freeze, headers=headers), Refusal)
    assert reply.cause == "own-upload-changed"


def test_a_dealer_whose_box_was_refused_may_survive_if_others_hold_its_shares(
    federation: Federation, freeze: Freeze
) -> None:
    # the dispute may have cost this decryptor its place, or the cover spared both
    phase = of(Checked, federation.phases["member-0"])
    refused = tuple(d.survivor for d in phase.opened if d.member == "member-2")
    held = tuple(d for d in phase.opened if d.member != "member-2")
    federation.phases["member-0"] = replace(phase, opened=held, refused=refused)
    federation.ask("member-0", freeze, Voted)
    # but as the upload that was shown with the box, and no other
    headers = list(freeze.headers)
    headers[2] = resign(federation, federation.phases["member-2"].uploads[0], salt=bytes(32)).header  # type: ignore[attr-defined]  # it has uploaded
    assert refusal(federation, replace(freeze, headers=tuple(headers))) == "survivors-invalid"


def test_deliveries_again_are_answered_by_the_same_receipt(federation: Federation) -> None:
    phase = of(Checked, federation.phases["member-0"])
    again, replies = federation.ask("member-0", Deliveries(phase.attempt.context, ()))
    assert again is phase
    assert replies == (phase.receipt,)
    assert isinstance(replies[0], Receipt)
    with pytest.raises(PeerFault, match=r"^wrong-context:"):
        federation.ask("member-0", Deliveries(bytes(32), ()))


def vote(federation: Federation, message: Message) -> Vote:
    """What member-0 signs; it is stored and reloaded."""
    phase, (signed,) = federation.ask("member-0", message, Voted)
    assert isinstance(signed, Vote)
    federation.phases["member-0"] = load_phase(phase.to_bytes())
    return signed


def test_the_same_proposal_again_is_answered_by_the_same_bytes(
    federation: Federation, freeze: Freeze
) -> None:
    first = vote(federation, freeze)
    assert vote(federation, freeze).to_bytes() == first.to_bytes()
    assert federation.phases["member-0"].outbox() == (first,)


def test_the_vote_keeps_the_shares_it_will_reveal(federation: Federation, freeze: Freeze) -> None:
    checked = of(Checked, federation.phases["member-0"])
    vote(federation, freeze)
    voted = of(Voted, federation.phases["member-0"])
    assert voted.held() == checked.held() == checked.opened
    assert len(voted.opened) == 4
