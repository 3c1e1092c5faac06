"""Helpers are asked to end the attempt without a sum (helpers H7)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.coordinator.base import CoordinatorPhase, HelperSetting
from protocol.helpers.coordinator.ended import Lost, Voided
from protocol.helpers.messages import (
    THRESHOLD,
    HelperCertificate,
    HelperLost,
    HelperReceipt,
    HelperRefusal,
    HelperVoidRequest,
    HelperVote,
)
from protocol.messages.base import Message
from protocol.messages.outcome import void_hash


@dataclass(frozen=True, repr=False)
class Voiding(CoordinatorPhase):
    """Waits for three votes on VOID.

    Attributes:
        fault: why.
        barred: helpers who have signed a set, and can sign nothing else.
        votes: by helper.
    """

    name: ClassVar[str] = "voiding"
    late: ClassVar[tuple[type[Message], ...]] = (HelperReceipt, HelperRefusal)
    fault: PeerFault
    barred: tuple[str, ...] = ()
    votes: dict[str, HelperVote] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, setting: HelperSetting, now_s: float, fault: PeerFault, barred: tuple[str, ...] = ()
    ) -> "Voiding":
        """Ask for VOID."""
        return cls(setting, now_s + setting.windows.freeze_s, fault, barred)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], CoordinatorPhase]]:
        """Votes, and the admin's word."""
        return {HelperVote: self._vote, HelperLost: self._lost}

    def waiting_for(self) -> tuple[str, ...]:
        """Helpers who have signed nothing."""
        return tuple(h for h in self.attempt.present if h not in self.votes and h not in self.barred)

    def request_for(self, helper: str) -> Message | None:
        """The request, until this helper has signed."""
        if helper not in self.waiting_for():
            return None
        return HelperVoidRequest(self.attempt.context, self.fault.cause.value)

    def _vote(self, vote: HelperVote, _now_s: float) -> CoordinatorPhase:
        attempt, helper = self.attempt, vote.member
        attempt.check_helper(helper, vote.context)
        vote.verify(attempt.roster.key_of(helper), helper)
        reason = self.fault.cause.value
        if vote.outcome != void_hash(attempt.context, reason):
            raise PeerFault(Cause.ALREADY_VOTED, f"{helper} has signed another outcome", [helper])
        if helper in self.votes:
            return self
        votes = {**self.votes, helper: vote}
        if len(votes) < THRESHOLD:
            return replace(self, votes=votes)
        signed = tuple(votes[name] for name in sorted(votes))
        family, floor = attempt.family, attempt.manifest.floor
        certificate = HelperCertificate(attempt.context, family, floor, (), reason, signed)
        return Voided(self.setting, None, certificate, self.fault)

    def _lost(self, lost: HelperLost, _now_s: float) -> CoordinatorPhase:
        return Lost.by_admin(self.setting, lost)

    def expire(self, now_s: float) -> CoordinatorPhase:
        """Nothing ends an attempt but three helpers or the admin: wait for them."""
        del now_s
        return replace(self, deadline_s=None)

    def cancel(self, now_s: float, reason: str = "") -> CoordinatorPhase:
        """It is being given up already."""
        del now_s, reason
        return self
