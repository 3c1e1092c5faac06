"""Whole rounds with members that come late, vanish or deal falsely."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from client_sdk import upload
from client_sdk.progress import Step
from client_sdk.reservations import State
from client_sdk.result import Result
from service.coordination.summing import DamagedChunkError
from tests.client_sdk.conftest import dealing_falsely
from tests.support.calls import record_calls
from tests.support.consortium import CLASSES, DIM, Consortium
from tests.support.refusals import ended, refused
from tests.support.serving import Stage
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Closed
from veilsum.protocol.record import sign_record
from veilsum.protocol.rest import STATE_HEADER
from veilsum.protocol.sealing import Sealing
from veilsum.protocol.study import DAY_S


def test_a_round_gives_every_member_the_verified_weights_of_the_exact_sum(consortium: Consortium) -> None:
    cohort = consortium.enrol()
    round_id = consortium.open_round(cohort)
    results = consortium.together(consortium.contributions(round_id))
    pooled = FFCStatistics(DIM, len(CLASSES), normalise=True)
    for member in consortium.ids:
        pooled.update(*consortium.data(member))
    for member, result in results.items():
        assert isinstance(result, Result)
        assert result.counted
        assert result.survivors == consortium.ids
        ridge = result.record.solution.ridge
        assert ridge is not None
        assert np.allclose(result.weights, solve_ffc(pooled, ridge=ridge).weights, atol=1e-6)
        assert result.bias is None
        result.verify(consortium.admin.public)
        assert result.evaluate(*consortium.data(member)) > 0.4
        [run] = consortium.open[member].ledger()
        assert (run.state, run.summed) == (State.SPENT, result.evidence.attempt.context)
        closed = consortium.phase(cohort, Closed, member)
        assert (closed.vouched_shares, closed.reveals) == ((), ())
        assert consortium.open[member].session.store.unexported_folders() == ()
    assert consortium.total(round_id) == consortium.expected(round_id)


def test_an_upload_that_nothing_interrupts_is_masked_once(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = {"constant": True}
    consortium = Consortium(stage, tmp_path, question=question)
    masked = record_calls(monkeypatch, Sealing, "mask_chunk", lambda _, index, __: index)
    round_id = consortium.open_round(consortium.enrol())
    results = consortium.together(consortium.contributions(round_id))
    assert all(isinstance(result, Result) and result.counted for result in results.values())
    chunks = consortium.round(round_id).attempt.chunk_count
    assert chunks > 2  # lanes of a member here
    assert sorted(masked) == sorted([*range(chunks)] * len(results))


def test_a_step_takes_what_the_step_before_it_found(
    noisy: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = record_calls(monkeypatch, upload, "own_vector", lambda *arguments: arguments[-1])
    cohort = noisy.enrol()
    noisy.run(cohort)
    results = noisy.run(cohort)
    assert taken[: len(results)] == [{}] * len(results)
    for material, result in zip(taken[len(results) :], results.values(), strict=True):
        assert material.keys() == result.material.keys() != set()
        assert all(np.array_equal(material[name], each) for name, each in result.material.items())


def run_with_a_false_dealer(consortium: Consortium) -> tuple[str, Any]:
    """Run a round in which member-3 deals shares of another secret than its own, and return it with the results."""
    round_id = consortium.open_round(consortium.enrol())
    flows = consortium.contributions(round_id)
    with dealing_falsely():
        consortium.run_until(flows.pop("member-3"), "chunks/1")
    flows["member-3"] = consortium.member("member-3").contribute(round_id)
    return round_id, consortium.together(flows)


def test_a_false_dealer_is_evicted_and_everybody_keeps_the_proof(five: Consortium) -> None:
    round_id, results = run_with_a_false_dealer(five)
    assert {type(result) for result in results.values()} == {Result}, results
    honest = [member for member in five.ids if member != "member-3"]
    assert five.total(round_id) == five.expected(round_id, honest)
    assert [results[member].counted for member in five.ids] == [True, True, True, False, True]
    assert "proved" in results["member-3"].standing
    result = results["member-0"]
    assert (result.record.evicted, result.summed) == (("member-3",), tuple(honest))
    again = Result.load(five.folder / "member-0/state/results" / round_id)
    again.verify(five.admin.public)
    for forged in (
        replace(again, evictions=None),
        replace(
            again, record=sign_record(again.record.model_copy(update={"evicted": ()}), five.coordinator_key)
        ),
    ):
        with refused(Cause.RESULT_MISMATCH, "coordinator"):
            forged.verify()
    assert again.evictions is not None
    [proof] = again.evictions.proofs
    other = replace(again.evictions, proofs=(replace(proof, index=proof.index + 1),))
    with refused("eviction-invalid", "coordinator"):
        replace(again, evictions=other).verify()


def test_a_chunk_that_the_coordinator_lost_is_sent_again(consortium: Consortium) -> None:
    """A waiting member, whose upload was complete, sends the chunk again."""
    round_id = consortium.open_round(consortium.enrol())
    flows = consortium.contributions(round_id)
    last = flows.pop("member-2")
    started = {member: consortium.until(flow, "requests", "waits") for member, flow in flows.items()}
    live = consortium.live(round_id)
    consortium.stage.portal.call(live.replace_chunk, DamagedChunkError("member-0", 1), consortium.clock())
    results = consortium.together({"member-2": last}, started=started)
    assert {type(result) for result in results.values()} == {Result}, results
    first, again = consortium.requests("uploads/member-0/chunks/1")
    assert first.body == again.body
    assert consortium.total(round_id) == consortium.expected(round_id)


def test_the_same_call_after_the_end_verifies_what_is_stored_without_the_coordinator(
    consortium: Consortium,
) -> None:
    round_id = consortium.open_round(consortium.enrol())
    first = consortium.together(consortium.contributions(round_id))["member-0"]
    before = len(consortium.requests())
    again = consortium.finish(round_id)
    assert len(consortium.requests()) == before
    assert np.array_equal(again.weights, first.weights)


def test_a_member_that_missed_an_end_catches_up_when_the_next_round_opens(five: Consortium) -> None:
    missed = list[str]()
    for period, part in enumerate(("uploads/member-4", "chunks/0", "answers")):
        round_id = five.open_round(five.enrol(f"p{period}"))
        flows = five.contributions(round_id)
        results = five.together(flows, stuck=five.expiring(round_id), vanish={"member-4": part})
        assert {type(result) for result in results.values()} == {Result}, results
        assert "member-4" not in results
        missed.append(round_id)
    results = five.run(five.enrol("last"))
    assert all(isinstance(result, Result) for result in results.values()), results
    assert len(results) == 5
    # It can still get the results of the rounds whose ends it missed, from the stored evidence.
    assert all(isinstance(five.finish(each, "member-4"), Result) for each in missed)


def test_another_rounds_closing_ends_no_round(consortium: Consortium) -> None:
    cohort = consortium.enrol()
    voided = consortium.open_round(cohort)
    consortium.until(consortium.member("member-0").contribute(voided), "chunks/1").close()
    consortium.operator.cancel(voided, "a test")
    consortium.together(consortium.contributions(voided))
    closing = consortium.round(voided).closing
    assert closing is not None
    unopened = consortium.open_round(cohort)
    consortium.clock.ahead_s += 2 * DAY_S
    consortium.expire(unopened)
    consortium.expire(unopened)
    with ended("erasing"):
        consortium.finish(unopened)

    def shown(answer: httpx.Response) -> httpx.Response:
        return httpx.Response(
            200, headers={**answer.headers, STATE_HEADER: "done"}, content=closing.to_bytes()
        )

    consortium.shows(f"GET .*/{unopened}/requests/member-0", shown)
    with refused(Cause.WRONG_CONTEXT, "coordinator"):
        consortium.finish(unopened)


def test_every_wait_says_for_whom_how_many_and_until_when(consortium: Consortium) -> None:
    round_id = consortium.open_round(consortium.enrol())
    flows = consortium.contributions(round_id)
    first = consortium.until(flows.pop("member-0"), "chunks/1")
    while next(first)[0] != "waits":
        pass
    consortium.together(flows, started={"member-0": first})
    events = [event for member, event in consortium.events if member == "member-0"]
    waits = [event for event in events if event.step is Step.WAITING and event.phase == "collecting"]
    assert waits
    assert all(event.waiting_for and event.until_s and event.total == 3 for event in waits)
    assert events[-1].step is Step.DONE
    assert any(e.step is Step.ENROLLING and e.waiting_for for e in events)


def test_a_member_whose_upload_comes_too_late_is_told_before_it_waits(five: Consortium) -> None:
    round_id = five.open_round(five.enrol())
    flows = five.contributions(round_id)
    late = five.until(flows.pop("member-4"), "chunks/1", "before")
    five.together(flows, stuck=five.expiring(round_id))
    five.events.clear()
    [result] = five.together({}, started={"member-4": late}).values()
    assert (type(result), result.counted) == (Result, False)
    told = [event for _, event in five.events if event.step is Step.WAITING]
    assert [(event.phase, bool(event.detail)) for event in told] == [("collecting", True)]
