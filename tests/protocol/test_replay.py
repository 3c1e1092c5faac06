"""Messages of one attempt, round, cohort or federation, sent again in another."""

import pytest

from tests.support.simulator import Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, CoordinatorPhase, Freezing, Recovered, Revealing
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import KeyCard, Message, Opening, Upload

VICTIM = "member-0"


def recorded(federation: Federation) -> list[tuple[str, Message]]:
    """Run a round and keep what everybody was sent and sent."""
    kept: list[tuple[str, Message]] = []

    def keep(sender: str, message: Message) -> Message:
        kept.append((sender, message))
        return message

    federation.tamper = keep
    federation.run_round()
    federation.tamper = lambda _sender, message: message
    return kept


def next_round(kind: str) -> tuple[Federation, list[tuple[str, Message]]]:
    """A federation that is about to run an attempt, and the messages of another one."""
    if kind == "federation":
        old = recorded(Federation(5, seed=1))
        return Federation(5), old
    federation = Federation(5)
    if kind == "attempt":
        # VOID by too few uploads, then again
        kept: list[tuple[str, Message]] = []

        def swallow(sender: str, message: Message) -> Message | None:
            kept.append((sender, message))
            lost = isinstance(message, Upload) and sender in {"member-3", "member-4"}
            return None if lost else message

        federation.tamper = swallow
        federation.run_round()
        federation.tamper = lambda _sender, message: message
        return federation, kept
    old = recorded(federation)
    if kind == "cohort":
        federation.enrol("other-1")
    return federation, old


EXPECTED = {Cause.WRONG_CONTEXT, Cause.WRONG_PHASE, Cause.WRONG_SEQUENCE, Cause.WRONG_COHORT}


@pytest.mark.parametrize("kind", ["attempt", "round", "cohort", "federation"])
def test_nothing_is_replayed_into_another(kind: str) -> None:
    federation, old = next_round(kind)
    federation.begin()
    stages: list[CoordinatorPhase] = [federation.phase]
    stages += [federation.run_until(stage) for stage in (Checking, Freezing, Revealing)]
    for phase in stages:
        for sender, message in old:
            if ">" in sender:
                continue
            if isinstance(message, phase.late):
                assert phase.receive(message, federation.now_s) is phase
                continue
            with pytest.raises(PeerFault) as caught:
                phase.receive(message, federation.now_s)
            assert caught.value.cause in {Cause.WRONG_CONTEXT, Cause.WRONG_PHASE}
    members = dict(federation.phases)
    for sender, message in old:
        if ">" not in sender:
            continue
        member = sender.split(">")[1]
        with pytest.raises(PeerFault) as caught:
            members[member].receive(message, federation.keys[member], federation.now_s)
        assert caught.value.cause in EXPECTED
    outcome_phase = federation.run_until()
    assert isinstance(outcome_phase, Recovered)


def test_an_opening_of_another_cohort_or_an_earlier_round_is_not_replayed() -> None:
    federation = Federation(4)
    old = next(m for s, m in recorded(federation) if isinstance(m, Opening))
    with pytest.raises(PeerFault, match=r"^wrong-sequence:"):
        federation.phases[VICTIM].receive(old, federation.keys[VICTIM], federation.now_s)
    federation.enrol("other-1")
    with pytest.raises(PeerFault, match=r"^wrong-cohort:"):
        federation.phases[VICTIM].receive(old, federation.keys[VICTIM], federation.now_s)


def test_a_card_is_not_replayed_into_another_cohort() -> None:
    federation = Federation(4)
    old = federation.cards.shown[1].card

    def replay(sender: str, message: Message) -> Message:
        return old if sender == "member-1" and isinstance(message, KeyCard) else message

    federation.tamper = replay
    with pytest.raises(PeerFault, match=r"^wrong-cohort: .*\[member-1\]$"):
        federation.enrol("other-1")
