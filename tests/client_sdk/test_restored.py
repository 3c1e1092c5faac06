"""A folder that was restored from an older copy enrols nowhere, and opens nothing (member: Restored folders)."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from client_sdk.effects import Flow
from client_sdk.errors import PeerFault
from client_sdk.identity import Identity
from client_sdk.reservations import State
from client_sdk.result import Result
from client_sdk.store import Store
from tests.support import refusals
from tests.support.answers import changed, message
from tests.support.answers import refused as refused_with
from tests.support.consortium import Consortium, unchanged
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import KeyCard

M = "member-0"


def copied(consortium: Consortium, place: Path) -> Path:
    """Copy a member's folder."""
    return shutil.copytree(consortium.folder / M, place)


def put_back(consortium: Consortium, copy: Path) -> None:
    """Put a copy in the place of a member's folder."""
    if M in consortium.open:
        consortium.open.pop(M).close()
    shutil.rmtree(consortium.folder / M)
    shutil.copytree(copy, consortium.folder / M)


def enrol_alone(consortium: Consortium, cohort: str, period: str) -> KeyCard:
    """Send the member's card to a cohort, and return it."""
    consortium.run_until(enrolling(consortium, cohort, period), "PUT")
    found = Store(consortium.folder / M).newest_card()
    assert found is not None
    return found


def enrolling(consortium: Consortium, cohort: str, period: str) -> Flow[Any]:
    return consortium.member(M).enrol(cohort, consortium.records(M, period))


def refused(consortium: Consortium, flow: Flow[Any]) -> PeerFault:
    """Return why the member goes no further. It stores nothing."""
    before = consortium.state(M)
    with pytest.raises(PeerFault) as caught:
        consortium.alone(flow)
    assert consortium.state(M) == before
    return caught.value


def test_a_copy_of_before_a_run_is_refused_after_it(consortium: Consortium, tmp_path: Path) -> None:
    copy = copied(consortium, tmp_path / "copy")
    consortium.run(consortium.enrol())
    put_back(consortium, copy)
    fault = refused(consortium, enrolling(consortium, consortium.open_cohort("p2"), "p2"))
    assert (fault.cause, fault.parties) == (Cause.STATE_RESTORED, (M,))
    assert "veilsum member new" in fault.detail
    assert "veilsum member mark-summed" in fault.detail
    # Also an agent that waits for runs ends with it.
    member = consortium.member(M)
    agent = member.make_agent(consortium.records(M, "p2"))
    with refusals.refused("state-restored", "member-0"):
        consortium.alone(member.next_result(agent))


def test_serials_count_cards_and_a_restarted_member_sends_the_same_card(
    consortium: Consortium, tmp_path: Path
) -> None:
    first, second = consortium.open_cohort(), consortium.open_cohort("p2")
    card = enrol_alone(consortium, first, "p1")
    copy = copied(consortium, tmp_path / "copy")
    assert enrol_alone(consortium, first, "p1") == card
    put_back(consortium, copy)  # no card was signed since
    later = enrol_alone(consortium, second, "p2")
    assert enrol_alone(consortium, first, "p1") == later
    assert (card.serial, later.serial) == (1, 2)


def test_of_two_copies_that_enrol_at_once_one_is_refused(consortium: Consortium, tmp_path: Path) -> None:
    """Both have seen the invitation before either has sent its card."""
    copy = copied(consortium, tmp_path / "copy")
    first, second = consortium.open_cohort(), consortium.open_cohort("p2")
    consortium.shows("GET .*/invitation", changed(card=None))
    enrol_alone(consortium, first, "p1")
    put_back(consortium, copy)
    with refusals.refused(Cause.CARD_CONFLICT, M):
        consortium.alone(enrolling(consortium, second, "p2"))
    consortium.on_answer = unchanged
    own = Store(consortium.folder / M).newest_card()
    assert own is not None
    assert own.serial == 1
    fault = refused(consortium, enrolling(consortium, second, "p2"))
    assert fault.cause is Cause.STATE_RESTORED  # the same serial, with other bytes


def test_a_new_identity_counts_from_one_and_takes_no_marked_record(consortium: Consortium) -> None:
    """The remedy: a new key in the next roster, and all of today's data marked."""
    consortium.run(consortium.enrol())
    consortium.open.pop(M).close()
    shutil.rmtree(consortium.folder / M)
    Identity.create(consortium.folder / M, M, held_out=0.0)
    member = consortium.member(M)
    records = consortium.records(M)
    assert member.mark_summed(records) == len(records)
    assert member.mark_summed(records) == 0
    consortium.operator.publish_roster(consortium.make_roster(2))
    cohort = consortium.open_cohort("p2")
    refused_ = consortium.together({M: member.enrol(cohort, records)})[M]
    assert type(refused_).__name__ == "Declined"
    [run] = member.ledger()
    assert (run.rows, run.taken) == (0, len(records))
    assert enrol_alone(consortium, consortium.open_cohort("p3"), "p3").serial == 1


