"""A round that too few decryptors report on, from the admin's side: the signature that closes it."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_sdk.operator import Operator
from protocol.attempt import Attempt, check_manifest
from protocol.errors import Misuse
from protocol.messages import Lost, Roster
from protocol.rest import RoundView
from veilsum.admin import load_admin
from veilsum.console import clock


@dataclass(frozen=True)
class Papers:
    """What the admin is asked to close.

    Attributes:
        attempt: its roster is the admin's.
        view: how far it is, by the coordinator's word.
    """

    attempt: Attempt
    view: RoundView

    @classmethod
    def fetch(cls, client: Operator, round_id: str, roster: Roster | None = None) -> "Papers":
        """Fetch manifest and opening, and check that they are of one attempt.

        Args:
            client: the coordinator.
            round_id: of the round.
            roster: that its cohort was formed under; None for the newest.

        Raises:
            PeerFault: another federation, cohort or context.
        """
        view = client.round(round_id)
        roster = roster or client.roster(view.federation)
        manifest = client.manifest(view.cohort)
        if roster.hash != manifest.roster_hash:
            raise Misuse(
                f"the cohort was formed under another roster than version {roster.version_number}: pass that one's signed "
                "file by --roster"
            )
        return cls.of(Attempt(roster, manifest, client.opening(round_id)), view)

    @classmethod
    def of(cls, attempt: Attempt, view: RoundView) -> "Papers":
        """Check them against each other."""
        attempt.roster.verify_admin(attempt.roster.federation)
        check_manifest(attempt.roster, attempt.manifest)
        attempt.opening.verify(attempt.roster.coordinator, "coordinator")
        attempt.check_context(bytes.fromhex(view.context), "coordinator")
        return cls(attempt, view)

    def values(self) -> dict[str, Any]:
        """Who has reported, whose reports are missing, and what closing the round costs, for people."""
        needed = self.attempt.quorum.erasures_min
        return {
            "latest_end": clock(self.attempt.terms.latest_end_s),
            "reported": list(self.view.reported),
            "silent": list(self.view.waiting_for),
            "reports": f"{len(self.view.reported)} of {needed} needed to end it without the admin",
            "cost": "no exact round takes the lineages uploaded to it again; a noisy round's charge stays",
        }

    def sign(self, folder: Path) -> Lost:
        """The admin's Lost.

        Raises:
            Misuse: the folder's key is not this federation's; or the round's latest end has not passed.
        """
        admin, latest_end_s = load_admin(folder), self.attempt.terms.latest_end_s
        if admin.public != self.attempt.roster.federation:
            raise Misuse(f"{folder} holds another federation's admin key")
        if time.time() < latest_end_s:
            raise Misuse(
                f"members take no Lost before the round's latest end, {clock(latest_end_s)}: wait for it"
            )
        return Lost.make(admin, context=self.attempt.context)
