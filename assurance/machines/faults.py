"""Simulated rounds in which everything goes wrong that may: each gives the exact sum or a clean end, and a good one follows.

Everything about a round follows from its seed.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from assurance.machines.blame import check_end
from assurance.machines.cast import Shape
from assurance.machines.lies import lie
from assurance.machines.loyal import Rounds
from assurance.machines.tally import TALLY
from tests.support.simulator import After, Outcome, of
from veilsum.protocol.coordinator import CoordinatorPhase, Freezing, Recovered
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import load_phase
from veilsum.protocol.messages import Message, parse


def shape_of(random: Random) -> Shape:
    """From 3 to 12 members, all of them decryptors or some nominated."""
    members = random.randint(3, 12)
    nominees = random.choice((members, members, 4, 7))
    nominated = () if nominees >= members else tuple(range(0, members, max(1, members // nominees)))
    return Shape(members, members // 4, nominated[:nominees])


class Faulty(Rounds):
    """Loses, repeats, delays and changes messages, restarts members, and lets liars lie.

    Attributes:
        odds: draws the faults; None for a good round.
        liars: at most `a`.
        tampered: members whose messages, or those to them, were changed on their way.
        rate: how often a message meets a fault, and a liar lies.
    """

    def break_down(self, seed: int, liars: Sequence[str]) -> None:
        """Let everything go wrong from now on."""
        self.odds: Random | None = Random(seed)
        self.liars, self.tampered = tuple(liars), set[str]()
        self.rate = self.odds.choice((0.0, 0.02, 0.1, 0.3))
        self.deceit = self.odds.choice((0.2, 0.5, 1.0))
        self.past: list[tuple[str, Message]] = []
        lost = self.odds.choice((0, 0, 1, 1, 2, 3, len(self.ids)))
        gone = self.odds.sample(range(len(self.ids)), min(lost, len(self.ids)))
        self.drop = {index: self.odds.choice(list(After)[1:]) for index in gone}

    @property
    def calm(self) -> bool:
        """Whether nothing but lies can go wrong, and too few lie to stall a round: each costs one honest member at most (§12)."""
        quorum = self.phase.attempt.quorum
        lying = len({*self.liars}.intersection(self.manifest.decryptors))
        return (
            not self.rate
            and not self.drop
            and len(self.ids) - 2 * len(self.liars) >= quorum.survivors_min
            and quorum.decryptors - lying >= quorum.threshold
        )

    def mend(self) -> None:
        """Let nothing go wrong any more."""
        self.odds, self.drop = None, {}

    def begin(self, *arguments: Any, **values: Any) -> None:
        """Everybody who is there hears first how earlier attempts ended."""
        for member in self.manifest.members:
            if not self._gone(member, After.OPENING):
                self.catch_up(member)
        super().begin(*arguments, **values)
        self.context = self.phase.attempt.context

    def next_round(self, *, anew: bool = False) -> Outcome:
        """The next attempt, to its end."""
        self.begin_next(anew=anew)
        self.run_until()
        return self.finish()

    def finish(self) -> Outcome:
        """Keep the end, for whoever has not heard it."""
        outcome = super().finish()
        self.keep_ending(self.context)
        return outcome

    def _tell(self, member: str, message: Message) -> tuple[Message, ...]:
        if self.odds is None:
            return super()._tell(member, message)
        if self.odds.random() < self.rate:
            return self._mistold(member, message, self.odds)
        return super()._tell(member, message)

    def _mistold(self, member: str, message: Message, random: Random) -> tuple[Message, ...]:
        """A message to a member is lost, changed or repeated, or an old one comes first, or the member restarts on it."""
        fault = random.choice(("lost", "changed", "repeated", "replayed", "restarted"))
        TALLY.reached[f"message {fault}"] += 1
        if fault == "lost":
            return ()
        if fault == "changed":
            changed = _changed(message, random)
            self.tampered.add(member)
            return super()._tell(member, changed) if changed else ()
        if fault == "repeated":
            super()._tell(member, message)
        elif fault == "replayed" and self.past:
            super()._tell(member, random.choice(self.past)[1])
        elif fault == "restarted":
            self.phases[member] = load_phase(self.phases[member].to_bytes())
        self.past.append((member, message))
        return super()._tell(member, message)

    def _answer(self, phase: CoordinatorPhase, member: str, reply: Message) -> CoordinatorPhase:
        random = self.odds
        if random is None:
            return super()._answer(phase, member, reply)
        self.phase = phase
        if isinstance(phase, Freezing):
            self.proposed = phase.survivors
        told: tuple[Message, ...] = (reply,)
        if member in self.liars and random.random() < self.deceit:
            name, told = lie(self, reply, random)
            TALLY.reached[f"lie: {name}"] += 1
        for message in told:
            if random.random() < self.rate:
                phase = self._misheard(phase, member, message, random)
            else:
                phase = super()._answer(phase, member, message)
        return phase

    def _misheard(
        self, phase: CoordinatorPhase, member: str, message: Message, random: Random
    ) -> CoordinatorPhase:
        """A message to the coordinator is lost, changed or repeated, or another's old one comes first."""
        fault = random.choice(("lost", "changed", "repeated", "replayed"))
        TALLY.reached[f"answer {fault}"] += 1
        if fault == "lost":
            return phase
        if fault == "changed":
            changed = _changed(message, random)
            self.tampered |= {member, getattr(getattr(changed, "header", changed), "member", member)}
            return super()._answer(phase, member, changed) if changed else phase
        if fault == "repeated":
            phase = super()._answer(phase, member, message)
        return super()._answer(phase, member, message)


