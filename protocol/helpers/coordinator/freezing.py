"""Helpers are shown the survivors and sign them, once (helpers H7)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.coordinator.base import CoordinatorPhase, HelperSetting, added
from protocol.helpers.coordinator.ended import Lost
from protocol.helpers.coordinator.summing import Summing
from protocol.helpers.coordinator.voiding import Voiding
from protocol.helpers.messages import (
    THRESHOLD,
    HelperCertificate,
    HelperFreeze,
    HelperLost,
    HelperReceipt,
    HelperRefusal,
    HelperUpload,
    HelperVote,
)
from protocol.messages.base import Message
from protocol.messages.outcome import NO_REASON, Survivor
from protocol.phases import cancelled


@dataclass(frozen=True, repr=False)
class Freezing(CoordinatorPhase):
    """Waits for three votes on one survivor set.

    Attributes:
        survivors: the proposed set, in order; `outcome` is its hash.
        panel: helpers who hold the seeds of all of it.
        votes: by helper.
        refusals: by helper.
    """

    name: ClassVar[str] = "freezing"
    late: ClassVar[tuple[type[Message], ...]] = (HelperReceipt,)
    survivors: tuple[Survivor, ...]
    outcome: bytes
    panel: tuple[str, ...]
    votes: dict[str, HelperVote] = field(default_factory=dict)
    refusals: dict[str, HelperRefusal] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, setting: HelperSetting, now_s: float, uploads: tuple[HelperUpload, ...], panel: tuple[str, ...]
    ) -> "Freezing":
        """Propose the survivors."""
        survivors = tuple(upload.header.survivor for upload in uploads)
        outcome = setting.attempt.outcome(survivors)
        return cls(setting, now_s + setting.windows.freeze_s, survivors, outcome, panel)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], CoordinatorPhase]]:
        """Votes, refusals, and the admin's word."""
        return {HelperVote: self._vote, HelperRefusal: self._refusal, HelperLost: self._lost}

    def waiting_for(self) -> tuple[str, ...]:
        """Helpers of the panel who have neither signed nor refused."""
        return tuple(h for h in self.panel if h not in self.votes and h not in self.refusals)

    def request_for(self, helper: str) -> Message | None:
        """The proposal, until this helper has answered."""
        if helper not in self.waiting_for():
            return None
        return HelperFreeze(self.attempt.context, self.survivors)

    def _vote(self, vote: HelperVote, now_s: float) -> CoordinatorPhase:
        attempt, helper = self.attempt, vote.member
        attempt.check_helper(helper, vote.context)
        vote.verify(attempt.roster.key_of(helper), helper)
        if vote.outcome != self.outcome:
            raise PeerFault(Cause.ALREADY_VOTED, f"{helper} has signed another outcome", [helper])
        if helper in self.votes:
            return self
        votes = {**self.votes, helper: vote}
        if len(votes) < THRESHOLD:
            return replace(self, votes=votes)
        signed = tuple(votes[name] for name in sorted(votes))
        family, floor = attempt.family, attempt.manifest.floor
        certificate = HelperCertificate(attempt.context, family, floor, self.survivors, NO_REASON, signed)
        return Summing.begin(self.setting, now_s, certificate, self.panel)

    def _refusal(self, refusal: HelperRefusal, now_s: float) -> CoordinatorPhase:
        attempt, helper = self.attempt, refusal.member
        attempt.check_helper(helper, refusal.context)
        refusal.verify(attempt.roster.key_of(helper), helper)
        refusals = added(self.refusals, helper, refusal)
        if refusals is None:
            return self
        phase = replace(self, refusals=refusals)
        if len(phase.votes) + len(phase.waiting_for()) >= THRESHOLD:
            return phase
        why = ", ".join(f"{name}: {said.cause}" for name, said in sorted(refusals.items()))
        return phase.give_up(now_s, PeerFault(Cause.QUORUM_LOST, why, sorted(refusals)))

    def _lost(self, lost: HelperLost, _now_s: float) -> CoordinatorPhase:
        return Lost.by_admin(self.setting, lost)

    def give_up(self, now_s: float, fault: PeerFault) -> CoordinatorPhase:
        """VOID, where three helpers are left who have not signed the set; else wait for who is missing, or the admin."""
        if len(self.attempt.present) - len(self.votes) >= THRESHOLD:
            return Voiding.begin(self.setting, now_s, fault, tuple(self.votes))
        return self if self.deadline_s is None else replace(self, deadline_s=None)

    def expire(self, now_s: float) -> CoordinatorPhase:
        """Too few votes came."""
        few = f"{len(self.votes)} votes, the threshold is {THRESHOLD}"
        return self.give_up(now_s, PeerFault(Cause.QUORUM_LOST, few, self.waiting_for()))

    def cancel(self, now_s: float, reason: str = "") -> CoordinatorPhase:
        """Give the attempt up, if VOID can still be had."""
        return self.give_up(now_s, cancelled(reason))
