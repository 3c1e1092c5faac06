"""How an attempt ends: with the seeds that uncover the sum, VOID, or LOST (protocol §4.7)."""

from dataclasses import dataclass
from typing import ClassVar

from protocol.coordinator.base import CoordinatorPhase
from protocol.errors import PeerFault
from protocol.messages import Certificate, Message, Receipt, Refusal, Reveal, Vote


@dataclass(frozen=True, repr=False)
class Ended(CoordinatorPhase):
    """Nobody is waited for."""

    def cancel(self, now_s: float, reason: str = "") -> CoordinatorPhase:
        """There is nothing left to cancel."""
        del now_s, reason
        return self


@dataclass(frozen=True, repr=False)
class Certified(Ended):
    """An end that has a certificate, which members may still ask for."""

    late: ClassVar[tuple[type[Message], ...]] = (Receipt, Refusal, Vote, Reveal)
    certificate: Certificate

    def request_for(self, member: str) -> Message | None:
        """The certificate: it closes the attempt for a member and moves its keys on."""
        del member
        return self.certificate


@dataclass(frozen=True, repr=False)
class Recovered(Certified):
    """M4: the seeds are rebuilt and checked; what remains is arithmetic (`protocol.unmasking`).

    Attributes:
        self_seeds: b_u by survivor.
        edge_seeds: r_uw by survivor and lost member.
    """

    name: ClassVar[str] = "recovered"
    self_seeds: dict[str, bytes]
    edge_seeds: dict[tuple[str, str], bytes]


@dataclass(frozen=True, repr=False)
class Voided(Certified):
    """Ended without a sum, by certificate: nothing was opened and the round may be tried again."""

    name: ClassVar[str] = "voided"
    fault: PeerFault


@dataclass(frozen=True, repr=False)
class Lost(Ended):
    """Ended with neither certificate: the cohort is not used again."""

    name: ClassVar[str] = "lost"
    fault: PeerFault
