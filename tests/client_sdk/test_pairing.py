"""Pairing with the other members of a cohort."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.database import StateDatabase
from client_sdk.effects import Effect, Pause, Request
from client_sdk.errors import NotEnrolled
from client_sdk.reservations import State
from tests.support.consortium import Consortium, asked
from tests.support.refusals import refused
from tests.support.serving import Sent, Stage
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Enrolled, Lapsed, Paired, Ready
from veilsum.protocol.messages import Pairing
from veilsum.protocol.pairing import lapse_s
from veilsum.protocol.rest import OCTETS_TYPE
from veilsum.protocol.sizing import Quorum
from veilsum.protocol.study import Windows, read_content

FIRST = "member-0"


def window_ends(consortium: Consortium, cohort: str) -> Callable[[], bool]:
    """Return a `stuck` callback that lets the window of pairing end."""

    def stuck() -> bool:
        view = consortium.operator.cohort(cohort)
        if view.state != "pairing":
            return False
        consortium.stage.pass_time(view.deadline_s or 0.0)
        return True

    return stuck


def windows_of(consortium: Consortium) -> Windows:
    return read_content(consortium.study.content).question.windows


def carded(consortium: Consortium, cohort: str) -> dict[str, Any]:
    """Run all members until their cards are sent; the last card makes the manifest."""
    return {m: consortium.until(flow, "/cards/") for m, flow in consortium.enrolments(cohort).items()}


def body_of(effect: Effect) -> bytes:
    assert isinstance(effect, Request)
    return bytes(effect.body)


def test_who_never_pairs_costs_a_window_and_nobodys_records(five: Consortium) -> None:
    cohort = five.open_cohort()
    started = carded(five, cohort)
    started.pop(FIRST).close()
    begun_s = five.clock()
    results = five.together({}, stuck=window_ends(five, cohort), started=started)
    assert {type(each) for each in results.values()} == {Quorum}, results
    view = five.operator.cohort(cohort)
    assert (view.state, view.left_out, view.paired) == ("formed", (FIRST,), five.ids[1:])
    assert five.clock() - begun_s < 2 * windows_of(five).answer
    with refused("unknown-member", "member-0"):
        five.alone(five.member(FIRST).enrol(cohort))
    [run] = five.open[FIRST].ledger()
    assert run.state is State.RESERVED


@pytest.mark.parametrize("once", [True, False])
def test_an_agent_that_slept_while_the_others_paired_is_told_and_has_its_records_back(
    five: Consortium, *, once: bool
) -> None:
    cohort = five.open_cohort()
    started = carded(five, cohort)
    started.pop(FIRST).close()
    five.together({}, stuck=window_ends(five, cohort), started=started)
    agent = five.member(FIRST).make_agent(five.records(FIRST), once=once, period=None)
    results = five.together({FIRST: five.open[FIRST].next_result(agent)})
    assert isinstance(results.get(FIRST), NotEnrolled) is once
    said = [event.detail for _, event in five.events if "did not pair in time" in event.detail]
    assert len(said) == (not once)
    assert [run.state for run in five.open[FIRST].ledger()] == [State.FREE]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_member_killed_around_its_pairing_sends_the_same_bytes(five: Consortium, moment: str) -> None:
    cohort, sent = five.open_cohort(), list[bytes]()
    started = carded(five, cohort)
    for state, effect in started.pop(FIRST):
        if state == moment and "/pairings/" in str(getattr(effect, "path", "")):
            sent.append(body_of(effect))
            break
    paired = five.phase(cohort, Paired)
    again = five.steps(five.member(FIRST).enrol(cohort))
    for state, effect in again:
        if isinstance(effect, Request) and "/pairings/" in effect.path and state != "before":
            if effect.method == "PUT":
                sent.append(body_of(effect))
            break
    assert set(sent) == {paired.pairing.to_bytes()}
    results = five.together({}, started={**started, FIRST: again})
    assert {type(each) for each in results.values()} == {Quorum}, results


def test_a_newer_manifest_is_paired_under_afresh(five: Consortium) -> None:
    cohort = five.open_cohort()
    started = carded(five, cohort)
    started.pop("member-4").close()
    for state, effect in (late := started.pop(FIRST)):
        if state == "after" and "/pairings/" in str(getattr(effect, "path", "")):
            break
    late.close()  # it sleeps until the others have a new manifest
    first = five.phase(cohort, Paired)
    stuck = window_ends(five, cohort)
    flows = {FIRST: five.member(FIRST).enrol(cohort)}
    results = five.together(flows, stuck=stuck, started=started)
    assert {type(each) for each in results.values()} == {Quorum}, results
    ready = five.phase(cohort, Ready)
    assert set(first.manifest.members) - set(ready.manifest.members) == {"member-4"}


@pytest.mark.parametrize("form", [Enrolled, Paired])
def test_keys_lapse_by_the_members_own_clock(five: Consortium, form: type[Enrolled | Paired]) -> None:
    cohort = five.open_cohort()
    begun = carded(five, cohort)[FIRST]
    while not isinstance(five.phase(cohort), form):
        next(begun)
    begun.close()
    held: Enrolled | Paired = five.phase(cohort, form)
    secrets = [bytes(held.keys.x25519), bytes(held.keys.mlkem_seed)]
    if isinstance(held, Paired):
        secrets += [bytes(held.secrets[at : at + 32]) for at in range(0, len(held.secrets), 32)]
    stored = five.stored_bytes()
    assert all(secret in stored for secret in secrets)
    five.stage.pass_time(five.clock() + lapse_s(windows_of(five)) + 1)
    with pytest.raises(NotEnrolled, match="erased"):
        five.alone(five.member(FIRST).enrol(cohort))
    five.phase(cohort, Lapsed)
    stored = five.stored_bytes()
    assert not any(secret in stored for secret in secrets)


def test_ciphertexts_that_come_damaged_are_asked_for_again(five: Consortium) -> None:
    cohort, damaged = five.open_cohort(), [1]

    def half(answer: httpx.Response) -> httpx.Response:
        if answer.headers["content-type"] != OCTETS_TYPE or not damaged:
            return answer
        damaged.clear()
        return httpx.Response(200, content=answer.content[:-1], headers=answer.headers)

    five.shows("(GET|PUT) .*/pairings/.*", half, [FIRST])
    results = five.together(five.enrolments(cohort))
    assert results.pop(FIRST).cause is Cause.TRUNCATED
    assert {type(each) for each in results.values()} == {Quorum}, results
    five.phase(cohort, Paired)
    five.alone(five.member(FIRST).enrol(cohort))
    five.phase(cohort, Ready)


def test_a_cohort_that_lost_too_many_in_pairing_says_so(five: Consortium) -> None:
    cohort = five.open_cohort()
    started = carded(five, cohort)
    for member in five.ids[:3]:
        started.pop(member).close()
    results = five.together({}, stuck=window_ends(five, cohort), started=started)
    assert {fault.cause for fault in results.values()} == {Cause.COHORT_TOO_SMALL}


def test_a_member_pairs_once_under_each_manifest(stage: Stage, tmp_path: Path) -> None:
    """Also if it is time to look for other runs while a poll brings the newer manifest."""
    consortium = Consortium(stage, tmp_path, members=5)
    cohort = consortium.open_cohort()
    consortium.run_until(consortium.member("member-4").enrol(cohort, consortium.records("member-4")), "PUT")
    flows = {
        member: agent.next_result() for member, agent in consortium.agents().items() if member != "member-4"
    }

    def on_request(member: str, sent: Sent, moment: str) -> None:
        if (member, moment) == ("member-0", "after") and "/pairings/" in sent.path:
            consortium.clock.ahead_s += 31.0  # a long poll

    consortium.on_request = on_request

    def stuck() -> bool:
        view = consortium.operator.cohort(cohort)
        if view.deadline_s is None:
            return False
        stage.pass_time(view.deadline_s)
        return True

    consortium.together(flows, stuck=stuck)
    view = consortium.operator.cohort(cohort)
    assert (view.state, view.left_out) == ("formed", ("member-4",))
    for member in consortium.ids[:4]:
        sent = {Pairing.from_bytes(each.body) for each in consortium.sent[member] if each.kind == "Pairing"}
        assert len({pairing.manifest for pairing in sent}) == len(sent) == 2, member
        consortium.phase(cohort, Ready, member)


def test_a_member_that_stopped_before_it_sent_its_pairing_sends_it_at_once(consortium: Consortium) -> None:
    """The others' windows are short: it waits for nothing before."""
    cohort = consortium.open_cohort()
    for flow in consortium.enrolments(cohort).values():
        consortium.run_until(flow, "PUT")
    consortium.until(consortium.member("member-0").enrol(cohort), "/pairings/", "before").close()
    agent = consortium.member("member-0").make_agent(consortium.records("member-0"), once=True, period=None)
    effects = (effect for _state, effect in consortium.steps(agent.next_result()))
    before = [*takewhile(lambda effect: not asked(effect).startswith("PUT"), effects)]
    assert {asked(effect) for effect in before if "/pairings/" in asked(effect)}
    assert not any(
        isinstance(effect, Pause) or (isinstance(effect, Request) and effect.wait_s) for effect in before
    )


def test_private_keys_lapse_after_a_write_that_failed(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk refuses the keys of the pairs, and the private keys stay stored: the running process erases them in time."""
    cohort = consortium.open_cohort()
    for flow in consortium.enrolments(cohort).values():
        consortium.run_until(flow, "PUT")
    for member in consortium.ids[1:]:
        consortium.run_until(consortium.member(member).enrol(cohort), "/pairings/")
    last = consortium.member("member-0").enrol(cohort)
    session, write = consortium.open["member-0"].session, StateDatabase.write

    @contextmanager
    def failing(database: StateDatabase) -> Iterator[Any]:
        with database.read() as opened:
            inside = opened.in_transaction
        with write(database) as opened:
            yield opened
            held = session.store.load_phase(bytes.fromhex(cohort))
            if not inside and held is not None and isinstance(held.phase, Ready):
                raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(StateDatabase, "write", failing)
        with pytest.raises(OSError, match="no space left"):
            consortium.alone(last)
    consortium.clock.ahead_s += consortium.phase(cohort, Paired).lapses_s
    session.erase_expired()
    consortium.phase(cohort, Lapsed)
