"""What all of a member's phases share: they are stored before any message leaves, and refuse what they do not name.

    Enrolled ──cards──▶ Ready ──opening──▶ Opened ──(own vector)──▶ Uploaded
                          ▲                  │                        │
                          │                  └──────deliveries────────┴──▶ Checked ──freeze──▶ Voted
                          │                                             (receipt)            (vote)
                          │                                                                    │
                          └───────next opening────── Closed ◀──────────certificate─────────────┘
                                                    (reveal)

From Opened on, a void request is answered by a VOID vote, and a certificate, an Erasure, the admin's Lost or the terms' latest
end ends the attempt, whatever the phase. Past the latest end its secrets are erased, and an erasure request is answered.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from protocol.causes import Cause
from protocol.codec import Headed
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages.base import Message

if TYPE_CHECKING:
    from protocol.member.history import History

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


class MemberPhase(Headed, ABC):
    """One phase of a member: a value that is stored, and answers messages by a next phase and replies."""

    version: ClassVar[int] = 3

    def receive(self, message: Message, key: SigningKey, now_s: float) -> Step:
        """Answer a message from the coordinator, or the admin's.

        Args:
            message: what came.
            key: the member's identity, which signs the replies.
            now_s: Unix time in seconds.

        Returns:
            The next phase, to be stored durably first, and the messages to send after that.

        Raises:
            PeerFault: the message breaks a rule; the phase stays as it was.
        """
        handler = self.handlers().get(type(message))
        if handler is None:
            said = f"a member that is {type(self).__name__} takes no {type(message).__name__}"
            raise PeerFault(Cause.WRONG_PHASE, said)
        return handler(message, key, now_s)

    def lapse(self, now_s: float) -> "MemberPhase":
        """The phase once its time has passed, without the secrets of the attempt; itself where none are due."""
        del now_s
        return self

    def outbox(self) -> tuple[Message, ...]:
        """What is sent again after a restart: the very bytes that this phase sent when it was entered."""
        return ()

    @abstractmethod
    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """What this phase takes, and the method that answers it."""

    @abstractmethod
    def knowing(self, history: "History") -> "MemberPhase":
        """The same with what it learned in other cohorts of the federation since: the newest history that is stored."""
