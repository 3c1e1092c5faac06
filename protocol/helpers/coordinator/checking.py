"""Helpers open their boxes and return receipts; who is dropped follows from them (helpers H6)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.coordinator.base import CoordinatorPhase, HelperSetting, added
from protocol.helpers.coordinator.freezing import Freezing
from protocol.helpers.coordinator.voiding import Voiding
from protocol.helpers.messages import THRESHOLD, HelperDeliveries, HelperReceipt, HelperUpload, opened_in
from protocol.ledger import alone
from protocol.messages.base import Message


@dataclass(frozen=True, repr=False)
class Checking(CoordinatorPhase):
    """Waits for receipts.

    Attributes:
        uploads: the whole ones, in order of client.
        receipts: by helper.
    """

    name: ClassVar[str] = "checking"
    uploads: tuple[HelperUpload, ...]
    receipts: dict[str, HelperReceipt] = field(default_factory=dict)

    @classmethod
    def begin(cls, setting: HelperSetting, now_s: float, uploads: tuple[HelperUpload, ...]) -> "Checking":
        """Offer the boxes."""
        return cls(setting, now_s + setting.windows.check_s, uploads)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], CoordinatorPhase]]:
        """Receipts."""
        return {HelperReceipt: self._receipt}

    def waiting_for(self) -> tuple[str, ...]:
        """Helpers without a receipt."""
        return tuple(helper for helper in self.attempt.present if helper not in self.receipts)

    def request_for(self, helper: str) -> Message | None:
        """The boxes for this helper, until its receipt is in."""
        if helper not in self.waiting_for():
            return None
        place = self.attempt.present.index(helper)
        return HelperDeliveries(
            self.attempt.context, tuple(upload.delivery(place) for upload in self.uploads)
        )

    def _receipt(self, receipt: HelperReceipt, now_s: float) -> CoordinatorPhase:
        helper = receipt.member
        self.attempt.check_helper(helper, receipt.context)
        receipt.verify(self.attempt.roster.key_of(helper), helper)
        if sorted(receipt.dealers + receipt.complaints) != [upload.member for upload in self.uploads]:
            raise PeerFault(
                Cause.MALFORMED, f"{helper}'s receipt does not cover the boxes it was sent", [helper]
            )
        receipts = added(self.receipts, helper, receipt)
        if receipts is None:
            return self
        phase = replace(self, receipts=receipts)
        return phase if phase.waiting_for() else phase.expire(now_s)

    def expire(self, now_s: float) -> CoordinatorPhase:
        """Choose helpers and survivors, or end the attempt.

        A complaint is a dispute between one client and one helper. Clients who collude are `a` at most, so a helper that
        complains about more is false, or misled: it is left out. Of the panels that can be had, all helpers left or
        three of them, that one is taken which leaves n_min survivors with the most helpers, then with the most
        survivors; a survivor is a client about whom nobody of the panel complains. Of these, whose column of this very sum
        the ledger would refuse is left out alone: else one client that brings an old lineage stops everybody.
        """
        manifest = self.attempt.manifest
        sound = [h for h, receipt in self.receipts.items() if len(receipt.complaints) <= manifest.colluders]
        if len(sound) < THRESHOLD:
            false = sorted(self.receipts.keys() - set(sound))
            few = (
                f"{len(sound)} receipts with {manifest.colluders} complaints at most, {THRESHOLD} are needed"
            )
            fault = (
                PeerFault(Cause.BOX_REFUSED, few, false)
                if false
                else PeerFault(Cause.QUORUM_LOST, few, self.waiting_for())
            )
            return Voiding.begin(self.setting, now_s, fault)
        panels = [tuple(sorted(sound)), *combinations(sorted(sound), THRESHOLD)]
        panel = max(panels, key=self._merit)
        disputed = self._disputed(panel)
        staying = tuple(upload.header.survivor for upload in self._survivors(panel))
        disputed |= alone(opened_in(self.setting.history), self.attempt.opens(staying))
        survivors = tuple(upload for upload in self.uploads if upload.member not in disputed)
        if len(survivors) < manifest.survivors_min:
            few = f"{len(survivors)} clients without a complaint that the ledger allows, n_min is {manifest.survivors_min}"
            return Voiding.begin(
                self.setting, now_s, PeerFault(Cause.SURVIVORS_TOO_FEW, few, sorted(disputed))
            )
        return Freezing.begin(self.setting, now_s, survivors, panel)

    def _disputed(self, panel: tuple[str, ...]) -> set[str]:
        return {client for helper in panel for client in self.receipts[helper].complaints}

    def _survivors(self, panel: tuple[str, ...]) -> tuple[HelperUpload, ...]:
        disputed = self._disputed(panel)
        return tuple(upload for upload in self.uploads if upload.member not in disputed)

    def _merit(self, panel: tuple[str, ...]) -> tuple[bool, int, int]:
        left = len(self._survivors(panel))
        return left >= self.attempt.manifest.survivors_min, len(panel), left
