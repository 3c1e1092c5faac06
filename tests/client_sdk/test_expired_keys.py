"""Members whose keys for an attempt expire, at its latest end by their own clocks, before they know how it ended."""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.effects import Pause, Request
from client_sdk.environment import Environment
from client_sdk.errors import PeerFault
from client_sdk.result import Result
from tests.support.answers import message
from tests.support.consortium import NOISY, WITHHOLDING, Consortium, Stopped, nothing, unchanged
from tests.support.machine import Machine
from tests.support.refusals import ended, refused
from tests.support.serving import Sent, Stage, kind_of
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import MemberPhase, Ready
from veilsum.protocol.messages import Certificate, ErasureRequest
from veilsum.protocol.rest import STATE_HEADER, VERSION_HEADER
from veilsum.protocol.study import DAY_S


def run_without(consortium: Consortium, member: str, after: str = "chunks/1") -> str:
    """Run a round in which a member stops once it has uploaded, and is counted."""
    round_id = consortium.open_round(consortium.enrol())
    flows = consortium.contributions(round_id)
    consortium.together(flows, stuck=consortium.expiring(round_id), vanish={member: after})
    assert consortium.operator.round(round_id).state == "done"
    return round_id


def finish(consortium: Consortium, member: str, round_id: str) -> Any:
    return consortium.finish(round_id, member)


def run_another(consortium: Consortium) -> None:
    results = consortium.run(consortium.enrol("p2"))
    assert {type(result) for result in results.values()} == {Result}, results


def join(consortium: Consortium, *, once: bool) -> None:
    agent = consortium.agents(once=once)["member-4"]
    results = consortium.together({"member-4": consortium.open["member-4"].next_result(agent)})
    assert isinstance(results["member-4"], Result)


def test_a_member_that_was_counted_gets_the_result(five: Consortium) -> None:
    """By hand, as an agent, and after another round."""
    round_id = run_without(five, "member-4")
    five.clock.ahead_s += 2 * DAY_S
    ways: list[Callable[[], object]] = [
        nothing,
        partial(join, five, once=True),
        partial(join, five, once=False),
    ]
    for first in ways:
        with five.copied("member-4"):
            first()
            assert finish(five, "member-4", round_id).counted
    run_another(five)
    assert finish(five, "member-4", round_id).counted


def test_an_end_that_was_learned_before_the_keys_expired_is_not_forgotten(five: Consortium) -> None:
    round_id = run_without(five, "member-4")
    five.alone(five.member("member-4").give_up("study", "p1"))  # learns how attempts ended
    five.clock.ahead_s += 2 * DAY_S
    run_another(five)
    assert finish(five, "member-4", round_id).counted


@pytest.mark.parametrize("question", [{}, WITHHOLDING], ids=["exact", "withholding"])
def test_a_machine_may_stop_at_any_write_on_the_way(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: dict[str, Any]
) -> None:
    consortium, stops = Consortium(stage, tmp_path / "here", members=5, question=question), 0
    round_id = run_without(consortium, "member-4", "chunks/0" if question else "chunks/1")
    consortium.clock.ahead_s += 2 * DAY_S
    consortium.close()
    home = shutil.move(consortium.folder / "member-4", tmp_path / "home")
    for number in range(1, 12):  # to stop before a write leaves what the write before it has left
        shutil.copytree(home, consortium.folder / "member-4")
        machine = Machine(consortium.folder / "member-4", number, early=False)
        with machine.on(monkeypatch):
            result = restarted(consortium, round_id)
        stops += machine.stops
        counts = consortium.open["member-4"].session.store.ledger.load_history().counted
        assert (result is None or result.counted, bool(counts)) == (True, bool(question)), number
        consortium.close()
        shutil.rmtree(consortium.folder / "member-4")
    assert stops >= 8


def restarted(consortium: Consortium, round_id: str) -> Any:
    """Run member-4 until it waits for the sum, or return its result; start it again whenever its machine stops."""
    while True:
        steps = consortium.steps(consortium.member("member-4").contribute(round_id))
        try:
            while next(steps)[0] != "waits":
                pass
        except StopIteration as end:
            return end.value
        except Stopped:
            continue
        return None


