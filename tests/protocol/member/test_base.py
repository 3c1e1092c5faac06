import math
from typing import Any

import pytest

from tests.support.forging import again
from tests.support.refusals import refused
from tests.support.simulator import Federation
from veilsum.protocol.coordinator import Checking, Freezing
from veilsum.protocol.errors import Misuse
from veilsum.protocol.member import MemberPhase, load_phase
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import Message


def lives() -> dict[str, MemberPhase]:
    """Return a member's phases, one of each kind, from an honest round."""
    federation = Federation(4)
    seen: dict[str, MemberPhase] = {}

    def look(_sender: str, message: Message) -> Message:
        phase = federation.phases[federation.ids[0]]
        seen[type(phase).__name__] = phase
        return message

    federation.tamper = look
    federation.enrol("other-1")
    federation.reach(Checking)
    federation.run_until(Freezing)
    federation.run_until()
    federation.finish()
    look("", federation.manifest)
    again = Federation(4)
    again.begin()
    opened, _ = again.phases["member-0"].receive(again.phase.attempt.opening, again.keys["member-0"], 1e6)
    return {**seen, "Opened": opened, "Lapsed": seen["Enrolled"].erase_expired(1e12)}


LIVES = lives()
KEY = Federation(4).keys["member-0"]


@pytest.mark.parametrize("name", sorted(LIVES))
def test_a_phase_is_stored_and_loaded_as_it_is(name: str) -> None:
    phase = LIVES[name]
    loaded = load_phase(phase.to_bytes())
    assert type(loaded) is type(phase)
    assert loaded == phase
    assert loaded.messages_to_resend() == phase.messages_to_resend()
    assert loaded.to_bytes() == phase.to_bytes()


@pytest.mark.parametrize("name", sorted(LIVES))
def test_a_stored_phase_that_is_cut_or_longer_is_refused(name: str) -> None:
    stored = LIVES[name].to_bytes()
    with refused("truncated"):
        load_phase(stored[:-1])
    with refused("left-over-bytes"):
        load_phase(stored + b"\0")


@pytest.mark.parametrize("stored", [b"", b"\x04", b"\x04\x00", b"\x04\x63"])
def test_what_is_no_phase_is_a_misuse(stored: bytes) -> None:
    with pytest.raises(Misuse, match="phase"):
        load_phase(stored)


@pytest.mark.parametrize("name", sorted(LIVES))
def test_a_phase_refuses_what_it_does_not_take(name: str) -> None:
    """`tests/docs/test_protocol.py` compares what it takes with the specification."""
    for form in {*Message.forms.values()} - {*LIVES[name].handlers}:
        message: Any = object.__new__(form)
        with refused("wrong-phase"):
            LIVES[name].receive(message, KEY, 1e6)


@pytest.mark.parametrize("name", ["Opened", "Uploaded", "Checked", "Voted"])
def test_inside_an_attempt_no_other_is_opened(name: str) -> None:
    federation, phase = Federation(4), LIVES[name]
    assert isinstance(phase, Attempting)
    key, opening = federation.keys["member-0"], phase.opening
    assert phase.receive(opening, key, 1e6) == (phase, phase.messages_to_resend())
    following = again(opening, federation.coordinator, sequence=opening.sequence + 1)
    with refused("wrong-sequence", "coordinator"):
        phase.receive(following, key, 1e6)


@pytest.mark.parametrize("name", ["Lapsed", "Ready"])
def test_without_private_keys_and_outside_an_attempt_nothing_lapses(name: str) -> None:
    assert LIVES[name].expiry_s == math.inf
    assert LIVES[name].erase_expired(1e12) is LIVES[name]
