"""What a member's site tells the operator of a rehearsal, if its owner's policy allows it."""

import shutil
from contextlib import suppress
from importlib.metadata import version

from client_sdk.effects import Flow
from client_sdk.errors import PeerFault
from client_sdk.session import Session
from veilsum.protocol.rest import REPORTED_BYTES_MAX, SiteReport
from veilsum.study.canary_check import CanaryCheck

_DETAIL_LENGTH_MAX = 2048


def report_canaries(session: Session, cohort: bytes, found: CanaryCheck) -> Flow[None]:
    """Report how this member's canaries and machine do, before it enrols in a rehearsal."""
    report = SiteReport(
        release=version("veilsum"),
        sent_s=session.environment.now_s(),
        free_bytes=min(shutil.disk_usage(session.store.folder).free, REPORTED_BYTES_MAX),
        slips=tuple(dict.fromkeys(each.slip for each in found.findings)),
        difference=found.largest,
        detail=found.describe()[:_DETAIL_LENGTH_MAX],
    )
    yield from _send_report(session, cohort, report)


def report_upload(session: Session, cohort: bytes, upload_bytes: int, upload_s: float) -> Flow[None]:
    """Report how long an upload took, if this process has reported before and the upload was the largest so far."""
    before = session.site_reports.get(cohort)
    if before is not None and upload_bytes > (before.upload_bytes or 0):
        timed = {"upload_bytes": upload_bytes, "upload_s": upload_s}
        yield from _send_report(session, cohort, before.model_copy(update=timed))


def report_refused_upload(session: Session, cohort: bytes, body_bytes: int, why: str) -> Flow[None]:
    """Report that something on the way refuses a body of this size, if this process has reported before."""
    before = session.site_reports.get(cohort)
    if before is not None:
        refused = {"upload_bytes": body_bytes, "upload_s": None, "detail": why}
        yield from _send_report(session, cohort, before.model_copy(update=refused))
        session.site_reports[cohort] = before  # the next report says how an upload went


def _send_report(session: Session, cohort: bytes, report: SiteReport) -> Flow[None]:
    """Send a report. It is not needed: a coordinator that refuses it changes nothing."""
    if session.policy.reports_site:
        report = report.model_copy(update={"sent_s": session.environment.now_s()})
        session.site_reports[cohort] = report
        with suppress(PeerFault):
            yield from session.coordinator.send_site_report(cohort, session.member, report)
