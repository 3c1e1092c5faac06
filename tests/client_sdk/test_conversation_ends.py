"""Attempts that end without a result, and members that learn of an end late."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk import upload
from client_sdk.errors import Declined, NoResult, PeerFault
from client_sdk.reservations import State
from client_sdk.result import Result
from client_sdk.session import Session, ready_of
from service.coordination import solving
from tests.support import refusals
from tests.support.consortium import NOISY, Consortium, Steps, hostile, nothing
from tests.support.refusals import ended
from tests.support.serving import Stage
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Closed, Ready
from veilsum.protocol.study import DAY_S


def test_an_earlier_round_must_end_before_the_next(consortium: Consortium) -> None:
    cohort = consortium.enrol()
    first = consortium.open_round(cohort)
    consortium.run_until(consortium.member("member-0").contribute(first), "chunks/0")
    collecting = consortium.operator.round(first)
    consortium.operator.cancel(first, "a test")
    consortium.together(consortium.contributions(first, consortium.ids[1:]))
    second = consortium.open_round(cohort)
    consortium.shows(
        f"GET /v1/rounds/{first}", lambda _: httpx.Response(200, content=collecting.model_dump_json())
    )
    with refusals.refused("wrong-sequence"):
        consortium.finish(second)


@pytest.mark.parametrize("question", [{}, NOISY], ids=["exact", "noisy"])
def test_a_voided_attempt_can_be_tried_again(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: dict[str, Any]
) -> None:
    """An exact vector stays the same; a noisy one gets fresh noise."""
    consortium, vectors, true = (
        Consortium(stage, tmp_path, question=question),
        defaultdict[str, list[Any]](list),
        upload.own_vector,
    )

    def noting(session: Session, *arguments: Any) -> Any:
        made = true(session, *arguments)
        vectors[session.member].append(made.tolist())
        return made

    monkeypatch.setattr(upload, "own_vector", noting)
    cohort = consortium.enrol()
    first = consortium.open_round(cohort)
    for flow in consortium.contributions(first).values():
        consortium.run_until(flow, "PUT")
    consortium.operator.cancel(first, "a test")
    results = consortium.together(consortium.contributions(first))
    for result in results.values():
        assert isinstance(result, NoResult)
        assert (result.state, result.cause) == ("voided", Cause.CANCELLED)
    with pytest.raises(NoResult):
        consortium.finish(first, "member-1")
    second = consortium.open_round(cohort)
    results = consortium.together(consortium.contributions(second))
    assert all(isinstance(result, Result) for result in results.values()), results
    assert len(vectors) == len(consortium.ids)
    assert {voided == counted for voided, counted in vectors.values()} == {not question}
    consortium.close()


@pytest.mark.parametrize(
    ("question", "state"), [({}, "failed"), (NOISY, "failed-noisy")], ids=["exact", "noisy"]
)
def test_a_step_whose_checks_fail_ends_by_whether_it_can_be_repeated(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: dict[str, Any], state: str
) -> None:
    def fail(*_given: Any, **_named: Any) -> Any:
        raise PeerFault(Cause.SUM_CHECK_FAILED)

    monkeypatch.setattr(solving, "solve_sum", fail)
    consortium = Consortium(stage, tmp_path, question=question)
    results = consortium.run(consortium.enrol())
    assert {(each.state, each.cause) for each in results.values()} == {(state, Cause.SUM_CHECK_FAILED)}


def overdue(consortium: Consortium, cohort: str) -> str:
    """A round whose members have uploaded and whose latest end has passed."""
    round_id = consortium.open_round(cohort)
    for flow in consortium.contributions(round_id).values():
        consortium.run_until(flow, "PUT")
    consortium.operator.cancel(round_id, "a test")
    consortium.clock.ahead_s += 2 * DAY_S
    consortium.expire(round_id)
    assert consortium.operator.round(round_id).state == "erasing"
    return round_id


def test_a_run_is_given_up_without_the_coordinator_too(consortium: Consortium) -> None:
    overdue(consortium, consortium.enrol())

    def refused(*_: Any) -> None:
        raise httpx.ConnectError("refused")

    consortium.on_request = refused
    consortium.alone(consortium.member("member-0").give_up("study", "p1"))
    [run] = consortium.open["member-0"].ledger()
    assert (run.given_up, run.records) == (True, 20)  # held until it is known how the attempt ended
    consortium.on_request = nothing
    again = consortium.open_cohort()
    with pytest.raises(Declined, match="gave"):
        consortium.alone(consortium.member("member-0").enrol(again))


def test_an_overdue_round_ends_by_reports_and_frees_what_was_given_up(consortium: Consortium) -> None:
    cohort = consortium.enrol()
    round_id = overdue(consortium, cohort)
    with ended("erasing"):
        consortium.finish(round_id)
    consortium.alone(consortium.member("member-0").give_up("study", "p1"))
    ledger = consortium.open["member-0"].session.store.ledger
    assert ledger.list_runs()[0].records == 20
    for member in ("member-1", "member-2"):
        with pytest.raises(NoResult):
            consortium.finish(round_id, member)
    assert consortium.operator.round(round_id).state == "erased"
    with ended("erased"):
        consortium.finish(round_id)
    # The abandoned records are free once the end is known, and the others continue with the same records.
    [run] = ledger.list_runs()
    assert (run.state, run.given_up) == (State.FREE, True)
    following = consortium.open_round(cohort)
    results = consortium.together(consortium.contributions(following), stuck=consortium.expiring(following))
    assert results["member-0"].cause is Cause.POLICY_REFUSED
    assert "gave up" in str(results["member-0"])


def test_a_lost_round_is_closed_by_the_admin_and_its_records_are_spent(consortium: Consortium) -> None:
    cohort = consortium.enrol()
    lost = overdue(consortium, cohort)
    with pytest.raises(NoResult):
        consortium.finish(lost, "member-1")
    consortium.lose(lost)
    results = consortium.together(consortium.contributions(lost))
    assert {result.state for result in results.values()} == {"lost"}
    assert {consortium.open[m].ledger()[0].state for m in consortium.ids} == {State.SPENT}
    results = consortium.run(consortium.enrol("p2"))
    assert all(isinstance(result, Result) for result in results.values()), results
    with hostile(consortium, over=()):
        following = consortium.open_round(cohort)
    results = consortium.together(consortium.contributions(following))
    assert {result.cause for result in results.values()} == {Cause.ALREADY_SUMMED}


@pytest.mark.parametrize("comes", ["while it uploads", "after the uploads", "after the end"])
def test_a_member_that_comes_too_late_is_not_counted_and_helps_to_the_end(
    five: Consortium, comes: str
) -> None:
    round_id, started = five.open_round(five.enrol()), dict[str, Steps]()
    if comes == "while it uploads":
        flow = five.member("member-4").contribute(round_id)
        started["member-4"] = five.until(flow, "chunks/0", "before")
    for flow in five.contributions(round_id, five.ids[:4]).values():
        five.run_until(flow, "chunks/1")
    five.expire(round_id)
    flows = five.contributions(round_id, five.ids if comes == "after the uploads" else five.ids[:4])
    results = five.together(flows, stuck=five.expiring(round_id), started=started)
    assert {m: each.counted for m, each in results.items()} == {m: m != "member-4" for m in results}
    if comes == "after the end":
        with ended("missed"):
            five.finish(round_id, "member-4")
        results = five.run(five.enrol("p2"))
        assert all(isinstance(result, Result) for result in results.values()), results
    else:
        said = {"while it uploads": "complete", "after the uploads": "no upload"}[comes]
        assert said in results["member-4"].standing


def test_keys_are_erased_when_the_latest_end_passes(consortium: Consortium) -> None:
    cohort = consortium.enrol()
    round_id = consortium.open_round(cohort)
    consortium.run_until(consortium.member("member-0").contribute(round_id), "chunks/1")

    def ready() -> Ready:
        return ready_of(consortium.phase(cohort))

    keys = [bytes(pair.key) for pair in ready().masks]
    consortium.clock.ahead_s += 2 * DAY_S
    with ended("lapsed", "terms-expired"):
        consortium.finish(round_id)
    assert ready().sequence == 1
    stored = consortium.stored_bytes()
    assert not any(key in stored for key in keys)
    assert consortium.open["member-0"].session.store.load_unsent(bytes.fromhex(cohort)) is None


def test_an_opening_that_comes_at_its_latest_end_is_refused_and_leaves_no_trace(
    consortium: Consortium,
) -> None:
    cohort = consortium.enrol()
    round_id = consortium.open_round(cohort)
    before = consortium.state("member-0")
    left_s = consortium.operator.round(round_id).spec.latest_end_s - consortium.clock()
    consortium.clock.ahead_s += left_s
    with ended("lapsed", "terms-expired"):
        consortium.finish(round_id)
    assert consortium.state("member-0") == before
    consortium.clock.ahead_s -= left_s
    results = consortium.together(consortium.contributions(round_id))
    assert all(isinstance(result, Result) for result in results.values()), results


def test_shares_of_a_saved_round_are_erased_though_the_machine_stopped_in_between(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = consortium.enrol()
    round_id = consortium.open_round(cohort)
    flows = consortium.contributions(round_id)

    def stop(_closed: Closed) -> Closed:
        raise RuntimeError("the machine stops")

    def held() -> Closed:
        consortium.member("member-0")
        return consortium.phase(cohort, Closed)

    with monkeypatch.context() as patched:
        patched.setattr(Closed, "erase_shares", stop)
        consortium.together(flows)
    before = held()
    assert before.vouched_shares
    assert before.reveals
    consortium.finish(round_id)
    assert held() == before.erase_shares()
