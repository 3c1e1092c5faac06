"""How an attempt ends: with the seeds that uncover the sum, without a sum, VOID, or LOST (protocol §4.7, §4.9)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from protocol.causes import Cause
from protocol.coordinator.base import CoordinatorPhase, added
from protocol.disputes import Dispute
from protocol.errors import PeerFault
from protocol.messages import (
    Certificate,
    Evictions,
    Link,
    Message,
    Past,
    Proof,
    Receipt,
    Refusal,
    Report,
    ReportRequest,
    Reveal,
    Vote,
)
from protocol.messages import Lost as LostMessage
from protocol.shelf import Announced
from protocol.unmasking import Unmasking


@dataclass(frozen=True, repr=False)
class Ended(CoordinatorPhase):
    """Nobody's answer moves it on to a sum."""

    def cancel(self, now_s: float, reason: str = "") -> CoordinatorPhase:
        """There is nothing left to cancel."""
        del now_s, reason
        return self

    @property
    def past(self) -> Past | None:
        """How the chain names this end; None where it cannot yet."""
        return None

    @property
    def link(self) -> Link | None:
        """The chain's link for this attempt; None where it is not closed."""
        return self.attempt.link(self.past) if self.past else None


@dataclass(frozen=True, repr=False)
class Certified(Ended):
    """An end that has a certificate, which members may still ask for."""

    late: ClassVar[tuple[type[Message], ...]] = (Receipt, Refusal, Vote, Reveal, Report)
    certificate: Certificate

    def request_for(self, member: str) -> Message | None:
        """The certificate: it closes the attempt for a member and moves its keys on."""
        del member
        return self.certificate

    @property
    def past(self) -> Past:
        """What was certified."""
        return self.certificate.past


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
    """Certified, and without a sum: too few reveals came, or too many dealers are false. The set counts as opened."""

    name: ClassVar[str] = "failed"
    fault: PeerFault
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True, repr=False)
class Voided(Certified):
    """Ended without a sum, by certificate: nothing was opened and the round may be tried again."""

    name: ClassVar[str] = "voided"
    fault: PeerFault


@dataclass(frozen=True, repr=False)
class Lost(Ended):
    """Ended with no certificate: waits for the decryptors' reports and the admin's signature over them.

    Attributes:
        fault: why.
        reports: by decryptor.
    """

    name: ClassVar[str] = "lost"
    late: ClassVar[tuple[type[Message], ...]] = (Receipt, Refusal, Vote)
    fault: PeerFault
    reports: dict[str, Report] = field(default_factory=dict)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], CoordinatorPhase]]:
        """Reports, and the admin's Lost."""
        return {Report: self._report, LostMessage: self._lost}

    def waiting_for(self) -> tuple[str, ...]:
        """Decryptors that have not reported."""
        return tuple(member for member in self.attempt.decryptors if member not in self.reports)

    def request_for(self, member: str) -> Message | None:
        """The request, until this decryptor has reported."""
        return ReportRequest(self.attempt.context) if member in self.waiting_for() else None

    def _report(self, report: Report, _now_s: float) -> CoordinatorPhase:
        self.attempt.check_report(report)
        reports = added(self.reports, report.member, report, Cause.CONFLICT)
        return self if reports is None else replace(self, reports=reports)

    def _lost(self, lost: LostMessage, _now_s: float) -> CoordinatorPhase:
        """Close the attempt with the admin's signature over reports of its decryptors (protocol §4.9)."""
        self.attempt.check_lost(lost)
        return Abandoned(self.setting, None, lost, self.fault)


@dataclass(frozen=True, repr=False)
class Abandoned(Ended):
    """Closed by the admin: every set that was reported counts as opened."""

    name: ClassVar[str] = "abandoned"
    late: ClassVar[tuple[type[Message], ...]] = (Receipt, Refusal, Vote, Report, LostMessage)
    lost: LostMessage
    fault: PeerFault

    def request_for(self, member: str) -> Message | None:
        """The admin's Lost: it closes the attempt for a member and moves its keys on."""
        del member
        return self.lost

    @property
    def past(self) -> Past:
        """The sets reported."""
        return self.attempt.past(self.lost)
