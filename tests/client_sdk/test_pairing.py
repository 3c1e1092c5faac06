"""Pairing with the other members of a cohort."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.effects import Effect, Flow, Request
from client_sdk.errors import NotEnrolled
from client_sdk.reservations import State
from tests.support.consortium import Consortium
from tests.support.refusals import refused
from tests.support.serving import Stage
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Enrolled, Lapsed, MemberPhase, Paired, Ready
from veilsum.protocol.pairing import lapse_s
from veilsum.protocol.rest import OCTETS_TYPE
from veilsum.protocol.sizing import Quorum
from veilsum.protocol.study import Windows, read_content

FIRST = "member-0"


@pytest.fixture
def five(stage: Stage, tmp_path: Path) -> Consortium:
    """A consortium in which two of five members may be missing."""
    return Consortium(stage, tmp_path, members=5)


def enrolling(consortium: Consortium, cohort: str, member: str) -> Flow[Quorum]:
    return consortium.member(member).enrol(bytes.fromhex(cohort), consortium.records(member))


def phase_of(consortium: Consortium, cohort: str, member: str = FIRST) -> MemberPhase:
    held = consortium.open[member].session.store.load_phase(bytes.fromhex(cohort))
    assert held is not None
    return held.phase


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
    return {m: consortium.until(enrolling(consortium, cohort, m), "/cards/") for m in consortium.ids}


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
        five.alone(five.member(FIRST).enrol(bytes.fromhex(cohort)))
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
    paired = phase_of(five, cohort)
    assert isinstance(paired, Paired)
    again = five.steps(five.member(FIRST).enrol(bytes.fromhex(cohort)))
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
    first = phase_of(five, cohort)
    stuck = window_ends(five, cohort)
    flows = {FIRST: five.member(FIRST).enrol(bytes.fromhex(cohort))}
    results = five.together(flows, stuck=stuck, started=started)
    assert {type(each) for each in results.values()} == {Quorum}, results
    assert isinstance(first, Paired)
    ready = phase_of(five, cohort)
    assert isinstance(ready, Ready)
    assert set(first.manifest.members) - set(ready.manifest.members) == {"member-4"}


@pytest.mark.parametrize("form", [Enrolled, Paired])
def test_keys_lapse_by_the_members_own_clock(five: Consortium, form: type[MemberPhase]) -> None:
    cohort = five.open_cohort()
    begun = carded(five, cohort)[FIRST]
    while not isinstance(phase_of(five, cohort), form):
        next(begun)
    begun.close()
    held = phase_of(five, cohort)
    assert isinstance(held, Enrolled | Paired)
    secrets = [bytes(held.keys.x25519), bytes(held.keys.mlkem_seed)]
    if isinstance(held, Paired):
        secrets += [bytes(held.secrets[at : at + 32]) for at in range(0, len(held.secrets), 32)]
    folder = five.folder / FIRST
    stored = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert all(secret in stored for secret in secrets)
    five.stage.pass_time(five.clock() + lapse_s(windows_of(five)) + 1)
    with pytest.raises(NotEnrolled, match="erased"):
        five.alone(five.member(FIRST).enrol(bytes.fromhex(cohort)))
    assert isinstance(phase_of(five, cohort), Lapsed)
    stored = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert not any(secret in stored for secret in secrets)


def test_ciphertexts_that_come_damaged_are_asked_for_again(five: Consortium) -> None:
    cohort, damaged = five.open_cohort(), [1]

    def half(answer: httpx.Response) -> httpx.Response:
        if answer.headers["content-type"] != OCTETS_TYPE or not damaged:
            return answer
        damaged.clear()
        return httpx.Response(200, content=answer.content[:-1], headers=answer.headers)

    five.shows("(GET|PUT) .*/pairings/.*", half, [FIRST])
    results = five.together({m: enrolling(five, cohort, m) for m in five.ids})
    assert results.pop(FIRST).cause is Cause.TRUNCATED
    assert {type(each) for each in results.values()} == {Quorum}, results
    assert isinstance(phase_of(five, cohort), Paired)
    five.alone(five.member(FIRST).enrol(bytes.fromhex(cohort)))
    assert isinstance(phase_of(five, cohort), Ready)


def test_a_cohort_that_lost_too_many_in_pairing_says_so(five: Consortium) -> None:
    cohort = five.open_cohort()
    started = carded(five, cohort)
    for member in five.ids[:3]:
        started.pop(member).close()
    results = five.together({}, stuck=window_ends(five, cohort), started=started)
    assert {fault.cause for fault in results.values()} == {Cause.COHORT_TOO_SMALL}
