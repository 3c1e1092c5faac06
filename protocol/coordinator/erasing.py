"""The latest end has passed: decryptors erase, and report what they revealed (protocol §4.9)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from protocol.causes import Cause
from protocol.coordinator.base import CoordinatorPhase, added, cancelled
from protocol.coordinator.ended import Failed, Lost, VoidedByErasure
from protocol.errors import PeerFault
from protocol.messages import (
    NOTHING_REVEALED,
    Certificate,
    Erased,
    Erasure,
    ErasureRequest,
    Message,
    Proof,
    Receipt,
    Refusal,
    Reveal,
    Vote,
)
from protocol.messages import Lost as LostMessage


@dataclass(frozen=True, repr=False)
class Erasing(CoordinatorPhase):
    """Waits, for as long as it takes, for q reports of decryptors that revealed nothing, or for the admin's Lost.

    Attributes:
        fault: why the attempt had not ended.
        certificate: of the set whose sum too few reveals came for, if one was certified.
        proofs: against dealers that proved false.
        reports: by decryptor.
    """

    name: ClassVar[str] = "erasing"
    late: ClassVar[tuple[type[Message], ...]] = (Receipt, Refusal, Vote, Reveal)
    fault: PeerFault
    certificate: Certificate | None = None
    proofs: tuple[Proof, ...] = ()
    reports: dict[str, Erased] = field(default_factory=dict)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], CoordinatorPhase]]:
        """Reports, and the admin's Lost."""
        return {Erased: self._erased, LostMessage: self._lost}

    @property
    def silent(self) -> tuple[str, ...]:
        """Decryptors that report that they revealed nothing."""
        return tuple(sorted(m for m, each in self.reports.items() if each.revealed == NOTHING_REVEALED))

    def waiting_for(self) -> tuple[str, ...]:
        """Decryptors that have not reported."""
        return tuple(member for member in self.attempt.decryptors if member not in self.reports)

    def request_for(self, member: str) -> Message | None:
        """The request, until this decryptor has reported."""
        return ErasureRequest(self.attempt.context) if member in self.waiting_for() else None

    def _erased(self, report: Erased, _now_s: float) -> CoordinatorPhase:
        self.attempt.check_erased(report)
        reports = added(self.reports, report.member, report, Cause.CONFLICT)
        if reports is None:
            return self
        phase = replace(self, reports=reports)
        if len(phase.silent) < self.attempt.quorum.erasures_min:
            return phase
        erasure = Erasure(self.attempt.context, tuple(reports[member] for member in phase.silent))
        return VoidedByErasure(self.setting, None, erasure, self.fault)

    def _lost(self, lost: LostMessage, _now_s: float) -> CoordinatorPhase:
        self.attempt.check_lost(lost)
        return Lost(self.setting, None, lost, self.fault)

    def cancel(self, now_s: float, reason: str = "") -> CoordinatorPhase:
        """Close a certified attempt without a sum. Any other goes on waiting: only decryptors or the admin can end it."""
        del now_s
        if self.certificate is None:
            return self
        return Failed(self.setting, None, self.certificate, cancelled(reason), self.proofs)
