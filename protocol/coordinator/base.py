"""What all of the coordinator's phases share: refuse what they do not name, and move on when their time is up.

    Collecting ──all uploads, or time──▶ Checking ──all receipts, or time──▶ Freezing ──t votes──▶ Revealing ⟲ evictions
        │                                   │                                   │                     │ t runs a dealer
        │ too few                           │ too few                           │ no t votes left     ▼
        └──────────────▶ Voiding ◀──────────┴───────────────────────────────────┘       Recovered, or Failed
                            │ t votes
                            ▼
                          Voided        VoidedByErasure ◀──q reports── Erasing ──the admin's signature──▶ Lost

Once the terms' latest end has passed, any phase that has not ended is Erasing.

A phase is a value: `receive` and `expire` return the next one and leave it as it was. What members must answer
is not sent but asked for: `request_for(member)` says what one of them has to answer now.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.extending import extended
from protocol.messages import Message, SurvivorSet
from protocol.shelf import Shelf
from protocol.study import Question

GRACE_S = 15.0
"""How long receipts are still waited for once a threshold of them is in, at most."""


@dataclass(frozen=True)
class Windows:
    """How long each phase waits, in seconds. The study says so, and an operator may extend a phase.

    `grace_s` is how long receipts are still waited for once a threshold of them is in. A decryptor that comes later may still sign and
    reveal; its complaints drop no member any more.
    """

    upload_s: float
    check_s: float
    freeze_s: float
    grace_s: float

    @classmethod
    def of(cls, question: Question) -> "Windows":
        """Those of a study."""
        windows = question.windows
        return cls(windows.upload, windows.answer, windows.answer, min(GRACE_S, windows.answer))


@dataclass(frozen=True)
class Setting:
    """What stays the same through an attempt.

    Attributes:
        attempt: roster, study, manifest and opening.
        earlier: the certified set that the attempt rests on (`Freeze.earlier`): the repeated attempt's, or the indicator's.
        shelf: where announcements are kept.
    """

    attempt: Attempt
    earlier: tuple[SurvivorSet, ...]
    shelf: Shelf

    @property
    def windows(self) -> Windows:
        """How long each phase waits."""
        return Windows.of(self.attempt.question)

    def until(self, now_s: float, window_s: float) -> float:
        """When a window that begins now is over: at the terms' latest end at the latest."""
        return min(now_s + window_s, self.attempt.terms.latest_end_s)


@dataclass(frozen=True, repr=False)
class CoordinatorPhase(ABC):
    """One phase of an attempt on the coordinator's side.

    Attributes:
        setting: what stays the same through the attempt.
        deadline_s: Unix time in seconds at which `expire` is due; None where no time moves it on.
    """

    name: ClassVar[str]
    late: ClassVar[tuple[type[Message], ...]] = ()
    """Answers to an earlier phase's question: unread and without effect."""
    setting: Setting
    deadline_s: float | None

    @property
    def attempt(self) -> Attempt:
        """Roster, study, manifest and opening."""
        return self.setting.attempt

    def receive(self, message: Message, now_s: float) -> "CoordinatorPhase":
        """The phase after a message; the same message again changes nothing.

        Raises:
            PeerFault: the message breaks a rule, or the phase does not take it.
        """
        if isinstance(message, self.late):
            return self
        handler = self.handlers().get(type(message))
        if handler is None:
            said = f"the attempt is {self.name} and takes no {type(message).__name__.lower()}"
            raise PeerFault(Cause.WRONG_PHASE, said)
        return handler(message, now_s)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], "CoordinatorPhase"]]:
        """What this phase takes, and the method that answers it."""
        return {}

    @abstractmethod
    def request_for(self, member: str) -> Message | None:
        """What `member` has to answer now, or None."""

    def waiting_for(self) -> tuple[str, ...]:
        """Those whose answers would move the attempt on."""
        return ()

    def expire(self, now_s: float) -> "CoordinatorPhase":
        """The phase after its deadline; once the terms' latest end has passed, Erasing."""
        if self.deadline_s is None or now_s < self.attempt.terms.latest_end_s:
            return self.go_on(now_s)
        return self.overdue()

    def go_on(self, now_s: float) -> "CoordinatorPhase":
        """The phase after its own window."""
        raise Misuse(f"an attempt that is {self.name} has no deadline to pass at {now_s}")

    def overdue(self) -> "CoordinatorPhase":
        """The phase after the terms' latest end."""
        from protocol.coordinator.erasing import Erasing  # noqa: PLC0415 - the phases form a cycle

        said = f"the terms' latest end passed while the attempt was {self.name}"
        return Erasing(self.setting, None, PeerFault(Cause.TERMS_EXPIRED, said, self.waiting_for()))

    def extend(self, deadline_s: float) -> Self:
        """The phase with time until `deadline_s`, in Unix time; PeerFault as `extended`."""
        latest_end_s = self.attempt.terms.latest_end_s
        return replace(self, deadline_s=extended(self.name, self.deadline_s, deadline_s, latest_end_s))

    def cancel(self, now_s: float, reason: str = "") -> "CoordinatorPhase":
        """The phase after the operator gave the attempt up; an ended one stays as it is."""
        from protocol.coordinator.voiding import Voiding  # noqa: PLC0415 - the phases form a cycle

        del now_s
        return Voiding.begin(self.setting, cancelled(reason))

    def check_sender(self, member: str, context: bytes) -> None:
        """Refuse a message of another context, or of somebody who is no decryptor."""
        self.attempt.check_context(context, member)
        self.attempt.check_decryptor(member)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.attempt.context.hex()[:16]}>"


def cancelled(reason: str) -> PeerFault:
    """The fault of an attempt that its operator gave up, in the operator's words."""
    return PeerFault(Cause.CANCELLED, reason, ["operator"])


def added(entries: dict[str, Any], member: str, message: Any, cause: Cause) -> dict[str, Any] | None:
    """`entries` with one more; None if it stands there already, however it is signed; PeerFault(cause) if another does."""
    known = entries.get(member)
    if known is None:
        return {**entries, member: message}
    if known.digest != message.digest:
        raise PeerFault(cause, f"{member} has sent another {type(message).__name__.lower()} before", [member])
    return None
