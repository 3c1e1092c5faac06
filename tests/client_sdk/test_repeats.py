"""Runs that sum the reserved records of an earlier attempt again (member: Selection)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import Declined, Misuse
from client_sdk.records import Records
from client_sdk.result import Result
from tests.support.consortium import DIM, WITHHOLDING, Consortium, hostile
from tests.support.serving import Stage
from veilsum.protocol.messages import Study

OTHER = {"extractor": "ab" * 32}


def summed(consortium: Consortium) -> str:
    """Return the context of a certified sum of all members."""
    cohort = consortium.enrol()
    while consortium.operator.cohort(cohort).step is not None:
        round_id = consortium.open_round(cohort)
        consortium.together(consortium.contributions(round_id), stuck=consortium.leading_on(cohort))
    return consortium.operator.round(consortium.rounds[-1]).context


def other_study(consortium: Consortium, **question: Any) -> Study:
    study = consortium.make_study({"name": "other"}, **{**OTHER, **question})
    consortium.publish(study)
    return study


@pytest.mark.parametrize(
    "question", [pytest.param({}, marks=pytest.mark.slow), WITHHOLDING], ids=["exact", "withholding"]
)
def test_another_extractor_sums_the_same_rows(stage: Stage, tmp_path: Path, question: dict[str, Any]) -> None:
    consortium = Consortium(stage, tmp_path, members=5, question=question)
    context = summed(consortium)
    other_study(
        consortium, dim=DIM + 1, records={"least": 17, "most": 40, "least_per_class": 5, "rows_per_id": 1}
    )
    again = consortium.open_cohort("p1", context)
    rng, features = np.random.default_rng(3), {}
    for member in consortium.ids:
        _, labels = consortium.data(member)
        features[member] = rng.standard_normal((len(labels) + 2, DIM + 1))
    flows = {}
    for member in consortium.ids:
        _, labels = consortium.data(member)
        ids = [*(f"p1-{row}" for row in range(len(labels))), "new", "newer"]
        given = Records(features[member], np.r_[labels, [0, 1]], ids)
        flows[member] = consortium.member(member).enrol(again, given)
    assert not any(isinstance(each, Exception) for each in consortium.together(flows).values())
    results = consortium.run(again)
    assert {type(each) for each in results.values()} == {Result}, results
    record = results["member-0"].record
    withheld = record.withheld
    expected = sum(int((~np.isin(consortium.data(m)[1], withheld)).sum()) for m in consortium.ids)
    assert record.rows == expected
    [own, derived] = consortium.open["member-0"].ledger()
    assert (derived.base, derived.records, derived.summed, own.summed) == (
        own.number,
        20,
        own.summed,
        bytes.fromhex(context),
    )
    # One question for each extractor.
    consortium.publish(consortium.make_study({"name": "other", "version": 2}, **OTHER, loss=90))
    with hostile(consortium):
        third = consortium.open_cohort("p1", context)
    with pytest.raises(Misuse, match="this extractor"):
        consortium.alone(consortium.member("member-0").enrol(third, consortium.records("member-0")))


def declined(consortium: Consortium, cohort: str, records: Records) -> None:
    with pytest.raises(Declined, match="again"):
        consortium.alone(consortium.member("member-0").enrol(cohort, records))


def test_another_extractor_needs_all_rows(stage: Stage, tmp_path: Path) -> None:
    consortium = Consortium(stage, tmp_path, members=5)
    context = summed(consortium)
    other_study(consortium)
    again = consortium.open_cohort("p1", context)
    for lacking in ("a record", "a usable row", "a label", "non-zero features"):
        features, labels = consortium.data("member-0")
        ids = [f"p1-{row}" for row in range(len(labels))]
        match lacking:
            case "a record":
                ids[3] = "another"
            case "a usable row":
                features[3] = np.nan
            case "a label":
                labels[3] = 1 - labels[3]
            case "non-zero features":
                features[:, 1:] = 0
        with consortium.copied("member-0"):
            declined(consortium, again, Records(features, labels, ids))


def test_another_extractor_needs_enough_rows_for_another_sum(consortium: Consortium) -> None:
    context = summed(consortium)
    other_study(consortium)
    declined(consortium, consortium.open_cohort("p1", context), consortium.records("member-0"))


def test_an_answer_for_an_earlier_attempt_s_records_is_none_for_fresh_ones(
    stage: Stage, tmp_path: Path
) -> None:
    consortium = Consortium(stage, tmp_path, members=5)
    context = summed(consortium)
    other_study(consortium)
    again = consortium.open_cohort("p1", context)
    # The answer holds in each that repeats it.
    for cohort in (again, consortium.open_cohort("p1", context)):
        flows = {m: consortium.member(m).enrol(cohort, consortium.records(m)) for m in consortium.ids}
        assert not any(isinstance(each, Exception) for each in consortium.together(flows).values())
    plain = consortium.open_cohort("p1")
    with pytest.raises(Declined, match="answered"):
        consortium.alone(consortium.member("member-0").enrol(plain, consortium.records("member-0")))
    assert not consortium.operator.cohort(plain).cards
