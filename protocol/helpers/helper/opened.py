"""The context stands: a helper opens the boxes and checks every seed (helpers H6)."""

from collections.abc import Callable
from typing import ClassVar

from protocol.causes import Cause
from protocol.codec import Secret
from protocol.errors import PeerFault
from protocol.helpers.helper.attempting import Attempting, Held
from protocol.helpers.helper.base import HelperPhase, HelperPhaseKind, Step
from protocol.helpers.messages import HELPERS, HelperDeliveries, HelperDelivery, HelperReceipt
from protocol.helpers.sealing import open_box
from protocol.identity import SigningKey
from protocol.merkle import Tree, verify
from protocol.messages.base import Message


class Opened(Attempting):
    """Holds the box key, and no seeds yet."""

    kind: ClassVar[int] = HelperPhaseKind.OPENED

    private: Secret

    def lapse(self, now_s: float) -> HelperPhase:
        """Without the box key after the terms' latest end: what remains is to help the attempt end."""
        from protocol.helpers.helper.checked import Checked  # noqa: PLC0415 - the phases form a cycle

        late = now_s >= self.opening.terms.latest_end_s
        return Checked(self.standing, self.opening, (), ()) if late else self

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """Deliveries too."""
        return {**super().handlers(), HelperDeliveries: self._deliveries}

    def _deliveries(self, message: HelperDeliveries, key: SigningKey, _now_s: float) -> Step:
        """Check deliveries, in this order, and delete the box key.

        1. the context is this attempt's (wrong-context);
        2. every header is a client's (unknown-member) and signed by it (bad-signature);
        3. commitments and box lead to the signed roots (chunk-mismatch): else ask again, it is the coordinator's fault;
        4. the box opens, and each seed is the one committed to: else a complaint against the client.
        """
        from protocol.helpers.helper.checked import Checked  # noqa: PLC0415 - the phases form a cycle

        attempt, member = self.attempt, self.standing.member
        attempt.check_context(message.context, "coordinator")
        for delivery in message.deliveries:
            attempt.check_header(delivery.header)
            self._check_roots(delivery)
        held, complaints = [], []
        for delivery in message.deliveries:
            try:
                seeds = open_box(attempt, member, self.private, delivery)
            except PeerFault:
                complaints.append(delivery.member)
            else:
                held.append(Held(delivery.header.survivor, seeds))
        receipt = HelperReceipt.make(
            key,
            context=attempt.context,
            member=member,
            dealers=tuple(entry.member for entry in held),
            complaints=tuple(complaints),
        )
        return Checked(self.standing, self.opening, tuple(held), (receipt,)), (receipt,)

    def _check_roots(self, delivery: HelperDelivery) -> None:
        header, present = delivery.header, self.attempt.present
        place = present.index(self.standing.member)
        if not (
            len(delivery.commitments) == HELPERS
            and Tree.of(delivery.commitments).root == header.seed_root
            and verify(header.box_root, delivery.box, place, len(present), delivery.path)
        ):
            raise PeerFault(
                Cause.CHUNK_MISMATCH,
                f"the box shown for {delivery.member} is not the one it signed",
                ["coordinator"],
            )
