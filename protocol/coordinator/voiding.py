"""The attempt is to end without a sum: decryptors sign VOID, so that a retry is safe (protocol §4.6)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from protocol.causes import Cause
from protocol.coordinator.base import CoordinatorPhase, Setting, added
from protocol.coordinator.ended import Voided
from protocol.coordinator.erasing import Erasing
from protocol.errors import PeerFault
from protocol.messages import Certificate, Message, Receipt, Refusal, VoidRequest, Vote, void_hash


@dataclass(frozen=True, repr=False)
class Voiding(CoordinatorPhase):
    """Waits for a threshold of votes on VOID, until the terms' latest end.

    Attributes:
        fault: why, and who is named.
        spent: decryptors who signed a survivor set and so sign nothing else.
        votes: by decryptor.
    """

    name: ClassVar[str] = "voiding"
    late: ClassVar[tuple[type[Message], ...]] = (Receipt, Refusal)
    fault: PeerFault
    spent: frozenset[str] = frozenset()
    votes: dict[str, Vote] = field(default_factory=dict)

    @classmethod
    def begin(cls, setting: Setting, fault: PeerFault, spent: frozenset[str] = frozenset()) -> "Voiding":
        """Ask for VOID."""
        return cls(setting, setting.attempt.terms.latest_end_s, fault, spent)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], CoordinatorPhase]]:
        """Votes."""
        return {Vote: self._vote}

    def waiting_for(self) -> tuple[str, ...]:
        """Decryptors who may still sign."""
        return tuple(m for m in self.attempt.decryptors if m not in self.votes and m not in self.spent)

    def request_for(self, member: str) -> Message | None:
        """The request, until this decryptor has signed."""
        return self.request if member in self.waiting_for() else None

    @property
    def request(self) -> VoidRequest:
        """What those decryptors are asked."""
        return VoidRequest(self.attempt.context, self.fault.cause.value)

    def _vote(self, vote: Vote, _now_s: float) -> CoordinatorPhase:
        self.check_sender(vote.member, vote.context)
        vote.verify(self.attempt.roster.key_of(vote.member), vote.member)
        reason = self.fault.cause.value
        votes = added(self.votes, vote.member, vote, Cause.ALREADY_VOTED)
        if votes is None:
            return self
        if vote.outcome != void_hash(self.attempt.context, reason) and vote.member in self.spent:
            return self
        if vote.outcome != void_hash(self.attempt.context, reason):
            # A vote on the survivors that comes late: no fault, but this decryptor signs nothing else.
            return replace(self, spent=self.spent | {vote.member})
        if vote.member in self.spent:
            raise PeerFault(Cause.ALREADY_VOTED, f"{vote.member} signed another outcome", [vote.member])
        if len(votes) < self.attempt.quorum.threshold:
            return replace(self, votes=votes)
        certificate = Certificate(
            self.attempt.context, (), reason, tuple(votes[member] for member in sorted(votes))
        )
        return Voided(self.setting, None, certificate, self.fault)

    def overdue(self) -> CoordinatorPhase:
        """Decryptors erase, for want of votes."""
        return Erasing(self.setting, None, self.fault)

    def cancel(self, now_s: float, reason: str = "") -> CoordinatorPhase:
        """It is being given up already."""
        del now_s, reason
        return self
