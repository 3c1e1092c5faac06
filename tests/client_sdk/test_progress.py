"""Progress events of a member."""

import logging

import pytest

from client_sdk.progress import Progress, Reporter, Step


def test_a_member_that_nobody_watches_logs_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "veilsum")
    report = Reporter(None)
    for event in (
        Progress(Step.UPLOADING, done=1, total=2),
        Progress(Step.ENROLLING, detail="40 rows are summed"),
        Progress(Step.WAITING, detail="not approved"),
        Progress(Step.WAITING, detail="not approved"),
    ):
        report(event)
    assert Progress(Step.DONE) == Progress(Step.DONE, "", 0, 0, (), None, "")
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("INFO", "40 rows are summed"),
        ("WARNING", "not approved"),
    ]
