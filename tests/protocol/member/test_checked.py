from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.forging import resign
from tests.support.simulator import After, Federation
from veilsum.protocol.coordinator import Freezing
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import Checked, Voted
from veilsum.protocol.messages import (
    Deliveries,
    Freeze,
    Receipt,
    Refusal,
    Survivor,
    survivors_hash,
)


@pytest.fixture
def federation() -> Federation:
    """Six members, of whom member-5 has not uploaded, wait for the proposal."""
    federation = Federation(6, drop={5: After.OPENING})
    federation.reach(Freezing)
    return federation


@pytest.fixture
def freeze(federation: Federation) -> Freeze:
    request = federation.phase.request_for("member-0")
    assert isinstance(request, Freeze)
    return request


def refusal(federation: Federation, freeze: Freeze) -> str:
    """Why member-0 signs nothing; it stays as it was."""
    phase, replies = federation.ask("member-0", freeze)
    assert phase is federation.phases["member-0"]
    (reply,) = replies
    assert isinstance(reply, Refusal)
    reply.verify(federation.keys["member-0"].public, "member-0")
    assert reply.context == freeze.context
    return reply.cause


def test_a_decryptor_signs_the_survivors_it_checked(federation: Federation, freeze: Freeze) -> None:
    phase, replies = federation.ask("member-0", freeze)
    assert isinstance(phase, Voted)
    assert replies == phase.outbox() == (phase.given,)
    survivors = tuple(Survivor.of(header) for header in freeze.headers)
    assert phase.given.outcome == survivors_hash(freeze.context, survivors)
    phase.given.verify(federation.keys["member-0"].public, "member-0")


def test_a_decryptor_signs_a_set_without_itself(federation: Federation, freeze: Freeze) -> None:
    phase, _ = federation.ask("member-0", replace(freeze, headers=freeze.headers[1:]))
    assert isinstance(phase, Voted)


def test_its_own_upload_is_looked_at_before_the_others(federation: Federation, freeze: Freeze) -> None:
    phases = [federation.phases[member] for member in ("member-1", "member-3")]
    other, own = (
        resign(federation, phase.uploads[0], salt=bytes(32)).header
        for phase in phases
        if isinstance(phase, Checked)
    )
    headers = (freeze.headers[0], other, freeze.headers[2], own, *freeze.headers[4:])
    _, (reply,) = federation.ask("member-3", replace(freeze, headers=headers))
    assert isinstance(reply, Refusal)
    assert reply.cause == "own-upload-changed"


def test_a_dealer_whose_box_was_refused_may_survive_if_others_hold_its_shares(
    federation: Federation, freeze: Freeze
) -> None:
    # the dispute may have cost this decryptor its place, or the cover spared both
    phase = federation.phases["member-0"]
    assert isinstance(phase, Checked)
    refused = tuple(d.survivor for d in phase.opened if d.member == "member-2")
    held = tuple(d for d in phase.opened if d.member != "member-2")
    federation.phases["member-0"] = replace(phase, opened=held, refused=refused)
    voted, _ = federation.ask("member-0", freeze)
    assert isinstance(voted, Voted)
    # but as the upload that was shown with the box, and no other
    headers = list(freeze.headers)
    headers[2] = resign(federation, federation.phases["member-2"].uploads[0], salt=bytes(32)).header  # type: ignore[attr-defined]  # it has uploaded
    assert refusal(federation, replace(freeze, headers=tuple(headers))) == "survivors-invalid"


def test_lost_members_next_to_each_other_are_refused_by_every_decryptor(
    sparse: Callable[..., Federation],
) -> None:
    federation = sparse()
    federation.reach(Freezing)
    request = federation.phase.request_for("member-00")
    assert isinstance(request, Freeze)
    ring = federation.phase.attempt.graph.ring
    for lost, expected in ((ring[0:2], "window-exceeded"), ((ring[0], ring[2]), None)):
        headers = tuple(header for header in request.headers if header.member not in lost)
        _, (reply,) = federation.ask("member-00", replace(request, headers=headers))
        assert getattr(reply, "cause", None) == expected


def test_deliveries_again_are_answered_by_the_same_receipt(federation: Federation) -> None:
    phase = federation.phases["member-0"]
    assert isinstance(phase, Checked)
    again, replies = federation.ask("member-0", Deliveries(phase.attempt.context, ()))
    assert again is phase
    assert replies == (phase.receipt,)
    assert isinstance(replies[0], Receipt)
    with pytest.raises(PeerFault, match=r"^wrong-context:"):
        federation.ask("member-0", Deliveries(bytes(32), ()))
