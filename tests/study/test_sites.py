"""Verdicts on the sites of a rehearsal."""

from typing import Any

import pytest
from pydantic import ValidationError

from tests.texts.scenes import WELL
from veilsum.protocol.rest import REPORTED_BYTES_MAX, SiteReport, SitesView, SiteView
from veilsum.study.sites import SiteRow, judge_sites


def row(
    *, came: bool = True, dropped: tuple[str, ...] = (), clock_ahead_s: float = 0.0, **changes: Any
) -> SiteRow:
    """Judge the site `a`."""
    view = SiteView(member="a", clock_ahead_s=clock_ahead_s, report=SiteReport(**{**WELL, **changes}))
    shown = SitesView(sites=(view,))
    [found] = judge_sites(["a"], ["a"] if came else [], dropped, shown, 10.0, "1", ["a"])
    return found


def test_a_site_that_is_ready_has_no_verdict() -> None:
    found = row()
    assert found.ok
    assert (found.upload, found.disk) == ("25.0 MB in 4.0 s, 50 Mbit/s", "1,099.5 GB free")
    assert (found.clock, found.canaries, found.decryptor) == ("0 s behind", "0.001", True)


@pytest.mark.parametrize(
    "changes",
    [
        {"slips": ("bgr",), "detail": "Blue first.", "came": False},
        {"clock_ahead_s": -300.0, "came": False},
        {"free_bytes": 0},
        {"release": "2"},
        {"upload_s": 6.0},
        {"dropped": ("a",)},
        {"dropped": ("a",), "upload_s": None, "detail": "HTTP 413"},
        {"came": False},
    ],
)
def test_each_fault_is_one_sentence(changes: dict[str, Any]) -> None:
    assert len(row(**changes).verdict) == 1


@pytest.mark.parametrize("cards", [["a"], []])
def test_a_site_without_a_report_has_a_verdict(cards: list[str]) -> None:
    [found] = judge_sites(["a"], cards, [], SitesView(sites=()), 10.0, "1")
    assert (len(found.verdict), found.decryptor, found.upload) == (1, None, "")


@pytest.mark.parametrize("field", ["free_bytes", "upload_bytes"])
def test_no_report_holds_a_size_that_the_table_can_not_show(field: str) -> None:
    largest: dict[str, Any] = {field: REPORTED_BYTES_MAX}
    assert row(**largest).ok
    for size in (-1, REPORTED_BYTES_MAX + 1, 10**400):
        with pytest.raises(ValidationError, match=field):
            SiteReport(**{**WELL, field: size})