# A copy of within a cohort, which knows its newest card


def summed_again(consortium: Consortium) -> str:
    """Enrol in the next period, in which the member has the records of the first, and open its sum."""
    cohort = consortium.open_cohort("p2")
    given = {m: consortium.records(m, "p1" if m == M else "p2") for m in consortium.ids}
    consortium.together({m: consortium.member(m).enrol(cohort, given[m]) for m in consortium.ids})
    assert [run.state for run in consortium.open[M].ledger()] == [State.FREE, State.RESERVED]
    return consortium.open_round(cohort)


@pytest.mark.parametrize("joined", [True, False], ids=["joined", "carded"])
def test_a_copy_that_has_forgotten_its_upload_opens_nothing(
    consortium: Consortium, tmp_path: Path, *, joined: bool
) -> None:
    cohort = consortium.open_cohort()
    if not joined:
        enrol_alone(consortium, cohort, "p1")
        copy = copied(consortium, tmp_path / "copy")
    consortium.together(consortium.enrolments(cohort))
    if joined:
        copy = copied(consortium, tmp_path / "copy")
    assert isinstance(consortium.run(cohort)[M], Result)
    put_back(consortium, copy)
    second = summed_again(consortium)
    fault = refused(consortium, consortium.member(M).contribute(second))
    assert (fault.cause, fault.parties) == (Cause.STATE_RESTORED, (M,))
    assert "veilsum member mark-summed" in fault.detail
    member = consortium.member(M)
    agent = member.make_agent(consortium.records(M))
    with refusals.refused("state-restored", "member-0"):
        consortium.alone(member.next_result(agent))


def test_a_coordinator_that_denies_the_membership_gets_no_second_sum(
    consortium: Consortium, tmp_path: Path
) -> None:
    cohort = consortium.enrol()
    copy = copied(consortium, tmp_path / "copy")
    consortium.run(cohort)
    put_back(consortium, copy)
    second = summed_again(consortium)
    consortium.shows("GET .*/opening", refused_with(Cause.UNKNOWN_MEMBER), [M])
    fault = refused(consortium, consortium.member(M).contribute(second))
    assert (fault.cause, fault.parties) == (Cause.OUTCOME_MISSING, ("coordinator",))


def test_a_coordinator_that_denies_a_copy_its_cards_gets_no_second_sum(
    consortium: Consortium, tmp_path: Path
) -> None:
    cohort = consortium.open_cohort()
    enrol_alone(consortium, cohort, "p1")
    copy = copied(consortium, tmp_path / "copy")
    consortium.together(consortium.enrolments(cohort))
    consortium.run(cohort)
    put_back(consortium, copy)
    second = summed_again(consortium)
    consortium.shows(f"GET .*/{cohort}/manifest/{M}", refused_with(Cause.UNKNOWN_MEMBER, M))
    fault = refused(consortium, consortium.member(M).contribute(second))
    assert (fault.cause, fault.parties) == (Cause.STATE_RESTORED, (M,))
    [other] = {*consortium.cohorts} - {cohort}
    consortium.shows(f"GET .*/{cohort}/manifest", message(consortium.operator.manifest(other)))
    fault = refused(consortium, consortium.member(M).contribute(second))
    assert (fault.cause, fault.parties) == (Cause.OUTCOME_MISSING, ("coordinator",))


def test_a_member_whose_card_came_too_late_opens_the_next_sum(five: Consortium) -> None:
    """Its phase of the first cohort has no manifest, and the cohort formed without it."""
    cohort = five.open_cohort()
    five.until(five.member(M).enrol(cohort, five.records(M)), "PUT", "before").close()
    others = [member for member in five.ids if member != M]
    five.together(
        five.enrolments(cohort, others), stuck=lambda: five.operator.close_cohort(cohort).state == "pairing"
    )
    first = five.open_round(cohort)
    five.together(five.contributions(first, others), stuck=five.expiring(first))
    second = summed_again(five)
    results = five.together(five.contributions(second))
    assert {type(result) for result in results.values()} == {Result}, results
    assert len(results) == len(five.ids)
