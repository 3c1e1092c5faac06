"""One hostile peer against a phase: whatever it sends, the answer is a next phase or a PeerFault, never another error."""

import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.forging import again, false_dealers, other_secrets, unsigned
from tests.support.simulator import After, Federation
from veilsum.protocol.coordinator import (
    Checking,
    CoordinatorPhase,
    Enrolling,
    Lost,
    Recovered,
    VoidedByErasure,
)
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import MemberPhase
from veilsum.protocol.messages import KeyCard, Message, Upload, UploadHeader, parse
from veilsum.protocol.messages.base import Signed


class Recorded(Federation):
    """Keeps each phase beside the messages it was sent."""

    def __post_init__(self) -> None:
        self.asked: dict[tuple[str, str], tuple[str, MemberPhase, Message]] = {}
        self.told: dict[tuple[str, str], tuple[str, CoordinatorPhase, Message]] = {}
        super().__post_init__()

    def _tell(self, member: str, message: Message) -> tuple[Message, ...]:
        phase = self.phases[member]
        self.asked[type(phase).__name__, type(message).__name__] = (member, phase, message)
        return super()._tell(member, message)

    def _answer(self, phase: CoordinatorPhase, member: str, reply: Message) -> CoordinatorPhase:
        self.told[phase.name, type(reply).__name__] = (member, phase, reply)
        return super()._answer(phase, member, reply)


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    federation = Recorded(5, drop={4: After.OPENING})
    federation.run_round()
    federation.run_round()
    federation.drop = {}
    false_dealers(federation, {"member-2": other_secrets})
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.phase.evicted == ("member-2",)
    federation.tamper = lambda _sender, message: message
    federation.begin()
    federation.now_s = federation.run_until(Checking).attempt.terms.latest_end_s
    federation.phase = federation.phase.expire(federation.now_s)
    federation.run_until()
    assert isinstance(federation.finish().phase, VoidedByErasure)
    federation.drop = dict.fromkeys(range(5), After.RECEIPT)
    assert isinstance(federation.run_round().phase, Lost)
    federation.drop = {}
    federation.begin()
    return federation


def mutations(data: bytes, rng: random.Random, count: int) -> list[bytes]:
    made = []
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(2, len(changed))
            changed[at] = rng.choice((0, 1, 255, changed[at] ^ (1 << rng.randrange(8))))
        if rng.random() < 0.2:
            cut = rng.randrange(2, len(changed))
            changed = changed[:cut] + changed[cut + rng.randrange(9) :]
        made.append(bytes(changed))
    return made


def resigned(message: Message, key: SigningKey) -> Message:
    """The message under a fresh signature, as its sender itself would forge it."""
    if isinstance(message, Signed):
        return again(message, key)
    if isinstance(message, Upload):
        return replace(message, header=UploadHeader.make(key, **unsigned(message.header)))
    return message


def attack(receive: Any, message: Message, key: SigningKey, rng: random.Random, count: int) -> int:
    """How many of the mutations were refused."""
    refused = 0
    for data in mutations(message.to_bytes(), rng, count):
        try:
            mutant = parse(data)
            if rng.random() < 0.7:
                mutant = resigned(mutant, key)
            receive(mutant)
        except PeerFault:
            refused += 1
    return refused


def test_every_phase_of_a_member_meets_a_coordinator(recorded: Recorded) -> None:
    rng = random.Random(1)
    met = defaultdict(set)
    for (phase_name, message_name), (member, phase, message) in recorded.asked.items():
        met[phase_name].add(message_name)
        key = recorded.keys[member]
        refused = attack(
            lambda m, phase=phase, key=key: phase.receive(m, key, recorded.now_s),
            message,
            recorded.coordinator,
            rng,
            60,
        )
        assert refused > 10
    assert set(met) == {"Enrolled", "Ready", "Opened", "Uploaded", "Checked", "Voted", "Closed"}
    assert {name for names in met.values() for name in names} == {
        "Cards",
        "Opening",
        "Deliveries",
        "Freeze",
        "Certificate",
        "Evictions",
        "ErasureRequest",
        "Erasure",
        "Lost",
    }


def test_every_phase_of_the_coordinator_meets_a_member(recorded: Recorded) -> None:
    rng = random.Random(2)
    for member, phase, message in recorded.told.values():
        refused = attack(
            lambda m, phase=phase: phase.receive(m, recorded.now_s), message, recorded.keys[member], rng, 60
        )
        assert refused > 10
    assert {name for name, _ in recorded.told} >= {
        "collecting",
        "checking",
        "freezing",
        "revealing",
        "erasing",
    }


def test_every_message_meets_every_phase(recorded: Recorded) -> None:
    messages = [entry[2] for entry in (*recorded.asked.values(), *recorded.told.values())]
    members = [(member, phase) for member, phase, _ in recorded.asked.values()]
    coordinators = [phase for _, phase, _ in recorded.told.values()]
    for message in messages:
        for member, phase in members:
            try:
                phase.receive(message, recorded.keys[member], recorded.now_s)
            except PeerFault:
                continue
        for coordinator in coordinators:
            try:
                coordinator.receive(message, recorded.now_s)
            except PeerFault:
                continue


def test_enrolment_meets_a_hostile_card() -> None:
    federation = Federation(4)
    enrolling = Enrolling(federation.roster, federation.study, 0, "period-0")
    card = federation.cards.shown[0].card
    rng = random.Random(3)

    def receive(message: KeyCard) -> None:
        enrolling.receive(message, federation.now_s)

    assert attack(receive, card, federation.keys["member-0"], rng, 200) > 20


def test_a_reveal_claims_nothing_it_does_not_carry(recorded: Recorded) -> None:
    member, phase, message = next(
        entry for (name, kind), entry in recorded.told.items() if (name, kind) == ("revealing", "Reveal")
    )
    data = message.to_bytes()
    at = data.index(b"member-") + len(member) + 32  # the count of the evicted
    with pytest.raises(PeerFault, match=r"^(truncated|oversized):"):
        phase.receive(parse(data[:at] + b"\xff\xff\xff\x01" + data[at + 4 :]), recorded.now_s)
