"""LOST: reports come in, and the admin closes the attempt (protocol §4.9)."""

from dataclasses import replace
from typing import Any

import pytest

from protocol.coordinator import Abandoned, Checking, CoordinatorPhase, Lost, Revealing
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.member.attempting import Attempting
from protocol.messages import Report, ReportRequest, Survivor, SurvivorSet
from protocol.simulator import After, Federation
from tests.protocol import forging


@pytest.fixture
def federation() -> Federation:
    """Five members, t = 4, whose attempt is lost; nobody has reported yet."""
    federation = Federation(5)
    federation.begin(terms=federation.terms(8))
    federation.phase = federation.run_until(Checking).cancel(federation.now_s).expire(federation.now_s)
    return federation


def lost(federation: Federation) -> Lost:
    assert isinstance(federation.phase, Lost)
    return federation.phase


def report(federation: Federation, member: str, key: SigningKey | None = None, **changes: Any) -> Report:
    values = {"context": federation.phase.attempt.context, "member": member, "sets": (), **changes}
    return Report.make(key or federation.keys[member], **values)


def own(federation: Federation) -> tuple[Survivor, ...]:
    """What everybody has uploaded."""
    phases = (phase for phase in federation.phases.values() if isinstance(phase, Attempting))
    return tuple(survivor for phase in phases for survivor in phase.own)


def received(federation: Federation, *reports: Report) -> CoordinatorPhase:
    phase: CoordinatorPhase = federation.phase
    for message in reports:
        phase = phase.receive(message, federation.now_s)
    return phase


def test_decryptors_are_asked_what_they_signed_until_they_say(federation: Federation) -> None:
    phase = lost(federation)
    assert phase.waiting_for() == federation.ids
    assert phase.request_for("member-0") == ReportRequest(phase.attempt.context)
    after = received(federation, report(federation, "member-0"))
    assert isinstance(after, Lost)
    assert after.request_for("member-0") is None
    assert after.waiting_for() == federation.ids[1:]
    assert after.link is None


def test_who_holds_no_shares_is_not_asked() -> None:
    federation = Federation(5, decryptors=(1, 2, 3), colluders=0)
    federation.begin(terms=federation.terms(8))
    phase = federation.phase.cancel(0.0).expire(0.0)
    assert phase.request_for("member-0") is None
    assert isinstance(phase.request_for("member-1"), ReportRequest)


def test_the_same_report_again_changes_nothing_and_another_is_a_conflict(federation: Federation) -> None:
    phase = received(federation, report(federation, "member-0"))
    assert phase.receive(report(federation, "member-0"), federation.now_s) is phase
    other = report(federation, "member-0", sets=(SurvivorSet(own(federation)),))
    with pytest.raises(PeerFault, match=r"^conflict: member-0 has sent another report before \[member-0\]$"):
        phase.receive(other, federation.now_s)


@pytest.mark.parametrize(
    ("member", "signer", "changes", "cause"),
    [
        ("member-0", "member-1", {}, "bad-signature"),
        ("member-0", "member-0", {"context": bytes(32)}, "wrong-context"),
        ("sybil", "member-0", {}, "not-a-decryptor"),
    ],
)
def test_other_peoples_reports_are_refused(
    federation: Federation, member: str, signer: str, changes: dict[str, Any], cause: str
) -> None:
    with pytest.raises(PeerFault, match=rf"^{cause}: .*\[{member}\]$"):
        received(federation, report(federation, member, federation.keys[signer], **changes))


def test_a_set_that_nobody_honest_signs_is_not_reported(federation: Federation) -> None:
    everyone = own(federation)
    for survivors, cause in (
        (everyone[:3], "survivors-too-few"),
        ((*everyone[:4], replace(everyone[4], member="sybil")), "survivors-invalid"),
    ):
        false = report(federation, "member-0", sets=(SurvivorSet(survivors),))
        with pytest.raises(PeerFault, match=rf"^{cause}:"):
            received(federation, false)


def test_the_admins_signature_closes_the_attempt(federation: Federation) -> None:
    closing = forging.lost(federation, dict.fromkeys(federation.ids[:4], ()))
    phase = lost(federation).receive(closing, federation.now_s)
    assert isinstance(phase, Abandoned)
    assert phase.fault is lost(federation).fault
    assert phase.past == phase.attempt.past(closing)
    assert phase.link == phase.attempt.link(phase.past)
    assert [phase.request_for(member) for member in federation.ids] == [closing] * 5
    assert phase.receive(closing, federation.now_s) is phase


def test_a_lost_that_does_not_hold_closes_nothing(federation: Federation) -> None:
    true = forging.lost(federation, {"member-0": ()})
    forged = replace(true.reports[0], signature=bytes(64))
    for message, cause in (
        (forging.again(true, federation.coordinator), "bad-signature"),
        (forging.lost(federation, {}, context=bytes(32)), "wrong-context"),
        (forging.lost(federation, {}, reports=(forged,)), "bad-signature"),
    ):
        with pytest.raises(PeerFault, match=rf"^{cause}:"):
            lost(federation).receive(message, federation.now_s)


def test_what_some_had_signed_counts_as_opened() -> None:
    federation = Federation(5, drop={0: After.RECEIPT, 1: After.RECEIPT})
    outcome = federation.run_round(terms=federation.terms(8))
    phase = outcome.phase
    assert isinstance(phase, Abandoned)
    assert [report_.member for report_ in phase.lost.reports] == list(federation.ids[2:])
    (opened,) = phase.past.sets
    assert tuple(survivor.member for survivor in opened.survivors) == federation.ids
    assert federation.links == (phase.link,)
    assert federation.history == (phase.past,)


def test_a_certified_attempt_is_never_lost() -> None:
    federation = Federation(5)
    federation.begin(terms=federation.terms(8))
    phase = federation.run_until(Revealing)
    assert not isinstance(phase.expire(0.0), Lost)
    assert not isinstance(phase.cancel(0.0), Lost)
