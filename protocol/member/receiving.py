"""M1b: a decryptor opens the boxes that were sealed for it and checks every share (protocol §4.5)."""

from collections.abc import Callable

from protocol.boxes import unseal
from protocol.causes import Cause
from protocol.codec import SecretBytes
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.keys import PairKey
from protocol.member.attempting import Attempting, Dealt
from protocol.member.base import Step
from protocol.merkle import verify
from protocol.messages import (
    SHARE_BYTES,
    Deliveries,
    Delivery,
    Message,
    Receipt,
    Survivor,
    deliveries_hash,
)
from protocol.sealing import commit_row
from protocol.shamir import ShareError, check_shares


class Receiving(Attempting):
    """A member that has opened no boxes yet in this attempt."""

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """Deliveries too."""
        return {**super().handlers(), Deliveries: self._deliveries}

    def _deliveries(self, message: Deliveries, key: SigningKey, _now_s: float) -> Step:
        """Check deliveries, in this order.

        1. the context is this attempt's, and this member is a decryptor;
        2. every header is a cohort member's and signed by it, none of them this member's own;
        3. box and row lead by their paths to the signed roots: else ask again, it is the coordinator's fault;
        4. the box opens and holds 1 + k shares, each true to its commitment: else a complaint against the dealer.
        """
        from protocol.member.checked import Checked  # noqa: PLC0415 - the phases form a cycle

        attempt = self.attempt
        attempt.check_context(message.context, "coordinator")
        attempt.check_decryptor(self.member)
        for delivery in message.deliveries:
            attempt.check_header(delivery.header)
            if delivery.member == self.member:
                raise PeerFault(Cause.MALFORMED, "a decryptor is sent a box of its own", ["coordinator"])
        for delivery in message.deliveries:
            self._check_paths(delivery)
        pairs = {pair.peer: pair for pair in self.ready.boxes}
        dealt, refused = [], []
        for delivery in message.deliveries:
            dealer = Survivor.of(delivery.header)
            try:
                dealt.append(Dealt(dealer, self._open(delivery, pairs[delivery.member])))
            except PeerFault:
                refused.append(dealer)
        receipt = Receipt.make(
            key,
            context=attempt.context,
            member=self.member,
            uploads=deliveries_hash(attempt.context, (each.header.digest for each in message.deliveries)),
            dealers=tuple(entry.member for entry in dealt),
            complaints=tuple(dealer.member for dealer in refused),
        )
        # A member that holds shares opens no other attempt before this one has ended.
        ready = self.ready.knowing(self.history.entered(self.attempt))
        holding = (ready, self.opening, self.uploads, self.own_shares, tuple(dealt), tuple(refused))
        checked = Checked(*holding, receipt)
        return checked, (receipt,)

    def _check_paths(self, delivery: Delivery) -> None:
        header, place, holders = (
            delivery.header,
            self.attempt.decryptor_place[self.member],
            len(self.attempt.decryptors),
        )
        if not (
            verify(header.box_root, delivery.box, place, holders, delivery.box_path)
            and verify(header.commitment_root, delivery.row, 1 + place, 1 + holders, delivery.row_path)
        ):
            raise PeerFault(
                Cause.CHUNK_MISMATCH,
                f"the box shown for {delivery.member} is not the one it signed",
                ["coordinator"],
            )

    def _open(self, delivery: Delivery, pair: PairKey) -> SecretBytes:
        context, dealer = self.attempt.context, delivery.member
        key = pair.box_key(dealer, self.member, context, delivery.header.salt)
        shares = unseal(key, delivery.box, context, dealer)
        try:
            check_shares(shares)
        except ShareError as error:
            raise PeerFault(Cause.BOX_REFUSED, f"{dealer}'s shares are not canonical", [dealer]) from error
        if (
            len(shares) != SHARE_BYTES * (1 + self.attempt.neighbour_count)
            or commit_row(context, dealer, self.member, shares) != delivery.row
        ):
            raise PeerFault(Cause.BOX_REFUSED, f"{dealer}'s shares miss their commitments", [dealer])
        return SecretBytes(shares)
