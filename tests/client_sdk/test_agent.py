"""Members that take part by themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.agent import LOOK_S, Agent
from client_sdk.api import CoordinatorApi
from client_sdk.errors import Declined, PeerFault
from client_sdk.policy import Policy
from client_sdk.records import Records
from client_sdk.result import Result
from tests.support.federation import NOISY, WITHHOLDING, Federation
from veilsum.calibration.errors import ShapeMismatch
from veilsum.protocol.causes import Cause


def opening(federation: Federation, *periods: str) -> Callable[[], bool]:
    """Where everybody waits, the operator opens a cohort a period, and its rounds; time passes where nothing is left to open."""
    left, opened = list(periods), list[str]()

    def stuck() -> bool:
        for cohort in opened:
            entry = federation.coordinator.cohorts[cohort]
            if entry.manifest is not None and federation.leading_on(cohort)():
                return True
        if not left:
            return False
        opened.append(federation.coordinator.open_cohort(left.pop(0)))
        return True

    return stuck


def next_of(federation: Federation, agents: dict[str, Agent], *periods: str) -> dict[str, Any]:
    return federation.together(
        {m: federation.open[m].joined(agent) for m, agent in agents.items()},
        stuck=opening(federation, *periods),
    )


@pytest.mark.parametrize("question", [{}, WITHHOLDING, NOISY], ids=["exact", "withholding", "noisy"])
def test_agents_see_a_run_to_its_result(tmp_path: Path, question: dict[str, Any]) -> None:
    federation = Federation(tmp_path, question=question)
    agents = federation.agents()
    results = next_of(federation, agents, "p1")
    assert {type(each) for each in results.values()} == {Result}, results
    assert {each.record.step for each in results.values()} == {"sum"}
    assert all(each.counted for each in results.values())
    ends = federation.together({m: federation.open[m].joined(agent) for m, agent in agents.items()})
    assert ends == dict.fromkeys(federation.ids)


def test_agents_go_on_from_run_to_run(federation: Federation) -> None:
    features = {m: np.vstack([federation.data(m, p)[0] for p in ("p1", "p2", "p3")]) for m in federation.ids}
    labels = {
        m: np.concatenate([federation.data(m, p)[1] for p in ("p1", "p2", "p3")]) for m in federation.ids
    }
    agents = {
        m: federation.member(m).agent(Records(features[m], labels[m], list(range(len(labels[m])))))
        for m in federation.ids
    }
    for period, rows in (("p1", 40), ("p2", 20), ("p3", 0)):
        results = next_of(federation, agents, period)
        if rows:
            assert {each.record.period for each in results.values()} == {period}
            assert federation.open["member-0"].ledger()[-1].rows == rows
    # Nobody has records left: everybody says no, and waits.
    assert results == {}
    said = [event.detail for member, event in federation.events if member == "member-0"]
    assert any(
        "study, period p3: the study needs 17 rows, and 0 are free (60 belong to" in each for each in said
    )


def test_an_agent_takes_no_part_in_what_is_not_approved(federation: Federation) -> None:
    federation.policy = Policy(federation.admin.public)
    agents = federation.agents(once=False)
    assert next_of(federation, agents, "p1") == {}
    assert federation.coordinator.cohorts
    assert not any(each.enrolling.cards for each in federation.coordinator.cohorts.values())
    approval = federation.content().approval.hex()
    said = {event.detail for _, event in federation.events}
    assert any(f"has not approved study study: read it, then approve {approval}" in each for each in said)
    federation.policy = Policy(federation.admin.public, approved={approval})
    results = federation.together(
        {m: federation.open[m].joined(a) for m, a in federation.agents().items()},
        stuck=federation.leading_on(next(iter(federation.coordinator.cohorts))),
    )
    assert {type(each) for each in results.values()} == {Result}, results


def test_a_coordinator_that_shows_no_runs_does_not_end_an_agent(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come back: a proxy may answer for it, or it was restored without this federation."""
    agents, runs, refusals = federation.agents(once=False), CoordinatorApi.runs, [1, 1]

    def refused(self: CoordinatorApi, *asked: Any) -> Any:
        if refusals and refusals.pop():
            raise PeerFault(Cause.MALFORMED, "a page of a proxy")
        return (yield from runs(self, *asked))

    monkeypatch.setattr(CoordinatorApi, "runs", refused)
    results = next_of(federation, agents, "p1")
    assert {type(each) for each in results.values()} == {Result}, results
    assert any("a page of a proxy). Still trying" in event.detail for _, event in federation.events)
    refusals.append(1)
    agent = federation.agents()["member-0"]
    with pytest.raises(PeerFault, match="a page of a proxy"):
        federation.alone(federation.open["member-0"].joined(agent))


