"""What an attack is: one false message at a known place of a recorded round, or a play of its own."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from assurance.vectors.rounds import played
from assurance.vectors.stage import ENROLMENT, clock, coordinator_at, log_of, member_at, message_of, position
from tests.support.forging import again
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Struct
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Freeze, Message, Refusal, parse
from veilsum.protocol.messages.base import Signed

SURVIVED = (
    "other cards or roster for one victim",
    "Sybil",
    "rolled-back roster",
    "terms changed mid-cohort",
    "split survivors",
    "two attempts, two sets",
    "both secrets of one member",
    "share order chosen by the coordinator",
    "padded S",
    "shrunk cohort",
    "isolating a victim on a sparse graph",
    "mask or box key reuse after a rollback",
    "different model per member",
    "overlapping rounds, three rounds",
    "replay across attempts, rounds, cohorts, federations",
    "low-order points",
    "t, a, n_min too low",
    "duplicate indices",
    "wrong, short, non-canonical shares",
    "a dealer framing a decryptor and the reverse",
    "overflow",
    "NaN, Inf, shape, norm",
    "truncated or extra chunk",
    "digest mismatch",
    "partial upload counted",
    "left-over bytes",
    "oversized anything",
    "path tricks in ids",
    "clock skew",
    "equivocating decryptor",
    "grinding",
    "a secret in a log, repr, error or metric",
    "LOST abuse",
    "erasure abuse",
    "study abuse",
    "repeat abuse",
    "indicator abuse",
    "transcripts doctored",
    "records doctored",
)
"""What every implementation must survive; each has an attack at least."""

M = TypeVar("M", bound=Signed)


@dataclass(frozen=True)
class Attack(ABC):
    """Something false, and what it meets.

    Attributes:
        name: says what is done.
        clause: of docs/protocol.md, which stops it.
        survives: which of `SURVIVED` it is one of.
        cause: what it is refused for, exactly.
        parties: whom the refusal names, exactly.
    """

    name: str
    clause: str
    survives: str
    cause: Cause
    parties: tuple[str, ...]

    @abstractmethod
    def run(self) -> PeerFault:
        """Attack; how it was refused."""


class Forger:
    """Everybody's keys in a recorded round, and what was said in it."""

    def __init__(self, round_: str, attempt: int) -> None:
        self.federation, self.round, self.attempt = played(round_).federation, round_, attempt

    def key(self, who: str) -> SigningKey:
        """A member's, the admin's or the coordinator's."""
        named = {"admin": self.federation.admin, "coordinator": self.federation.coordinator}
        return named.get(who) or self.federation.keys[who]

    def again(self, message: M, who: str, **changes: Any) -> M:
        """The message changed, and signed by this one."""
        return again(message, self.key(who), **changes)

    def said(
        self,
        form: type[Message],
        source: str,
        to: str = "coordinator",
        nth: int = 0,
        attempt: int | None = None,
    ) -> Any:
        """What was said otherwise."""
        number = self.attempt if attempt is None else attempt
        at = position(self.round, number, source, to, form, nth)
        return message_of(self.round, log_of(played(self.round).document, number)[at][2])


Make = Callable[[Any, Forger], Struct | bytes]


@dataclass(frozen=True)
class Shown(Attack):
    """One message, instead of an honest one.

    Attributes:
        round: the vector's round.
        attempt: number in it; -1 while cards are exchanged.
        source: who says it.
        to: who hears it.
        form: which message it stands for; the nth of them.
        make: the false one, as a message or bytes, from the honest one.
        after: whether the honest one came before it.
        now_s: the receiver's clock; None for the round's.
    """

    round: str
    attempt: int
    source: str
    to: str
    form: type[Message]
    make: Make
    nth: int = 0
    after: bool = False
    now_s: float | None = None

    @property
    def place(self) -> int:
        """How much of the log its receiver has heard."""
        found = position(self.round, self.attempt, self.source, self.to, self.form, self.nth)
        return found + self.after

    @property
    def honest(self) -> tuple[int, Message]:
        """The message that it stands for, with its number in the round."""
        index: int = log_of(played(self.round).document, self.attempt)[self.place - self.after][2]
        return index, message_of(self.round, index)

    @property
    def message(self) -> bytes:
        """The bytes."""
        made = self.make(self.honest[1], Forger(self.round, self.attempt))
        return made if isinstance(made, bytes) else made.to_bytes()  # type: ignore[attr-defined]  # a message

    @property
    def clock_s(self) -> float:
        """The receiver's clock."""
        return clock(played(self.round).document, self.honest[1]) if self.now_s is None else self.now_s

    def run(self) -> PeerFault:
        """Show it."""
        data = self.message
        now_s = self.clock_s
        try:
            if self.to == "coordinator":
                answered = coordinator_at(self.round, self.attempt, self.place).receive(parse(data), now_s)
                raise AssertionError(f"{self.name}: it went on to {answered}")
            key, phase = member_at(self.round, self.to, self.attempt, self.place)
            _, answers = phase.receive(parse(data), key, now_s)
        except PeerFault as fault:
            return fault
        if self.form is Freeze and isinstance(answers[0], Refusal):
            # A decryptor says with its signature why it does not sign.
            return PeerFault(Cause(answers[0].cause), "")
        raise AssertionError(f"{self.name}: answered by {answers}")


@dataclass(frozen=True)
class Decoded(Attack):
    """Bytes that no decoder takes."""

    data: Callable[[], bytes]

    @property
    def message(self) -> bytes:
        """The bytes."""
        return self.data()

    def run(self) -> PeerFault:
        """Decode them."""
        try:
            found = parse(self.message)
        except PeerFault as fault:
            return fault
        raise AssertionError(f"{self.name}: decoded as {found}")


@dataclass(frozen=True)
class Played(Attack):
    """A play of its own; it raises what it met in the end, after what it has shown itself."""

    play: Callable[[], object]

    def run(self) -> PeerFault:
        """Play it."""
        try:
            result = self.play()
        except PeerFault as fault:
            return fault
        raise AssertionError(f"{self.name}: it ended with {result}")


class Chapter:
    """Attacks that share a receiver and a round."""

    def __init__(
        self, source: str, to: str, form: type[Message], round_: str = "complete", attempt: int = 0
    ) -> None:
        self.shared = {"source": source, "to": to, "form": form, "round": round_, "attempt": attempt}
        self.attacks: list[Attack] = []

    def add(
        self, name: str, clause: str, survives: str, cause: Cause, make: Make, *parties: str, **where: Any
    ) -> None:
        """One more."""
        self.attacks.append(
            Shown(name, clause, survives, cause, parties, **{**self.shared, **where}, make=make)
        )


def patched(message: Message, old: bytes, new: bytes) -> bytes:
    """The message's bytes with some of them exchanged, which no encoder writes."""
    data = message.to_bytes()
    assert data.count(old) >= 1, "nothing to exchange"
    return data.replace(old, new, 1)


LOW_ORDER = (
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
)

__all__ = [
    "ENROLMENT",
    "LOW_ORDER",
    "SURVIVED",
    "Attack",
    "Chapter",
    "Decoded",
    "Forger",
    "Played",
    "Shown",
    "patched",
]
