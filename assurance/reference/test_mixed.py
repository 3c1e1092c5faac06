"""Rounds of both implementations together: members under either coordinator, who can't tell each other apart."""

import random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from assurance.reference import coordinator, reference, wire
from assurance.reference.lockstep import private
from assurance.reference.wire import Refused, decode
from tests.support import simulator
from tests.support.simulator import After, Federation, SeededRandom
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Collecting
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Enrolled
from veilsum.protocol.messages import Message, Opening, Roster, Study, parse


class Guest:
    """A reference member where the simulator keeps a member's phase."""

    def __init__(self, federation: "Mixed", name: str, key: SigningKey, roster: Roster, study: Study, run: Any) -> None:
        self.federation, self.name = federation, name
        self.member = reference.Member(
            name,
            private(key),
            roster.to_bytes(),
            study.to_bytes(),
            *run,
            known=federation.known.setdefault(name, reference.Known()),
            now=int(federation.now_s),
        )

    def receive(self, message: Message, _key: SigningKey, now_s: float) -> tuple["Guest", tuple[Message, ...]]:
        self.member.now = int(now_s)
        try:
            answer = self.member.receive(message.to_bytes())
        except Refused as refused:
            raise PeerFault(Cause(refused.args[0]), "as the page has it") from refused
        if isinstance(message, Opening) and isinstance(self.federation.phase, Collecting):
            answer = self.federation.upload(self.member)
        return self, (parse(answer),) if answer else ()


class Mixed(Federation):
    """The simulator with every second member a guest."""

    def __post_init__(self) -> None:
        self.known: dict[str, reference.Known] = {}
        self.guests: dict[str, Guest] = {}
        super().__post_init__()

    def enrol(self, period: str, repeats: bytes = bytes(32)) -> None:
        def start(name: str, roster: Roster, study: Study, key: SigningKey, **rest: Any) -> Any:
            if self.ids.index(name) % 2:
                return Enrolled.start(name, roster, study, key, **rest)
            run = (rest["counter"], rest["period"], rest["repeats"])
            guest = self.guests[name] = Guest(self, name, key, roster, study, run)
            return guest, (parse(guest.member.enrol(guest.member.study.expires, rest["random_bytes"])),)

        with patch.object(simulator, "Enrolled") as door:
            door.start = start
            super().enrol(period, repeats)

    def _tell_ending(self) -> None:
        for name, guest in self.guests.items():
            if self.ending and guest.member.context not in guest.member.known.ends:
                self._tell(name, self.ending)
        super()._tell_ending()

    def upload(self, member: reference.Member) -> bytes | None:
        if self._gone(member.name, After.ANNOUNCEMENT):
            return None
        vector = [int(value) for value in self.vectors_now[member.name]]
        upload, chunks = member.upload(vector, self.random, uniform(self.random))
        self.spool.update({(member.name, index): chunk for index, chunk in enumerate(chunks)})
        return upload

    def _has_opened(self, member: str, attempt: Any) -> bool:
        if guest := self.guests.get(member):
            return bool(guest.member.context == attempt.context)
        return super()._has_opened(member, attempt)


def uniform(draw: Any) -> Any:
    """Numbers below p."""
    words = iter(lambda: int.from_bytes(draw(4), "little") & wire.P, None)
    return (word for word in words if word != wire.P).__next__


@pytest.mark.parametrize("seed", range(4))
def test_reference_members_among_others(seed: int) -> None:
    rng = random.Random(seed)
    federation = Mixed(rng.randint(4, 9), seed=seed)
    for _ in range(3):
        vanish = rng.randrange(federation.members) if federation.members > 4 else None
        federation.drop = {} if vanish is None else {vanish: rng.choice([After.CARD, After.UPLOAD, After.RECEIPT])}
        vectors = federation.vectors("sum")
        outcome = federation.run_round(vectors)
        assert outcome.total is not None
        assert set(outcome.survivors) & set(federation.guests)
        np.testing.assert_array_equal(outcome.total, sum(vectors[member] for member in outcome.survivors))


class Hall:
    """A reference coordinator, and members of both kinds in turn."""

    def __init__(self, seed: int, size: int) -> None:
        noise = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum+gradients"}
        question = {"dim": 3, "noise": noise, "ring_bits": 48, "thin_classes": False}
        self.federation, self.draw = Federation(size, seed=seed, question=question), SeededRandom(100 + seed)
        roster, study, self.keys = self.federation.roster, self.federation.study, self.federation.keys
        run = (roster.to_bytes(), study.to_bytes(), 9, "period")
        self.coordinator = coordinator.Coordinator(private(self.federation.coordinator), *run)
        self.members: dict[str, Any] = {}
        for number, (name, key) in enumerate(self.keys.items()):
            if number % 2:
                self.members[name], (card,) = Enrolled.start(
                    name, roster, study, key, counter=9, period="period", random_bytes=self.draw
                )
                self.coordinator.receive(card.to_bytes())
            else:
                member = reference.Member(name, private(key), *run, now=10**6)
                self.members[name] = member
                self.coordinator.receive(member.enrol(member.study.expires, self.draw))

    def tell(self, message: bytes, *names: str) -> None:
        """Each of them answers."""
        for name in names or self.members:
            member = self.members[name]
            if isinstance(member, reference.Member):
                answer = member.receive(message)
            else:
                self.members[name], said = member.receive(parse(message), self.keys[name], 10**6)
                answer = said[0].to_bytes() if said else None
            if answer:
                self.coordinator.receive(answer)

    def upload(self, name: str, vector: list[int]) -> None:
        member = self.members[name]
        if isinstance(member, reference.Member):
            announcement, chunks = member.upload(vector, self.draw, uniform(self.draw))
        else:
            making = member.seal(self.draw)
            chunks = [bytes(making.chunk(np.array(vector, np.int64)))]
            self.members[name], (message,) = member.uploaded(*making.finish(self.keys[name]))
            announcement = message.to_bytes()
        self.coordinator.receive(announcement)
        for chunk in chunks:
            self.coordinator.store(name, chunk)


@pytest.mark.parametrize("seed", range(4))
def test_members_of_both_kinds_under_the_reference_coordinator(seed: int) -> None:
    rng = random.Random(seed)
    hall = Hall(seed, size=rng.randint(4, 9))
    coordinator, names = hall.coordinator, [*hall.members]
    coordinator.gather()
    for name in names:
        hall.tell(coordinator.show(name), name)
    for step in coordinator.study.steps[:4]:
        hall.tell(
            coordinator.open(decode(hall.federation.opening(hall.federation.terms(step)).to_bytes(), "Opening").terms)
        )
        there = sorted(rng.sample(names, max(len(names) - 1, coordinator.m.n_min)))
        size = coordinator.elements
        vectors = {name: [rng.randrange(-100, 100) for _ in range(size)] for name in there}
        for name in there:
            hall.upload(name, vectors[name])
        for name in names:
            hall.tell(coordinator.deliver(name), name)
        hall.tell(coordinator.freeze())
        hall.tell(coordinator.certify())
        columns = zip(*vectors.values(), strict=True)
        assert coordinator.result() == [sum(column) % 2**48 for column in columns]
        coordinator.close("none")