def _changed(message: Message, random: Random) -> Message | None:
    """The message with a bit of it changed on its way; None where it does not parse any more."""
    data = bytearray(message.to_bytes())
    data[random.randrange(2, len(data))] ^= 1 << random.randrange(8)
    try:
        return parse(bytes(data))
    except PeerFault:
        return None


def run_seed(seed: int) -> str:
    """One federation: one or two rounds with faults, then a good one; how the first ended.

    Raises:
        AssertionError: anything that must not happen.
    """
    random = Random(seed)
    shape = shape_of(random)
    federation = of(Faulty, Faulty.of(shape, seed, withholding=seed % 3 == 1))
    liars = random.sample(federation.ids, random.randint(0, shape.colluders))
    endings = []
    for number in range(random.choice((1, 1, 2))):
        federation.break_down(seed * 2 + number, liars)
        outcome = federation.next_round()
        endings.append(check_end(federation, outcome, liars, federation.tampered))
        TALLY.reached[endings[-1]] += 1
        if federation.calm:
            TALLY.reached["only lies"] += 1
            assert isinstance(outcome.phase, Recovered), f"{liars} stalled a round: {outcome.fault}"
        TALLY.steps += 1
    federation.mend()
    good_round(federation, liars)
    return endings[0]


def good_round(federation: Faulty, liars: Sequence[str]) -> None:
    """Everybody keeps the rules: a sum over all honest members comes of it.

    A liar may have spoilt its own state. Where the quorum needs it, a new cohort is formed, in which it begins anew.
    """
    honest = set(federation.ids) - set(liars)
    outcome = federation.next_round(anew=True)
    assert honest <= set(outcome.survivors) or len(honest) < outcome.phase.attempt.quorum.survivors_min, (
        f"a good round ended {outcome.phase.name}: {outcome.fault}"
    )
    check_end(federation, outcome, liars, ())
    if not isinstance(outcome.phase, Recovered):
        TALLY.reached["a new cohort for a good round"] += 1
        for liar in liars:
            del federation.phases[liar]
        federation.enrol(f"period-{federation.counter + 1}")
        outcome = federation.next_round()
        assert honest <= set(outcome.survivors), (
            f"a new cohort's round ended {outcome.phase.name}: {outcome.fault}"
        )
        check_end(federation, outcome, liars, ())
