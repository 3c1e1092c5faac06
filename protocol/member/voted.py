"""M2 to M3: a decryptor has signed its one outcome and waits for the certificate."""

from collections.abc import Callable
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Nested
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.member.base import PhaseKind, Step
from protocol.member.checked import Holding
from protocol.messages import Freeze, Message, Survivor, Vote, survivors_hash


class Voted(Holding):
    """The vote is stored: one for each context, ever."""

    kind: ClassVar[int] = PhaseKind.VOTED

    signed: Annotated[Vote, Nested(Vote)]

    def outbox(self) -> tuple[Message, ...]:
        """The vote."""
        return (self.signed,)

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """The same question again is answered by the same vote, any other refused."""
        return {**super().handlers(), Freeze: self._freeze}

    def _freeze(self, freeze: Freeze, key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(freeze.context, "coordinator")
        survivors = tuple(Survivor.of(header) for header in freeze.headers)
        return self.vote(survivors_hash(self.attempt.context, survivors), key)

    def vote(self, outcome: bytes, key: SigningKey) -> Step:  # noqa: ARG002 - nothing is signed again
        """Send the stored vote again, for the outcome it was given to."""
        if outcome != self.signed.outcome:
            raise PeerFault(Cause.ALREADY_VOTED, f"{self.member} has signed another outcome for this context")
        return self, (self.signed,)
