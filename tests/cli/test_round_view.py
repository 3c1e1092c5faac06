"""Cohorts and rounds in words."""

import json
from typing import Any

import pytest

from veilsum.cli.round_view import progress_line, show_view
from veilsum.protocol.rest import CohortView

MEMBERS = tuple(f"m{place:02}" for place in range(12))


def cohort_view(**changes: Any) -> CohortView:
    values = {
        "cohort": "ab" * 32,
        "federation": "ab" * 32,
        "study": "ab" * 32,
        "name": "digits",
        "study_version": 1,
        "period": "2026-11",
        "counter": "0",
        "repeats": None,
        "state": "enrolling",
        "version": 1,
        "members": MEMBERS,
        "cards": MEMBERS[:11],
        "deadline_s": 1_800_000_000.0,
        "quorum": None,
        "fault": None,
    }
    return CohortView.model_validate({**values, **changes})


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "digits 2026-11: enrolling, 11 of 12 members, waiting for m11 until "),
        (
            {"state": "pairing", "cards": MEMBERS, "paired": MEMBERS[1:]},
            "digits 2026-11: paired 11 of 12 members, waiting for m00 until ",
        ),
        (
            {"state": "pairing", "cards": MEMBERS, "left_out": MEMBERS[:1], "paired": MEMBERS[2:]},
            "digits 2026-11: paired 10 of 11 members, without m00, which did not pair in time, waiting for m01 until ",
        ),
        ({"state": "formed", "deadline_s": None}, "digits 2026-11: formed, 11 of 12 members"),
        (
            {"state": "formed", "deadline_s": None, "left_out": MEMBERS[:2]},
            "digits 2026-11: formed, 9 of 12 members, without m00, m01, which did not pair in time",
        ),
    ],
)
def test_a_cohort_that_forms_names_the_members_that_it_waits_for(changes: dict[str, Any], line: str) -> None:
    assert progress_line(cohort_view(**changes)).startswith(line)


def test_a_cohort_shows_who_has_paired_and_who_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    show_view(cohort_view(state="formed", left_out=MEMBERS[:1], paired=MEMBERS[1:11], deadline_s=None))
    shown = " ".join(capsys.readouterr().out.split())
    assert "10 of 10" in shown
    assert "m00: did not pair in time" in shown
    assert json.dumps(MEMBERS[0]) not in shown
