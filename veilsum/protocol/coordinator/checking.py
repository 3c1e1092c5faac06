"""M1b: decryptors open their boxes and return receipts; disputes are resolved (wire: Survivors)."""

from dataclasses import dataclass, replace
from typing import ClassVar

from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator.base import RECEIPT_GRACE_S, CoordinatorPhase, Delivering, Setting, Voiding
from veilsum.protocol.coordinator.freezing import Freezing
from veilsum.protocol.disputes import Dispute
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Message, Receipt, Survivor
from veilsum.protocol.proposal import (
    below_receipt_threshold,
    check_proposal,
    choose_survivors,
    contested_disputes,
    disputes_among,
)
from veilsum.protocol.shelf import Announced


@dataclass(frozen=True, repr=False)
class Checking(Delivering):
    """Waits for receipts, until `latest_s` regardless of the grace."""

    name: ClassVar[str] = "checking"
    latest_s: float = 0.0

    @classmethod
    def begin(cls, setting: Setting, now_s: float, uploads: dict[str, Announced]) -> "Checking":
        """Deliver the boxes."""
        latest_s = setting.end_of_window(now_s, setting.windows.answer)
        return cls(setting, latest_s, uploads, {}, latest_s)

    def waiting_for(self) -> tuple[str, ...]:
        """Return the decryptors without a receipt."""
        return tuple(member for member in self.attempt.decryptors if member not in self.receipts)

    def question_for(self, member: str) -> Message | None:
        del member
        return None

    def _on_receipt(self, receipt: Receipt, now_s: float) -> CoordinatorPhase:
        phase = self.take_receipt(receipt, now_s)
        if phase is self:
            return self
        deadline_s = self.deadline_s
        if len(phase.receipts) >= self.attempt.quorum.threshold and deadline_s is not None:
            deadline_s = min(deadline_s, now_s + min(RECEIPT_GRACE_S, self.setting.windows.answer))
        latest_s = max(self.latest_s, self.deadline_s or 0.0)  # the operator may have extended the phase
        phase = replace(phase, deadline_s=deadline_s, latest_s=latest_s)
        return phase if phase.waiting_for() else phase.pass_deadline(now_s)

    def go_on(self, now_s: float) -> CoordinatorPhase:
        """Propose the survivors that the receipts allow, dropping a cover of the disputes."""
        quorum = self.attempt.quorum
        if len(self.receipts) < quorum.threshold:
            few = f"{len(self.receipts)} receipts, the threshold is {quorum.threshold}"
            return Voiding.begin(self.setting, PeerFault(Cause.QUORUM_LOST, few, self.waiting_for()))
        attempt, earlier = self.attempt, self.setting.earlier
        # The grace is over but the window is not: a late receipt may show which complaints are false.
        awaited = bool(self.waiting_for()) and now_s < self.latest_s
        if awaited and below_receipt_threshold(attempt, self.uploads, self.receipts):
            return replace(self, deadline_s=self.latest_s)
        disputes = contested_disputes(
            attempt, self.receipts, disputes_among(attempt, self.uploads, self.receipts)
        )
        try:
            survivors, heard = choose_survivors(attempt, self.uploads, self.receipts, disputes, earlier)
            self._check_survivors(survivors, disputes)
        except PeerFault as fault:
            if awaited:
                return replace(self, deadline_s=self.latest_s)
            return Voiding.begin(self.setting, fault)
        return Freezing.begin(self, now_s, tuple(survivors), heard)

    def _check_survivors(self, survivors: dict[str, Announced], disputes: tuple[Dispute, ...]) -> None:
        """Refuse survivors that no honest decryptor would sign (wire: Survivors)."""
        # Which party lies cannot be decided, so the fault names them all.
        parties = sorted({party for dispute in disputes for party in dispute.parties})
        if len(survivors) < self.attempt.survivors_min and disputes:
            raise PeerFault(disputes[0].cause, f"{len(survivors)} survivors are left", parties)
        proposed = tuple(Survivor.from_header(upload.header) for upload in survivors.values())
        try:
            check_proposal(self.attempt, proposed, self.setting.earlier)
        except PeerFault as fault:
            if fault.cause is not Cause.WINDOW_EXCEEDED or not disputes:
                raise
            self.attempt.check_windows({*survivors, *parties})  # dropouts alone exceed the window
            raise PeerFault(disputes[0].cause, fault.detail, parties) from fault

    handlers: ClassVar = {Receipt: _on_receipt}
