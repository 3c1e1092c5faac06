"""The rules that must hold for any input, and a campaign's tally."""

import json
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any, Self

from assurance.fuzz.mutator import encode, parts
from assurance.fuzz.signing import Signers, signed
from veilsum.protocol.codec import Headed, Struct
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import load_phase
from veilsum.protocol.member.base import MemberPhase
from veilsum.protocol.messages import Message, ShownCiphertext, parse_message

SLOW_S = 1.0
"""Longest processor time that a message may cost a party."""

KEPT_BYTES = 1 << 16
"""How much of a message a report holds."""


@dataclass
class Tally:
    """Counts of a campaign, and broken rules, one for each place in the code.

    Attributes:
        messages: mutants by the type of their original.
        causes: refusals by cause; "accepted" and "no-change" for mutants that weren't refused.
        rounds: endings of live rounds, and how many rounds continued from a mutant.
        delivered: mutants that were put into a phase.
        resigned: delivered mutants with a new signature, by the type of their original.
        slowest_s: processor time of the slowest call; `slowest` names it.
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
        """Run `action`; return None if it raised. An exception that isn't allowed is a violation."""
        started = process_time()
        try:
            return action()
        except allowed as fault:
            self.causes[fault.cause.value if isinstance(fault, PeerFault) else type(fault).__name__] += 1
        except Exception as error:  # noqa: BLE001 - any other exception is a finding
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
        """Keep the first violation with this key. A message near the size limit comes again from the seed, and is cut."""
        cut = f"... of {len(data):,} bytes" if len(data) > KEPT_BYTES else ""
        self.violations.setdefault(key or what, f"{what} <- {data[:KEPT_BYTES].hex()}{cut}")

    def add(self, other: "Tally") -> None:
        """Add another campaign's tally."""
        self.messages += other.messages
        self.causes += other.causes
        self.rounds += other.rounds
        self.delivered += other.delivered
        self.resigned += other.resigned
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest
        self.violations = {**other.violations, **self.violations}

    def to_json(self) -> str:
        """Serialise for another process."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        counters = {name: Counter(values[name]) for name in ("messages", "causes", "rounds", "resigned")}
        return cls(**{**values, **counters})


def place_of(error: Exception) -> str:
    """Return an exception's class and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"


@dataclass(frozen=True)
class Stage:
    """A message in delivery: the phase that is about to receive it, the other arguments, and the next phase.

    Attributes:
        after: result of the unchanged message; None if it was refused.
        signers: keys of this simulation.
    """

    phase: Any
    message: Message
    rest: tuple[Any, ...]
    after: Any
    signers: Signers

    @property
    def name(self) -> str:
        """The classes of the phase and the message."""
        return f"{type(self.phase).__name__} < {type(self.message).__name__}"

    def admit(self, message: Message) -> Any:
        """Return the phase's result for a message."""
        return self.phase.receive(message, *self.rest)


def deliver(stage: Stage, data: bytes, tally: Tally, *, resigned: bool) -> Any:
    """Put `data` into the stage's phase; return the next phase and messages if it was accepted and changed something."""

    parsed = list[Message]()

    def receive() -> Any:
        parsed.append(parse_message(data))
        return stage.admit(parsed[0])

    form = type(stage.message).__name__
    tally.messages[form] += 1
    tally.resigned[form] += resigned
    tally.delivered += 1
    result = tally.call(stage.name, data, receive, (PeerFault,))
    if parsed and encode(parsed[0]) != data:
        tally.violation(f"{stage.name}: decodes, but is encoded otherwise", data)
    if result is None:
        return None
    after = phase_of(result)
    if after is stage.phase or after == stage.phase:
        tally.causes["no-change"] += 1
        return None
    tally.causes["accepted"] += 1
    if after != phase_of(stage.after):
        for what in forgeries(stage, parsed[0]):
            tally.violation(f"{stage.name}: accepted {what}", data, key=f"{stage.name}: {what}")
    if isinstance(after, MemberPhase) and load_phase(after.to_bytes()) != after:
        tally.violation(f"{stage.name}: a phase that storage changes", data)
    return result


def phase_of(result: Any) -> Any:
    """Return the phase in a member's or the coordinator's result."""
    return result[0] if isinstance(result, tuple) else result


def _unsigned(part: Struct) -> Struct:
    return replace(part, signature=b"")  # type: ignore[type-var]  # every subclass is a dataclass


def forgeries(stage: Stage, message: Headed) -> list[str]:
    """Return parts of an accepted message that their alleged author never signed."""
    honest = set(parts(stage.message))
    # another signature on an honest text reveals nothing new: where only the text counts, the signature isn't checked
    words = {_unsigned(part) for part in honest if signed(part)}
    found = []
    for part in set(parts(message)) - honest:
        if signed(part) and _unsigned(part) not in words and not stage.signers.genuine(part):
            found.append(f"a forged {type(part).__name__}")
        if isinstance(part, ShownCiphertext) and not stage.signers.sent(part):
            found.append("a ciphertext that its sender did not send")
        # the roots in an honest header also sign what is below them
        if getattr(part, "header", None) in honest:
            found.append(f"a {type(part).__name__} that its header does not cover")
    if getattr(message, "votes", ()) and message.outcome != getattr(stage.message, "outcome", None):  # type: ignore[attr-defined]  # whatever has votes has an outcome
        found.append("a certificate of another outcome")
    return found
