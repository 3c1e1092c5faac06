"""A short run of `make fuzz` with the plain engine."""

from assurance.fuzz import decoders
from assurance.fuzz.live import Live
from veilsum.protocol.messages.base import Message


def test_mutated_messages_in_live_rounds() -> None:
    tally = Live(seed=0, mutants=20).campaign(1_000)
    assert tally.violations == {}
    assert tally.delivered >= 1_000
    assert tally.resigned.total() >= 0.3 * tally.delivered
    assert tally.messages["chunk"] > 75
    assert tally.causes["accepted"] > 50
    assert len(tally.causes) > 20


def test_mutated_bytes_in_every_decoder() -> None:
    tally = decoders.campaign(0, 700)
    assert tally.violations == {}
    assert {"chunk", *(form.__name__ for form in Message.forms.values())} <= tally.messages.keys()
    assert tally.causes["accepted"] > 70
