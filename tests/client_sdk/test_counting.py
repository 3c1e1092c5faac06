"""One call takes part in the count, and in the sum that withholds rare classes."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save

from client_sdk import Result
from client_sdk.errors import Misuse, NoResult
from client_sdk.evidence import Evidence
from client_sdk.member import judge_result
from client_sdk.progress import Step
from client_sdk.records import Records
from client_sdk.store import Store
from tests.support.answers import changed
from tests.support.consortium import DIM, LEAST, WITHHOLDING, Consortium, unchanged
from tests.support.refusals import refused
from tests.support.serving import Stage
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.calibration.errors import ShapeMismatch
from veilsum.calibration.head_file import Calibrated
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Closed
from veilsum.protocol.record import sign_record
from veilsum.protocol.rest import HEAD_METADATA

HOLD = ((0, 1, 2), (0, 2), (0, 1, 2))
"""The classes that each of three members holds: a class needs three holders, so the second is withheld."""


class Counting(Consortium):
    """Members with different classes."""

    def __init__(self, stage: Stage, folder: Path, **changes: Any) -> None:
        records = {"least": LEAST, "most": 80, "least_per_class": LEAST, "rows_per_id": 1}
        values = {**WITHHOLDING, "classes": list("abc"), "records": records}
        super().__init__(stage, folder, question={**values, **changes})

    def data(self, member: str, period: str = "p1") -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        place = self.ids.index(member)
        rng = np.random.default_rng([place, *period.encode()])
        labels = np.resize(np.array(HOLD[place % len(HOLD)]), 3 * LEAST)
        return rng.standard_normal((3 * LEAST, DIM)) + labels[:, None], labels

    def both(self) -> tuple[str, dict[str, Any]]:
        """Return each member's single call, and the count that it was given."""
        cohort = self.enrol()
        count = self.open_round(cohort)
        return count, self.together(self.contributions(count), stuck=self.leading_on(cohort))


@pytest.fixture
def counting(stage: Stage, tmp_path: Path) -> Counting:
    return Counting(stage, tmp_path)


