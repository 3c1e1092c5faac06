"""What the coordinator's phases share: they refuse what they do not name, and move on when their time is up.

    Enrolling ──3 or 4 cards──▶ Collecting ──close──▶ Checking ──receipts, or time──▶ Freezing ──3 votes──▶ Summing
                                    │                    │                              │                   │ two holders
                                    │ too few            │ too few                      │ no 3 votes left   ▼ agree on each
                                    └────────────────────┴────────▶ Voiding ◀───────────┘               Recovered
                                                                       │ 3 votes        otherwise ▶ Lost ◀──┘
                                                                       ▼
                                      Voided            Freezing, Voiding ──the admin's word──▶ Lost

A phase is a value: what it answers is the next one. Clients' vectors are the driver's to keep; a phase sees their
announcements, and never holds a chunk.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.messages import Ended
from protocol.messages.base import Message

Entry = TypeVar("Entry", bound=Message)


@dataclass(frozen=True)
class HelperWindows:
    """How long each phase waits, in seconds. They stand outside the terms: extending one changes no context."""

    upload_s: float = 86_400.0
    check_s: float = 600.0
    freeze_s: float = 600.0
    sum_s: float = 3_600.0


@dataclass(frozen=True)
class HelperSetting:
    """What stays the same through an attempt.

    Attributes:
        history: how the attempts ended whose head the opening carries.
    """

    attempt: HelperAttempt
    windows: HelperWindows
    history: tuple[Ended, ...] = ()


@dataclass(frozen=True)
class CoordinatorPhase(ABC):
    """One phase of an attempt on the coordinator's side.

    Attributes:
        setting: the attempt and its windows.
        deadline_s: Unix time in seconds at which `expire` is due; None where only a helper or the admin moves it on.
    """

    name: ClassVar[str]
    late: ClassVar[tuple[type[Message], ...]] = ()
    """Answers to an earlier phase's question: unread and without effect."""
    setting: HelperSetting
    deadline_s: float | None

    @property
    def attempt(self) -> HelperAttempt:
        """Roster and opening."""
        return self.setting.attempt

    def receive(self, message: Message, now_s: float) -> "CoordinatorPhase":
        """The phase after a helper's message; the same message again changes nothing.

        Raises:
            PeerFault: the message breaks a rule, or the phase does not take it.
        """
        if isinstance(message, self.late):
            return self
        handler = self.handlers().get(type(message))
        if handler is None:
            raise PeerFault(
                Cause.WRONG_PHASE, f"the attempt is {self.name} and takes no {type(message).__name__}"
            )
        return handler(message, now_s)

    def handlers(self) -> "dict[type[Message], Callable[[Any, float], CoordinatorPhase]]":
        """What this phase takes, and the method that answers it."""
        return {}

    @abstractmethod
    def request_for(self, helper: str) -> Message | None:
        """What `helper` has to answer now, or None."""

    def waiting_for(self) -> tuple[str, ...]:
        """The helpers whose answers would move the attempt on."""
        return ()

    def expire(self, now_s: float) -> "CoordinatorPhase":
        """The phase after `deadline_s` has passed."""
        raise Misuse(f"an attempt that is {self.name} has no deadline to pass at {now_s}")

    def cancel(self, now_s: float, reason: str = "") -> "CoordinatorPhase":
        """The phase after the operator gave the attempt up; an ended one stays as it is."""
        from protocol.helpers.coordinator.voiding import Voiding  # noqa: PLC0415 - the phases form a cycle

        return Voiding.begin(self.setting, now_s, cancelled(reason))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.attempt.context.hex()[:16]}>"


def cancelled(reason: str) -> PeerFault:
    """The fault of an attempt that its operator gave up, in the operator's words."""
    return PeerFault(Cause.CANCELLED, reason, ["operator"])


def added(entries: Mapping[str, Entry], helper: str, message: Entry) -> dict[str, Entry] | None:
    """`entries` with one more; None if it stands there already; PeerFault(conflict) if another does."""
    known = entries.get(helper)
    if known is None:
        return {**entries, helper: message}
    if known != message:
        raise PeerFault(
            Cause.CONFLICT, f"{helper} has sent another {type(message).__name__} before", [helper]
        )
    return None
