"""Simulated rounds in which every message is first mutated many times, and sometimes replaced by an accepted mutant.

The module intercepts every `receive` of a party in `protocol`. It puts mutants of the message into the phase first (phases are immutable,
so the round isn't affected), then the message itself or an accepted mutant. The round thus continues from states
that no honest run reaches, and must end in the exact sum or a clean fault. Mutants of each chunk must be refused before the
chunk itself.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from assurance.fuzz.chunks import fire
from assurance.fuzz.mutator import Mutator, Pool, encode, inflated
from assurance.fuzz.oracle import Stage, Tally, deliver, place_of
from assurance.fuzz.signing import Signers
from tests.support.forging import swallowing
from tests.support.simulator import After, Federation, Outcome
from veilsum import protocol
from veilsum.protocol import rest, round_spec
from veilsum.protocol.coordinator import Ended, Recovered
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Message, Opening, Pairing
from veilsum.protocol.shelf import MemoryShelf
from veilsum.protocol.study import SUM_STEP

CHUNK_ELEMENTS = 8
SMALL = {"dim": 3, "classes": ["a", "b"]}
"""A question with vectors of fourteen elements."""
RESIGNED_SHARE = 0.8
"""Share of the signed mutants whose signature is made again."""
REPLACED_SHARE = 0.02
"""Share of the messages that are replaced by an accepted mutant: few, so that rounds get far."""

Deliver = Callable[[Any, Message, tuple[Any, ...]], Any]


ADMITTING = ("receive", "pair", "check_chunk")
"""Methods that accept a peer's bytes: a message, the cards of a cohort, or a chunk."""


def parties() -> list[tuple[type, str]]:
    """Return every class in `protocol` that accepts a peer's bytes, with the method."""
    return [(form, name) for form in forms() for name in ADMITTING if name in vars(form)]


def forms() -> list[type]:
    """Return every class in `protocol`, by module and name."""
    modules = [
        importlib.import_module(m.name) for m in pkgutil.walk_packages(protocol.__path__, "veilsum.protocol.")
    ]
    return [
        form
        for module in modules
        for form in vars(module).values()
        if isinstance(form, type) and form.__module__ == module.__name__
    ]


