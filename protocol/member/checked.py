"""M2: a decryptor that has checked its boxes is shown the survivors (protocol §4.6)."""

from collections.abc import Callable
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Many, Nested
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.member.attempting import Attempting, Dealt
from protocol.member.base import PhaseKind, Step
from protocol.messages import (
    Deliveries,
    Freeze,
    Message,
    Receipt,
    Refusal,
    Survivor,
    survivors_hash,
)
from protocol.messages.base import MAX_MEMBERS
from protocol.proposal import check_proposal


class Holding(Attempting):
    """A decryptor that has looked into its boxes.

    Attributes:
        opened: the other dealers' shares that passed.
        refused: the dealers that it complained about.
    """

    opened: Annotated[tuple[Dealt, ...], Many(Nested(Dealt), MAX_MEMBERS, ascending=True)]
    refused: Annotated[tuple[Survivor, ...], Many(Nested(Survivor), MAX_MEMBERS, ascending=True)]

    def held(self) -> tuple[Dealt, ...]:
        """The shares that passed."""
        return self.opened

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """Survivors to sign too."""
        return {**super().handlers(), Freeze: self._freeze}

    def _freeze(self, freeze: Freeze, key: SigningKey, _now_s: float) -> Step:
        """Sign them only if that is what was signed before: `vote` tells."""
        self.attempt.check_context(freeze.context, "coordinator")
        survivors = tuple(Survivor.of(header) for header in freeze.headers)
        return self.vote(survivors_hash(self.attempt.context, survivors), key)

    def _refused(self) -> tuple[Survivor, ...]:
        return self.refused


class Checked(Holding):
    """The receipt is sent."""

    kind: ClassVar[int] = PhaseKind.CHECKED

    receipt: Annotated[Receipt, Nested(Receipt)]

    def outbox(self) -> tuple[Message, ...]:
        """The receipt."""
        return (self.receipt,)

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """Deliveries again are answered by the same receipt."""
        return {**super().handlers(), Deliveries: self._again}

    def _again(self, message: Deliveries, _key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(message.context, "coordinator")
        return self, (self.receipt,)

    def _freeze(self, freeze: Freeze, key: SigningKey, _now_s: float) -> Step:
        context = self.attempt.context
        self.attempt.check_context(freeze.context, "coordinator")
        survivors = tuple(Survivor.of(header) for header in freeze.headers)
        try:
            self.check_proposal(survivors, freeze)
        except PeerFault as fault:
            # It signs nothing and says why; another proposal may still be signed.
            refusal = Refusal.make(key, context=context, member=self.member, cause=fault.cause.value)
            return self, (refusal,)
        return self.vote(survivors_hash(context, survivors), key)

    def check_proposal(self, survivors: tuple[Survivor, ...], freeze: Freeze) -> None:
        """Check the survivors proposed, in this order (protocol §4.6).

        What this member learned since the opening stands in its links (clauses 4 and 5 of §4.3); then

        1. to 3. and 6. `proposal.check_proposal`: members in order, n_min, windows, and the certified set that the attempt rests on;
        4. this member's own upload, if it stands among them, is the one it sent;
        5. every other one is an upload that was delivered with this header: its signature was checked then, and its
           digest pins all it signed;
        That this member has recounted the indicator, the opening's clause 9 has checked.
        """
        self.history.check(self.opening, self.attempt.context)
        check_proposal(self.attempt, survivors, freeze.earlier)
        delivered = {*(dealt.survivor for dealt in self.opened), *self.refused, *self.own}
        unknown = [survivor.member for survivor in survivors if survivor not in delivered]
        if self.member in unknown:
            raise PeerFault(Cause.OWN_UPLOAD_CHANGED, "the proposal shows another upload than this member's")
        if unknown:
            raise PeerFault(
                Cause.SURVIVORS_INVALID, f"{unknown[0]}'s upload is not the one whose box was shown"
            )
