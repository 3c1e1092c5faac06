"""M2 to M3: a decryptor has signed its one outcome and waits for the certificate (protocol §4.6)."""

from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Nested
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.member.base import PhaseKind, Step
from protocol.member.checked import Holding
from protocol.messages import Message, Vote


class Voted(Holding):
    """The vote is stored: one for each context, ever.

    Attributes:
        given: the vote.
    """

    kind: ClassVar[int] = PhaseKind.VOTED

    given: Annotated[Vote, Nested(Vote)]

    def outbox(self) -> tuple[Message, ...]:
        """The vote."""
        return (self.given,)

    def vote(self, outcome: bytes, key: SigningKey) -> Step:  # noqa: ARG002 - nothing is signed again
        """Send the stored vote again, for the outcome it was given to."""
        if outcome != self.given.outcome:
            raise PeerFault(Cause.ALREADY_VOTED, f"{self.member} has signed another outcome for this context")
        return self, (self.given,)