@pytest.mark.parametrize("at", ["uploads/member-0", "chunks/0"])
def test_the_latest_end_may_pass_while_an_upload_is_sent(consortium: Consortium, at: str) -> None:
    round_id = consortium.open_round(consortium.enrol())
    flow = consortium.member("member-0").contribute(round_id)
    consortium.until(flow, "uploads/member-0", "before").close()
    # The process that goes on has to mask the chunks again.
    steps = consortium.until(consortium.member("member-0").contribute(round_id), at, "before")
    consortium.clock.ahead_s += 2 * DAY_S
    with refused("terms-expired", ...):
        list(steps)


def test_no_request_and_no_pause_outlasts_the_latest_end(consortium: Consortium) -> None:
    round_id = consortium.open_round(consortium.enrol())
    end_s = consortium.operator.round(round_id).spec.latest_end_s
    flow = consortium.member("member-0", patience_s=3 * DAY_S).contribute(round_id)
    steps = consortium.until(flow, "chunks/1")
    consortium.on_answer = lambda *_: httpx.Response(503, headers={"retry-after": "1000000"})
    lasting_s = list[float]()
    for state, effect in steps:
        if state == "before" and isinstance(effect, Request | Pause):
            lasts_s = effect.limit_s if isinstance(effect, Request) else effect.seconds
            assert consortium.clock() + lasts_s <= end_s
            lasting_s.append(lasts_s)
        if consortium.clock() >= end_s:
            break
    assert lasting_s
    next(steps)  # a look at the clock, before the next request
    [(_, held)] = consortium.open["member-0"].session.store.stored_phases()
    assert isinstance(held.phase, Ready)


def test_the_latest_end_may_pass_before_an_upload_is_masked(noisy: Consortium) -> None:
    cohort = noisy.enrol()
    noisy.run(cohort)
    round_id = noisy.open_round(cohort)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("client_sdk.conversation.mask_upload", stop)
        with pytest.raises(Stopped):
            finish(noisy, "member-0", round_id)
    # The process that goes on has to fetch the material again.
    steps = noisy.until(noisy.member("member-0").contribute(round_id), "material", "before")
    noisy.clock.ahead_s += 2 * DAY_S
    with ended("lapsed", "terms-expired"):
        list(steps)


def stop(*_: Any) -> None:
    raise Stopped


def test_a_clock_that_was_ahead_costs_an_attempt_and_nothing_else(stage: Stage, tmp_path: Path) -> None:
    consortium, ahead_s = Consortium(stage, tmp_path, members=5), 0.0
    round_id = consortium.open_round(consortium.enrol())
    flows = consortium.contributions(round_id)
    here = Environment(now_s=lambda: consortium.clock() + ahead_s, monotonic_s=consortium.clock)
    flows["member-4"] = consortium.member("member-4", environment=here).contribute(round_id)
    started = {"member-4": consortium.until(flows.pop("member-4"), "chunks/1")}
    ahead_s = 2 * DAY_S
    results = consortium.together(flows, started=started, stuck=consortium.expiring(round_id))
    assert results.pop("member-4").state == "lapsed"
    assert {type(result) for result in results.values()} == {Result}, results
    ahead_s = 0.0
    assert finish(consortium, "member-4", round_id).counted
    run_another(consortium)


def test_a_step_keeps_its_result_if_the_next_one_was_erased_unopened(stage: Stage, tmp_path: Path) -> None:
    """Whichever of the two a member asks for first."""
    consortium = Consortium(stage, tmp_path, members=5, question=NOISY)
    cohort = consortium.enrol()
    mean = consortium.open_round(cohort)
    consortium.together(
        consortium.contributions(mean), stuck=consortium.expiring(mean), vanish={"member-4": "chunks/0"}
    )
    later = consortium.open_round(cohort)
    consortium.clock.ahead_s += 2 * DAY_S
    consortium.expire(later)
    consortium.expire(later)
    assert consortium.operator.round(later).state == "erasing"
    for asks in ((mean, later), (later, mean)):
        with consortium.copied("member-4"):
            for round_id in asks:
                with ended("erasing") if round_id == later else nullcontext():
                    assert finish(consortium, "member-4", round_id).counted


