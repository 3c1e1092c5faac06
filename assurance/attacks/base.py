"""Attacks: one false message at a known place of a recorded round, or a play with several steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from assurance.vectors.rounds import played
from assurance.vectors.stage import ENROLMENT, clock, coordinator_at, log_of, member_at, message_of, position
from tests.support.forging import again
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Struct
from veilsum.protocol.coordinator import PairingWindow
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Freeze, Message, Refusal, parse_message
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
    "count abuse",
    "ciphertexts exchanged, withheld or replayed",
    "ML-KEM keys exchanged, malformed or used twice",
    "another manifest while members pair, or after",
    "downgrade to keys without ML-KEM",
    "transcripts doctored",
    "records doctored",
)
"""What every implementation must survive. Each entry has at least one attack."""

M = TypeVar("M", bound=Signed)


@dataclass(frozen=True)
class Attack(ABC):
    """An attack and the refusal that it must meet.

    Attributes:
        name: describes the attack.
        rule: of docs/protocol, which stops the attack.
        survives: the entry of `SURVIVED`.
        cause: the exact cause of the refusal.
        parties: the exact parties that the refusal names.
    """

    name: str
    rule: str
    survives: str
    cause: Cause
    parties: tuple[str, ...]

    @abstractmethod
    def run(self) -> PeerFault:
        """Carry out the attack, and return its refusal."""


class Forger:
    """All keys of a recorded round, and its messages."""

    def __init__(self, round_: str, attempt: int) -> None:
        self.federation, self.round, self.attempt = played(round_).federation, round_, attempt

    @property
    def now_s(self) -> int:
        """The time at which the round was begun."""
        return int(played(self.round).document["now_s"])

    def key(self, who: str) -> SigningKey:
        """Return the key of a member, of "admin" or of "coordinator"."""
        named = {"admin": self.federation.admin, "coordinator": self.federation.coordinator}
        return named.get(who) or self.federation.keys[who]

    def again(self, message: M, who: str, **changes: Any) -> M:
        """Change fields of a message, and sign it as `who`."""
        return again(message, self.key(who), **changes)

    def said(
        self,
        form: type[Message],
        source: str,
        to: str = "coordinator",
        nth: int = 0,
        attempt: int | None = None,
    ) -> Any:
        """Return a recorded message: the `nth` of this type from `source` to `to`."""
        number = self.attempt if attempt is None else attempt
        at = position(self.round, number, source, to, form, nth)
        return message_of(self.round, log_of(played(self.round).document, number)[at][2])

    def share_of(self, dealer: str, holder: str, index: int) -> bytes:
        """Return a share that a dealer dealt in the first attempt."""
        members = played(self.round).document["attempts"][0]["members"]
        shares = bytes.fromhex(members[dealer]["shares"][holder])
        return shares[36 * index : 36 * (index + 1)]


Make = Callable[[Any, Forger], Struct | bytes]


@dataclass(frozen=True)
class Shown(Attack):
    """A false message that replaces an honest one.

    Attributes:
        round: name of the vector file's round.
        attempt: its number in the round; -1 while the cohort forms.
        source: sender.
        to: receiver.
        form: type of the replaced message, of which it is the `nth`.
        make: makes the false message, or its bytes, from the honest one.
        after: whether the receiver has already received the honest message.
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
        """The number of log entries that the receiver has received."""
        found = position(self.round, self.attempt, self.source, self.to, self.form, self.nth)
        return found + self.after

    @property
    def honest(self) -> tuple[int, Message]:
        """The honest message, with its number in the round."""
        index: int = log_of(played(self.round).document, self.attempt)[self.place - self.after][2]
        return index, message_of(self.round, index)

    @property
    def message(self) -> bytes:
        """The bytes of the false message."""
        made = self.make(self.honest[1], Forger(self.round, self.attempt))
        return made if isinstance(made, bytes) else made.to_bytes()  # type: ignore[attr-defined]  # a message

    @property
    def clock_s(self) -> float:
        """The receiver's clock."""
        return clock(played(self.round).document, self.honest[1]) if self.now_s is None else self.now_s

    def run(self) -> PeerFault:
        """Show the false message to its receiver."""
        data = self.message
        now_s = self.clock_s
        try:
            if self.to == "coordinator":
                coordinator, message = (
                    coordinator_at(self.round, self.attempt, self.place),
                    parse_message(data),
                )
                pairs = isinstance(coordinator, PairingWindow)
                answered = coordinator.receive(message) if pairs else coordinator.receive(message, now_s)
                raise AssertionError(f"{self.name}: it went on to {answered}")
            key, phase = member_at(self.round, self.to, self.attempt, self.place)
            _, answers = phase.receive(parse_message(data), key, now_s)
        except PeerFault as fault:
            return fault
        if self.form is Freeze and isinstance(answers[0], Refusal):
            # A decryptor that doesn't sign gives its reason in a signed Refusal.
            return PeerFault(Cause(answers[0].cause), "")
        raise AssertionError(f"{self.name}: answered by {answers}")


@dataclass(frozen=True)
class Decoded(Attack):
    """Bytes that every decoder must refuse."""

    data: Callable[[], bytes]

    @property
    def message(self) -> bytes:
        return self.data()

    def run(self) -> PeerFault:
        """Decode the bytes."""
        try:
            found = parse_message(self.message)
        except PeerFault as fault:
            return fault
        raise AssertionError(f"{self.name}: decoded as {found}")


@dataclass(frozen=True)
class Played(Attack):
    """A play with its own steps. It raises the final refusal, after its own assertions."""

    play: Callable[[], object]

    def run(self) -> PeerFault:
        """Run the play."""
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
        self, name: str, rule: str, survives: str, cause: Cause, make: Make, *parties: str, **where: Any
    ) -> None:
        """Add an attack."""
        self.attacks.append(
            Shown(name, rule, survives, cause, parties, **{**self.shared, **where}, make=make)
        )


def patched(message: Message, old: bytes, new: bytes) -> bytes:
    """Replace some of a message's bytes by others that no encoder writes."""
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