@pytest.fixture(scope="module")
def both(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> tuple[Counting, str, dict[str, Any]]:
    """Members that have counted and summed, the count, and their results."""
    counting = Counting(stage, tmp_path_factory.mktemp("both"))
    return counting, *counting.both()


def counted(counting: Counting, member: str = "member-0") -> tuple[tuple[int, ...], ...]:
    """Return the sums of a member's recounts."""
    return tuple(each.sums for each in Store(counting.folder / member).ledger.load_history().counted)


def test_counts_that_leave_too_few_rows_end_the_run_once(stage: Stage, tmp_path: Path) -> None:
    counting = Counting(stage, tmp_path, classes=list("ab"))  # one of which too few members hold
    cohort = counting.enrol()
    count = counting.open_round(cohort)

    def join(*, once: bool = True) -> dict[str, Any]:
        return counting.together(counting.agent_flows("p2", once=once))

    ends = join()
    assert {type(end) for end in ends.values()} == {NoResult}, ends
    assert {(end.state, end.cause) for end in ends.values()} == {("counted", Cause.COUNT_MISMATCH)}
    by_hand = counting.together(counting.contributions(count))
    assert {end.state for end in by_hand.values()} == {"counted"}
    # The end was raised. Later agents wait for another run, also of another study.
    assert join() == join(once=False) == {}
    counting.publish(counting.make_study({"name": "other"}, withhold=None, loss=90))
    other = counting.open_cohort("p2")
    results = counting.together(counting.agent_flows("p2"), stuck=counting.leading_on(other))
    assert {type(result) for result in results.values()} == {Result}, results


def test_one_call_counts_and_then_sums_without_the_rare_class(
    both: tuple[Counting, str, dict[str, Any]],
) -> None:
    counting, count, results = both
    assert {type(result) for result in results.values()} == {Result}, results
    pooled = FFCStatistics(DIM, 3, normalise=True)
    for member in counting.ids:
        features, labels = counting.data(member)
        pooled.update(features[labels != 1], labels[labels != 1])
    for member, result in results.items():
        assert result.counted
        assert result.record.withheld == (1,)
        assert (result.record.holders, result.record.reached) == counted(counting, member)
        assert result.record.holders == (3, 2, 3)
        assert result.record.rows == pooled.records
        ridge = result.record.solution.ridge
        assert np.allclose(result.weights, solve_ffc(pooled, ridge=ridge).weights, atol=1e-6)
        assert not result.weights[:, 1].any()
        again = Result.load(counting.folder / member / "state/results" / result.record.round)
        again.verify(counting.admin.public)
    assert {event.step for _, event in counting.events} >= {Step.COUNTING}
    # over already, the same call gives the same result
    main = results["member-0"].record.round
    for round_id in (count, main):
        result = counting.finish(round_id)
        assert result.record.round == main


def test_a_head_never_answers_what_was_withheld(both: tuple[Counting, str, dict[str, Any]]) -> None:
    _, _, results = both
    result = results["member-0"]
    features = -np.abs(np.random.default_rng(0).standard_normal((50, DIM)))
    scores = result.scores(features)
    assert result.unanswered == (1,)
    assert scores.shape == (50, 3)
    assert np.isneginf(scores[:, 1]).all()
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(scores[:, ::2], unit @ result.weights[:, ::2])
    assert set(result.predict(features)) <= {0, 2}
    with pytest.raises(ShapeMismatch):
        result.predict(features[:, :-1])


def test_a_head_is_not_judged_by_the_classes_that_it_never_answers(
    both: tuple[Counting, str, dict[str, Any]],
) -> None:
    """A member of a withheld class would be told that the consortium's head is worse than its own."""
    counting, _, results = both
    result, session = results["member-0"], counting.member("member-0").session
    features = np.random.default_rng(0).standard_normal((60, DIM))
    labels = result.predict(features)
    labels[:40] = 1
    records = counting.records("member-0")
    judged = judge_result(session, result, records, Records(features, labels)).judged
    assert judged is not None
    assert (judged.records, judged.unanswered, judged.accuracy, judged.worse) == (20, 40, 1.0, False)
    own = replace(result.calibrated.head, empty_classes=(), weights=np.eye(DIM, 3)[:, [0, 1, 0]] * 9)
    alike = result.judge(Records(features, labels), own).judged
    assert alike is not None
    assert alike.own_accuracy == (labels[40:] == 0).mean()  # where it would answer the class that nobody can
    rare = Records(features[:40], labels[:40])
    assert judge_result(session, result, records, rare).judged is None
    with pytest.raises(Misuse):
        result.judge(rare)


def test_the_shares_of_a_count_are_erased_once_it_is_made(counting: Counting) -> None:
    cohort = counting.enrol()
    count = counting.open_round(cohort)
    counting.together(counting.contributions(count))
    closed = counting.phase(cohort, Closed, "member-1")
    assert (closed.vouched_shares, closed.reveals) == ((), ())
    assert counted(counting, "member-1")[0] == (3, 2, 3)


def test_who_counted_late_counts_when_the_sum_asks_for_it(counting: Counting) -> None:
    cohort = counting.enrol()
    count = counting.open_round(cohort)
    counting.together(counting.contributions(count), vanish={"member-2": "result/evictions"})
    assert Store(counting.folder / "member-2").ledger.load_history().counted == ()
    rows = counting.open_round(cohort)
    results = counting.together(counting.contributions(rows), stuck=counting.leading_on(cohort))
    assert {type(result) for result in results.values()} == {Result}, results
    assert counted(counting, "member-2")[0] == (3, 2, 3)


# What is refused


def test_who_went_on_without_counting_takes_no_part_in_the_sum(counting: Counting) -> None:
    cohort = counting.enrol()
    count = counting.open_round(cohort)
    counting.together(counting.contributions(count), vanish={"member-2": "result/evictions"})
    main = counting.open_round(cohort)
    counting.clock.ahead_s += 2 * 86_400
    counting.expire(main)
    for round_id, cause in ((main, Cause.TERMS_EXPIRED), (count, Cause.COUNT_MISMATCH)):
        with refused(cause, ...):
            counting.finish(round_id, "member-2")


def test_a_cohort_that_does_not_show_its_round_once_is_refused(counting: Counting) -> None:
    cohort = counting.enrol()
    count = counting.open_round(cohort)
    for times in (0, 2):
        counting.on_answer = unchanged
        counting.shows("GET /v1/cohorts/[^/]*", changed(rounds=[count] * times))
        results = counting.together(counting.contributions(count))
        assert {fault.cause for fault in results.values()} == {Cause.MALFORMED}


def test_counts_other_than_the_members_own_are_refused(counting: Counting) -> None:
    """Counts that withhold otherwise, or too few rows: assurance/attacks."""
    cohort = counting.enrol()
    count = counting.open_round(cohort)
    for lie in ({"holders": (3, 1, 3)}, {"holders": (3, 2, 3, 1)}, {"reached": (3,) * 8}):
        counting.on_answer = unchanged
        counting.misstate(**lie)
        results = counting.together(counting.contributions(count), stuck=counting.leading_on(cohort))
        assert {fault.cause for fault in results.values()} == {Cause.RESULT_MISMATCH}, lie
    counting.on_answer = unchanged
    results = counting.together(counting.contributions(count))
    assert {type(result) for result in results.values()} == {Result}, results


def test_a_record_leaves_out_classes_that_there_are(both: tuple[Counting, str, dict[str, Any]]) -> None:
    counting, count, results = both
    result = results["member-0"]

    def verified(file: bytes | None = None, **changes: Any) -> None:
        if file is not None:
            changes["head"] = sha256(file).hexdigest()
        record = sign_record(result.record.model_copy(update=changes), counting.coordinator_key)
        replace(result, record=record, head_file=file or result.head_file).verify(counting.admin.public)

    verified()
    evidence = Evidence.load(Store(counting.folder / "member-0").result_folder(count))
    with refused("result-mismatch", "coordinator"):
        replace(result, evidence=evidence).verify(counting.admin.public)
    for empty in (3, -1):
        solution = result.record.solution.model_copy(update={"empty_classes": (empty,)})
        with refused("result-mismatch", "coordinator"):
            verified(solution=solution)
    scored = Calibrated(replace(result.calibrated.head, weights=np.ones((DIM, 3))), (1,))
    file = save(scored.arrays, {HEAD_METADATA: json.dumps(scored.notes)})
    with refused("result-mismatch", "coordinator"):
        verified(file)
    plain = save({"weights": result.weights})
    with refused("result-mismatch", "coordinator"):
        verified(plain)
