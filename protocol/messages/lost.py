"""LOST: an attempt that can have no certificate is closed by the admin (protocol §4.9)."""

from collections import Counter
from typing import Annotated, ClassVar

from protocol.codec import Digest, Id, Many, Nested, Signature
from protocol.messages.base import MAX_DECRYPTORS, Kind, Message, Signed
from protocol.messages.outcome import LOST_REASON, Past, SurvivorSet, survivors_hash
from protocol.tags import Tag


class ReportRequest(Message):
    """To every decryptor: the attempt is lost; say which set you signed, and sign no other."""

    kind: ClassVar[int] = Kind.REPORT_REQUEST

    context: Digest


class Report(Signed):
    """From a decryptor: the set that it signed in this context, or none; it signs nothing after that."""

    kind: ClassVar[int] = Kind.REPORT
    tag: ClassVar[Tag] = Tag.REPORT

    context: Digest
    member: Id
    sets: Annotated[tuple[SurvivorSet, ...], Many(Nested(SurvivorSet), 1)]
    signature: Signature


class Lost(Signed):
    """The admin closes an attempt; sets that enough decryptors report count as opened."""

    kind: ClassVar[int] = Kind.LOST
    tag: ClassVar[Tag] = Tag.LOST

    context: Digest
    reports: Annotated[tuple[Report, ...], Many(Nested(Report), MAX_DECRYPTORS, ascending=True)]
    signature: Signature

    def past(self, reports_min: int) -> Past:
        """What the chain keeps of it: the sets that enough decryptors report, in ascending order of their hashes.

        Args:
            reports_min: how many; a certified set has at least that many (protocol §4.9).
        """
        reported = [
            (survivors_hash(self.context, each.survivors), each)
            for report in self.reports
            for each in report.sets
        ]
        times = Counter(outcome for outcome, _ in reported)
        sets = {outcome: each for outcome, each in reported if times[outcome] >= reports_min}
        return Past(self.context, LOST_REASON, tuple(sets[outcome] for outcome in sorted(sets)))
