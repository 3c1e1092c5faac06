"""How an attempt ends: with the seeds that uncover the sum, without a sum, VOID, or LOST (protocol §4.7, §4.9)."""

from dataclasses import dataclass
from typing import ClassVar

from protocol.attempt import Closing
from protocol.coordinator.base import CoordinatorPhase
from protocol.disputes import Dispute
from protocol.errors import PeerFault
from protocol.messages import (
    Certificate,
    Erased,
    Erasure,
    Evictions,
    Link,
    Message,
    Proof,
    Receipt,
    Refusal,
    Reveal,
    Vote,
)
from protocol.messages import Lost as LostMessage
from protocol.shelf import Announced
from protocol.unmasking import Unmasking


@dataclass(frozen=True, repr=False)
class Ended(CoordinatorPhase):
    """Nobody's answer moves it on.

    Attributes:
        closing: what closes the attempt for everybody.
    """

    late: ClassVar[tuple[type[Message], ...]] = (Receipt, Refusal, Vote, Reveal, Erased)
    closing: Closing

    def cancel(self, now_s: float, reason: str = "") -> CoordinatorPhase:
        """There is nothing left to cancel."""
        del now_s, reason
        return self

    def request_for(self, member: str) -> Message | None:
        """What closes the attempt for a member, and moves its keys on."""
        del member
        return self.closing

    @property
    def link(self) -> Link:
        """The chain's link for this attempt."""
        return self.attempt.link(self.closing)


@dataclass(frozen=True, repr=False)
class Certified(Ended):
    """A certified set: its records are spent, whether its sum comes or not."""

    closing: Certificate

    @property
    def certificate(self) -> Certificate:
        """Its certificate, which closes the attempt."""
        return self.closing


@dataclass(frozen=True, repr=False)
class Recovered(Certified):
    """M4: the seeds are rebuilt and checked; what remains is arithmetic (`protocol.unmasking`).

    Attributes:
        uploads: the announcements of whole uploads, the certified survivors' among them.
        proofs: against the dealers that were evicted.
        disputes: those that had members dropped before the freeze.
        self_seeds: b_u by survivor.
        edge_seeds: r_uw by survivor and lost member.
    """

    name: ClassVar[str] = "recovered"
    uploads: dict[str, Announced]
    proofs: tuple[Proof, ...]
    disputes: tuple[Dispute, ...]
    self_seeds: dict[str, bytes]
    edge_seeds: dict[tuple[str, str], bytes]

    @property
    def evictions(self) -> Evictions | None:
        """What members are shown before they recount the sum; None where nobody was evicted."""
        return Evictions(self.attempt.context, self.proofs) if self.proofs else None

    @property
    def evicted(self) -> tuple[str, ...]:
        """Certified survivors that proved false: the sum is without them."""
        return tuple(proof.member for proof in self.proofs)

    @property
    def summed(self) -> tuple[str, ...]:
        """Whose vectors the sum is of."""
        return tuple(self.self_seeds)

    def unmasking(self) -> Unmasking:
        """The sum, chunk by chunk."""
        return Unmasking(self.attempt, self.summed, self.self_seeds, self.edge_seeds)


@dataclass(frozen=True, repr=False)
class Failed(Certified):
    """Certified, and closed without a sum: the operator gave it up, or too many dealers are false."""

    name: ClassVar[str] = "failed"
    fault: PeerFault
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True, repr=False)
class Voided(Ended):
    """Ended without a sum, by votes: nothing was opened, and the round may be tried again."""

    name: ClassVar[str] = "voided"
    closing: Certificate
    fault: PeerFault


@dataclass(frozen=True, repr=False)
class VoidedByErasure(Ended):
    """Ended without a sum, by reports: nothing was opened, nor can it be, and the keys of a retry are gone."""

    name: ClassVar[str] = "erased"
    closing: Erasure
    fault: PeerFault


@dataclass(frozen=True, repr=False)
class Lost(Ended):
    """Closed by the admin: the records that were uploaded to it are spent."""

    name: ClassVar[str] = "lost"
    late: ClassVar[tuple[type[Message], ...]] = (*Ended.late, LostMessage)
    closing: LostMessage
    fault: PeerFault
