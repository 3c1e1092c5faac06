"""What all of a helper's phases share: they are stored before any message leaves, and refuse what they do not name.

    Standing ──(own key)──▶ Enrolled ──opening──▶ Opened ──deliveries──▶ Checked ──freeze──▶ Voted
      ▲  ▲                  (card)                  │                    (receipt)           (vote)
      │  │                                          └───── void request ────┴──────────────────▲
      │  └────── certificate for VOID, or lost: from any phase of an attempt ──────────────────┤
      └─(sums)── Summing ◀──── certificate for a set whose seeds it holds ─────────────────────┘

An attempt is left by a certificate or by the admin's signature alone: two certificates meet in an honest helper, so no honest
helper votes without knowing every set that was certified before.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from typing import ClassVar, TypeAlias

from protocol.causes import Cause
from protocol.codec import Headed
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages.base import Message

Step: TypeAlias = "tuple[HelperPhase, tuple[Message, ...]]"
"""The next phase, to be stored durably first, and the messages to send after that."""


class HelperPhaseKind(IntEnum):
    """The second byte of a helper's stored phase."""

    STANDING = 32
    ENROLLED = 33
    OPENED = 34
    CHECKED = 35
    VOTED = 36
    SUMMING = 37


class HelperPhase(Headed, ABC):
    """One phase of a helper: a value that is stored, and answers messages by a next phase and replies."""

    version: ClassVar[int] = 1

    def receive(self, message: Message, key: SigningKey, now_s: float) -> Step:
        """Answer a message from the coordinator, or the admin's.

        Args:
            message: what came.
            key: the helper's identity, which signs the replies.
            now_s: Unix time in seconds.

        Raises:
            PeerFault: the message breaks a rule; the phase stays as it was.
        """
        handler = self.handlers().get(type(message))
        if handler is None:
            raise PeerFault(
                Cause.WRONG_PHASE, f"a helper that is {type(self).__name__} takes no {type(message).__name__}"
            )
        return handler(message, key, now_s)

    def lapse(self, now_s: float) -> "HelperPhase":
        """The phase once its time has passed, without the secrets of the attempt; itself where none are due."""
        del now_s
        return self

    def outbox(self) -> tuple[Message, ...]:
        """What a restarted helper sends again: the very bytes that this phase sent when it was entered."""
        return ()

    @abstractmethod
    def handlers(self) -> "dict[type[Message], Callable[..., Step]]":
        """What this phase takes, and the method that answers it."""
