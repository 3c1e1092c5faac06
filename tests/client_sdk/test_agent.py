"""Agents: members that take part by themselves."""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from client_sdk.agent import Agent
from client_sdk.api import CoordinatorApi
from client_sdk.effects import Flow
from client_sdk.errors import Declined, PeerFault, Unreachable
from client_sdk.policy import Policy
from client_sdk.progress import Step
from client_sdk.records import Records
from client_sdk.result import Result
from client_sdk.session import Session, ready_of
from service.coordination import solving
from service.coordination.documents import Publication
from tests.support.answers import changed, rewritten
from tests.support.consortium import NOISY, WITHHOLDING, Consortium
from tests.support.refusals import refused
from tests.support.serving import Stage
from veilsum.calibration.errors import ShapeMismatch
from veilsum.cli.commands.member import load_unexported
from veilsum.protocol.causes import Cause
from veilsum.protocol.rest import RoundView
from veilsum.protocol.study import DAY_S
from veilsum.study.progress import RunEnd
from veilsum.system.intervals import RUNS_POLL_S


def opening(consortium: Consortium, *periods: str) -> Callable[[], bool]:
    """When all members wait, open a cohort for each period, and its rounds; when nothing is left to open, let time pass."""
    left, opened = list(periods), list[str]()

    def stuck() -> bool:
        for cohort in opened:
            if consortium.leading_on(cohort)():
                return True
        if not left:
            return False
        opened.append(consortium.open_cohort(left.pop(0)))
        return True

    return stuck


def next_of(consortium: Consortium, agents: dict[str, Agent], *periods: str) -> dict[str, Any]:
    return consortium.together(
        {m: consortium.open[m].next_result(agent) for m, agent in agents.items()},
        stuck=opening(consortium, *periods),
    )


@pytest.mark.parametrize("question", [WITHHOLDING, NOISY], ids=["withholding", "noisy"])
def test_agents_see_a_run_to_its_result(stage: Stage, tmp_path: Path, question: dict[str, Any]) -> None:
    consortium = Consortium(stage, tmp_path, question=question)
    agents = consortium.agents()
    results = next_of(consortium, agents, "p1")
    assert {type(each) for each in results.values()} == {Result}, results
    assert {each.record.step for each in results.values()} == {"sum"}
    assert all(each.counted for each in results.values())
    assert next_of(consortium, agents) == dict.fromkeys(consortium.ids)


def test_only_a_chains_last_result_is_loaded_to_be_saved(stage: Stage, tmp_path: Path) -> None:
    consortium = Consortium(stage, tmp_path, question=NOISY)
    last = next_of(consortium, consortium.agents(), "p1")["member-0"].record.round
    store = consortium.open["member-0"].session.store
    [earlier] = (path for path in store.unexported_folders() if path.name != last)
    (earlier / "record.json").write_text("not read")
    assert [result.record.round for result in load_unexported(store)] == [last]


def agents_of_three_periods(consortium: Consortium) -> dict[str, Agent]:
    """Return agents that have the records of three periods."""
    made = {}
    for member in consortium.ids:
        features, labels = zip(
            *(consortium.data(member, period) for period in ("p1", "p2", "p3")), strict=True
        )
        records = Records(np.vstack(features), np.concatenate(labels), list(range(sum(map(len, labels)))))
        made[member] = consortium.member(member).make_agent(records)
    return made


def test_agents_go_on_from_run_to_run(consortium: Consortium) -> None:
    agents = agents_of_three_periods(consortium)
    for period, rows in (("p1", 40), ("p2", 20), ("p3", 0)):
        results = next_of(consortium, agents, period)
        if rows:
            assert {each.record.period for each in results.values()} == {period}
            assert consortium.open["member-0"].ledger()[-1].rows == rows
    # No member has records left: all decline, and wait.
    assert results == {}
    said = [event.detail for member, event in consortium.events if member == "member-0"]
    assert any(re.search(r"study, period p3: .*\b17\b.*\b0\b.*\b60\b", each) for each in said)


def test_an_agent_takes_no_part_in_what_is_not_approved(consortium: Consortium) -> None:
    consortium.policy = Policy(consortium.admin.public)
    agents = consortium.agents(once=False)
    assert next_of(consortium, agents, "p1") == {}
    [cohort] = consortium.cohorts
    assert not consortium.operator.cohort(cohort).cards
    approval = consortium.content().approval.hex()
    said = {event.detail for _, event in consortium.events}
    assert any(approval in each for each in said)
    consortium.policy = Policy(consortium.admin.public, approved={approval})
    results = consortium.together(consortium.agent_flows(), stuck=consortium.leading_on(cohort))
    assert {type(each) for each in results.values()} == {Result}, results