def test_once_raises_the_no(federation: Federation) -> None:
    few = federation.member("member-0").agent(Records(np.zeros((0, 3)), np.zeros(0, int)), once=True)
    federation.coordinator.open_cohort()
    with pytest.raises(Declined, match="0 are free"):
        federation.alone(federation.open["member-0"].joined(few))


def test_records_that_do_not_fit_one_study_do_not_end_an_agent(federation: Federation) -> None:
    other = federation.make_study({"name": "other"}, dim=4)
    agents = federation.agents(once=False)
    federation.coordinator.publish(other)
    federation.coordinator.open_cohort()
    federation.coordinator.publish(federation.study)
    results = next_of(federation, agents, "p1")
    assert {type(each) for each in results.values()} == {Result}, results
    assert any("the study's extractor gives 4" in event.detail for _, event in federation.events)
    federation.coordinator.publish(other)
    federation.coordinator.open_cohort("p2")
    agent = federation.agents()["member-0"]
    with pytest.raises(ShapeMismatch):
        federation.alone(federation.open["member-0"].joined(agent))


def test_a_voided_attempt_is_followed_by_the_next(federation: Federation) -> None:
    begun, cancelled = opening(federation, "p1"), list[str]()

    def stuck() -> bool:
        moved = begun()
        if federation.coordinator.rounds and not cancelled:
            cancelled.extend(federation.coordinator.rounds)
            federation.coordinator.cancel(cancelled[0])
        return moved

    flows = {m: federation.open[m].joined(agent) for m, agent in federation.agents().items()}
    results = federation.together(flows, stuck=stuck)
    assert {type(each) for each in results.values()} == {Result}, results
    assert len(federation.coordinator.rounds) == 2
    assert any("join the next attempt" in event.detail for _, event in federation.events)


def failing(federation: Federation, patch: pytest.MonkeyPatch, step: str = "sum") -> None:
    """Have the first certified attempt at a step fail its checks."""
    solve, failed = federation.coordinator._solve, list[str]()

    def broken(entry: Any, phase: Any) -> None:
        solve(entry, phase)
        if not failed and phase.attempt.terms.step == step:
            failed.append(entry.round_id)
            entry.holders = ()
            entry.fault = PeerFault(Cause.SUM_CHECK_FAILED, "a trace")

    patch.setattr(federation.coordinator, "_solve", broken)


def repeating(federation: Federation, period: str) -> Callable[[], bool]:
    """As `opening`, and the operator repeats a step that was certified and failed, before it opens the next one."""
    opened = [federation.coordinator.open_cohort(period)]
    repeats = list[str]()

    def stuck() -> bool:
        failed = [each for each in federation.coordinator.rounds.values() if each.fault is not None]
        if failed and not repeats:
            repeats.append(failed[0].phase.attempt.context.hex())
            opened.append(federation.coordinator.open_cohort(period, repeats[0]))
            return True
        return any(federation.leading_on(cohort)() for cohort in reversed(opened))

    return stuck


@pytest.mark.parametrize("step", ["indicator", "sum"])
def test_agents_take_part_in_the_repeat_of_a_step_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    federation = Federation(tmp_path, question=WITHHOLDING)
    failing(federation, monkeypatch, step)
    flows = {m: federation.open[m].joined(agent) for m, agent in federation.agents().items()}
    results = federation.together(flows, stuck=repeating(federation, "p1"))
    assert {type(each) for each in results.values()} == {Result}, results
    rounds = [each.phase.attempt for each in federation.coordinator.rounds.values()]
    assert [each.repeats for each in rounds].count(True) == 1


