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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.messages import Ended
from protocol.messages.base import Message
from protocol.phases import AskingPhase, cancelled

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


@dataclass(frozen=True, repr=False)
class CoordinatorPhase(AskingPhase["CoordinatorPhase"]):
    """One phase of an attempt that helpers decrypt."""

    setting: HelperSetting

    @property
    def attempt(self) -> HelperAttempt:
        """Roster and opening."""
        return self.setting.attempt

    def cancel(self, now_s: float, reason: str = "") -> "CoordinatorPhase":
        """The phase after the operator gave the attempt up; an ended one stays as it is."""
        from protocol.helpers.coordinator.voiding import Voiding  # noqa: PLC0415 - the phases form a cycle

        return Voiding.begin(self.setting, now_s, cancelled(reason))


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
