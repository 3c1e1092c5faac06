"""A helper has signed its one outcome and waits for the certificate (helpers H7)."""

from collections.abc import Callable
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Id, Nested
from protocol.errors import PeerFault
from protocol.helpers.helper.base import HelperPhaseKind, Step
from protocol.helpers.helper.checked import Holding
from protocol.helpers.messages import HelperFreeze, HelperLost, HelperVote
from protocol.identity import SigningKey
from protocol.messages.base import Message
from protocol.messages.outcome import NO_REASON


class Voted(Holding):
    """The vote is stored: one for each context, ever.

    Attributes:
        reason: of a vote for VOID; "none" for one on a set.
    """

    kind: ClassVar[int] = HelperPhaseKind.VOTED

    reason: Id
    signed: Annotated[HelperVote, Nested(HelperVote)]

    def outbox(self) -> tuple[Message, ...]:
        """The vote."""
        return (self.signed,)

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """The same question again is answered by the same vote, any other refused."""
        return {**super().handlers(), HelperFreeze: self._freeze}

    def _freeze(self, freeze: HelperFreeze, key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(freeze.context, "coordinator")
        self.attempt.check_survivors(freeze.survivors)
        return self.vote(self.attempt.outcome(freeze.survivors), NO_REASON, key)

    def vote(self, outcome: bytes, reason: str, key: SigningKey) -> Step:  # noqa: ARG002 - nothing is signed again
        """Send the stored vote again, for the outcome it was given to."""
        if outcome != self.signed.outcome:
            voter = self.standing.member
            raise PeerFault(Cause.ALREADY_VOTED, f"{voter} has signed another outcome for this context")
        return self, (self.signed,)

    def is_told(self, lost: HelperLost) -> bool:
        """A vote on a set must be told; one for VOID opened nothing."""
        told = {self.attempt.outcome(opened.survivors) for opened in lost.sets}
        return self.reason != NO_REASON or self.signed.outcome in told
