"""What a member checks of a study before it answers, in the page's order (docs/protocol.md §4.1)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import Declined, Misuse, PeerFault
from client_sdk.policy import Policy
from client_sdk.records import Records
from client_sdk.reservations import State
from tests.support.federation import DIM, LEAST, NOISY, Federation
from veilsum.calibration.errors import ShapeMismatch
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Study
from veilsum.protocol.study import DAY_S


def enrolling(federation: Federation, study: Study | None = None, **changes: Any) -> Any:
    """What comes of member-0's enrolment in a cohort of this study; nothing was answered or sent if it is a fault."""
    if study is not None:
        federation.coordinator.publish(study)
    cohort = federation.coordinator.open_cohort()
    member = federation.member("member-0", **changes)
    steps = federation.steps(member.enrol(cohort, federation.records("member-0")))
    try:
        for state, _ in steps:
            if state == "waits":
                steps.close()
                return None
    except PeerFault as fault:
        assert member.ledger() == ()
        assert not federation.coordinator.cohorts[cohort].enrolling.cards
        return fault
    raise AssertionError


def test_revoked_expired_and_far_studies_are_refused(federation: Federation) -> None:
    revoking = federation.make_roster(1, revoked=(federation.study.hash,))
    federation.coordinator.roster = revoking
    assert "revokes" in enrolling(federation).detail
    federation.coordinator.roster = federation.make_roster(2)
    now_s = int(federation.clock.now_s)
    assert (
        "expires in 91 days"
        in enrolling(federation, federation.make_study({"expires": now_s + 91 * DAY_S})).detail
    )
    expired = federation.make_study({"expires": now_s + 5})
    federation.coordinator.publish(expired)
    federation.clock.now_s += 5
    fault = enrolling(federation, expired)
    assert (fault.cause, "has expired" in fault.detail) == (Cause.STUDY_REFUSED, True)


def test_a_study_signed_by_the_rosters_study_key_alone(federation: Federation) -> None:
    lead = SigningKey(b"L" * 32)
    federation.coordinator.roster = federation.make_roster(2, study_key=lead.public)
    assert enrolling(federation).cause is Cause.BAD_SIGNATURE
    content = federation.content({"version": 2}).to_bytes()
    assert (
        enrolling(federation, Study.make(lead, federation=federation.admin.public, content=content)) is None
    )


def test_a_rollback_of_a_study_is_remembered_over_restarts_and_without_approval(
    federation: Federation,
) -> None:
    """A study is seen once it has passed all but approval (§4.1, 6)."""
    second = federation.make_study({"version": 2})
    fault = enrolling(federation, second, policy=Policy(federation.admin.public))
    assert "has not approved study" in fault.detail
    for version, purpose in ((1, ""), (2, "other bytes")):
        fault = enrolling(federation, federation.make_study({"version": version, "purpose": purpose}))
        assert "version 2 was seen" in fault.detail
        assert fault.cause is Cause.STUDY_REFUSED
    assert enrolling(federation, second) is None
    assert enrolling(federation, federation.make_study({"name": "another"})) is None


def test_a_study_is_read_before_it_is_approved(federation: Federation) -> None:
    member = federation.member("member-0", policy=Policy(federation.admin.public))
    [view] = federation.alone(member.studies())
    content = federation.alone(member.study(view.study))
    assert (content.notes.name, content.approval.hex()) == (view.name, view.approval)
    with pytest.raises(Misuse):
        member.study("ab")


# Yes or no


def declined(federation: Federation, records: Records | None, period: str = "p1") -> str:
    cohort = federation.coordinator.open_cohort(period)
    with pytest.raises(Declined) as caught:
        federation.alone(federation.member("member-0").enrol(cohort, records))
    assert not federation.coordinator.cohorts[cohort].enrolling.cards
    return str(caught.value)


def test_a_no_says_how_many_rows_are_needed_and_stays(federation: Federation) -> None:
    features, labels = federation.data("member-0")
    few = Records(features[: LEAST - 1], labels[: LEAST - 1], list(range(LEAST - 1)))
    said = declined(federation, few)
    assert said.startswith(
        "study, period p1: the study needs 17 rows, and 16 are free (0 belong to reserved or spent records, 0"
    )
    assert declined(federation, federation.records("member-0")) == said
    assert declined(federation, None) == said
    # The answer is for one period.
    assert enrolling_in(federation, "p2", federation.records("member-0", "p2"))
    assert [run.state for run in federation.open["member-0"].ledger()] == [State.DECLINED, State.RESERVED]


