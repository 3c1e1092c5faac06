"""A decryptor refuses: what others can tell of it, and what they can't."""

from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.transcripts import Entries, doctored, find, named
from tests.support.simulator import Federation
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Freezing
from veilsum.protocol.messages import Freeze, Message, Refusal, SurvivorSet, Vote, parse
from veilsum.protocol.replay import Verdict, follows, replay


def refusing(cause: str, member: str = "member-1", **fields: Any) -> Verdict:
    """What an auditor makes of a round in which this decryptor refuses first, whatever it is shown."""
    federation = Federation(5)

    def tamper(sender: str, message: Message) -> Message:
        if sender == member and isinstance(message, Vote):
            values = {"context": message.context, "member": member, **fields}
            return Refusal.make(federation.keys[member], cause=cause, **values)
        return message

    federation.tamper = tamper
    federation.run_round()
    return replay(federation.transcript, federation.admin.public)


@pytest.mark.parametrize(
    "cause",
    [
        "survivors-too-few",
        "survivors-invalid",
        "window-exceeded",
        "own-upload-changed",
        "malformed",
        "repeat-mismatch",
        "indicator-mismatch",
    ],
)
def test_a_cause_that_the_proposal_does_not_show_is_a_dispute_with_the_coordinator(cause: str) -> None:
    found = refusing(cause)
    assert named(found) == {(("member-1", "coordinator"), cause)}
    assert found.kept
    assert found.refusals == ()


@pytest.mark.parametrize("cause", ["chain-broken", "outcome-missing", "a-cause-of-its-own"])
def test_what_only_its_sender_can_know_stands_as_said(cause: str) -> None:
    found = refusing(cause)
    assert found.findings == ()
    assert [(each.member, each.cause) for each in found.refusals] == [("member-1", cause)]


def test_who_refuses_what_should_be_refused_is_not_named() -> None:
    """The coordinator shows two decryptors too few, and owns up to it."""
    federation = Federation(5)
    federation.tamper = lambda sender, message: (
        replace(message, headers=message.headers[2:])
        if isinstance(message, Freeze) and sender in {"coordinator>member-0", "coordinator>member-1"}
        else message
    )
    federation.run_round()

    def own_up(entries: Entries) -> None:
        at = find(entries, Freeze)
        proposed = parse(entries[at])
        assert isinstance(proposed, Freeze)
        entries[at] = replace(proposed, headers=proposed.headers[2:]).to_bytes()

    found = doctored(federation, own_up)
    assert {finding.parties for finding in found.findings} == {("coordinator",)}
    assert found.refusals == ()


def frozen() -> tuple[Freezing, Attempt]:
    federation = Federation(8)
    phase = federation.reach(Freezing)
    return phase, phase.attempt


def test_what_follows_from_the_proposal_accuses_nobody() -> None:
    phase, attempt = frozen()
    proposal, uploads, receipts = phase.survivors, phase.uploads, phase.receipts
    member = proposal[0].member
    known = attempt, proposal, uploads, receipts
    assert follows(Cause.SURVIVORS_TOO_FEW, member, *known) is False
    least = attempt.quorum.survivors_min
    enough, few = ((attempt, proposal[:count], uploads, receipts) for count in (least, least - 1))
    assert follows(Cause.SURVIVORS_TOO_FEW, member, *enough) is False
    assert follows(Cause.SURVIVORS_TOO_FEW, member, *few) is True
    other = (replace(proposal[0], digest=bytes(32)), *proposal[1:])
    changed = attempt, other, uploads, receipts
    assert follows(Cause.OWN_UPLOAD_CHANGED, member, *changed) is True
    assert follows(Cause.OWN_UPLOAD_CHANGED, proposal[1].member, *changed) is False
    assert follows(Cause.SURVIVORS_INVALID, member, *changed) is True
    disordered = attempt, proposal[::-1], uploads, receipts
    assert follows(Cause.SURVIVORS_INVALID, member, *disordered) is True
    twice = attempt, (*proposal, proposal[-1]), uploads, receipts
    assert follows(Cause.SURVIVORS_INVALID, member, *twice) is True
    assert follows(Cause.SURVIVORS_INVALID, member, *known) is False


def test_who_signed_no_receipt_may_not_have_been_delivered_an_upload() -> None:
    phase, attempt = frozen()
    known = attempt, phase.survivors, phase.uploads
    member = phase.survivors[0].member
    others = {name: receipt for name, receipt in phase.receipts.items() if name != member}
    assert follows(Cause.SURVIVORS_INVALID, member, *known, others) is None
    # Its receipt is for other uploads than those that were announced.
    fewer = {name: upload for name, upload in phase.uploads.items() if name != phase.survivors[-1].member}
    assert (
        follows(Cause.SURVIVORS_INVALID, member, attempt, phase.survivors[:-1], fewer, phase.receipts) is True
    )


def test_a_window_that_is_exceeded_is_one() -> None:
    phase, attempt = frozen()
    manifest = replace(attempt.manifest, degree=4, window_dropped_max=1)
    sparse = replace(attempt, manifest=manifest)
    ring = sparse.graph.ring
    gone = {*ring[:2]}
    left = tuple(each for each in phase.survivors if each.member not in gone)
    assert follows(Cause.WINDOW_EXCEEDED, "member-0", sparse, left, {}, {}) is True
    assert follows(Cause.WINDOW_EXCEEDED, "member-0", sparse, phase.survivors, {}, {}) is False


def test_a_set_shown_for_no_reason_is_one() -> None:
    phase, attempt = frozen()
    shown = (SurvivorSet(phase.survivors),)
    for cause in (Cause.MALFORMED, Cause.REPEAT_MISMATCH, Cause.INDICATOR_MISMATCH):
        assert follows(cause, "member-0", attempt, phase.survivors, {}, {}, shown) is True
        assert follows(cause, "member-0", attempt, phase.survivors, {}, {}) is False
