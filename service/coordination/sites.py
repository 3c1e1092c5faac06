"""What sites report in a rehearsal: small documents, the newest of each member."""

from pydantic import ValidationError

from service.http.problems import wrong_phase
from service.storage.blobs import Blobs
from veilsum.protocol.periods import PeriodKind, kind_of_period
from veilsum.protocol.rest import SiteReport, SitesView, SiteView

SITES_FOLDER = "sites"


def check_rehearsal(period: str) -> None:
    """Refuse a report to a run over data (wrong-phase): sites say nothing beside their sums."""
    if kind_of_period(period) is not PeriodKind.REHEARSAL:
        raise wrong_phase(f"period {period} is not a rehearsal: sites send no reports")


def store_report(blobs: Blobs, cohort: str, member: str, report: SiteReport, now_s: float) -> None:
    """Store a member's report in place of its earlier one."""
    view = SiteView(member=member, clock_ahead_s=report.sent_s - now_s, report=report)
    blobs.put(f"{SITES_FOLDER}/{cohort}/{member}", view.model_dump_json().encode())


def list_reports(blobs: Blobs, cohort: str) -> SitesView:
    """Return the newest report of each member that sent one; a damaged one counts as not sent."""
    found = []
    for member in blobs.list_names(f"{SITES_FOLDER}/{cohort}"):
        try:
            view = SiteView.model_validate_json(blobs.get(f"{SITES_FOLDER}/{cohort}/{member}"))
        except (FileNotFoundError, ValidationError):
            continue
        found.append(view)
    return SitesView(sites=tuple(sorted(found, key=lambda view: view.member)))