def enrolling_in(federation: Federation, period: str, records: Records) -> bool:
    cohort = federation.coordinator.open_cohort(period)
    federation.run_until(federation.member("member-0").enrol(cohort, records), "PUT")
    return "member-0" in federation.coordinator.cohorts[cohort].enrolling.cards


def test_without_ids_the_data_set_is_used_once(federation: Federation) -> None:
    data = {m: Records(*federation.data(m)) for m in federation.ids}
    cohort = federation.coordinator.open_cohort()
    federation.together({m: federation.member(m).enrol(cohort, data[m]) for m in federation.ids})
    federation.run(cohort)
    assert "0 are free (20 belong to" in declined(federation, data["member-0"], "p2")


def test_features_of_another_length_raise_before_anything_is_answered(federation: Federation) -> None:
    cohort = federation.coordinator.open_cohort()
    wrong = Records(np.zeros((20, DIM + 1)), np.zeros(20, int))
    with pytest.raises(ShapeMismatch, match="the study's extractor gives 3"):
        federation.alone(federation.member("member-0").enrol(cohort, wrong))
    with pytest.raises(Misuse, match="pass your records"):
        federation.alone(federation.member("member-0").enrol(cohort))
    assert federation.open["member-0"].ledger() == ()


def test_the_records_are_looked_at_once(federation: Federation) -> None:
    """After the yes nothing about the data matters: neither a second cohort nor a round asks for it again."""
    cohort = federation.enrol()
    again = federation.coordinator.open_cohort()
    empty = Records(np.zeros((0, DIM)), np.zeros(0, int))
    federation.together({m: federation.member(m).enrol(again, empty) for m in federation.ids})
    round_id = federation.coordinator.open_round(again)
    federation.together(federation.contributions(round_id))
    assert federation.total(round_id) == federation.expected(round_id)
    assert cohort != again


def test_a_noisy_study_is_never_declined_and_its_budget_is_charged_once(tmp_path: Path) -> None:
    federation = Federation(tmp_path, question=NOISY)
    assert enrolling_in(federation, "p1", Records(np.zeros((0, DIM)), np.zeros(0, int), []))
    [run] = federation.open["member-0"].ledger()
    assert (run.state, run.rows) == (State.RESERVED, 0)
    assert run.mu == pytest.approx(1.5315, abs=1e-3)
    federation.policy = replace(federation.policy, mu_budget=2.0)
    records = federation.records("member-0")
    for study, rows in ({}, 20), ({"loss": 90}, 0):  # 1.53 · √2 is above 2
        federation.coordinator.publish(federation.make_study({"name": "other"} if study else {}, **study))
        assert enrolling_in(federation, "p2", records)
        assert federation.open["member-0"].ledger()[-1].rows == rows


def test_a_noisy_study_is_declined_where_it_claims_to_repeat_a_sum(tmp_path: Path) -> None:
    """Nothing is answered for: the records of an exact sum are in no noisy one."""
    federation = Federation(tmp_path)
    federation.run(federation.enrol())
    (context,) = federation.coordinator.sets
    records, before = federation.records("member-0"), federation.open["member-0"].ledger()
    federation.coordinator.publish(federation.make_study({"version": 2}, extractor="ab" * 32, **NOISY))
    cohort = federation.coordinator.open_cohort(repeats=context.hex())
    with pytest.raises(Declined, match="one of the two has noise"):
        federation.alone(federation.member("member-0").enrol(cohort, records))
    assert federation.open["member-0"].ledger() == before
    assert enrolling_in(federation, "p1", records)
    assert federation.open["member-0"].ledger()[-1].rows == 0


def test_a_noisy_study_takes_no_data_without_ids(tmp_path: Path) -> None:
    federation = Federation(tmp_path, question=NOISY)
    cohort = federation.coordinator.open_cohort()
    with pytest.raises(Misuse, match="needs ids"):
        federation.alone(federation.member("member-0").enrol(cohort, Records(*federation.data("member-0"))))
    assert federation.open["member-0"].ledger() == ()
