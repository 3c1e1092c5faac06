"""M2: decryptors are shown the survivors and sign them, once (protocol §4.6)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from protocol.causes import Cause
from protocol.coordinator.base import CoordinatorPhase, added, cancelled
from protocol.coordinator.delivering import Delivering
from protocol.coordinator.revealing import Revealing
from protocol.coordinator.voiding import Voiding
from protocol.disputes import Dispute
from protocol.errors import PeerFault
from protocol.messages import (
    NO_REASON,
    Certificate,
    Freeze,
    Message,
    Receipt,
    Refusal,
    Survivor,
    Vote,
    survivors_hash,
)


@dataclass(frozen=True, repr=False)
class Freezing(Delivering):
    """Waits for a threshold of votes on one survivor set.

    Attributes:
        survivors: the proposed set, as votes and certificate name it.
        outcome: its hash, which every vote must carry.
        disputes: those that had members dropped: what a later receipt complains of does not.
        votes: by decryptor.
        refusals: by decryptor.
    """

    name: ClassVar[str] = "freezing"
    survivors: tuple[Survivor, ...]
    outcome: bytes
    disputes: tuple[Dispute, ...]
    votes: dict[str, Vote] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, checked: Delivering, now_s: float, members: Iterable[str], disputes: tuple[Dispute, ...]
    ) -> "Freezing":
        """Propose these members' uploads."""
        setting, uploads = checked.setting, checked.uploads
        survivors = tuple(Survivor.of(uploads[member].header) for member in members)
        outcome = survivors_hash(setting.attempt.context, survivors)
        deadline_s = setting.until(now_s, setting.windows.freeze_s)
        return cls(setting, deadline_s, uploads, checked.receipts, survivors, outcome, disputes)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], CoordinatorPhase]]:
        """Votes and refusals; receipts of who comes late."""
        return {Receipt: self.take_receipt, Vote: self._vote, Refusal: self._refusal}

    def waiting_for(self) -> tuple[str, ...]:
        """Decryptors who have neither signed nor refused; where those with shares are too few to certify, the others alone.

        A vote rules out VOID for its decryptor, so none is asked for that may come to nothing.
        """
        holding = [member for member in self.unanswered if member in self.receipts]
        if len(self.votes) + len(holding) >= self.attempt.quorum.threshold:
            return self.unanswered
        return tuple(member for member in self.unanswered if member not in self.receipts)

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Decryptors who have neither signed nor refused."""
        answered = self.votes.keys() | self.refusals.keys()
        return tuple(member for member in self.attempt.decryptors if member not in answered)

    def question_for(self, member: str) -> Message | None:
        """The proposal, until this decryptor has answered."""
        return self.proposal if member in self.waiting_for() else None

    @property
    def proposal(self) -> Freeze:
        """What decryptors with a receipt are shown."""
        headers = tuple(self.uploads[survivor.member].header for survivor in self.survivors)
        return Freeze(self.attempt.context, headers, self.setting.earlier)

    def _vote(self, vote: Vote, _now_s: float) -> CoordinatorPhase:
        self.check_sender(vote.member, vote.context)
        vote.verify(self.attempt.roster.key_of(vote.member), vote.member)
        votes = added(self.votes, vote.member, vote, Cause.ALREADY_VOTED)
        if votes is None:
            return self
        if vote.outcome != self.outcome:
            raise PeerFault(
                Cause.SURVIVORS_INVALID, f"{vote.member} signed another set than the one shown", [vote.member]
            )
        phase = replace(self, votes=votes)
        if len(votes) < self.attempt.quorum.threshold:
            return phase
        certificate = Certificate(
            self.attempt.context, self.survivors, NO_REASON, tuple(votes[m] for m in sorted(votes))
        )
        return Revealing.begin(self, certificate, self.disputes)

    def _refusal(self, refusal: Refusal, now_s: float) -> CoordinatorPhase:
        self.check_sender(refusal.member, refusal.context)
        refusal.verify(self.attempt.roster.key_of(refusal.member), refusal.member)
        refusals = added(self.refusals, refusal.member, refusal, Cause.CONFLICT)
        if refusals is None or refusal.member in self.votes:
            return self
        phase = replace(self, refusals=refusals)
        possible = len(self.votes) + len(phase.unanswered)
        return phase if possible >= self.attempt.quorum.threshold else phase.expire(now_s)

    def go_on(self, now_s: float) -> CoordinatorPhase:
        """No certificate: void the attempt, for the reason that was given, or for want of answers."""
        del now_s
        for refusal in self.refusals.values():
            fault = PeerFault(
                _cause_named(refusal.cause), f"{refusal.member} refused to sign", [refusal.member]
            )
            return Voiding.begin(self.setting, fault, spent=self._spent)
        missing = f"{len(self.votes)} votes, the threshold is {self.attempt.quorum.threshold}"
        fault = PeerFault(Cause.QUORUM_LOST, missing, self.waiting_for())
        return Voiding.begin(self.setting, fault, spent=self._spent)

    def cancel(self, now_s: float, reason: str = "") -> CoordinatorPhase:
        """Void the attempt with the decryptors who have not signed the survivors."""
        del now_s
        return Voiding.begin(self.setting, cancelled(reason), spent=self._spent)

    @property
    def _spent(self) -> frozenset[str]:
        return frozenset(self.votes)


_REFUSALS = frozenset(
    {
        Cause.SURVIVORS_INVALID,
        Cause.SURVIVORS_TOO_FEW,
        Cause.WINDOW_EXCEEDED,
        Cause.CHAIN_BROKEN,
        Cause.OUTCOME_MISSING,
        Cause.REPEAT_MISMATCH,
        Cause.MALFORMED,
        Cause.OWN_UPLOAD_CHANGED,
        Cause.INDICATOR_MISMATCH,
    }
)


def _cause_named(value: str) -> Cause:
    """A refusal's cause; any that a proposal cannot have is a policy's."""
    return Cause(value) if value in _REFUSALS else Cause.POLICY_REFUSED
