"""M2: a decryptor that has checked its boxes is shown the survivors (protocol §4.6)."""

from collections.abc import Callable
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Many, Nested
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.member.attempting import Attempting, Dealt
from protocol.member.base import PhaseKind, Step
from protocol.messages import Deliveries, Freeze, Message, Receipt, Refusal, Survivor, survivors_hash
from protocol.messages.base import MAX_MEMBERS


class Holding(Attempting):
    """A decryptor that holds other dealers' shares."""

    opened: Annotated[tuple[Dealt, ...], Many(Nested(Dealt), MAX_MEMBERS, ascending=True)]

    def dealt(self) -> tuple[Dealt, ...]:
        """The shares that passed."""
        return self.opened


class Checked(Holding):
    """The receipt is sent."""

    kind: ClassVar[int] = PhaseKind.CHECKED

    receipt: Annotated[Receipt, Nested(Receipt)]

    def outbox(self) -> tuple[Message, ...]:
        """The receipt."""
        return (self.receipt,)

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """Freeze too; deliveries again are answered by the same receipt."""
        return {**super().handlers(), Freeze: self._freeze, Deliveries: self._again}

    def _again(self, message: Deliveries, _key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(message.context, "coordinator")
        return self, (self.receipt,)

    def _freeze(self, freeze: Freeze, key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(freeze.context, "coordinator")
        survivors = tuple(Survivor.of(header) for header in freeze.headers)
        try:
            self.check_proposal(survivors)
        except PeerFault as fault:
            # It signs nothing and says why; another proposal may still be signed.
            refusal = Refusal.make(
                key, context=self.attempt.context, member=self.member, cause=fault.cause.value
            )
            return self, (refusal,)
        return self.vote(survivors_hash(self.attempt.context, survivors), key)

    def check_proposal(self, survivors: tuple[Survivor, ...]) -> None:
        """Check the survivors proposed, in this order (protocol §4.6).

        1. they are members in order, at least n_min of them;
        2. this member's own upload, if it stands among them, is the one it sent;
        3. every other one is an upload whose box this decryptor opened without complaint: its signature was
           checked then, and its digest pins all it signed.
        """
        self.attempt.check_survivors(survivors)
        known = {entry.survivor for entry in self.opened}
        for survivor in survivors:
            if survivor.member == self.member:
                if survivor not in self.own:
                    raise PeerFault(
                        Cause.OWN_UPLOAD_CHANGED, "the proposal shows another upload than this member's"
                    )
            elif survivor.member in self.receipt.complaints:
                raise PeerFault(Cause.BOX_REFUSED, f"{survivor.member}'s box was refused", [survivor.member])
            elif survivor not in known:
                raise PeerFault(
                    Cause.SURVIVORS_INVALID, f"{survivor.member}'s upload is not the one whose box was shown"
                )
