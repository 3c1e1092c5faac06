"""What must hold whatever comes in, and the tally of a campaign."""

import json
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any, Self

from assurance.fuzz.mutator import parts
from assurance.fuzz.signing import Signers, signed
from veilsum.protocol.codec import Headed, Struct
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import load_phase
from veilsum.protocol.member.base import MemberPhase
from veilsum.protocol.messages import Message, parse

SLOW_S = 1.0
"""No message may keep a party busy longer, in seconds of processor time."""


@dataclass
class Tally:
    """Counts of a campaign, and what broke a rule, each once for each place in the code.

    Attributes:
        messages: mutants by what they were made from.
        causes: how they were refused, by cause; "accepted" and "no-change" where they were not.
        rounds: how live rounds ended, and how many went on from a mutant.
        delivered: mutants that were put into a phase.
        resigned: those of them with a signature made again, by what they were made from.
        slowest_s: processor time of the slowest call, and `slowest` what it was.
        violations: by place, the first message that broke a rule there.
    """

    messages: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)
    resigned: Counter[str] = field(default_factory=Counter)
    delivered: int = 0
    slowest_s: float = 0.0
    slowest: str = ""
    violations: dict[str, str] = field(default_factory=dict)

    def call(
        self, what: str, data: bytes, action: Callable[[], Any], allowed: tuple[type[Exception], ...]
    ) -> Any:
        """Run `action`; None where it raised what it may, or what it may not: that is a violation."""
        started = process_time()
        try:
            return action()
        except allowed as fault:
            self.causes[fault.cause.value if isinstance(fault, PeerFault) else type(fault).__name__] += 1
        except Exception as error:  # noqa: BLE001 - any other exception is what is looked for
            self.violation(
                f"{what}: {place_of(error)}: {str(error)[:200]}", data, key=f"{what}: {place_of(error)}"
            )
        finally:
            seconds = process_time() - started
            if seconds > self.slowest_s:
                self.slowest_s, self.slowest = seconds, what
            if seconds > SLOW_S:
                self.violation(f"{what}: {seconds:.2f} s", data, key=f"{what}: slow")
        return None

    def violation(self, what: str, data: bytes, key: str = "") -> None:
        """Keep the first of its kind."""
        self.violations.setdefault(key or what, f"{what} <- {data.hex()}")

    def add(self, other: "Tally") -> None:
        """Count another campaign in."""
        self.messages += other.messages
        self.causes += other.causes
        self.rounds += other.rounds
        self.delivered += other.delivered
        self.resigned += other.resigned
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest
        self.violations = {**other.violations, **self.violations}

    def to_json(self) -> str:
        """For another process."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        values = json.loads(text)
        counters = {name: Counter(values[name]) for name in ("messages", "causes", "rounds", "resigned")}
        return cls(**{**values, **counters})


def place_of(error: Exception) -> str:
    """An exception's class and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"


@dataclass(frozen=True)
class Stage:
    """A message on its way: the phase that is about to take it, what else it is given, and the phase that followed.

    Attributes:
        after: what came of the message as it was; None where it was refused.
        signers: who may sign in this simulation.
    """

    phase: Any
    message: Message
    rest: tuple[Any, ...]
    after: Any
    signers: Signers

    @property
    def name(self) -> str:
        """Phase and message by their classes."""
        return f"{type(self.phase).__name__} < {type(self.message).__name__}"

    def admit(self, message: Message) -> Any:
        """What the phase makes of a message."""
        return self.phase.receive(message, *self.rest)


def deliver(stage: Stage, data: bytes, tally: Tally, *, resigned: bool) -> Any:
    """Put `data` into the stage's phase; the phase and messages that follow where it was taken and changed something."""

    def receive() -> tuple[Message, Any]:
        message = parse(data)
        if message.to_bytes() != data:
            tally.violation(f"{stage.name}: decodes, but is encoded otherwise", data)
        return message, stage.admit(message)

    form = type(stage.message).__name__
    tally.messages[form] += 1
    tally.resigned[form] += resigned
    tally.delivered += 1
    taken = tally.call(stage.name, data, receive, (PeerFault,))
    if taken is None:
        return None
    message, result = taken
    after = phase_of(result)
    if after is stage.phase or after == stage.phase:
        tally.causes["no-change"] += 1
        return None
    tally.causes["accepted"] += 1
    if after != phase_of(stage.after):
        for what in forgeries(stage, message):
            tally.violation(f"{stage.name}: accepted {what}", data, key=f"{stage.name}: {what}")
    if isinstance(after, MemberPhase) and load_phase(after.to_bytes()) != after:
        tally.violation(f"{stage.name}: a phase that storage changes", data)
    return result


def phase_of(result: Any) -> Any:
    """The phase of a member's step, or of the coordinator's answer."""
    return result[0] if isinstance(result, tuple) else result


def _unsigned(part: Struct) -> Struct:
    return replace(part, signature=b"")  # type: ignore[type-var]  # every subclass is a dataclass


def forgeries(stage: Stage, message: Headed) -> list[str]:
    """What in an accepted message its alleged author never signed."""
    honest = set(parts(stage.message))
    # another signature under honest words says nothing new: where only the words count, it is not looked at
    words = {_unsigned(part) for part in honest if signed(part)}
    found = []
    for part in set(parts(message)) - honest:
        if signed(part) and _unsigned(part) not in words and not stage.signers.genuine(part):
            found.append(f"a forged {type(part).__name__}")
        # what hangs below an honest header by its roots is signed with it
        if getattr(part, "header", None) in honest:
            found.append(f"a {type(part).__name__} that its header does not cover")
    if getattr(message, "votes", ()) and message.outcome != getattr(stage.message, "outcome", None):  # type: ignore[attr-defined]  # whatever has votes has an outcome
        found.append("a certificate of another outcome")
    return found
