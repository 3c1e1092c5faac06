"""A member's checks of a study before it answers, in the specification's order (STUDY-1 to STUDY-7)."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.environment import Environment
from client_sdk.errors import Declined, Misuse, PeerFault
from client_sdk.policy import Policy
from client_sdk.records import Records
from client_sdk.reservations import State
from client_sdk.result import Result
from service.coordination import federations
from tests.support.answers import invited
from tests.support.consortium import DIM, LEAST, NOISY, Consortium, hostile, unchanged
from tests.support.refusals import refused
from tests.support.serving import Stage
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


def test_revoked_expired_and_far_studies_are_refused(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = consortium.open_cohort()
    consortium.operator.publish_roster(consortium.make_roster(2, revoked=(consortium.study.hash,)))
    assert "revokes" in enrolling(consortium, cohort).detail
    consortium.operator.publish_roster(consortium.make_roster(3))
    now_s = int(consortium.clock())
    monkeypatch.setattr(federations, "ROUND_LIFETIME_MAX_S", 100 * DAY_S)
    far = opened(consortium, consortium.make_study({"name": "far", "expires": now_s + 91 * DAY_S}))
    assert "91 days" in enrolling(consortium, far).detail
    expired = opened(consortium, consortium.make_study({"name": "short", "expires": now_s + 5}))
    consortium.clock.ahead_s += 5
    fault = enrolling(consortium, expired)
    assert (fault.cause, "expired" in fault.detail) == (Cause.STUDY_REFUSED, True)


def test_a_study_signed_by_the_rosters_study_key_alone(consortium: Consortium) -> None:
    lead, cohort = SigningKey(b"L" * 32), consortium.open_cohort()
    consortium.operator.publish_roster(consortium.make_roster(2, study_key=lead.public))
    assert enrolling(consortium, cohort).cause is Cause.BAD_SIGNATURE
    content = consortium.content({"version": 2}).to_bytes()
    study = Study.make_signed(lead, federation=consortium.admin.public, content=content)
    assert enrolling(consortium, opened(consortium, study)) is None


def test_a_rollback_of_a_study_is_remembered_over_restarts_and_without_approval(
    consortium: Consortium,
) -> None:
    """A study counts as seen once it has passed every check but approval (STUDY-6)."""
    cohort = opened(consortium, consortium.make_study({"version": 2}))
    fault = enrolling(consortium, cohort, policy=Policy(consortium.admin.public))
    assert fault.cause is Cause.STUDY_REFUSED
    for version, purpose in ((1, ""), (2, "other bytes")):
        shown = consortium.make_study({"version": version, "purpose": purpose})
        consortium.shows("GET .*/invitation", invited(study=shown))
        fault = enrolling(consortium, cohort)
        assert (fault.cause, "version 2" in fault.detail) == (Cause.STUDY_REFUSED, True)
    consortium.on_answer = unchanged
    assert enrolling(consortium, cohort) is None
    assert enrolling(consortium, opened(consortium, consortium.make_study({"name": "another"}))) is None


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
    assert re.match(r"study, period p1: .*\b17 .*\b16 .*\b0 .*\b0\b", said)
    assert declined(consortium, consortium.records("member-0")) == said
    assert declined(consortium, None) == said
    # The answer is for one period.
    assert enrolling_in(consortium, "p2", consortium.records("member-0", "p2"))
    assert [run.state for run in consortium.open["member-0"].ledger()] == [State.DECLINED, State.RESERVED]


def enrolling_in(consortium: Consortium, period: str, records: Records) -> bool:
    cohort = consortium.open_cohort(period)
    consortium.run_until(consortium.member("member-0").enrol(cohort, records), "PUT")
    return "member-0" in consortium.operator.cohort(cohort).cards


def test_without_ids_the_data_set_is_used_once(consortium: Consortium) -> None:
    data = {m: Records(*consortium.data(m)) for m in consortium.ids}
    cohort = consortium.open_cohort()
    consortium.together({m: consortium.member(m).enrol(cohort, data[m]) for m in consortium.ids})
    consortium.run(cohort)
    said = declined(consortium, data["member-0"], "p2")
    assert re.search(r"\b0 .*\b20 ", said)


def test_features_of_another_length_raise_before_anything_is_answered(consortium: Consortium) -> None:
    cohort = consortium.open_cohort()
    wrong = Records(np.zeros((20, DIM + 1)), np.zeros(20, int))
    with pytest.raises(ShapeMismatch, match=r"\b3\b"):
        consortium.alone(consortium.member("member-0").enrol(cohort, wrong))
    with pytest.raises(Misuse, match="pass your records"):
        consortium.alone(consortium.member("member-0").enrol(cohort))
    assert consortium.open["member-0"].ledger() == ()


def test_the_records_are_looked_at_once(consortium: Consortium) -> None:
    """After the yes, the data no longer matters: neither a second cohort nor a round counts it again."""
    cohort = consortium.enrol()
    again = consortium.open_cohort()
    empty = Records(np.zeros((0, DIM)), np.zeros(0, int))
    consortium.together({m: consortium.member(m).enrol(again, empty) for m in consortium.ids})
    round_id = consortium.open_round(again)
    consortium.together(consortium.contributions(round_id))
    assert consortium.total(round_id) == consortium.expected(round_id)
    assert cohort != again


def test_a_noisy_study_is_never_declined_and_its_budget_is_charged_once(stage: Stage, tmp_path: Path) -> None:
    consortium = Consortium(stage, tmp_path, question=NOISY)
    assert enrolling_in(consortium, "p1", Records(np.zeros((0, DIM)), np.zeros(0, int), []))
    [run] = consortium.open["member-0"].ledger()
    assert (run.state, run.rows) == (State.RESERVED, 0)
    assert run.mu == pytest.approx(1.5315, abs=1e-3)
    consortium.policy = replace(consortium.policy, mu_budget=2.0)
    records = consortium.records("member-0")
    for study, rows in ({}, 20), ({"loss": 90}, 0):  # 1.53 · √2 is above 2
        consortium.publish(consortium.make_study({"name": "other"} if study else {}, **study))
        assert enrolling_in(consortium, "p2", records)
        assert consortium.open["member-0"].ledger()[-1].rows == rows


def test_a_noisy_study_is_declined_where_it_claims_to_repeat_a_sum(stage: Stage, tmp_path: Path) -> None:
    """It reserves nothing: records of an exact sum are in no noisy one."""
    consortium = Consortium(stage, tmp_path)
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


def test_a_noisy_study_takes_no_data_without_ids(stage: Stage, tmp_path: Path) -> None:
    consortium = Consortium(stage, tmp_path, question=NOISY)
    cohort = consortium.open_cohort()
    with pytest.raises(Misuse, match="needs ids"):
        consortium.alone(consortium.member("member-0").enrol(cohort, Records(*consortium.data("member-0"))))
    assert consortium.open["member-0"].ledger() == ()


def test_a_clock_that_is_wrong_for_a_while_gives_no_run_up(consortium: Consortium) -> None:
    consortium.enrol()
    later = consortium.clock() + 100 * DAY_S
    ahead = consortium.member("member-0", environment=Environment(now_s=lambda: later))
    with refused("study-refused", "admin"):
        consortium.alone(ahead.enrol(consortium.open_cohort(), consortium.records("member-0")))
    round_id = consortium.open_round(consortium.enrol())
    results = consortium.together(consortium.contributions(round_id))
    assert {type(each) for each in results.values()} == {Result}, results
