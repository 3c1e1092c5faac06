"""What all of a helper's phases share: they are stored before any message leaves, and refuse what they do not name.

    Standing ──(own key)──▶ Enrolled ──opening──▶ Opened ──deliveries──▶ Checked ──freeze──▶ Voted
      ▲  ▲                  (card)                  │                    (receipt)           (vote)
      │  │                                          └───── void request ────┴──────────────────▲
      │  └────── certificate for VOID, or lost: from any phase of an attempt ──────────────────┤
      └─(sums)── Summing ◀──── certificate for a set whose seeds it holds ─────────────────────┘

An attempt is left by a certificate or by the admin's signature alone: two certificates meet in an honest helper, so no honest
helper votes without knowing every set that was certified before.
"""

from enum import IntEnum
from typing import ClassVar, TypeAlias

from protocol.messages.base import Message
from protocol.phases import PartyPhase

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


class HelperPhase(PartyPhase["HelperPhase"]):
    """One phase of a helper."""

    version: ClassVar[int] = 1
    party: ClassVar[str] = "helper"
