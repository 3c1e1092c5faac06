"""M2: decryptors receive the proposed survivors and sign them, once (wire: Votes)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator.base import CoordinatorPhase, Delivering, Voiding
from veilsum.protocol.coordinator.revealing import Revealing
from veilsum.protocol.disputes import Dispute
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import count_noun
from veilsum.protocol.messages import (
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
        outcome: the set's hash, which every vote must carry.
        disputes: disputes that dropped members; complaints in later receipts drop none.
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
        survivors = tuple(Survivor.from_header(uploads[member].header) for member in members)
        outcome = survivors_hash(setting.attempt.context, survivors)
        deadline_s = setting.end_of_window(now_s, setting.windows.answer)
        setting = replace(setting, statements=setting.statements.note_question(outcome))
        return cls(setting, deadline_s, uploads, checked.receipts, survivors, outcome, disputes)

    def waiting_for(self) -> tuple[str, ...]:
        """Return the decryptors without an answer, or only those without a receipt if too few hold shares to certify.

        A decryptor that votes for survivors can't vote for VOID, so votes are requested only if enough decryptors can certify.
        """
        holding = [member for member in self.unanswered_decryptors if member in self.receipts]
        if len(self.votes) + len(holding) >= self.attempt.quorum.threshold:
            return self.unanswered_decryptors
        return tuple(member for member in self.unanswered_decryptors if member not in self.receipts)

    @property
    def unanswered_decryptors(self) -> tuple[str, ...]:
        """Decryptors that have neither signed nor refused."""
        answered = self.votes.keys() | self.refusals.keys()
        return tuple(member for member in self.attempt.decryptors if member not in answered)

    def question_for(self, member: str) -> Message | None:
        """Return the proposal, until this decryptor answers."""
        return self.proposal if member in self.waiting_for() else None

    @property
    def proposal(self) -> Freeze:
        """The proposal for decryptors with a receipt."""
        headers = tuple(self.uploads[survivor.member].header for survivor in self.survivors)
        return Freeze(self.attempt.context, headers, self.setting.earlier)

    def _on_vote(self, vote: Vote, _now_s: float) -> CoordinatorPhase:
        self.setting.statements.check_outcome(self.attempt, vote)
        if vote.member in self.votes:
            return self
        phase = self.note_answer(vote, votes={**self.votes, vote.member: vote})
        if len(phase.votes) < self.attempt.quorum.threshold:
            return phase
        votes = tuple(phase.votes[member] for member in sorted(phase.votes))
        certificate = Certificate(self.attempt.context, self.survivors, NO_REASON, votes)
        return Revealing.begin(phase, certificate, self.disputes)

    def _on_refusal(self, refusal: Refusal, now_s: float) -> CoordinatorPhase:
        member = refusal.member
        if self.refusals.get(member, refusal).digest != refusal.digest:
            raise PeerFault(Cause.CONFLICT, f"{member} has refused for another reason before", [member])
        if member in self.refusals or member in self.votes:
            return self
        phase = replace(self, refusals={**self.refusals, member: refusal})
        possible = len(self.votes) + len(phase.unanswered_decryptors)
        return phase if possible >= self.attempt.quorum.threshold else phase.pass_deadline(now_s)

    def go_on(self, now_s: float) -> CoordinatorPhase:
        """Void the attempt because of a refusal or missing answers."""
        del now_s
        for refusal in self.refusals.values():
            fault = PeerFault(
                _cause_named(refusal.cause), f"{refusal.member} refused to sign", [refusal.member]
            )
            return Voiding.begin(self.setting, fault)
        missing = f"{count_noun(len(self.votes), 'vote')}, the threshold is {self.attempt.quorum.threshold}"
        return Voiding.begin(self.setting, PeerFault(Cause.QUORUM_LOST, missing, self.waiting_for()))

    handlers: ClassVar = {Receipt: Delivering.take_receipt, Vote: _on_vote, Refusal: _on_refusal}


_REFUSAL_CAUSES = frozenset(
    {
        Cause.SURVIVORS_INVALID,
        Cause.SURVIVORS_TOO_FEW,
        Cause.WINDOW_EXCEEDED,
        Cause.CHAIN_BROKEN,
        Cause.OUTCOME_MISSING,
        Cause.ALREADY_SUMMED,
        Cause.REPEAT_MISMATCH,
        Cause.MALFORMED,
        Cause.OWN_UPLOAD_CHANGED,
        Cause.COUNT_MISMATCH,
    }
)


def _cause_named(value: str) -> Cause:
    """Map a refusal's cause; one that no proposal can have becomes policy-refused."""
    return Cause(value) if value in _REFUSAL_CAUSES else Cause.POLICY_REFUSED
