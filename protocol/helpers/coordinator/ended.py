"""How an attempt ends: with agreed sums of the masks, VOID, or LOST (helpers H8, H9)."""

from dataclasses import dataclass
from typing import ClassVar

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.coordinator.base import CoordinatorPhase, HelperSetting
from protocol.helpers.messages import (
    HelperCertificate,
    HelperCounted,
    HelperLost,
    HelperReceipt,
    HelperRefusal,
    HelperSums,
    HelperVote,
)
from protocol.messages.base import Message


@dataclass(frozen=True, repr=False)
class Ended(CoordinatorPhase):
    """Nobody is waited for.

    Attributes:
        closing: what every helper must know before it takes another opening; `closing.ended` extends the chain.
    """

    late: ClassVar[tuple[type[Message], ...]] = (HelperReceipt, HelperRefusal, HelperVote, HelperSums)
    closing: HelperCertificate | HelperLost

    def request_for(self, helper: str) -> Message | None:
        """How the attempt has ended."""
        del helper
        return self.closing

    def cancel(self, now_s: float, reason: str = "") -> CoordinatorPhase:
        """There is nothing left to cancel."""
        del now_s, reason
        return self


@dataclass(frozen=True)
class Source:
    """One seed's sum: the helpers who returned it alike, and the SHA-256 of each of its chunks."""

    holders: tuple[str, ...]
    digests: tuple[bytes, ...]


@dataclass(frozen=True, repr=False)
class Recovered(Ended):
    """The sums of the masks are agreed on; what remains is arithmetic (`protocol.helpers.unmasking`).

    Attributes:
        sources: for each seed, whose chunks may be taken.
        outvoted: the helper whose sums the others' contradict, if there is one.
    """

    name: ClassVar[str] = "recovered"
    closing: HelperCertificate
    sources: tuple[Source, ...]
    outvoted: tuple[str, ...]

    @property
    def certificate(self) -> HelperCertificate:
        """The certified survivors."""
        return self.closing

    def counted(self, client: str) -> HelperCounted:
        """The proof that a client's upload is in the sum; Misuse for one that is not."""
        return self.closing.counted(client)


@dataclass(frozen=True, repr=False)
class Voided(Ended):
    """Ended without a sum, by certificate: nothing was opened."""

    name: ClassVar[str] = "voided"
    fault: PeerFault


@dataclass(frozen=True, repr=False)
class Lost(Ended):
    """Ended with a certificate but no sum, or by the admin without either: the sets count as opened."""

    name: ClassVar[str] = "lost"
    fault: PeerFault

    @classmethod
    def by_admin(cls, setting: HelperSetting, lost: HelperLost) -> "Lost":
        """Closed by the admin's signature (wrong-context, bad-signature)."""
        setting.attempt.check_context(lost.context, "admin")
        lost.verify(setting.attempt.roster.federation, "admin")
        fault = PeerFault(Cause.QUORUM_LOST, "the admin has closed an attempt without a certificate")
        return cls(setting, None, lost, fault)
