"""With a certificate shown, helpers return the sums of their keystreams, and holders are compared (helpers H8)."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.coordinator.base import CoordinatorPhase, HelperSetting, added
from protocol.helpers.coordinator.ended import Lost, Recovered, Source
from protocol.helpers.messages import (
    HELPERS,
    HelperCertificate,
    HelperReceipt,
    HelperRefusal,
    HelperSums,
    HelperVote,
)
from protocol.messages.base import Message
from protocol.phases import cancelled

Digests = tuple[bytes, ...]


@dataclass(frozen=True, repr=False)
class Summing(CoordinatorPhase):
    """Waits until two holders of each seed have returned the same sum.

    Attributes:
        certificate: the certified survivors.
        panel: helpers who hold the seeds of all of them.
        sums: by helper.
    """

    name: ClassVar[str] = "summing"
    late: ClassVar[tuple[type[Message], ...]] = (HelperReceipt, HelperVote, HelperRefusal)
    certificate: HelperCertificate
    panel: tuple[str, ...]
    sums: dict[str, HelperSums] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, setting: HelperSetting, now_s: float, certificate: HelperCertificate, panel: tuple[str, ...]
    ) -> "Summing":
        """Show the certificate."""
        return cls(setting, now_s + setting.windows.sum_s, certificate, panel)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], CoordinatorPhase]]:
        """Sums."""
        return {HelperSums: self._sums}

    def waiting_for(self) -> tuple[str, ...]:
        """Helpers who hold the seeds and have not returned their sums."""
        return tuple(helper for helper in self.panel if helper not in self.sums)

    def request_for(self, helper: str) -> Message | None:
        """The certificate: to the panel the question, to another helper the news."""
        return None if helper in self.sums else self.certificate

    def _sums(self, sums: HelperSums, _now_s: float) -> CoordinatorPhase:
        """Take a helper's digests, in this order.

        1. its sender has a card and signs it, in this context, for this certificate;
        2. it has three lists of as many digests as a vector has chunks (both reveal-misshapen).
        """
        attempt, helper = self.attempt, sums.member
        attempt.check_helper(helper, sums.context)
        sums.verify(attempt.roster.key_of(helper), helper)
        shape = [len(digests) for digests in sums.digests]
        if sums.outcome != self.certificate.outcome or shape != [attempt.chunks] * (HELPERS - 1):
            raise PeerFault(Cause.REVEAL_MISSHAPEN, f"{helper}'s sums do not fit the certificate", [helper])
        known = added(self.sums, helper, sums)
        if known is None:
            return self
        phase = replace(self, sums=known)
        return phase.settle() if phase.is_agreed() or not phase.waiting_for() else phase

    def reports(self) -> list[dict[Digests, list[str]]]:
        """For each seed, who returned which digests."""
        reports: list[dict[Digests, list[str]]] = [defaultdict(list) for _ in range(HELPERS)]
        for helper, sums in self.sums.items():
            for seed, digests in zip(self.attempt.seeds_of(helper), sums.digests, strict=True):
                reports[seed][digests].append(helper)
        return reports

    def is_agreed(self) -> bool:
        """Whether two holders of every seed, or three, have returned the same sum and nobody another."""
        return all([len(names) > 1 for names in of_seed.values()] == [True] for of_seed in self.reports())

    def settle(self) -> CoordinatorPhase:
        """Take for each seed the sum that two holders agree on.

        One false helper at most is assumed: where all three holders have answered, two outvote the third, and it is named.
        Two who disagree, or two helpers outvoted, end the attempt.
        """
        sources, outvoted = [], set()
        for of_seed in self.reports():
            holders = sorted(name for names in of_seed.values() for name in names)
            if len(holders) < 2:
                few = f"{len(self.sums)} helpers returned sums: two holders of every seed are needed"
                return self._lost(PeerFault(Cause.QUORUM_LOST, few, self.waiting_for()))
            digests, agreeing = max(of_seed.items(), key=lambda item: len(item[1]))
            if len(agreeing) < 2:
                return self._lost(PeerFault(Cause.HELPER_DISAGREEMENT, parties=holders))
            outvoted.update(set(holders) - set(agreeing))
            sources.append(Source(tuple(agreeing), digests))
        if len(outvoted) > 1:
            return self._lost(PeerFault(Cause.HELPER_DISAGREEMENT, parties=sorted(outvoted)))
        return Recovered(self.setting, None, self.certificate, tuple(sources), tuple(outvoted))

    def _lost(self, fault: PeerFault) -> Lost:
        return Lost(self.setting, None, self.certificate, fault)

    def expire(self, now_s: float) -> CoordinatorPhase:
        """Go on with the sums that came."""
        del now_s
        return self.settle()

    def cancel(self, now_s: float, reason: str = "") -> CoordinatorPhase:
        """Give the sum up; what is certified stays opened in every ledger."""
        del now_s
        return self._lost(cancelled(reason))
