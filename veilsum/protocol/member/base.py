"""The base of a member's phases. Each is stored before its messages are sent, and refuses messages that it does not list.

    Enrolled ──cards──▶ Paired ──ciphertexts──▶ Ready

                        Ready ──opening──▶ Opened ──(own vector)──▶ Uploaded
                          ▲                  │                        │
                          │                  └──────deliveries────────┴──▶ Checked ──freeze──▶ Voted
                          │                                             (receipt)            (vote)
                          │                                                                    │
                          └───────next opening────── Closed ◀──────────certificate─────────────┘
                                                    (reveal)

From Opened on, every phase answers a void request with a VOID vote, and ends on a certificate, an Erasure, the admin's Lost or
the terms' latest end. A member that is not Ready in time is Lapsed, and holds no keys. Past the latest end it erases the attempt's secrets and answers erasure requests.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Headed
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages.base import Message

if TYPE_CHECKING:
    from veilsum.protocol.member.history import History

Step: TypeAlias = "tuple[MemberPhase, tuple[Message, ...]]"
"""The next phase, and the messages to send once the phase is stored durably."""


class MemberPhase(Headed, ABC):
    """One immutable phase of a member, which answers a message with the next phase and replies."""

    version: ClassVar[int] = 4
    forms: ClassVar[dict[int, type["MemberPhase"]]] = {}
    handlers: ClassVar[dict[type[Message], Callable[..., Step]]]
    """Handler of each message that the phase accepts."""

    def receive(self, message: Message, key: SigningKey, now_s: float) -> Step:
        """Answer a message from the coordinator or the admin.

        Args:
            message: the received message.
            key: the member's identity, which signs the replies.
            now_s: Unix time in seconds.

        Returns:
            The next phase, and the messages to send once the phase is stored durably.

        Raises:
            PeerFault: the message breaks a rule; the phase is unchanged.
        """
        handler = self.handlers.get(type(message))
        if handler is None:
            said = f"a member that is {type(self).__name__} takes no {type(message).__name__}"
            raise PeerFault(Cause.WRONG_PHASE, said)
        return handler(self, message, key, now_s)

    @property
    def expiry_s(self) -> float:
        """When `erase_expired` erases secrets, Unix time in seconds; infinity if it holds none that expire."""
        return math.inf

    def erase_expired(self, now_s: float) -> "MemberPhase":
        """Return the phase without expired secrets; this phase if none have expired."""
        del now_s
        return self

    def messages_to_resend(self) -> tuple[Message, ...]:
        """Return the messages to resend after a restart, byte for byte as first sent."""
        return ()

    @abstractmethod
    def with_history(self, history: "History") -> "MemberPhase":
        """Return this phase with the newest stored history, which other cohorts may have extended."""


def load_phase(data: bytes) -> MemberPhase:
    """Load a phase stored by `to_bytes`. Raises Misuse for an unknown kind."""
    form = MemberPhase.forms.get(data[1]) if len(data) > 1 else None
    if form is None:
        raise Misuse("the stored bytes are not a member's phase")
    return form.from_bytes(data)
