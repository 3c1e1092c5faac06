"""The verdict of a replayed transcript: broken rules and counted uploads (protocol §11)."""

from dataclasses import dataclass
from enum import StrEnum

from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.disputes import Dispute
from veilsum.protocol.messages import Certificate, Refusal, Survivor
from veilsum.protocol.shelf import Announced

COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Finding:
    """A broken rule, or an undecidable dispute.

    Attributes:
        parties: the parties at fault; for a dispute two, at least one of them false.
        cause: the rule.
        detail: what was seen.
        entry: the transcript's entry that shows it, counted from 0; None where it is the whole.
    """

    parties: tuple[str, ...]
    cause: Cause
    detail: str
    entry: int | None = None

    @property
    def dispute(self) -> bool:
        """Whether this is a dispute: which party is false cannot be decided."""
        return len(self.parties) > 1


class Standing(StrEnum):
    """What became of a member's upload, in words."""

    COUNTED = "counted: the certificate names the upload that it signed"
    EVICTED = "not counted: certified, then proved false"
    LEFT_OUT = "not counted: announced, and not among the certified survivors"
    UNCERTIFIED = "not counted: announced, and the attempt ended without a sum"
    UNREVEALED = "not counted: certified, and too few decryptors revealed for a sum"
    UNSIGNED = "not shown: the coordinator did not sign the file as it is, and what it noted may be left out"
    ABSENT = "not counted: the transcript holds no upload of this member"


@dataclass(frozen=True)
class Verdict:
    """What a transcript shows.

    Attributes:
        attempt: roster, manifest and opening.
        findings: in order; only disputes if all parties kept the rules.
        closing: how the attempt ended, if that is shown: an Erasure or Lost takes the place of a certificate.
        uploads: what was announced, by member.
        disputes: those that had members dropped from the set proposed.
        evicted: dealers proved false, in order: the sum is without them.
        revealed: whether a threshold of decryptors revealed for each survivor that was not evicted: without it there is no sum.
        refusals: refusals that a transcript cannot judge, in order.
        signed: whether it is as the coordinator signed it. If not, only what other parties signed is proved;
            the rest may be forged.
    """

    attempt: Attempt
    findings: tuple[Finding, ...]
    closing: Closing | None
    uploads: dict[str, Announced]
    disputes: tuple[Dispute, ...]
    evicted: tuple[str, ...]
    revealed: bool
    refusals: tuple[Refusal, ...]
    signed: bool

    @property
    def kept(self) -> bool:
        """Whether all findings are disputes."""
        return all(finding.dispute for finding in self.findings)

    @property
    def certificate(self) -> Certificate | None:
        """The outcome, if the attempt ended with one."""
        return self.closing if isinstance(self.closing, Certificate) else None

    @property
    def survivors(self) -> tuple[str, ...]:
        """The certified members in order; none without a sum."""
        return tuple(survivor.member for survivor in self.certificate.survivors) if self.certificate else ()

    def standing(self, member: str) -> Standing:
        """What became of this member's upload."""
        if member in self.evicted:
            return Standing.EVICTED
        if not self.signed:
            return Standing.UNSIGNED
        upload = self.uploads.get(member)
        if upload is None:
            return Standing.ABSENT
        if self.certificate is None or self.certificate.void:
            return Standing.UNCERTIFIED
        if Survivor.of(upload.header) not in self.certificate.survivors:
            return Standing.LEFT_OUT
        return Standing.COUNTED if self.revealed else Standing.UNREVEALED

    def counted(self, member: str) -> bool:
        """Whether the member's upload, as it signed it, was certified, is not proved false, and enough was revealed for a sum."""
        return self.standing(member) is Standing.COUNTED
