"""Joining a cohort."""

import re
from dataclasses import replace
from typing import Any

import pytest

from client_sdk.enrolment import pair_in_cohort, report_enrolment
from client_sdk.errors import Declined, Misuse, NotEnrolled, PeerFault
from client_sdk.progress import Step
from client_sdk.session import ready_of
from tests.support.answers import invited
from tests.support.consortium import Consortium
from tests.support.refusals import refused
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Enrolled, Ready
from veilsum.protocol.periods import PeriodKind
from veilsum.protocol.rest import CohortView
from veilsum.protocol.study import Content
from veilsum.study import judging


def test_the_private_keys_are_gone_once_the_cohort_is_formed(consortium: Consortium) -> None:
    cohort = consortium.open_cohort()
    flows = consortium.enrolments(cohort)
    consortium.run_until(flows.pop("member-0"), "PUT")
    enrolled = consortium.phase(cohort, Enrolled)
    secrets = [bytes(enrolled.keys.x25519), bytes(enrolled.keys.mlkem_seed)]
    consortium.together({**flows, "member-0": consortium.member("member-0").enrol(cohort)})
    consortium.phase(cohort, Ready)
    stored = consortium.stored_bytes()
    assert not any(secret in stored for secret in secrets)
    with pytest.raises(Misuse, match="no cohort yet"):
        ready_of(enrolled)


def test_a_member_that_paired_meanwhile_goes_on_from_there(consortium: Consortium) -> None:
    cohort = consortium.open_cohort()
    flows = consortium.enrolments(cohort)
    consortium.run_until(flows.pop("member-0"), "PUT")
    carded = consortium.phase(cohort, Enrolled)
    consortium.together({**flows, "member-0": consortium.member("member-0").enrol(cohort)})
    session = consortium.open["member-0"].session
    phase, shown = consortium.alone(pair_in_cohort(session, carded, None, wait=False))
    assert phase == consortium.phase(cohort, Ready)
    assert isinstance(shown, CohortView)
    assert (shown.cohort, shown.state) == (cohort, "formed")


def test_a_yes_names_its_rows_and_a_no_reserves_none(consortium: Consortium) -> None:
    own = consortium.records("member-0")
    consortium.run_until(consortium.member("member-0").enrol(consortium.open_cohort("p1"), own), "PUT")
    consortium.revise(loss=90)
    with pytest.raises(Declined, match=r"\b17\b.*\b0\b"):
        consortium.alone(consortium.member("member-0").enrol(consortium.open_cohort("p2"), own))
    said = [event.detail for _, event in consortium.events if "reserved" in event.detail]
    assert [re.findall(r"p\d|\b20\b", each) for each in said] == [["p1", "20", "20"]]


@pytest.mark.parametrize("over", [False, True])
def test_other_data_for_an_answered_run_are_refused(consortium: Consortium, *, over: bool) -> None:
    cohort = consortium.enrol()
    if over:
        consortium.together(consortium.contributions(consortium.open_round(cohort)))
    own = consortium.records("member-0")
    consortium.alone(consortium.member("member-0").enrol(cohort, own))
    changed = replace(own, features=own.features[::-1].copy())
    for other in (changed, consortium.records("member-0", "p2")):
        with pytest.raises(Misuse, match=r"p1 .*\d+ .*\d+ rows"):
            consortium.alone(consortium.member("member-0").enrol(cohort, other))


def test_a_cohort_that_formed_without_this_member_is_refused(five: Consortium) -> None:
    cohort = five.open_cohort()
    flows = five.enrolments(cohort, five.ids[:4])
    flow = five.member("member-4").enrol(cohort, five.records("member-4"))
    late = five.until(flow, cohort)
    five.together(flows, stuck=lambda: bool(five.operator.close_cohort(cohort)))
    with refused("wrong-phase"):
        for _ in late:
            pass
    with refused(Cause.UNKNOWN_MEMBER, "member-4"):
        five.alone(five.member("member-4").enrol(cohort))


def test_a_wait_is_for_cards_and_then_for_the_pairings_of_those_that_came(five: Consortium) -> None:
    cohort, session = five.open_cohort(), five.member("member-4").session
    for flow in five.enrolments(cohort, five.ids[:4]).values():
        five.run_until(flow, "PUT")
    five.events.clear()
    report_enrolment(session, five.operator.cohort(cohort))
    report_enrolment(session, five.operator.close_cohort(cohort))
    assert [(each.step, each.done, each.total, each.waiting_for) for _, each in five.events] == [
        (Step.ENROLLING, 4, 5, ("member-4",)),
        (Step.PAIRING, 0, 4, five.ids[:4]),
    ]


