"""What the sites of a rehearsal reported, with a verdict on each, for operators."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from veilsum.protocol.cost import in_bytes
from veilsum.protocol.request_signature import SIGNATURE_LIFETIME_S
from veilsum.protocol.rest import RoundView, SitesView, SiteView

DISK_FREE_BYTES_MIN = 50 << 20
_RATED_BYTES_MIN = 1 << 16
"""Fewest bytes of an upload that say how fast the line is."""
UPLOAD_SHARE_MAX = 0.5
"""Of the upload window that an upload may take: retries and other uploads take time too."""


@dataclass(frozen=True)
class SiteRow:
    """One site of a rehearsal.

    Attributes:
        verdict: what is wrong, in sentences; empty if nothing is.
        release, clock, disk, upload, canaries: what it reported, for people; empty without a report.
        decryptor: whether it held shares; None before the cohort was formed.
    """

    member: str
    verdict: tuple[str, ...]
    release: str = ""
    clock: str = ""
    disk: str = ""
    upload: str = ""
    canaries: str = ""
    decryptor: bool | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.verdict


def list_dropped(last: RoundView | None) -> tuple[str, ...]:
    """Return the members that a rehearsal's last round lost: all that are not in its certified set, or that its end names."""
    if last is None or not last.ended:
        return ()
    if last.survivors:
        return tuple(sorted({*last.members} - {*last.survivors}))
    return () if last.fault is None else last.fault.parties


def judge_sites(
    members: Sequence[str],
    cards: Collection[str],
    dropped: Collection[str],
    shown: SitesView,
    window_s: float,
    release: str,
    decryptors: Collection[str] | None = None,
) -> tuple[SiteRow, ...]:
    """Judge each site of a rehearsal.

    Args:
        members: of the roster.
        cards: those that enrolled.
        dropped: by the last round, as `list_dropped` returns them.
        shown: what sites reported.
        window_s: the study's `windows.upload`.
        release: that sites should have.
        decryptors: of the cohort, once it is formed.
    """
    reports = {view.member: view for view in shown.sites}
    rows = []
    for member in sorted(members):
        view = reports.get(member)
        verdict = [] if view is None else [*_judge_report(view, window_s, release)]
        if member not in cards:
            verdict = verdict or [
                "It did not enrol. Is its `veilsum member join` running? `veilsum member doctor` says whether the study is approved and the clock is right."
            ]
        elif member in dropped:
            verdict = verdict or [
                "It enrolled and dropped out: is windows.upload too short for its line, or did its agent end? Its log says."
            ]
        elif view is None:
            verdict.append("It sent no report: its policy doesn't allow one.")
        reported = {} if view is None else _describe_report(view)
        holds = None if decryptors is None else member in decryptors
        rows.append(SiteRow(member, tuple(verdict), decryptor=holds, **reported))
    return tuple(rows)


def _judge_report(view: SiteView, window_s: float, release: str) -> Iterator[str]:
    report = view.report
    if report.slips:
        yield f"Canaries differ. {report.detail}"
    if abs(view.clock_ahead_s) >= SIGNATURE_LIFETIME_S / 2:
        yield f"Its clock is {_describe_clock(view.clock_ahead_s)}: set it by NTP."
    if report.free_bytes < DISK_FREE_BYTES_MIN:
        yield f"Its disk has {in_bytes(report.free_bytes)} left: make room."
    if report.release != release:
        yield f"It has release {report.release}, and this command {release}: install the same."
    if report.upload_bytes is not None and report.upload_s is None:
        yield f"Its upload was refused on the way. {report.detail}."
    if report.upload_s is not None and report.upload_s > UPLOAD_SHARE_MAX * window_s:
        yield f"Its upload took {report.upload_s:,.0f} s of the {window_s:,.0f} s of windows.upload: have the admin raise it."


def _describe_report(view: SiteView) -> dict[str, str]:
    """Return what a site reported, for people, as the fields of its row."""
    report = view.report
    upload = "" if report.upload_bytes is None else f"{in_bytes(report.upload_bytes)} refused"
    if report.upload_bytes is not None and report.upload_s is not None:
        upload = f"{in_bytes(report.upload_bytes)} in {report.upload_s:.1f} s"
        if report.upload_bytes >= _RATED_BYTES_MIN:
            upload += f", {8 * report.upload_bytes / max(report.upload_s, 1e-3) / 1e6:.3g} Mbit/s"
    differs = "–" if report.difference is None else f"{report.difference:.2g}"
    return {
        "release": report.release,
        "clock": _describe_clock(view.clock_ahead_s),
        "disk": f"{in_bytes(report.free_bytes)} free",
        "upload": upload,
        "canaries": ", ".join((differs, *report.slips)),
    }


def _describe_clock(ahead_s: float) -> str:
    return f"{abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}"
