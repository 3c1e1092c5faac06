"""The receipt is out: a helper is shown the survivors (helpers H7)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Many, Nested
from protocol.errors import PeerFault
from protocol.helpers.helper.attempting import Attempting, Held
from protocol.helpers.helper.base import HelperPhase, HelperPhaseKind, Step
from protocol.helpers.messages import (
    MAX_CLIENTS,
    HelperDeliveries,
    HelperFreeze,
    HelperReceipt,
    HelperRefusal,
)
from protocol.identity import SigningKey
from protocol.ledger import check_ledger
from protocol.messages.base import Message
from protocol.messages.outcome import NO_REASON, Survivor


class Holding(Attempting):
    """A helper that holds clients' seeds."""

    held: Annotated[tuple[Held, ...], Many(Nested(Held), MAX_CLIENTS, ascending=True)]

    def holding(self) -> tuple[Held, ...]:
        """The seeds that passed."""
        return self.held

    def lapse(self, now_s: float) -> HelperPhase:
        """Without the seeds after the terms' latest end."""
        return replace(self, held=()) if self.held and now_s >= self.opening.terms.latest_end_s else self


class Checked(Holding):
    """Holds the seeds of every client that it did not complain about.

    Attributes:
        receipts: the one it sent; none where the attempt's time passed before.
    """

    kind: ClassVar[int] = HelperPhaseKind.CHECKED

    receipts: Annotated[tuple[HelperReceipt, ...], Many(Nested(HelperReceipt), 1)]

    def outbox(self) -> tuple[Message, ...]:
        """The receipt."""
        return self.receipts

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """Freeze too; deliveries again are answered by the same receipt."""
        return {**super().handlers(), HelperFreeze: self._freeze, HelperDeliveries: self._delivered}

    def _delivered(self, message: HelperDeliveries, _key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(message.context, "coordinator")
        return self, self.receipts

    def _freeze(self, freeze: HelperFreeze, key: SigningKey, _now_s: float) -> Step:
        attempt = self.attempt
        attempt.check_context(freeze.context, "coordinator")
        try:
            self.check_proposal(freeze.survivors)
        except PeerFault as fault:
            # It signs nothing and says why; another proposal may still be signed.
            member, cause = self.standing.member, fault.cause.value
            return self, (HelperRefusal.make(key, context=attempt.context, member=member, cause=cause),)
        return self.vote(attempt.outcome(freeze.survivors), NO_REASON, key)

    def check_proposal(self, survivors: tuple[Survivor, ...]) -> None:
        """Check the survivors proposed, in this order.

        1. they are clients of the roster (survivors-invalid), at least n_min of them (survivors-too-few);
        2. each is an upload whose seeds this helper holds (box-refused, survivors-invalid): its signature was checked
           with its box, and its digest pins all it signed;
        3. the ledger, over every set opened before (ledger-refused, lineage-mixed).
        """
        attempt = self.attempt
        attempt.check_survivors(survivors)
        unknown = set(survivors).difference(entry.survivor for entry in self.held)
        if unknown:
            strangers = sorted(survivor.member for survivor in unknown)
            complained = any(name in receipt.complaints for receipt in self.receipts for name in strangers)
            cause = Cause.BOX_REFUSED if complained else Cause.SURVIVORS_INVALID
            raise PeerFault(cause, "survivors whose seeds this helper does not hold", strangers)
        check_ledger(self.standing.opened(), attempt.opens(survivors))
