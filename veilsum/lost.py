"""A lost round from the admin's side: who reported what, and the signature that closes it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_sdk.operator import Operator
from protocol.attempt import Attempt, check_manifest
from protocol.errors import Misuse
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.messages import HelperLost
from protocol.messages import Lost, Roster
from veilsum.admin import load_admin


@dataclass(frozen=True)
class Papers:
    """What the admin is asked to sign.

    Attributes:
        attempt: the lost one; its roster is the admin's.
        reports: unsigned.
    """

    attempt: Attempt
    reports: Lost

    @classmethod
    def fetch(cls, client: Operator, round_id: str, roster: Roster | None = None) -> "Papers":
        """Fetch manifest, opening and reports, and check that they are of one attempt.

        Args:
            client: the coordinator.
            round_id: of the lost round.
            roster: that its cohort was formed under; None for the newest.

        Raises:
            PeerFault: another federation, cohort or context; or the round is not lost.
        """
        view = client.round(round_id)
        reports = client.reports(round_id)
        roster = roster or client.roster(view.federation)
        manifest = client.manifest(view.cohort)
        if roster.hash != manifest.roster_hash:
            raise Misuse(
                f"the cohort was formed under another roster than version {roster.version_number}: pass that one's signed "
                "file by --roster"
            )
        return cls.of(Attempt(roster, manifest, client.opening(round_id)), reports)

    @classmethod
    def of(cls, attempt: Attempt, reports: Lost) -> "Papers":
        """Check them against each other and each report's signature."""
        attempt.roster.verify_admin(attempt.roster.federation)
        check_manifest(attempt.roster, attempt.manifest)
        attempt.opening.verify(attempt.roster.coordinator, "coordinator")
        attempt.check_context(reports.context, "coordinator")
        for report in reports.reports:
            attempt.check_report(report)
        return cls(attempt, reports)

    @property
    def silent(self) -> tuple[str, ...]:
        """Decryptors that have reported nothing."""
        heard = {report.member for report in self.reports.reports}
        return tuple(member for member in self.attempt.decryptors if member not in heard)

    @property
    def needed(self) -> int:
        """Reports without which some opened set may be missing."""
        return self.attempt.quorum.threshold

    def values(self) -> dict[str, Any]:
        """What each decryptor reported, and the sizes of the sets that count as opened by all reports, for people."""
        counted = self.attempt.past(self.reports).sets
        return {
            "reported": {
                report.member: f"signed a sum over {len(report.sets[0].survivors)} members"
                if report.sets
                else "signed no sum"
                for report in self.reports.reports
            },
            "silent": list(self.silent),
            "reports": f"{len(self.reports.reports)} of {self.needed} needed",
            "counts_as_opened": [len(each.survivors) for each in counted],
        }

    def sign(self, folder: Path, *, incomplete: bool) -> Lost:
        """The admin's Lost over these reports.

        Raises:
            Misuse: the folder's key is not this federation's; or too few have reported, and `incomplete` is false.
        """
        admin = load_admin(folder)
        if admin.public != self.attempt.roster.federation:
            raise Misuse(f"{folder} holds another federation's admin key")
        if len(self.reports.reports) < self.needed and not incomplete:
            raise Misuse(
                f"{len(self.reports.reports)} of {self.needed} reports are in, {', '.join(self.silent)} are silent: wait for "
                "them, or pass --incomplete; then members who uploaded can't use those lineages in an exact round again"
            )
        signed = Lost.make(admin, context=self.reports.context, reports=self.reports.reports)
        self.attempt.check_lost(signed)
        return signed


@dataclass(frozen=True)
class HelperPapers:
    """What the admin is asked to sign over a round that helpers cannot end (helpers H9).

    Attributes:
        attempt: its roster is the admin's.
        reports: unsigned: the set that helpers were shown, if they were.
    """

    attempt: HelperAttempt
    reports: HelperLost

    @classmethod
    def fetch(cls, client: Operator, round_id: str, roster: Roster | None = None) -> "HelperPapers":
        """Fetch opening and reports, and check that they are of one attempt; raises as `Papers.fetch`."""
        view = client.round(round_id)
        reports = client.helper_reports(round_id)
        roster = roster or client.roster(view.federation)
        attempt = HelperAttempt(roster, client.helper_opening(round_id))
        if roster.hash != attempt.manifest.roster_hash:
            raise Misuse(
                f"the round was opened under another roster than version {roster.version_number}: pass that one's signed "
                "file by --roster"
            )
        roster.verify_admin(roster.federation)
        attempt.opening.verify(roster.coordinator, "coordinator")
        attempt.check_context(reports.context, "coordinator")
        return cls(attempt, reports)

    def values(self) -> dict[str, Any]:
        """Which outcomes would count as opened, for the admin to hold against what each helper says."""
        return {
            "mode": "helpers",
            "counts_as_opened": [len(each.survivors) for each in self.reports.sets],
            "outcomes": [self.attempt.outcome(each.survivors).hex() for each in self.reports.sets],
            "ask": f"{', '.join(self.attempt.present)}: each runs `veilsum helper show FOLDER`; a set signed under another "
            "outcome than these is missing here, and its helper would take no further part",
        }

    def sign(self, folder: Path, *, incomplete: bool) -> HelperLost:
        """The admin's HelperLost over these sets.

        Raises:
            Misuse: the folder's key is not this federation's; or `incomplete` is false: nobody but the admin can know that all
                helpers were asked.
        """
        admin = load_admin(folder)
        if admin.public != self.attempt.roster.federation:
            raise Misuse(f"{folder} holds another federation's admin key")
        if not incomplete:
            raise Misuse(
                "the coordinator alone says which sets were signed: ask each helper by `veilsum helper show`, compare the "
                "outcomes, then pass --incomplete"
            )
        attempt = self.attempt
        return HelperLost.make(
            admin,
            context=attempt.context,
            family=attempt.family.value,
            floor=attempt.manifest.floor,
            sets=self.reports.sets,
        )