def expired_upload(consortium: Consortium) -> tuple[str, bytes]:
    """Let member-4 upload and then erase, with nothing heard of the round's end. Returns the round and its context."""
    round_id = run_without(consortium, "member-4")
    context = consortium.round(round_id).attempt.context
    consortium.clock.ahead_s += 2 * DAY_S
    consortium.on_request = stop
    with pytest.raises(Stopped):
        finish(consortium, "member-4", round_id)
    consortium.on_request = nothing
    assert isinstance(stored_phase(consortium), Ready)
    return round_id, context


def stored_phase(consortium: Consortium) -> MemberPhase:
    [(_, held)] = consortium.member("member-4").session.store.stored_phases()
    return held.phase


def test_another_rounds_erasure_request_relabels_nothing(stage: Stage, tmp_path: Path) -> None:
    consortium, made_up = Consortium(stage, tmp_path, members=5), "cd" * 8
    round_id, context = expired_upload(consortium)
    view = consortium.operator.round(round_id)
    view = view.model_copy(update={"round": made_up, "state": "erasing", "ended": False})

    def lie(_member: str, sent: Sent, answer: httpx.Response) -> httpx.Response:
        if "/requests/" in sent.path:
            headers = {VERSION_HEADER: "3", STATE_HEADER: "erasing"}
            return httpx.Response(200, headers=headers, content=ErasureRequest(context).to_bytes())
        return httpx.Response(200, text=view.model_dump_json()) if sent.path.endswith(made_up) else answer

    consortium.on_answer = lie
    before = stored_phase(consortium)
    with refused(Cause.WRONG_CONTEXT, "coordinator"):
        finish(consortium, "member-4", made_up)
    assert stored_phase(consortium) == before
    consortium.on_answer = unchanged
    assert finish(consortium, "member-4", round_id).counted


def test_a_round_is_not_erased_unopened_by_another_rounds_opening(consortium: Consortium) -> None:
    cohort = consortium.enrol()
    voided = consortium.open_round(cohort)
    consortium.operator.cancel(voided, "a test")
    consortium.together(consortium.contributions(voided))
    unopened = consortium.open_round(cohort)
    consortium.clock.ahead_s += 2 * DAY_S
    consortium.expire(unopened)
    consortium.expire(unopened)
    consortium.member("member-0").session.erase_expired()
    before = consortium.state("member-0")
    consortium.shows(f"GET .*/{unopened}/opening", message(consortium.round(voided).attempt.opening))
    with refused(Cause.WRONG_CONTEXT, "coordinator"):
        finish(consortium, "member-0", unopened)
    assert consortium.state("member-0") == before


def test_an_end_that_the_certificate_contradicts_erases_nothing(consortium: Consortium) -> None:
    round_id, certificates = consortium.open_round(consortium.enrol()), list[bytes]()
    for state in ("voided", "erased", "lost"):

        def shown(answer: httpx.Response, state: str = state) -> httpx.Response:
            if kind_of(answer.headers, answer.content) == Certificate.__name__:
                certificates.append(answer.content)
                answer.headers[STATE_HEADER] = state
            return answer

        consortium.on_answer = unchanged
        consortium.shows(".*/(requests|answers).*", shown)
        consortium.shows("GET .*/closing", lambda _: httpx.Response(200, content=certificates[0]))
        results = consortium.together(consortium.contributions(round_id))
        faults = {(type(fault), fault.cause, fault.parties) for fault in results.values()}
        assert faults == {(PeerFault, Cause.WRONG_PHASE, ("coordinator",))}, state
    consortium.on_answer = unchanged
    results = consortium.together(consortium.contributions(round_id))
    assert {type(result) for result in results.values()} == {Result}, results
