"""Runs that sum the reserved records of an earlier attempt again (docs/protocol.md §7.2)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import Declined, Misuse
from client_sdk.records import Records
from client_sdk.result import Result
from tests.support.federation import DIM, WITHHOLDING, Federation
from veilsum.protocol.messages import Study

OTHER = {"extractor": "ab" * 32}


def summed(federation: Federation) -> str:
    """Context of a certified sum of everybody's."""
    cohort = federation.enrol()
    while federation.coordinator.next_step(cohort) is not None:
        round_id = federation.coordinator.open_round(cohort)
        federation.together(federation.contributions(round_id), stuck=federation.leading_on(cohort))
    return federation.coordinator.rounds[
        federation.coordinator.cohorts[cohort].rounds[-1]
    ].phase.attempt.context.hex()


def other_study(federation: Federation, **question: Any) -> Study:
    study = federation.make_study({"name": "other"}, **{**OTHER, **question})
    federation.coordinator.publish(study)
    return study


@pytest.mark.parametrize("question", [{}, WITHHOLDING], ids=["exact", "withholding"])
def test_another_extractor_sums_the_same_rows(tmp_path: Path, question: dict[str, Any]) -> None:
    federation = Federation(tmp_path, question=question)
    context = summed(federation)
    other_study(
        federation, dim=DIM + 1, records={"least": 17, "most": 40, "least_per_class": 5, "rows_per_id": 1}
    )
    again = federation.coordinator.open_cohort("p1", context)
    rng, features = np.random.default_rng(3), {}
    for member in federation.ids:
        _, labels = federation.data(member)
        features[member] = rng.standard_normal((len(labels) + 2, DIM + 1))
    features["member-1"][4] = np.nan  # the new extractor can't use it
    flows = {}
    for member in federation.ids:
        _, labels = federation.data(member)
        ids = [*(f"p1-{row}" for row in range(len(labels))), "new", "newer"]
        given = Records(features[member], np.r_[labels, [0, 1]], ids)
        if member == "member-2":  # and this record is gone
            given = Records(given.features[1:], given.labels[1:], ids[1:])
        flows[member] = federation.member(member).enrol(again, given)
    assert not any(isinstance(each, Exception) for each in federation.together(flows).values())
    results = federation.run(again)
    assert {type(each) for each in results.values()} == {Result}, results
    record = results["member-0"].record
    withheld = record.withheld
    expected = sum(int((~np.isin(federation.data(m)[1], withheld)).sum()) for m in federation.ids)
    lost = [federation.data("member-1")[1][4], federation.data("member-2")[1][0]]
    assert record.rows == expected - sum(label not in withheld for label in lost)
    [own, derived] = federation.open["member-0"].ledger()
    assert (derived.base, derived.records, derived.summed, own.summed) == (
        own.number,
        20,
        own.summed,
        bytes.fromhex(context),
    )
    # One question for each extractor.
    federation.coordinator.publish(federation.make_study({"name": "other", "version": 2}, **OTHER, loss=90))
    third = federation.coordinator.open_cohort("p1", context)
    with pytest.raises(Misuse, match="summed under this extractor before"):
        federation.alone(federation.member("member-0").enrol(third, federation.records("member-0")))


def test_who_was_not_in_the_attempt_declines(tmp_path: Path) -> None:
    federation = Federation(tmp_path, members=5)
    cohort = federation.enrol()
    round_id = federation.coordinator.open_round(cohort)
    flows = federation.contributions(round_id, federation.ids[:4])
    federation.together(flows, stuck=federation.expiring(round_id))
    context = federation.coordinator.rounds[round_id].phase.attempt.context.hex()
    again = federation.coordinator.open_cohort("p1", context)
    with pytest.raises(Declined, match="was not in the attempt"):
        federation.alone(federation.member("member-4").enrol(again))
    other_study(federation)
    other = federation.coordinator.open_cohort("p1", context)
    with pytest.raises(Declined, match="was not in the attempt"):
        federation.alone(federation.member("member-4").enrol(other, federation.records("member-4")))


def test_an_answer_for_an_earlier_attempt_s_records_is_none_for_fresh_ones(federation: Federation) -> None:
    context = summed(federation)
    other_study(federation)
    again = federation.coordinator.open_cohort("p1", context)
    federation.together({m: federation.member(m).enrol(again, federation.records(m)) for m in federation.ids})
    plain = federation.coordinator.open_cohort("p1")
    with pytest.raises(Declined, match="answered for the records of an earlier run"):
        federation.alone(federation.member("member-0").enrol(plain, federation.records("member-0")))
    assert "member-0" not in federation.coordinator.cohorts[plain].enrolling.cards
