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

from abc import abstractmethod
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from protocol.messages.base import Message
from protocol.phases import PartyPhase

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
    REPORTED = 8


class MemberPhase(PartyPhase["MemberPhase"]):
    """One phase of a member."""

    version: ClassVar[int] = 2
    party: ClassVar[str] = "member"

    @abstractmethod
    def knowing(self, history: "History") -> "MemberPhase":
        """The same with what it learned in other cohorts of the federation since: the newest history that is stored."""