def test_an_agent_that_missed_how_a_sum_failed_takes_part_in_its_repeat(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(federation, monkeypatch)
    flows = {m: federation.open[m].joined(agent) for m, agent in federation.agents().items()}
    stuck = opening(federation, "p1")
    federation.together(flows, stuck=stuck, vanish={"member-0": "chunks/1"})
    [round_] = federation.coordinator.rounds.values()
    others = {m: federation.member(m).agent(federation.records(m)) for m in federation.ids[1:]}
    flows = {m: federation.open[m].joined(agent) for m, agent in others.items()}
    federation.together(flows, stuck=federation.expiring(round_.round_id))
    assert round_.fault is not None
    again = federation.coordinator.open_cohort("p1", round_.phase.attempt.context.hex())
    flows = {m: federation.open[m].joined(agent) for m, agent in federation.agents().items()}
    results = federation.together(flows, stuck=federation.leading_on(again))
    assert {type(each) for each in results.values()} == {Result}, results


@pytest.mark.parametrize(
    "part", ["PUT /v1/cohorts", "manifest/member-0", "uploads/member-0", "answers", "result"]
)
def test_a_fresh_agent_goes_on_where_the_last_one_was(tmp_path: Path, part: str) -> None:
    federation = Federation(tmp_path)
    agents = federation.agents()
    stuck = opening(federation, "p1")
    flows = {m: federation.open[m].joined(agent) for m, agent in agents.items()}
    federation.together(flows, stuck=stuck, vanish={"member-0": part})
    fresh = federation.member("member-0").agent(Records(np.zeros((0, 3)), np.zeros(0, int)), once=True)
    others = {m: federation.member(m).agent(federation.records(m), once=True) for m in federation.ids[1:]}
    done = federation.coordinator.rounds and all(
        federation.coordinator.view(each).ended for each in federation.coordinator.rounds
    )
    running = {"member-0": fresh} if done else {"member-0": fresh, **others}
    results = federation.together({m: federation.open[m].joined(a) for m, a in running.items()}, stuck=stuck)
    assert isinstance(results["member-0"], Result), results


def test_an_agent_enrols_in_other_runs_while_a_round_lets_it_wait(federation: Federation) -> None:
    other_study = federation.make_study({"name": "other"}, loss=90)
    data = {m: [federation.data(m, p) for p in ("p1", "p2", "p3")] for m in federation.ids}
    agents = {}
    for member, parts in data.items():
        features, labels = np.vstack([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
        agents[member] = federation.member(member).agent(Records(features, labels, list(range(len(labels)))))
    federation.coordinator.open_cohort("p1")
    flows = {m: federation.steps(federation.open[m].joined(a)) for m, a in agents.items()}
    first = next(iter(federation.coordinator.cohorts))
    silent = flows.pop("member-2")
    while federation.coordinator.cohorts[first].manifest is None:
        for steps in (*flows.values(), silent):
            next(steps)
    federation.coordinator.open_round(first)
    federation.coordinator.publish(other_study)
    other = federation.coordinator.open_cohort("p2")
    for _ in range(400):
        for steps in flows.values():
            state, _ = next(steps)
        if state == "waits":
            federation.clock.now_s += LOOK_S
            federation.coordinator.rounds[federation.coordinator.cohorts[first].rounds[0]].version += 1
        if len(federation.coordinator.cohorts[other].enrolling.cards) == 2:
            break
    assert set(federation.coordinator.cohorts[other].enrolling.cards) == {"member-0", "member-1"}


def test_agents_help_to_end_an_overdue_round(federation: Federation) -> None:
    agents = federation.agents()
    stuck = opening(federation, "p1")
    flows = {m: federation.open[m].joined(agent) for m, agent in agents.items()}
    federation.together(flows, stuck=stuck, vanish=dict.fromkeys(federation.ids, "chunks/1"))
    [round_id] = federation.coordinator.rounds
    federation.clock.now_s += 2 * 86_400
    federation.coordinator.cancel(round_id)
    federation.coordinator.expire(round_id)
    assert federation.coordinator.view(round_id).state == "erasing"
    again = {m: federation.member(m).agent(federation.records(m), once=False) for m in federation.ids}
    cohort = federation.coordinator.rounds[round_id].phase.attempt.manifest.cohort.hex()
    results = federation.together(
        {m: federation.open[m].joined(a) for m, a in again.items()}, stuck=federation.leading_on(cohort)
    )
    assert federation.coordinator.view(round_id).state == "erased"
    assert {type(each) for each in results.values()} == {Result}, results
