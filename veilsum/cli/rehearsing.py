"""Rehearse a study over canaries, for `veilsum operator rehearse`: follow the run, judge the sites, and check the sum."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
from safetensors.numpy import load

from client_sdk.operator import Operator
from client_sdk.records import Records, select_canaries
from veilsum.calibration.rows import Floats, unit_directions, with_constant
from veilsum.cli.running import Following, Told, Waiting, check_period, wait_forever
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.periods import PeriodKind
from veilsum.protocol.request_signature import SIGNATURE_LIFETIME_S
from veilsum.protocol.rest import CohortView, RoundView, StudyView, join_names
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import DISCLOSED_STEPS, MEAN_STEP, Content, read_content
from veilsum.study.canaries import CanaryPack, fetched_pack
from veilsum.study.promise import mechanism_of
from veilsum.study.result_files import check_material_digest, read_material
from veilsum.study.sites import SiteRow, judge_sites, list_dropped
from veilsum.study.vectors import Material, compute_vector, random_features
from veilsum.system.intervals import compute_presence_s

_CLEAR_SHARE_MAX = 0.5
"""Most of one member's part in a sum by which honest differences may move it: below, a member that summed something else is seen."""


@dataclass(frozen=True)
class Rehearsed:
    """A rehearsal's outcome.

    Attributes:
        rows: of all sites.
        view: of the last round; None if no step was opened.
        failure: why there was no sum, or none that could be compared; empty otherwise.
        check: how the sum compares with the reference, for people.
        exact: whether it is the members' number times the reference, within the tolerance; None if none was compared.
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
        Misuse: the study names no canary pack, or the period is no rehearsal's.
        PeerFault: the coordinator refuses.
    """
    check_period(period, PeriodKind.REHEARSAL)
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
        client.site_reports(cohort.cohort),
        content.question.windows.upload,
        version("veilsum"),
        decryptors,
    )
    if view is None or view.state != "done":
        return Rehearsed(rows, last, _explain_failure(cohort, last) or failure, "", None)
    done = [each for name in cohort.rounds if (each := client.round(name)).state == "done"]
    sums = [each for each in done if each.spec.step not in DISCLOSED_STEPS]
    try:
        check, exact = _check_sums(client, content, pack, sums)
    except PeerFault as fault:
        if fault.cause is not Cause.FORBIDDEN:
            raise
        return Rehearsed(
            rows, view, f"The sum was not compared: {fault.detail}. Nothing was spent.", "", None
        )
    return Rehearsed(rows, view, "", check, exact)


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
        for each in client.site_reports(view.cohort).sites
        if each.report.slips or abs(each.clock_ahead_s) >= SIGNATURE_LIFETIME_S
    }
    return {*view.members} - {*view.cards} - kept_away


def _check_sums(
    client: Operator, content: Content, pack: CanaryPack, views: Sequence[RoundView]
) -> tuple[str, bool]:
    """Compare each step's sum with the members' number times the reference's vector. Returns the outcome for people, and whether they agree.

    No noise is added, so a step's input is the same for all members, and its sum follows from the canaries alone.
    """
    assert content.rehearsal is not None
    reference = Records(pack.features, list(pack.labels), list(pack.ids), pack.columns or None)
    found = select_canaries(reference, content.question)
    differences = {
        each.member: each.report.difference for each in client.site_reports(views[-1].cohort).sites
    }
    largest, unclear = 0.0, list[str]()
    for view in views:
        attempt = Attempt(
            client.roster(view.federation),
            client.study(view.federation, view.spec.study),
            client.manifest(view.cohort),
            client.opening(view.round),
        )
        spec, file = attempt.spec, client.material(view.round) if attempt.spec.takes_material else None
        if file is not None:
            check_material_digest(file, attempt.terms.material)
        material = read_material(spec, file)
        vector = compute_vector(spec, found.features, found.labels, material).astype(np.float64)
        summed = {*view.survivors} - {*view.evicted}
        members = len(summed)
        mean = load(client.sums(view.round))["sum"].astype(np.float64) / members
        if spec.noisy:
            known = [each for member in summed if (each := differences.get(member)) is not None]
            moved = max(known) if len(known) == members else content.rehearsal.tolerance
            units = _list_units(spec) * len(found.labels)
            allowed = _bound_change(spec, found.features, material, moved)
            if not allowed * members < _CLEAR_SHARE_MAX:  # also without a bound
                unclear.append(spec.step)
        else:
            # Each number of a row of length 1, and each product of two, changes by at most twice the tolerance; the largest of the vector is
            # at least the rows of a class.
            units = np.abs(vector).max()
            allowed = 2 * content.rehearsal.tolerance * len(content.question.classes)
        difference = float((np.abs(mean - vector) / units).max())
        if difference > allowed:
            return (
                f"the sum of step {spec.step} differs from {members} times the reference by {difference:.2g} of its size, above {allowed:.1g}: "
                "some member did not sum the canaries that it compared"
            ), False
        largest = max(largest, difference)
    said = f"the sum of {members} members is {members} times the reference, up to {largest:.1g} of its size"
    if unclear:
        said += f"; in {', '.join(unclear)} another member's part could hide in the sites' small differences"
    return said, True


def _list_units(spec: RoundSpec) -> Floats:
    """Return what one row of length 1 may add to each number of a noisy vector."""
    mechanism = mechanism_of(spec)
    units, layout = np.empty(spec.elements), mechanism.release.layout
    for part, place in zip(mechanism.release.parts, layout.slices.values(), strict=True):
        units[place] = mechanism.lattice.unit(part.degree)
    return units


def _bound_change(spec: RoundSpec, features: Floats, material: Material, moved: float) -> float:
    """Bound how far a number of a noisy step moves for each row, in its unit, if rows of length 1 move by `moved`."""
    question = spec.question
    rows, centre = unit_directions(features), material.get("centre")
    if centre is not None:
        moved *= _scaling_stretch(rows - centre)
        rows = unit_directions(features, centre, total=True)
    if spec.step != MEAN_STEP and (phi := random_features(question)) is not None:
        moved *= math.sqrt(2 / phi.size) * _stretch(phi.directions)
        rows = phi.of_units(rows)
    if (whitening := material.get("whitening")) is not None:
        rows = with_constant(rows) if question.constant else rows
        moved *= _stretch(whitening) * _scaling_stretch(rows @ whitening.T)
    weights = _stretch(material["weights"]) if "weights" in material else 0.0
    # Two rows in a product; a row and its residual, which moves by half the scores' change, and is divided by a quarter at least. Rounding.
    return (2 + 2 * weights) * moved + 2 / mechanism_of(spec).lattice.unit(1)


def _stretch(matrix: Floats) -> float:
    """Return the most by which a matrix lengthens a vector."""
    return float(np.linalg.norm(matrix, 2))


def _scaling_stretch(rows: Floats) -> float:
    """Return the most by which rows move if they are scaled to length 1 after a move: twice its share of their length."""
    shortest = float(np.linalg.norm(rows, axis=1).min())
    return 2 / shortest if shortest > 0 else math.inf
