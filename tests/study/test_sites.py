"""Verdicts on the sites of a rehearsal."""

from typing import Any

import pytest

from veilsum.protocol.rest import SiteReport, SitesView, SiteView
from veilsum.study.sites import SiteRow, judge_sites

WELL: dict[str, Any] = {
    "release": "1",
    "sent_s": 0.0,
    "free_bytes": 1 << 40,
    "slips": (),
    "difference": 0.001,
    "detail": "",
    "upload_bytes": 25_000_000,
    "upload_s": 4.0,
}


def row(
    clock_ahead_s: float = 0.0, *, came: bool = True, dropped: tuple[str, ...] = (), **changes: Any
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
    ("changes", "said"),
    [
        ({"slips": ("bgr",), "detail": "Blue first.", "came": False}, "Canaries differ. Blue first."),
        ({"clock_ahead_s": -300.0, "came": False}, "300 s behind"),
        ({"free_bytes": 0}, "disk has 0 bytes left"),
        ({"release": "2"}, "release 2"),
        ({"upload_s": 6.0}, "6 s of the 10 s"),
        ({"dropped": ("a",)}, "dropped out"),
        ({"dropped": ("a",), "upload_s": None, "detail": "HTTP 413"}, "refused on the way. HTTP 413."),
        ({"came": False}, "did not enrol"),
    ],
)
def test_one_sentence_says_what_is_wrong(changes: dict[str, Any], said: str) -> None:
    [sentence] = row(**changes).verdict
    assert said in sentence


@pytest.mark.parametrize(("cards", "said"), [(["a"], "sent no report"), ([], "did not enrol")])
def test_a_site_without_a_report_is_named(cards: list[str], said: str) -> None:
    [found] = judge_sites(["a"], cards, [], SitesView(sites=()), 10.0, "1")
    assert said in found.verdict[0]
    assert (found.decryptor, found.upload) == (None, "")
