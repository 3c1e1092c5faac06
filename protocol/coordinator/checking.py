"""M1b: decryptors open their boxes and return receipts (protocol §4.5)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from protocol.causes import Cause
from protocol.coordinator.base import CoordinatorPhase, Setting, added
from protocol.coordinator.freezing import Freezing
from protocol.coordinator.voiding import Voiding
from protocol.errors import PeerFault
from protocol.merkle import Tree
from protocol.messages import Deliveries, Delivery, Message, Receipt, Upload
from protocol.sealing import commitment_tree


@dataclass(frozen=True, repr=False)
class Checking(CoordinatorPhase):
    """Waits for receipts.

    Attributes:
        uploads: the whole ones, in order of member.
        receipts: by decryptor.
        trees: by upload digest, its Merkle trees over boxes and rows: made once, handed on from receipt to receipt.
    """

    name: ClassVar[str] = "checking"
    uploads: dict[str, Upload]
    receipts: dict[str, Receipt] = field(default_factory=dict)
    trees: dict[bytes, tuple[Tree, Tree]] = field(default_factory=dict, compare=False)

    @classmethod
    def begin(cls, setting: Setting, now_s: float, uploads: dict[str, Upload]) -> "Checking":
        """Offer the boxes."""
        return cls(setting, now_s + setting.windows.check_s, uploads)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], CoordinatorPhase]]:
        """Receipts."""
        return {Receipt: self._receipt}

    def waiting_for(self) -> tuple[str, ...]:
        """Decryptors without a receipt."""
        return tuple(member for member in self.attempt.decryptors if member not in self.receipts)

    def request_for(self, member: str) -> Message | None:
        """The boxes for this decryptor, until its receipt is in."""
        if member not in self.waiting_for():
            return None
        place = self.attempt.decryptors.index(member)
        return Deliveries(
            self.attempt.context,
            tuple(
                Delivery(
                    header=upload.header,
                    box=upload.boxes[place],
                    box_path=tuple(boxes.path(place)),
                    row=upload.share_rows[place],
                    row_path=tuple(rows.path(1 + place)),
                )
                for dealer, upload in self.uploads.items()
                if dealer != member
                for boxes, rows in (self._trees(upload),)
            ),
        )

    def _trees(self, upload: Upload) -> tuple[Tree, Tree]:
        known = self.trees.get(upload.header.digest)
        if known is None:
            known = Tree.of(upload.boxes), commitment_tree(upload.secret_commitments, upload.share_rows)
            self.trees[upload.header.digest] = known
        return known

    def _receipt(self, receipt: Receipt, now_s: float) -> CoordinatorPhase:
        member = receipt.member
        self.check_sender(member, receipt.context)
        receipt.verify(self.attempt.roster.key_of(member), member)
        dealers = [dealer for dealer in self.uploads if dealer != member]
        if sorted(receipt.dealers + receipt.complaints) != dealers:
            raise PeerFault(
                Cause.MALFORMED, f"{member}'s receipt does not cover the boxes it was sent", [member]
            )
        receipts = added(self.receipts, member, receipt, Cause.CONFLICT)
        if receipts is None:
            return self
        deadline_s = self.deadline_s
        if len(receipts) >= self.attempt.quorum.threshold and deadline_s is not None:
            deadline_s = min(deadline_s, now_s + self.setting.windows.grace_s)
        phase = replace(self, receipts=receipts, deadline_s=deadline_s)
        return phase if phase.waiting_for() else phase.expire(now_s)

    def expire(self, now_s: float) -> CoordinatorPhase:
        """Go on with the receipts that came: a complaint, or fewer than t of them, ends the attempt."""
        # A complaint is a dispute between dealer and decryptor, not a proof against either: both are named.
        for receipt in self.receipts.values():
            for dealer in receipt.complaints:
                return Voiding.begin(
                    self.setting, now_s, PeerFault(Cause.BOX_REFUSED, parties=(dealer, receipt.member))
                )
        if len(self.receipts) < self.attempt.quorum.threshold:
            few = f"{len(self.receipts)} receipts, the threshold is {self.attempt.quorum.threshold}"
            return Voiding.begin(self.setting, now_s, PeerFault(Cause.QUORUM_LOST, few, self.waiting_for()))
        return Freezing.begin(self.setting, now_s, self.uploads, tuple(sorted(self.receipts)))
