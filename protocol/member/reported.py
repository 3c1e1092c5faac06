"""The attempt is given up: a decryptor has said what it signed, and signs no more (protocol §4.9)."""

from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Nested
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.member.base import PhaseKind, Step
from protocol.member.checked import Holding
from protocol.messages import Message, Report, ReportRequest, SurvivorSet


class Reported(Holding):
    """The report is stored. A certificate is still taken: its honest voters reported the same set."""

    kind: ClassVar[int] = PhaseKind.REPORTED

    report: Annotated[Report, Nested(Report)]

    def signed(self) -> tuple[SurvivorSet, ...]:
        """What the report says."""
        return self.report.sets

    def outbox(self) -> tuple[Message, ...]:
        """The report."""
        return (self.report,)

    def vote(self, outcome: bytes, key: SigningKey, signed: tuple[SurvivorSet, ...] = ()) -> Step:
        """Refuse: a vote that the report does not tell of would open a set that no ledger knows."""
        del outcome, key, signed
        raise PeerFault(Cause.ALREADY_VOTED, f"{self.member} has reported what it signed, and signs no more")

    def _report(self, request: ReportRequest, _key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(request.context, "coordinator")
        return self, (self.report,)
