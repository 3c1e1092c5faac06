"""What a site tells the operator of a rehearsal."""

import shutil
from types import SimpleNamespace

import pytest

from client_sdk.site_report import report_canaries, report_upload
from tests.support.consortium import Consortium
from veilsum.protocol.rest import REPORTED_BYTES_MAX
from veilsum.study.canary_check import CanaryCheck, CanaryFinding, Slip

COHORT = b"c" * 32


def test_a_report_tells_of_the_largest_upload_and_is_sent_when_there_is_news(consortium: Consortium) -> None:
    session = consortium.member("member-0").session
    consortium.alone(report_upload(session, COHORT, 100, 1.0))
    assert COHORT not in session.site_reports, "this process has not reported before"
    findings = (CanaryFinding(Slip.ROWS, "x" * 5000),)
    consortium.alone(report_canaries(session, COHORT, CanaryCheck(8, 0.5, "canary-0", findings)))
    assert session.site_reports[COHORT].detail == "x" * 2048
    sizes = []
    for size, spent_s in ((1, 2.0), (1, 9.0), (0, 9.0), (2, 3.0)):
        consortium.alone(report_upload(session, COHORT, size, spent_s))
        report = session.site_reports[COHORT]
        sizes.append((report.upload_bytes, report.upload_s))
    assert sizes == [(1, 2.0), (1, 2.0), (1, 2.0), (2, 3.0)]
    assert len(consortium.requests("/sites/")) == 3


def test_a_disk_without_a_limit_is_reported_as_the_largest_size(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 76))
    session = consortium.member("member-0").session
    consortium.alone(report_canaries(session, COHORT, CanaryCheck(8, 0.0, "canary-0", ())))
    assert session.site_reports[COHORT].free_bytes == REPORTED_BYTES_MAX
