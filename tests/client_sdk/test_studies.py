"""A member's checks of a study before it answers. Versions, ends and approvals (STUDY-5 to STUDY-7) stand in assurance/vectors."""

import re
from typing import Any

import numpy as np
import pytest

from client_sdk.environment import Environment
from client_sdk.errors import Declined, Misuse, PeerFault
from client_sdk.policy import Policy
from client_sdk.records import Records
from client_sdk.reservations import State
from client_sdk.result import Result
from tests.support.consortium import DIM, LEAST, NOISY, Consortium, hostile
from tests.support.refusals import refused
from veilsum.calibration.errors import ShapeMismatch
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Study
from veilsum.protocol.study import DAY_S


def enrolling(consortium: Consortium, cohort: str, **changes: Any) -> Any:
    """Return the result of member-0's enrolment in a cohort. If it is a fault, nothing was answered or sent."""
    member = consortium.member("member-0", **changes)
    steps = consortium.steps(member.enrol(cohort, consortium.records("member-0")))
    try:
        for state, _ in steps:
            if state == "waits":
                steps.close()
                return None
    except PeerFault as fault:
        assert member.ledger() == ()
        assert not consortium.operator.cohort(cohort).cards
        return fault
    raise AssertionError


def opened(consortium: Consortium, study: Study) -> str:
    """Open a cohort of a newly published study."""
    consortium.publish(study)
    return consortium.open_cohort()


def test_a_revoked_study_is_refused(consortium: Consortium) -> None:
    cohort = consortium.open_cohort()
    consortium.operator.publish_roster(consortium.make_roster(2, revoked=(consortium.study.hash,)))
    assert enrolling(consortium, cohort).cause is Cause.STUDY_REFUSED


def test_a_study_signed_by_the_rosters_study_key_alone(consortium: Consortium) -> None:
    lead, cohort = SigningKey(b"L" * 32), consortium.open_cohort()
    consortium.operator.publish_roster(consortium.make_roster(2, study_key=lead.public))
    assert enrolling(consortium, cohort).cause is Cause.BAD_SIGNATURE
    content = consortium.content({"version": 2}).to_bytes()
    study = Study.make_signed(lead, federation=consortium.admin.public, content=content)
    assert enrolling(consortium, opened(consortium, study)) is None


def test_a_study_is_read_before_it_is_approved(consortium: Consortium) -> None:
    member = consortium.member("member-0", policy=Policy(consortium.admin.public))
    [view] = consortium.alone(member.studies())
    content = consortium.alone(member.study(view.study))
    assert (content.notes.name, content.approval.hex()) == (view.name, view.approval)
    with pytest.raises(Misuse):
        member.study("ab")


# Yes or no


def declined(consortium: Consortium, records: Records | None, period: str = "p1") -> str:
    cohort = consortium.open_cohort(period)
    with pytest.raises(Declined) as caught:
        consortium.alone(consortium.member("member-0").enrol(cohort, records))
    assert not consortium.operator.cohort(cohort).cards
    return str(caught.value)


def test_a_no_says_how_many_rows_are_needed_and_stays(consortium: Consortium) -> None:
    features, labels = consortium.data("member-0")
    few = Records(features[: LEAST - 1], labels[: LEAST - 1], list(range(LEAST - 1)))
    said = declined(consortium, few)
    assert re.match(r"study, period p1: .*\b17 .*\b16 .*\b0 .*\b0\b.*\bfinal\b", said)
    assert declined(consortium, consortium.records("member-0")) == said
    assert declined(consortium, None) == said
    # The answer is for one period.
    assert enrolling_in(consortium, "p2", consortium.records("member-0", "p2"))
    assert [run.state for run in consortium.open["member-0"].ledger()] == [State.DECLINED, State.RESERVED]


def enrolling_in(consortium: Consortium, period: str, records: Records) -> bool:
    cohort = consortium.open_cohort(period)
    consortium.run_until(consortium.member("member-0").enrol(cohort, records), "PUT")
    return "member-0" in consortium.operator.cohort(cohort).cards


def test_features_of_another_length_raise_before_anything_is_answered(consortium: Consortium) -> None:
    cohort = consortium.open_cohort()
    wrong = Records(np.zeros((20, DIM + 1)), np.zeros(20, int))
    with pytest.raises(ShapeMismatch, match=r"\b3\b"):
        consortium.alone(consortium.member("member-0").enrol(cohort, wrong))
    with pytest.raises(Misuse, match="pass your records"):
        consortium.alone(consortium.member("member-0").enrol(cohort))
    assert consortium.open["member-0"].ledger() == ()


def test_a_noisy_study_is_declined_where_it_claims_to_repeat_a_sum(consortium: Consortium) -> None:
    """It reserves nothing: records of an exact sum are in no noisy one."""
    consortium.run(consortium.enrol())
    [summed] = consortium.links()
    records, before = consortium.records("member-0"), consortium.open["member-0"].ledger()
    consortium.publish(consortium.make_study({"version": 2}, extractor="ab" * 32, **NOISY))
    with hostile(consortium):
        cohort = consortium.open_cohort(repeats=summed.context.hex())
    with pytest.raises(Declined, match="noise"):
        consortium.alone(consortium.member("member-0").enrol(cohort, records))
    assert consortium.open["member-0"].ledger() == before
    assert enrolling_in(consortium, "p1", records)
    assert consortium.open["member-0"].ledger()[-1].rows == 0


def test_a_clock_that_is_wrong_for_a_while_gives_no_run_up(consortium: Consortium) -> None:
    consortium.enrol()
    later = consortium.clock() + 100 * DAY_S
    ahead = consortium.member("member-0", environment=Environment(now_s=lambda: later))
    with refused("study-refused", "admin"):
        consortium.alone(ahead.enrol(consortium.open_cohort(), consortium.records("member-0")))
    round_id = consortium.open_round(consortium.enrol())
    results = consortium.together(consortium.contributions(round_id))
    assert {type(each) for each in results.values()} == {Result}, results
