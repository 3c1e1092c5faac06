"""What all of a member's phases share: they are stored before any message leaves, and refuse what they do not name.

    Enrolled ──cards──▶ Ready ──opening──▶ Opened ──(own vector)──▶ Uploaded
                          ▲                  │                        │
                          │                  └──────deliveries────────┴──▶ Checked ──freeze──▶ Voted
                          │                                             (receipt)            (vote)
                          │                                                                    │
                          └───────next opening────── Closed ◀──────────certificate─────────────┘
                                                    (reveal)

From Opened on, a void request is answered by a VOID vote, a request for a report leads to Reported, and a certificate, the
admin's Lost or the terms' latest end ends the attempt, whatever the phase.
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

Step: TypeAlias = "tuple[MemberPhase, tuple[Message, ...]]"
"""The next phase, to be stored durably first, and the messages to send after that."""


class PhaseKind(IntEnum):
    """The second byte of a stored phase."""

    ENROLLED = 1
    READY = 2
    OPENED = 3
    UPLOADED = 4
    CHECKED = 5
    VOTED = 6
    CLOSED = 7
    REPORTED = 8


class MemberPhase(Headed, ABC):
    """One phase of a member: a value that is stored, and answers messages by a next phase and replies."""

    version: ClassVar[int] = 2

    def receive(self, message: Message, key: SigningKey, now_s: float) -> Step:
        """Answer a message from the coordinator.

        Args:
            message: what came.
            key: the member's identity, which signs the replies.
            now_s: Unix time in seconds.

        Raises:
            PeerFault: the message breaks a rule; the phase stays as it was.
        """
        handler = self.handlers().get(type(message))
        if handler is None:
            raise PeerFault(
                Cause.WRONG_PHASE, f"a member that is {type(self).__name__} takes no {type(message).__name__}"
            )
        return handler(message, key, now_s)

    def lapse(self, now_s: float) -> "MemberPhase":
        """The phase once the terms' latest end has passed: without the keys of that round. Itself where none is due."""
        del now_s
        return self

    def outbox(self) -> tuple[Message, ...]:
        """What a restarted member sends again: the very bytes that this phase sent when it was entered."""
        return ()

    @abstractmethod
    def handlers(self) -> "dict[type[Message], Callable[..., Step]]":
        """What this phase takes, and the method that answers it."""
