"""M2 to M3: a decryptor has signed its one outcome and waits for the certificate (protocol §4.6)."""

from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Many, Nested
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.member.base import PhaseKind, Step
from protocol.member.checked import Holding
from protocol.messages import Message, SurvivorSet, Vote


class Voted(Holding):
    """The vote is stored: one for each context, ever.

    Attributes:
        given: the vote.
        survivor_sets: what it was given to, unless that is VOID.
    """

    kind: ClassVar[int] = PhaseKind.VOTED

    given: Annotated[Vote, Nested(Vote)]
    survivor_sets: Annotated[tuple[SurvivorSet, ...], Many(Nested(SurvivorSet), 1)]

    def signed(self) -> tuple[SurvivorSet, ...]:
        """The survivors it signed, if it did not sign VOID."""
        return self.survivor_sets

    def outbox(self) -> tuple[Message, ...]:
        """The vote."""
        return (self.given,)

    def vote(self, outcome: bytes, key: SigningKey, signed: tuple[SurvivorSet, ...] = ()) -> Step:  # noqa: ARG002 - nothing is signed again
        """Send the stored vote again, for the outcome it was given to."""
        if outcome != self.given.outcome:
            raise PeerFault(Cause.ALREADY_VOTED, f"{self.member} has signed another outcome for this context")
        return self, (self.given,)