@contextmanager
def interposed(deliver_: Deliver, chunk: Callable[[Any, str, int], None]) -> Iterator[None]:
    """Call `deliver_` in place of `receive`, and `chunk` before each chunk check. Calls from inside them are not intercepted."""
    originals = {party: vars(party[0])[party[1]] for party in parties()}
    inside = False

    def before(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def admit(phase: Any, *arguments: Any) -> Any:
            nonlocal inside
            if inside:
                return original(phase, *arguments)
            inside = True
            try:
                if name == "pair":  # by a driver with its own source of secrets
                    return deliver_(phase, arguments[0], arguments[1:3])
                if name != "check_chunk":
                    return deliver_(phase, arguments[0], arguments[1:])
                chunk(phase, arguments[0], arguments[1])
                return original(phase, *arguments)
            finally:
                inside = False

        return admit

    for (form, name), original in originals.items():
        setattr(form, name, before(original, name))
    try:
        yield
    finally:
        for (form, name), original in originals.items():
            setattr(form, name, original)


class Watched(Federation):
    """A federation that its recorder knows before the first card is sent."""

    def __init__(self, recorder: "Recorder", **values: Any) -> None:
        recorder.signers = Signers(self)
        super().__init__(**values)

    def attempt_once(self) -> Outcome:
        """Run one attempt with vectors of its own; disclose it if it is a count."""
        outcome = self.run_round()
        if isinstance(outcome.phase, Recovered) and outcome.phase.attempt.spec.is_disclosed:
            self.disclose()
        return outcome

    def repeat_once(self) -> Outcome | None:
        """Repeat the last certified sum; return None without one."""
        certified = [link for link in self.links if link.step == SUM_STEP and link.context in self.sets]
        if not certified:
            return None
        self.tell_ending()
        self.enrol(certified[-1].period, certified[-1].context)
        return self.run_round()


@dataclass(frozen=True)
class Ending:
    """An attempt's outcome and its vectors."""

    outcome: Outcome
    vectors: Mapping[str, Any]

    def exact(self, survivors: tuple[str, ...]) -> Any:
        """Return the exact sum over these survivors."""
        return np.sum([self.vectors[member] for member in survivors], axis=0)


Outcomes = list[Ending]


class Recorder:
    """Run scenarios and record each message with its phase. `Live` also mutates the messages.

    Attributes:
        pool: values of all messages.
        stages: in order.
    """

    def __init__(self) -> None:
        self.pool = Pool()
        self.stages: list[Stage] = []
        self.signers: Signers

    def deliver(self, phase: Any, message: Message, rest: tuple[Any, ...]) -> Any:
        """Record the message, then deliver it."""
        self.pool.add(message)
        self.signers.learn(message)
        stage = Stage(phase, message, rest, None, self.signers)
        try:
            after = stage.admit(message)
        except PeerFault:
            self.stages.append(stage)
            raise
        self.stages.append(replace(stage, after=after))
        return after

    def chunk(self, phase: Any, member: str, index: int) -> None:
        """Called before a chunk is checked; records nothing."""

    def run(self, scenario: dict[str, Any], rounds: int) -> Outcomes:
        """Run rounds of a scenario; stop at a fault that prevents enrolment."""
        outcomes: Outcomes = []
        with (
            patch.object(round_spec, "CHUNK_ELEMENTS", CHUNK_ELEMENTS),
            interposed(self.deliver, self.chunk),
            suppress(PeerFault),
        ):
            self.federation = Watched(self, **scenario)
            for _ in range(rounds):
                outcome = self.federation.attempt_once()
                outcomes.append(Ending(outcome, self.federation.vectors_now))
            if rounds > 1 and (again := self.federation.repeat_once()) is not None:
                outcomes.append(Ending(again, self.federation.vectors_now))
        return outcomes


def scenario_of(seed: int) -> tuple[dict[str, Any], int]:
    """Draw members, dropouts and restarts from a seed, and the number of rounds."""
    random = Random(seed)
    members = random.choice((3, 4, 5, 5, 6, 6))
    lost = random.choice((0, 0, 1, 2))
    drop = {member: random.choice(list(After)[1:]) for member in random.sample(range(members), lost)}
    decryptors = random.choice(((), (), tuple(range(members - 1)))) if members > 4 else ()
    restart = random.random() < 0.3
    scenario = {"members": members, "drop": drop, "seed": seed, "restart": restart, "decryptors": decryptors}
    if members > 4 and random.random() < 0.3:
        scenario["margin"] = 1
    elif members > 4 and random.random() < 0.3:
        scenario["tamper"] = swallowing(Pairing, f"member-{random.randrange(members)}")
    return {**scenario, "question": SMALL}, random.choice((1, 2, 3))


def apart(stage: Stage) -> Stage:
    """Return the stage with its own copy of the shelf, so that an accepted mutant affects no other stage."""
    setting: Any = getattr(stage.phase, "setting", None)
    if not isinstance(getattr(setting, "shelf", None), MemoryShelf):
        return stage
    shelf = copy(setting.shelf)
    vars(shelf).update({name: copy(kept) for name, kept in vars(shelf).items()})
    return replace(stage, phase=replace(stage.phase, setting=replace(setting, shelf=shelf)))


class Live(Recorder):
    """Mutate messages on the way.

    Args:
        seed: fixes every scenario and every mutation.
        mutants: number of mutants of each message.
    """

    def __init__(self, seed: int, mutants: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.mutator = Mutator(self.random, self.pool)
        self.mutants, self.tally = mutants, Tally()
        self.replaced = False
        self.signed: dict[tuple[object, ...], object] = {}

    def deliver(self, phase: Any, message: Message, rest: tuple[Any, ...]) -> Any:
        """Try the mutants; then deliver the message, or rarely an accepted mutant."""
        self._check_vote(message)
        try:
            return super().deliver(phase, message, rest)
        finally:
            taken = self._fire(self.stages.pop())
            # a mutated opening needs another vector, which the simulator doesn't have
            if taken and not isinstance(message, Opening) and self.random.random() < REPLACED_SHARE:
                self.replaced = True
                return self.random.choice(taken)  # noqa: B012 - the mutant takes the message's place, fault or not

    def _fire(self, stage: Stage) -> list[Any]:
        taken = []
        for _ in range(self.mutants):
            data, resigned = mutated(stage, stage.message, self.mutator)
            if data != stage.message.to_bytes():
                result = deliver(apart(stage), data, self.tally, resigned=resigned)
                if result is not None:
                    taken.append(result)
        return taken

    def chunk(self, phase: Any, member: str, index: int) -> None:
        """Try mutants of a chunk on the phase that is about to check it."""
        spool = self.federation.spool
        fire(phase, member, index, spool, self.mutator, self.tally, self.mutants, copied=self.replaced)

    def campaign(self, messages: int) -> Tally:
        """Run seeded scenarios until this many mutants were delivered."""
        seed = self.random.randrange(1 << 30)
        while self.tally.delivered < messages:
            seed += 1
            scenario, rounds = scenario_of(seed)
            self.replaced = False
            try:
                outcomes = self.run(scenario, rounds)
                for ending in outcomes:
                    self._check(ending)
                if len(outcomes) < rounds:
                    self.tally.rounds["stopped at enrolment"] += 1
            except Exception as error:  # noqa: BLE001 - the round itself failed
                place = place_of(error)
                self.tally.violation(
                    f"a round of seed {seed}: {place}: {error}", b"", key=f"a round: {place}"
                )
        return self.tally

    def _check_vote(self, message: Any) -> None:
        """Check that no party signs two outcomes of one context."""
        if hasattr(message, "signature") and hasattr(message, "outcome"):
            place = (type(message), message.context, message.member)
            if self.signed.setdefault(place, message.outcome) != message.outcome:
                self.tally.violation(
                    f"{message.member} signed two outcomes of one context", message.to_bytes()
                )

    def _check(self, ending: Ending) -> None:
        outcome = ending.outcome
        self.tally.rounds[f"{outcome.phase.name}{' after a mutant' if self.replaced else ''}"] += 1
        if not isinstance(outcome.phase, Ended):
            self.tally.violation(f"a round ended {outcome.phase}", b"")
        if outcome.total is None:
            if not isinstance(outcome.fault, PeerFault):
                self.tally.violation(f"a round ended {outcome.phase} without a fault", b"")
            return
        # a mutated upload may cause its dealer to be certified, evicted and left out of the sum
        assert isinstance(outcome.phase, Recovered)
        summed = outcome.phase.summed_members
        if not np.array_equal(outcome.total, ending.exact(summed)):
            self.tally.violation(f"the sum over {summed} is not exact", b"")


def mutated(stage: Stage, message: Message, mutator: Mutator) -> tuple[bytes, bool]:
    """Return a mutant of a message for this stage, and whether a signature in it was made again."""
    changed, data = mutator.message(message)
    if changed is not None and mutator.random.random() < RESIGNED_SHARE:
        resigned = stage.signers.resign(changed, stage.message)
        if resigned is not None:
            return encode(resigned), True
    return data, False


def largest(seed: int, top: int = rest.MAX_MESSAGE_BYTES - (1 << 12)) -> Tally:
    """Try every message type on every kind of phase, with each list and byte string at its maximum length, signed and unsigned."""
    recorder, tally, kept = Recorder(), Tally(), dict[str, Stage]()
    for number in range(8):
        scenario, rounds = scenario_of(seed + number)
        recorder.run(scenario, rounds)
        kept |= {stage.name: stage for stage in recorder.stages}
        recorder.stages.clear()
    for stage in kept.values():
        for value in inflated(stage.message, top):
            assert isinstance(value, Message)
            deliver(stage, encode(value), tally, resigned=False)
            resigned = stage.signers.resign(value, stage.message)
            if isinstance(resigned, Message):
                deliver(stage, encode(resigned), tally, resigned=True)
    return tally