def test_a_coordinator_that_shows_no_runs_does_not_end_an_agent(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come back: a proxy may have answered, or it was restored without this federation."""
    agents, runs, left = consortium.agents(once=False), CoordinatorApi.fetch_runs, [1, 1]

    def failing_once(self: CoordinatorApi, *asked: Any) -> Any:
        if left and left.pop():
            raise PeerFault(Cause.MALFORMED, "a proxy's page")
        return (yield from runs(self, *asked))

    monkeypatch.setattr(CoordinatorApi, "fetch_runs", failing_once)
    results = next_of(consortium, agents, "p1")
    assert {type(each) for each in results.values()} == {Result}, results
    assert any("malformed: a proxy's page" in event.detail for _, event in consortium.events)
    left.append(1)
    with refused("malformed"):
        consortium.alone(consortium.agent_flows()["member-0"])


def test_a_manifest_that_comes_damaged_is_asked_for_again(consortium: Consortium) -> None:
    agents, damaged = consortium.agents(once=False), [1]

    def half(answer: httpx.Response) -> httpx.Response:
        consortium.holds = not damaged  # its long poll for news ends without any
        return httpx.Response(200, content=answer.content[:-1]) if damaged and damaged.pop() else answer

    consortium.shows("GET .*/manifest/.*", half, ["member-0"])
    results = next_of(consortium, agents, "p1")
    assert {type(each) for each in results.values()} == {Result}, results
    assert any("truncated" in event.detail for _, event in consortium.events)


def test_a_cohort_that_failed_is_told_and_the_next_one_joined(stage: Stage, tmp_path: Path) -> None:
    consortium = Consortium(stage, tmp_path, members=4)
    agents, begun = consortium.agents(), list[str]()

    def stuck() -> bool:
        if not begun:
            begun.append(consortium.open_cohort())
        elif consortium.operator.cohort(begun[0]).state == "enrolling":
            consortium.operator.close_cohort(begun[0])
        else:
            return False
        return True

    flows = {m: consortium.open[m].next_result(agents[m]) for m in consortium.ids[:2]}
    assert consortium.together(flows, stuck=stuck) == {}
    said = [event.detail for member, event in consortium.events if member == "member-0"]
    assert len([each for each in said if "cohort-too-small" in each]) == 1
    results = next_of(consortium, agents, "p1")
    assert {type(each) for each in results.values()} == {Result}, results


def test_once_raises_the_no(consortium: Consortium) -> None:
    few = consortium.member("member-0").make_agent(Records(np.zeros((0, 3)), np.zeros(0, int)), once=True)
    consortium.open_cohort()
    with pytest.raises(Declined, match=r"\b0\b"):
        consortium.alone(consortium.open["member-0"].next_result(few))


def test_a_run_that_was_declined_is_not_said_to_be_missing(consortium: Consortium) -> None:
    few = consortium.member("member-0").make_agent(Records(np.zeros((0, 3)), np.zeros(0, int)), once=False)
    cohort, flow = consortium.open_cohort(), consortium.open["member-0"].next_result(few)

    def waiting() -> list[str]:
        return [event.detail for _, event in consortium.events if event.detail.startswith("waiting")]

    def stuck() -> bool:
        closes = len(waiting()) == 1
        if closes:
            consortium.operator.close_cohort(cohort)
        return closes

    assert consortium.together({"member-0": flow}, stuck=stuck) == {}
    declined, idle = waiting()
    assert f"{consortium.operator.cohort(cohort).name}, period p1" in declined
    assert "p1" not in idle


def test_records_that_do_not_fit_one_study_do_not_end_an_agent(consortium: Consortium) -> None:
    study, other = consortium.study, consortium.make_study({"name": "other"}, dim=4)
    agents = consortium.agents(once=False)
    consortium.publish(other)
    consortium.open_cohort()
    consortium.publish(study)
    results = next_of(consortium, agents, "p1")
    assert {type(each) for each in results.values()} == {Result}, results
    assert any(re.search(r"\b3\b.*\b4\b", event.detail) for _, event in consortium.events)
    consortium.publish(other)
    consortium.open_cohort("p2")
    with pytest.raises(ShapeMismatch):
        consortium.alone(consortium.agent_flows()["member-0"])


def test_a_voided_attempt_is_followed_by_the_next(consortium: Consortium) -> None:
    begun, cancelled = opening(consortium, "p1"), list[str]()

    def stuck() -> bool:
        moved = begun()
        if consortium.rounds and not cancelled:
            cancelled.extend(consortium.rounds)
            consortium.operator.cancel(cancelled[0], "a test")
        return moved

    flows = consortium.agent_flows()
    results = consortium.together(flows, stuck=stuck)
    assert {type(each) for each in results.values()} == {Result}, results
    assert len(consortium.rounds) == 2
    assert any(RunEnd.VOIDED.member in event.detail for _, event in consortium.events)


def failing(patch: pytest.MonkeyPatch) -> None:
    """Have the first certified sum fail its checks."""
    solve, failed = solving.solve_sum, list[str]()

    def broken(*given: Any, **named: Any) -> Publication:
        if not failed:
            failed.append("once")
            raise PeerFault(Cause.SUM_CHECK_FAILED, "a trace")
        made: Publication = solve(*given, **named)
        return made

    patch.setattr(solving, "solve_sum", broken)


def test_an_agent_that_missed_how_a_sum_failed_takes_part_in_its_repeat(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch)
    consortium.together(consortium.agent_flows(), opening(consortium, "p1"), {"member-0": "chunks/1"})
    [round_id] = consortium.rounds
    flows = consortium.agent_flows(once=False)
    flows.pop("member-0").close()
    consortium.together(flows, stuck=consortium.expiring(round_id))
    failed = consortium.operator.round(round_id)
    assert failed.state == "failed"
    again = consortium.open_cohort("p1", failed.context)
    results = consortium.together(consortium.agent_flows(), stuck=consortium.leading_on(again))
    assert {type(each) for each in results.values()} == {Result}, results


def test_a_fresh_agent_goes_on_where_the_last_one_was(consortium: Consortium) -> None:
    stuck, none = opening(consortium, "p1"), Records(np.zeros((0, 3)), np.zeros(0, int))
    agents = consortium.agents()
    for part in ("PUT /v1/cohorts", "manifest/member-0", "uploads/member-0", "answers", "result"):
        flows = {m: consortium.open[m].next_result(agent) for m, agent in agents.items()}
        assert "member-0" not in consortium.together(flows, stuck=stuck, vanish={"member-0": part}), part
        agents = consortium.agents()
        agents["member-0"] = consortium.member("member-0").make_agent(none, once=True)
    assert isinstance(consortium.alone(consortium.open["member-0"].next_result(agents["member-0"])), Result)


def test_an_agent_answers_no_other_period_than_the_one_it_chose(consortium: Consortium) -> None:
    consortium.open_cohort("p2")
    agent = consortium.agents(period="p1")["member-0"]
    [run] = consortium.operator.runs(consortium.name).runs
    shown = {**run.model_dump(mode="json"), "period": "p1"}
    consortium.shows("GET .*/runs", changed(runs=[shown]))
    with refused("wrong-cohort", "coordinator"):
        consortium.alone(consortium.open["member-0"].next_result(agent))
    assert consortium.open["member-0"].ledger() == ()


def test_a_roster_that_changes_while_a_cohort_enrols_is_waited_out(consortium: Consortium) -> None:
    consortium.open_cohort()
    consortium.operator.publish_roster(consortium.make_roster(2))

    def stuck() -> bool:
        if len(consortium.cohorts) == 1:
            consortium.open_cohort()
        elif not consortium.rounds and consortium.operator.cohort(consortium.cohorts[1]).state == "formed":
            consortium.open_round(consortium.cohorts[1])
        else:
            return False
        return True

    results = consortium.together(consortium.agent_flows(), stuck=stuck)
    assert {type(each) for each in results.values()} == {Result}, results
    said = {event.detail for member, event in consortium.events if member == "member-0"}
    [told] = [each for each in said if "wrong-cohort" in each]
    assert "number 2" in told
    assert "[coordinator]" not in told


def test_an_agent_of_one_period_sends_no_card_to_a_run_of_another(consortium: Consortium) -> None:
    agents = consortium.agents(period="p1")
    assert next_of(consortium, agents, "p2") == {}
    [other] = consortium.cohorts
    assert consortium.operator.cohort(other).cards == ()
    results = next_of(consortium, agents, "p1")
    assert {type(each) for each in results.values()} == {Result}, results


def test_a_run_that_is_shown_no_more_while_the_agent_pairs_elsewhere_does_not_end_it(
    consortium: Consortium,
) -> None:
    periods = {consortium.open_cohort(period): period for period in ("p1", "p2")}
    first, other = sorted(periods)
    for flow in consortium.enrolments(first, consortium.ids[1:], periods[first]).values():
        consortium.run_until(flow, "PUT")
    agent = agents_of_three_periods(consortium)["member-0"]
    steps = consortium.until(consortium.open["member-0"].next_result(agent), f"{first}/pairings/member-0")
    assert consortium.operator.cohort(other).cards == ("member-0",)

    def without_other(shown: Any) -> Any:
        return {**shown, "runs": [run for run in shown["runs"] if run["cohort"] == first]}

    consortium.shows("GET .*/runs", rewritten(without_other))
    consortium.holds = False
    consortium.clock.ahead_s += RUNS_POLL_S
    before = len(consortium.requests("/runs"))
    while len(consortium.requests("/runs")) < before + 3:
        next(steps)
    steps.close()


def test_agents_enrol_and_pair_in_other_runs_while_a_round_lets_them_wait(five: Consortium) -> None:
    other_study = five.make_study({"name": "other"}, loss=90)
    agents = agents_of_three_periods(five)
    first = five.open_cohort("p1")
    flows = {m: five.steps(five.open[m].next_result(a)) for m, a in agents.items()}
    silent = flows.pop("member-4")
    while five.operator.cohort(first).state != "formed":
        for steps in (*flows.values(), silent):
            next(steps)
    five.open_round(first)
    five.publish(other_study)
    other = five.open_cohort("p2")
    five.holds = False

    def go_on() -> None:
        """Let the members wait until they have looked at the runs again."""
        end_s = five.clock.ahead_s + RUNS_POLL_S + 5.0
        while five.clock.ahead_s < end_s:
            for steps in flows.values():
                next(steps)

    go_on()
    sent = [each.path.rpartition(other)[2] for each in five.requests(other)]
    assert sent == [f"/{part}" for member in flows for part in ("invitation", f"cards/{member}")]
    five.operator.close_cohort(other)
    go_on()
    assert five.operator.cohort(other).paired == tuple(flows)


def test_agents_help_to_end_an_overdue_round(consortium: Consortium) -> None:
    stuck = opening(consortium, "p1")
    consortium.together(consortium.agent_flows(), stuck, dict.fromkeys(consortium.ids, "chunks/1"))
    [round_id] = consortium.rounds
    consortium.stage.pass_time(consortium.operator.round(round_id).spec.latest_end_s)
    assert consortium.operator.round(round_id).state == "erasing"
    [cohort] = consortium.cohorts
    results = consortium.together(consortium.agent_flows(once=False), stuck=consortium.leading_on(cohort))
    assert consortium.operator.round(round_id).state == "erased"
    assert {type(each) for each in results.values()} == {Result}, results


def test_agents_that_were_away_help_to_end_a_round_after_its_study_has_expired(
    consortium: Consortium,
) -> None:
    round_id = consortium.open_round(consortium.enrol())
    consortium.run_until(consortium.member("member-0").contribute(round_id), "chunks/1")
    consortium.stage.pass_time(consortium.clock() + 100 * DAY_S)
    assert consortium.operator.round(round_id).state == "erasing"
    consortium.together(consortium.agent_flows(once=False))
    assert consortium.operator.round(round_id).state == "erased"
    # Now nothing is left to show of the study.
    assert consortium.operator.runs(consortium.name).runs == ()


def test_a_newer_period_is_joined_where_the_operator_of_a_formed_cohort_has_left(
    consortium: Consortium,
) -> None:
    consortium.enrol("p1")
    newer = consortium.open_cohort("p2")
    results = consortium.together(consortium.agent_flows("p2"), stuck=consortium.leading_on(newer))
    assert {type(each) for each in results.values()} == {Result}, results
    assert {each.record.period for each in results.values()} == {"p2"}
    assert {run.period: run.given_up for run in consortium.open["member-0"].ledger()} == {
        "p1": True,
        "p2": False,
    }


def test_a_newer_period_is_joined_where_the_operator_has_left_after_a_void(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, later, late = consortium.open_cohort("p1"), list[str](), list[str]()
    fetch = Session.fetch_round

    def fetch_noted(session: Session, round_id: str) -> Flow[RoundView]:
        told = {member for member, event in consortium.events if RunEnd.VOIDED.member in event.detail}
        if session.member in told and round_id == consortium.rounds[0]:
            late.append(session.member)
        return fetch(session, round_id)

    monkeypatch.setattr(Session, "fetch_round", fetch_noted)

    def stuck() -> bool:
        if not consortium.rounds:
            opened = consortium.leading_on(first)()
            if opened:
                consortium.operator.cancel(consortium.rounds[0], "a test")
            return opened
        if not later:
            later.append(consortium.open_cohort("p2"))
            return True
        return consortium.leading_on(later[0])()

    flows = consortium.agent_flows()
    results = consortium.together(flows, stuck=stuck)
    assert {type(each) for each in results.values()} == {Result}, results
    assert {each.record.period for each in results.values()} == {"p2"}
    assert late == [], "once a member knows of the VOID, it asks no more about it"


def test_a_round_that_ended_without_this_member_asks_nothing_of_it(five: Consortium) -> None:
    cohort = five.enrol()
    voided = five.open_round(cohort)
    five.operator.cancel(voided, "a test")
    others = five.contributions(voided, five.ids[:4])
    five.together(others, stuck=five.expiring(voided))
    assert five.operator.round(voided).state == "voided"
    waiting, before = five.agent_flows(), len(five.events)
    five.together({"member-4": waiting["member-4"]})
    said = [event.detail for _, event in five.events[before:]]
    assert not [each for each in said if RunEnd.VOIDED.member in each]


def test_an_agent_remembers_no_run_that_it_was_only_shown(consortium: Consortium) -> None:
    cohort, shown = consortium.enrol(), list[str]()

    def others(view: Any) -> Any:
        [run] = view["runs"]
        shown.append(f"{len(shown):064x}")
        return {**view, "revision": len(shown), "runs": [run, {**run, "cohort": shown[-1]}]}

    consortium.shows(".*/runs", rewritten(others))
    consortium.holds = False
    agent = consortium.member("member-0").make_agent(consortium.records("member-0"))
    steps = consortium.steps(consortium.open["member-0"].next_result(agent))
    while len(shown) < 3:
        next(steps)
    steps.close()
    kept = {each for value in vars(agent).values() if isinstance(value, set) for each in value}
    assert cohort in kept
    assert not kept & {*shown}


@pytest.mark.parametrize("formed", [False, True])
def test_an_agent_without_work_says_once_what_it_waits_for(consortium: Consortium, *, formed: bool) -> None:
    """A run that takes cards, or the operator of a formed cohort."""
    if formed:
        consortium.enrol()
        consortium.events.clear()
    assert consortium.together({"member-0": consortium.agent_flows()["member-0"]}) == {}
    [(_, event)] = consortium.events
    assert (event.step, "operator" in event.detail) == (Step.WAITING, formed)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("how", ["no runs and no requests", "no round", "no answers"])
def test_a_coordinator_that_never_asks_does_not_keep_secrets_alive(
    consortium: Consortium, how: str, *, once: bool
) -> None:
    """They are erased at the latest end by the member's own clock, whatever the coordinator shows."""
    cohort = consortium.enrol()
    round_id = consortium.open_round(cohort)
    consortium.run_until(consortium.member("member-0").contribute(round_id), "chunks/1")
    ready = ready_of(consortium.phase(cohort))
    keys = [bytes(pair.key) for pair in (*ready.masks, *ready.boxes)]
    consortium.holds = False
    if how == "no answers":
        consortium.on_request = refuse_connection
    elif how == "no round":
        consortium.shows("GET .*/runs", rewritten(without_rounds))
    else:
        consortium.shows("GET .*/runs", changed(runs=[]))
        consortium.shows("GET .*/requests/.*", lambda answer: httpx.Response(204, headers=answer.headers))
    agent = consortium.agents(once=once)["member-0"]
    steps = consortium.steps(consortium.open["member-0"].next_result(agent))
    with suppress(PeerFault, Unreachable, StopIteration):
        for _ in range(20):
            next(steps)
        consortium.clock.ahead_s += 2 * DAY_S
        for _ in range(20):
            next(steps)
    steps.close()
    folder = consortium.folder / "member-0/state"
    stored = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert not any(key in stored for key in keys)


def refuse_connection(*_: Any) -> None:
    raise httpx.ConnectError("refused")


def without_rounds(runs: Any) -> Any:
    return {**runs, "runs": [{**run, "round": None} for run in runs["runs"]]}
