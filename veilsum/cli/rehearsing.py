"""Rehearse a study over canaries, for `veilsum operator rehearse`: follow the run, judge the sites, and check the sum."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
from safetensors.numpy import load

from client_sdk.operator import Operator
from client_sdk.records import Records, select_canaries
from veilsum.cli.running import Following, Told, Waiting, wait_forever
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.request_signature import SIGNATURE_LIFETIME_S
from veilsum.protocol.rest import CohortView, RoundView, StudyView, join_names
from veilsum.protocol.study import DISCLOSED_STEPS, Content, read_content
from veilsum.study.canaries import CanaryPack, fetched_pack
from veilsum.study.sites import SiteRow, judge_sites, list_dropped
from veilsum.study.vectors import compute_vector
from veilsum.system.intervals import compute_presence_s


@dataclass(frozen=True)
class Rehearsed:
    """A rehearsal's outcome.

    Attributes:
        rows: of all sites.
        view: of the last round; None if no step was opened.
        failure: why there was no sum; empty if there was.
        check: how the sum compares with the reference, for people.
        exact: whether it is the members' number times the reference, within the tolerance; None without a sum.
    """

    rows: tuple[SiteRow, ...]
    view: RoundView | None
    failure: str
    check: str
    exact: bool | None

    @property
    def ok(self) -> bool:
        """Whether every site is ready."""
        return bool(self.exact) and all(each.ok for each in self.rows)

    def list_sentences(self) -> list[str]:
        """Return what is wrong at each site, then how the rehearsal ended."""
        said = [f"{each.member}: {sentence}" for each in self.rows for sentence in each.verdict]
        return [*said, self.failure or f"Checked: {self.check}. Nothing was spent."]


def new_rehearsal() -> str:
    """Return a fresh period's name."""
    return f"rehearsal-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def rehearse(
    client: Operator, tell: Told, federation: str, study: StudyView, period: str, wait: Waiting = wait_forever
) -> Rehearsed:
    """Run every step of a study over canaries, once, and judge the sites. The other arguments are those of `Following`.

    Enrolment waits for a site as long as a run counts one as present that was not heard from (`compute_presence_s`).

    Raises:
        Misuse: the study names no canary pack.
        PeerFault: the coordinator refuses.
    """
    content = read_content(client.study(federation, study.study).content)
    if content.rehearsal is None:
        raise Misuse(
            f"study {study.name} names no canary pack: sign a version with `veilsum admin study new … --canaries PACK`"
        )
    pack = fetched_pack(content, client.canaries(federation, content.rehearsal.pack))
    wait_s, began_s = compute_presence_s(content.question.windows.answer), time.monotonic()

    def ends_enrolment(view: CohortView) -> bool:
        awaited = _list_awaited(client, view)
        late = bool(awaited) and time.monotonic() - began_s >= wait_s
        if late:
            tell(f"No answer from {join_names(sorted(awaited))} within {wait_s:,.0f} s: rehearsing without.")
        return late or not awaited

    failure, view = "", None
    try:
        following = Following(client, tell, wait, attempts_max=1, ends_enrolment=ends_enrolment)
        view = following.run_study(federation, study, period)
    except (Misuse, PeerFault) as error:
        if isinstance(error, PeerFault) and error.cause in {Cause.UNAUTHORISED, Cause.FORBIDDEN}:
            raise
        failure = str(error)
    runs = [each for each in client.runs(federation).runs if (each.name, each.period) == (study.name, period)]
    if not runs:
        raise Misuse(f"the rehearsal was not opened: {failure}")
    cohort = client.cohort(runs[-1].cohort)
    last = view or (client.round(cohort.rounds[-1]) if cohort.rounds else None)
    decryptors = None if cohort.state != "formed" else client.manifest(cohort.cohort).decryptors
    rows = judge_sites(
        cohort.members,
        cohort.cards,
        list_dropped(last),
        client.sites(cohort.cohort),
        content.question.windows.upload,
        version("veilsum"),
        decryptors,
    )
    if view is None or view.state != "done":
        return Rehearsed(rows, last, _explain_failure(cohort, last) or failure, "", None)
    sums = [each for name in cohort.rounds if (each := client.round(name)).state == "done"]
    plain = [each for each in sums if not _rests_on_others(content, each)]
    return Rehearsed(rows, view, "", *_check_sum(client, content, pack, plain[-1]))


def _explain_failure(cohort: CohortView, last: RoundView | None) -> str:
    """Say why a rehearsal had no sum, as far as the coordinator shows it."""
    where, fault = "No cohort formed", cohort.fault
    if last is not None and last.fault is not None:
        where, fault = f"Step {last.spec.step} ended {last.state}", last.fault
    if fault is None:
        return ""
    return f"{where}: {fault.cause}: {fault.detail}. Nothing was spent: mend the sites, then rehearse again."


def _list_awaited(client: Operator, view: CohortView) -> set[str]:
    """List the members that neither came nor reported what keeps them away: canaries that differ, or their clock."""
    kept_away = {
        each.member
        for each in client.sites(view.cohort).sites
        if each.report.slips or abs(each.clock_ahead_s) >= SIGNATURE_LIFETIME_S
    }
    return {*view.members} - {*view.cards} - kept_away


def _rests_on_others(content: Content, view: RoundView) -> bool:
    """Whether a step adds up counts, or what operators may not read goes into it."""
    return view.spec.step in DISCLOSED_STEPS or content.question.takes_material(view.spec.step)


def _check_sum(client: Operator, content: Content, pack: CanaryPack, view: RoundView) -> tuple[str, bool]:
    """Compare the sum with the members' number times the reference's vector. Returns the outcome for people, and whether they agree."""
    assert content.rehearsal is not None
    federation = view.federation
    attempt = Attempt(
        client.roster(federation),
        client.study(federation, view.spec.study),
        client.manifest(view.cohort),
        client.opening(view.round),
    )
    spec = attempt.spec
    reference = Records(pack.features, list(pack.labels), list(pack.ids), pack.columns or None)
    found = select_canaries(reference, spec.question)
    vector = compute_vector(spec, found.features, found.labels).astype(np.float64)
    members = len({*view.survivors} - {*view.evicted})
    total = load(client.sums(view.round))["sum"].astype(np.float64)
    # Each number of a row of length 1, and each product of two, changes by at most twice the tolerance; the largest of the vector is at least
    # the rows of a class.
    difference = float(np.abs(total / members - vector).max() / np.abs(vector).max())
    allowed = 2 * content.rehearsal.tolerance * len(spec.question.classes)
    if difference <= allowed:
        close = f"{difference:.1g} of its largest number"
        return f"the sum of {members} members is {members} times the reference, up to {close}", True
    return (
        f"the sum differs from {members} times the reference by {difference:.2g} of its largest number, above {allowed:.1g}: "
        "some member did not sum the canaries that it compared"
    ), False