def test_a_cohort_that_takes_no_cards_is_not_answered(consortium: Consortium) -> None:
    cohort = consortium.open_cohort()
    consortium.operator.close_cohort(cohort)
    with pytest.raises(NotEnrolled, match="failed"):
        consortium.alone(consortium.member("member-0").enrol(cohort, consortium.records("member-0")))
    assert consortium.open["member-0"].ledger() == ()


def test_a_roster_with_another_key_of_this_member_is_refused(consortium: Consortium) -> None:
    members = tuple(
        replace(each, key=SigningKey(b"O" * 32).public) if each.member == "member-0" else each
        for each in consortium.roster.members
    )
    consortium.operator.publish_roster(consortium.make_roster(2, members=members))
    cohort = consortium.open_cohort()
    with refused("unknown-member", "member-0"):
        consortium.alone(consortium.member("member-0").enrol(cohort, consortium.records("member-0")))
    assert consortium.open["member-0"].ledger() == ()


@pytest.mark.parametrize(
    ("changes", "cause", "parties"),
    [
        ({"counter": "7"}, Cause.WRONG_COHORT, ()),  # as after a change of the roster
        ({"period": "p2"}, Cause.WRONG_COHORT, ()),
        ({"repeats": "ab" * 32}, Cause.WRONG_COHORT, ()),
        ({"counter": -1}, Cause.MALFORMED, ("coordinator",)),
        ({"counter": 1 << 64}, Cause.MALFORMED, ("coordinator",)),
    ],
)
def test_a_cohort_of_another_name_is_not_answered(
    consortium: Consortium, changes: dict[str, Any], cause: Cause, parties: tuple[str, ...]
) -> None:
    cohort = consortium.open_cohort()
    consortium.shows("GET .*/invitation", invited(**changes))
    with refused(cause, *parties):
        consortium.alone(consortium.member("member-0").enrol(cohort, consortium.records("member-0")))
    assert consortium.open["member-0"].ledger() == ()


def test_a_cohort_that_a_study_s_noise_does_not_fit_is_refused(
    noisy: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:

    def unfit(*_: object) -> None:
        raise PeerFault(Cause.WEAK_PARAMETERS, "too coarse")

    monkeypatch.setattr(judging, "check_noise", unfit)
    cohort = noisy.open_cohort()
    flows = noisy.enrolments(cohort)
    assert {fault.cause for fault in noisy.together(flows).values()} == {Cause.WEAK_PARAMETERS}


def test_a_cohort_of_fewer_members_than_the_policy_wants_is_left(consortium: Consortium) -> None:
    consortium.policy = replace(consortium.policy, members_min=4)
    cohort = consortium.open_cohort()
    flows = consortium.enrolments(cohort)
    assert {fault.cause for fault in consortium.together(flows).values()} == {Cause.POLICY_REFUSED}


def test_a_cohort_is_not_entered_under_an_older_roster(consortium: Consortium) -> None:
    cohort = consortium.open_cohort()
    flows = consortium.enrolments(cohort)
    for flow in flows.values():
        consortium.run_until(flow, "PUT")
    consortium.operator.publish_roster(consortium.make_roster(2))
    with refused("roster-rollback"):
        consortium.alone(consortium.member("member-0").enrol(cohort))


def test_another_admin_and_a_tampered_roster_are_refused(consortium: Consortium) -> None:
    cohort = consortium.open_cohort()
    other = SigningKey(b"O" * 32)
    forged = consortium.make_roster(1, admin=other)
    foreign = consortium.make_roster(1, admin=other, federation=other.public)
    for roster, cause in ((forged, Cause.BAD_SIGNATURE), (foreign, Cause.WRONG_FEDERATION)):
        consortium.shows("GET .*/invitation", invited(roster))
        with refused(cause, ...):
            consortium.alone(consortium.member("member-0").enrol(cohort))
        with refused(cause, ...):
            consortium.member("member-0", roster=roster.to_bytes())
        consortium.open.clear()


@pytest.mark.parametrize("period", ["rehearsal-1", "rehearsals", "judge-2026", "judge"])
def test_a_period_of_a_kind_that_the_study_lacks_is_refused_by_everybody(
    consortium: Consortium, period: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused(Cause.TERMS_REFUSED, "coordinator"):
        consortium.open_cohort(period)
    with monkeypatch.context() as patched:
        patched.setattr(Content, "check_period", lambda *_, **_repeats: PeriodKind.DATA)
        cohort = consortium.open_cohort(period)
    with refused(Cause.TERMS_REFUSED, "coordinator"):
        consortium.alone(consortium.member("member-0").enrol(cohort, consortium.records("member-0")))
    assert consortium.open["member-0"].ledger() == ()
