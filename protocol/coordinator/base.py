"""What all of the coordinator's phases share: refuse what they do not name, and move on when their time is up.

    Collecting ──all uploads, or time──▶ Checking ──all receipts, or time──▶ Freezing ──t votes──▶ Revealing ⟲ evictions
        │                                   │                                   │                     │ t runs a dealer
        │ too few                           │ too few                           │ no t votes left     ▼
        └──────────────▶ Voiding ◀──────────┴───────────────────────────────────┘       Recovered, or Failed
                            │ t votes      no certificate to be had ▶ Lost ──the admin's signature──▶ Abandoned
                            ▼
                          Voided

A phase is a value: `receive` and `expire` return the next one and leave it as it was. What members must answer
is not sent but asked for: `request_for(member)` says what one of them has to answer now.
"""

from dataclasses import dataclass
from typing import Any

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import Past
from protocol.phases import AskingPhase, cancelled
from protocol.shelf import Shelf


@dataclass(frozen=True)
class Windows:
    """How long each phase waits, in seconds. They stand outside the terms: extending one changes no context.

    `grace_s` is how long receipts are still waited for once a threshold of them is in. Who comes later may still sign and
    reveal; what it says of boxes drops nobody any more.
    """

    upload_s: float = 3600.0
    check_s: float = 300.0
    freeze_s: float = 300.0
    reveal_s: float = 300.0
    grace_s: float = 15.0


@dataclass(frozen=True)
class Setting:
    """What stays the same through an attempt.

    Attributes:
        attempt: roster, manifest and opening.
        windows: how long each phase waits.
        history: how each attempt ended that the opening's links name, in order.
        shelf: where announcements are kept.
    """

    attempt: Attempt
    windows: Windows
    history: tuple[Past, ...]
    shelf: Shelf


@dataclass(frozen=True, repr=False)
class CoordinatorPhase(AskingPhase["CoordinatorPhase"]):
    """One phase of an attempt that members decrypt."""

    setting: Setting

    @property
    def attempt(self) -> Attempt:
        """Roster, manifest and opening."""
        return self.setting.attempt

    def cancel(self, now_s: float, reason: str = "") -> "CoordinatorPhase":
        """The phase after the operator gave the attempt up; an ended one stays as it is."""
        from protocol.coordinator.voiding import Voiding  # noqa: PLC0415 - the phases form a cycle

        return Voiding.begin(self.setting, now_s, cancelled(reason))

    def check_sender(self, member: str, context: bytes) -> None:
        """Refuse a message of another context, or of somebody who is no decryptor."""
        self.attempt.check_context(context, member)
        self.attempt.check_decryptor(member)


def added(entries: dict[str, Any], member: str, message: Any, cause: Cause) -> dict[str, Any] | None:
    """`entries` with one more; None if it stands there already, however it is signed; PeerFault(cause) if another does."""
    known = entries.get(member)
    if known is None:
        return {**entries, member: message}
    if known.digest != message.digest:
        raise PeerFault(cause, f"{member} has sent another {type(message).__name__.lower()} before", [member])
    return None
