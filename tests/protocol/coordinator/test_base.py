from typing import Any

import pytest

from protocol.causes import Cause
from protocol.coordinator import (
    Checking,
    Collecting,
    CoordinatorPhase,
    Ended,
    Freezing,
    Lost,
    Recovered,
    Revealing,
    Voiding,
    Windows,
)
from protocol.errors import Misuse, PeerFault
from protocol.messages import VoidRequest
from protocol.messages.parse import MESSAGES
from protocol.phases import cancelled
from protocol.simulator import Federation

STAGES: tuple[type[CoordinatorPhase], ...] = (Collecting, Checking, Freezing, Revealing)


def at(stage: type[CoordinatorPhase]) -> tuple[Federation, Any]:
    federation = Federation(4)
    federation.begin(terms=federation.terms(8))
    return federation, federation.run_until(stage)


def lives() -> dict[str, Any]:
    """One phase of each kind."""
    stages: tuple[type[CoordinatorPhase], ...] = (*STAGES, Recovered)
    phases = {stage.name: at(stage)[1] for stage in stages}
    voiding = at(Collecting)[1].cancel(0.0)
    federation, checking = at(Checking)
    federation.phase = checking.cancel(federation.now_s)
    lost = voiding.expire(0.0)
    failed = at(Revealing)[1].expire(0.0)
    phases |= {"voiding": voiding, "voided": federation.run_until(), "lost": lost, "failed": failed}
    given_up, phase = at(Collecting)
    given_up.phase = phase.cancel(0.0).expire(0.0)
    return {**phases, "abandoned": given_up.finish().phase}


LIVES = lives()
TAKES = {
    "collecting": {"Upload"},
    "checking": {"Receipt"},
    "freezing": {"Vote", "Refusal", "Receipt"},
    "revealing": {"Reveal", "Receipt", "Vote", "Refusal"},
    "recovered": {"Receipt", "Vote", "Refusal", "Reveal", "Report"},
    "voiding": {"Vote", "Receipt", "Refusal"},
    "voided": {"Receipt", "Vote", "Refusal", "Reveal", "Report"},
    "failed": {"Receipt", "Vote", "Refusal", "Reveal", "Report"},
    "lost": {"Receipt", "Vote", "Refusal", "Report", "Lost"},
    "abandoned": {"Receipt", "Vote", "Refusal", "Report", "Lost"},
}


@pytest.mark.parametrize("name", TAKES)
def test_a_phase_takes_what_it_names_and_refuses_the_rest(name: str) -> None:
    phase = LIVES[name]
    assert phase.name == name
    taken = {form.__name__ for form in (*phase.handlers(), *phase.late)}
    assert taken == TAKES[name]
    for form in MESSAGES.values():
        if form.__name__ not in taken:
            message: Any = object.__new__(form)
            with pytest.raises(
                PeerFault, match=rf"^wrong-phase: the attempt is {name} and takes no {form.__name__.lower()}$"
            ):
                phase.receive(message, 0.0)


@pytest.mark.parametrize("name", TAKES)
def test_what_comes_too_late_is_not_even_read(name: str) -> None:
    phase = LIVES[name]
    for form in phase.late:
        assert phase.receive(object.__new__(form), 0.0) is phase


@pytest.mark.parametrize("name", TAKES)
def test_a_repr_shows_the_context_and_no_more(name: str) -> None:
    phase = LIVES[name]
    assert repr(phase) == f"<{type(phase).__name__} of {phase.attempt.context.hex()[:16]}>"


@pytest.mark.parametrize("stage", [Collecting, Checking])
def test_an_attempt_cancelled_before_a_vote_asks_for_void(stage: type[CoordinatorPhase]) -> None:
    federation, phase = at(stage)
    voiding = phase.cancel(federation.now_s, "the wrong extractor")
    assert isinstance(voiding, Voiding)
    assert voiding.fault.cause is Cause.CANCELLED
    assert voiding.fault.parties == ("operator",)
    assert voiding.fault.detail == "the wrong extractor"
    assert voiding.request_for("member-0") == VoidRequest(phase.attempt.context, "cancelled")


def test_a_cancellation_without_words_says_the_causes() -> None:
    assert str(cancelled("")) == "cancelled: the operator cancelled the round [operator]"


@pytest.mark.parametrize("name", ["recovered", "voided", "failed", "lost", "abandoned"])
def test_an_end_is_an_end(name: str) -> None:
    phase = LIVES[name]
    assert isinstance(phase, Ended)
    assert phase.deadline_s is None
    assert phase.waiting_for() == (phase.attempt.decryptors if name == "lost" else ())
    assert phase.cancel(0.0, "too late") is phase
    with pytest.raises(Misuse, match=f"an attempt that is {name} has no deadline"):
        phase.expire(0.0)


@pytest.mark.parametrize("name", ["recovered", "voided", "failed"])
def test_a_certified_end_shows_its_certificate_to_everybody(name: str) -> None:
    phase = LIVES[name]
    assert [phase.request_for(member) for member in phase.attempt.members] == [phase.certificate] * 4
    phase.attempt.check_certificate(phase.certificate)


@pytest.mark.parametrize(
    ("name", "reason", "sets"),
    [("recovered", "none", 1), ("failed", "none", 1), ("voided", "cancelled", 0), ("abandoned", "lost", 0)],
)
def test_an_end_is_a_link_of_the_chain(name: str, reason: str, sets: int) -> None:
    phase = LIVES[name]
    assert (phase.past.context, phase.past.reason) == (phase.attempt.context, reason)
    assert len(phase.past.sets) == sets
    assert phase.link == phase.attempt.link(phase.past)


def test_what_is_lost_is_no_link_before_the_admin_says_so() -> None:
    assert isinstance(LIVES["lost"], Lost)
    assert LIVES["lost"].past is None
    assert LIVES["lost"].link is None


@pytest.mark.parametrize(
    ("stage", "window_s"), [(Collecting, 3600.0), (Checking, 300.0), (Freezing, 300.0), (Revealing, 300.0)]
)
def test_every_phase_waits_its_window(stage: type[CoordinatorPhase], window_s: float) -> None:
    federation, phase = at(stage)
    assert phase.deadline_s == federation.now_s + window_s
    assert phase.setting.windows == Windows()
