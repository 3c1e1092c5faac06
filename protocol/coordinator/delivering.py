"""M1b, and while it lasts: decryptors are handed their boxes and return receipts for them (protocol §4.5)."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Self

from protocol.causes import Cause
from protocol.coordinator.base import CoordinatorPhase, added
from protocol.errors import PeerFault
from protocol.messages import Deliveries, Message, Receipt
from protocol.proposal import covers
from protocol.shelf import Announced


@dataclass(frozen=True, repr=False)
class Delivering(CoordinatorPhase):
    """A phase that hands out boxes: whoever comes after the proposal may still sign it, and reveal.

    Attributes:
        uploads: the whole ones, in order of member.
        receipts: by decryptor: who holds shares, and of whom.
    """

    uploads: dict[str, Announced]
    receipts: dict[str, Receipt]

    def request_for(self, member: str) -> Message | None:
        """The boxes for a decryptor whose receipt is not in; then what the phase asks."""
        place = self.attempt.decryptor_place.get(member)
        if place is None or member in self.receipts:
            return self.question_for(member)
        shelf = self.setting.shelf
        deliveries = tuple(shelf.delivery(dealer, place) for dealer in self.uploads if dealer != member)
        return Deliveries(self.attempt.context, deliveries)

    @abstractmethod
    def question_for(self, member: str) -> Message | None:
        """What the phase asks of a decryptor that has its boxes, or shows to who is none."""

    def take_receipt(self, receipt: Receipt, now_s: float) -> Self:
        """The phase with one receipt more; the same again changes nothing.

        Raises:
            PeerFault: wrong-context, not-a-decryptor, bad-signature, malformed where it is for other uploads, conflict.
        """
        del now_s
        member = receipt.member
        self.check_sender(member, receipt.context)
        receipt.verify(self.attempt.roster.key_of(member), member)
        if not covers(receipt, self.uploads):
            raise PeerFault(
                Cause.MALFORMED, f"{member}'s receipt does not cover the boxes it was sent", [member]
            )
        receipts = added(self.receipts, member, receipt, Cause.CONFLICT)
        return self if receipts is None else replace(self, receipts=receipts)
