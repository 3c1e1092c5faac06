"""Joining a cohort."""

from dataclasses import replace
from pathlib import Path

import pytest

from client_sdk.errors import Misuse, NotEnrolled, PeerFault
from client_sdk.session import ready_of
from tests.support.federation import Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Enrolled, Ready


def test_the_private_keys_are_gone_once_the_manifest_stands(federation: Federation) -> None:
    cohort = bytes.fromhex(federation.coordinator.open_cohort())
    flows = {m: federation.member(m).enrol(cohort, federation.records(m)) for m in federation.ids}
    federation.run_until(flows.pop("member-0"), "PUT")
    enrolled = federation.open["member-0"].session.store.held(cohort)
    assert enrolled is not None
    assert isinstance(enrolled.phase, Enrolled)
    assert repr(enrolled) == "<StoredPhase Enrolled >"
    federation.together({**flows, "member-0": federation.member("member-0").enrol(cohort)})
    held = federation.open["member-0"].session.store.held(cohort)
    assert held is not None
    assert isinstance(held.phase, Ready)
    stored = b"".join(p.read_bytes() for p in (federation.folder / "member-0").rglob("*") if p.is_file())
    assert bytes(enrolled.phase.mask_private) not in stored
    assert bytes(enrolled.phase.box_private) not in stored
    with pytest.raises(Misuse, match="no cohort yet"):
        ready_of(enrolled.phase)


@pytest.mark.parametrize("over", [False, True])
def test_other_data_for_an_answered_run_are_refused(federation: Federation, *, over: bool) -> None:
    cohort = federation.enrol()
    if over:
        federation.together(federation.contributions(federation.coordinator.open_round(cohort)))
    own = federation.records("member-0")
    federation.alone(federation.member("member-0").enrol(cohort, own))
    changed = replace(own, features=own.features[::-1].copy())
    for other in (changed, federation.records("member-0", "p2")):
        with pytest.raises(Misuse, match=r"period p1 was answered with other data: \d+ of its \d+ rows"):
            federation.alone(federation.member("member-0").enrol(cohort, other))


def test_a_cohort_that_fails_says_why(tmp_path: Path) -> None:
    federation = Federation(tmp_path, members=3)
    cohort = federation.coordinator.open_cohort()

    def stuck() -> bool:
        federation.coordinator.close_cohort(cohort)
        return True

    flows = {m: federation.member(m).enrol(cohort, federation.records(m)) for m in federation.ids[:2]}
    results = federation.together(flows, stuck=stuck)
    assert {fault.cause for fault in results.values()} == {Cause.COHORT_TOO_SMALL}


def test_a_cohort_that_formed_without_this_member_is_refused(tmp_path: Path) -> None:
    federation = Federation(tmp_path, members=5)
    cohort = federation.coordinator.open_cohort()
    flows = {m: federation.member(m).enrol(cohort, federation.records(m)) for m in federation.ids[:4]}

    def stuck() -> bool:
        federation.coordinator.close_cohort(cohort)
        return True

    flow = federation.member("member-4").enrol(cohort, federation.records("member-4"))
    late = federation.until(flow, cohort)
    federation.together(flows, stuck=stuck)
    with pytest.raises(PeerFault, match=r"^wrong-phase:"):
        for _ in late:
            pass
    with pytest.raises(PeerFault, match="formed without member-4") as caught:
        federation.alone(federation.member("member-4").enrol(cohort))
    assert caught.value.cause is Cause.UNKNOWN_MEMBER


def test_a_cohort_that_takes_no_cards_is_not_answered(federation: Federation) -> None:
    cohort = federation.coordinator.open_cohort()
    federation.coordinator.close_cohort(cohort)
    with pytest.raises(NotEnrolled, match=r"takes no cards any more \(failed\)"):
        federation.alone(federation.member("member-0").enrol(cohort, federation.records("member-0")))
    assert federation.open["member-0"].ledger() == ()


def test_a_lower_roster_is_refused_and_a_higher_one_ends_old_cohorts(federation: Federation) -> None:
    cohort = federation.enrol()
    round_id = federation.coordinator.open_round(cohort)
    federation.coordinator.roster = federation.make_roster(2)
    results = federation.together(federation.contributions(round_id))
    for fault in results.values():
        assert isinstance(fault, PeerFault)
        assert fault.cause is Cause.ROSTER_ROLLBACK
        assert "enrol in a new cohort" in fault.detail
    federation.coordinator.roster = federation.roster
    with pytest.raises(PeerFault, match="roster 1 is shown, and roster 2 was seen"):
        federation.alone(federation.member("member-0").enrol(cohort))
    federation.coordinator.roster = federation.make_roster(2, readers=("member-0",))
    with pytest.raises(PeerFault, match="two rosters of number 2"):
        federation.alone(federation.member("member-0").enrol(cohort))


def test_a_cohort_is_not_entered_under_an_older_roster(federation: Federation) -> None:
    cohort = federation.coordinator.open_cohort()
    flows = {m: federation.member(m).enrol(cohort, federation.records(m)) for m in federation.ids}
    federation.run_until(flows.pop("member-0"), "PUT")
    federation.together(flows)
    federation.coordinator.roster = federation.make_roster(2)
    with pytest.raises(PeerFault, match=r"^roster-rollback:"):
        federation.alone(federation.member("member-0").enrol(cohort))


def test_another_admin_and_a_tampered_roster_are_refused(federation: Federation) -> None:
    cohort = federation.coordinator.open_cohort()
    other = SigningKey(b"O" * 32)
    forged = federation.make_roster(1, admin=other)
    foreign = federation.make_roster(1, admin=other, federation=other.public)
    for roster, cause in ((forged, Cause.BAD_SIGNATURE), (foreign, Cause.WRONG_FEDERATION)):
        federation.coordinator.roster = roster
        with pytest.raises(PeerFault, match=f"^{cause.value}:"):
            federation.alone(federation.member("member-0").enrol(cohort))
        with pytest.raises(PeerFault, match=f"^{cause.value}:"):
            federation.member("member-0", roster=roster.to_bytes())
        federation.open.clear()
