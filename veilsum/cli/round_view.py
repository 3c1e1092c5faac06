"""Format cohorts, rounds and results for the output of commands."""

from collections.abc import Callable, Sequence
from typing import Any

from client_sdk.operator import Operator
from veilsum.cli.console import format_time, note_printer, print_values
from veilsum.protocol.record import ResultRecord
from veilsum.protocol.rest import (
    TRUST_SENTENCE,
    CohortView,
    NoiseView,
    PreflightView,
    QuorumView,
    RoundView,
    SpecView,
    join_names,
)
from veilsum.protocol.study import ROWS_LEVELS, read_content
from veilsum.study.progress import STAGE_TITLES, RunEnd, reason_of

EXACT_SUM = "none: an exact sum"


def progress_line(view: CohortView | RoundView) -> str:
    """Describe the progress of a cohort or round in one line."""
    if isinstance(view, CohortView):
        return _enrolment_line(view)
    spec = view.spec
    if (end := RunEnd.of_round(view)) is not None and not view.ended:
        return f"{spec.name} {spec.period}, {spec.step}: the round {end.explain_to_operator(view)}"
    line = f"{spec.name} {spec.period}, {spec.step}: {STAGE_TITLES.get(view.state, view.state)}"
    if view.state == "collecting":
        line += f", {len(view.uploaded)} of {len(view.members)}"
    if view.waiting_for and not view.ended:
        line += f", waiting for {join_names(view.waiting_for)}"
        if view.deadline_s is not None:
            line += f" until {format_time(view.deadline_s)}"
    return line


def progress_printer() -> Callable[[CohortView | RoundView | str], None]:
    """Return a function that reports a cohort or round in one line, or a sentence, as `note_printer` does."""
    tell = note_printer()
    return lambda seen: tell(seen if isinstance(seen, str) else progress_line(seen))


def _enrolment_line(view: CohortView) -> str:
    if view.state == "pairing":
        line = f"paired {len(view.paired)} of {len(view.pairing_members)} members"
    else:
        line = f"{view.state}, {len(view.pairing_members)} of {len(view.members)} members"
    if view.left_out:
        line += f", without {join_names(view.left_out)}, which did not pair in time"
    if view.forming:
        line += f", waiting for {join_names(view.awaited_members)} until {format_time(view.deadline_s)}"
    return f"{view.name} {view.period}: {line}"


def noise_values(view: NoiseView | None) -> dict[str, Any]:
    """Describe the privacy guarantee, or state that the sum is exact."""
    if view is None:
        return {"noise": EXACT_SUM}
    return {
        "noise": f"ε = {view.spent_epsilon:.3g} spent of {view.study_epsilon:.3g}, at δ = {view.delta:g}",
        "epsilon_of_this_step": view.epsilon,
    }


def show_view(view: CohortView | RoundView | PreflightView) -> None:
    """Print a cohort, a round or a preflight."""
    match view:
        case CohortView():
            title, values = "Cohort", _cohort_values(view)
        case RoundView():
            title, values = "Round", _round_values(view)
        case PreflightView():
            title, values = "Next round, not opened yet", _preflight_values(view)
    print_values(values, title, scripts=view.model_dump(mode="json"))


def show_result(client: Operator, round_id: str) -> None:
    """Print a round's result, as the coordinator signed it."""
    record = client.result(round_id)
    content = read_content(client.study(record.federation, record.study).content)
    values = record_values(record, content.class_names)
    print_values(values, "Result, signed by the coordinator", scripts=record.model_dump(mode="json"))


def _cohort_values(view: CohortView) -> dict[str, Any]:
    values: dict[str, Any] = {
        "study": f"{view.name}, version {view.study_version}, period {view.period}",
        "cohort": view.cohort,
        "state": view.state,
        "enrolled": f"{len(view.cards)} of {len(view.members)}",
        "missing": sorted(set(view.members) - set(view.cards)),
    }
    if view.pairing_members and view.state != "enrolling":
        values["paired"] = f"{len(view.paired)} of {len(view.pairing_members)}"
    if view.left_out:
        values["left_out"] = f"{join_names(view.left_out)}: did not pair in time"
    if view.forming:
        values["until"] = format_time(view.deadline_s)
    if view.quorum is not None:
        values |= _quorum_values(view.quorum)
    if view.fault is not None:
        values["failed"] = view.fault.detail
    if view.rounds:
        values["rounds"] = view.rounds
    if view.state == "formed":
        values["next_step"] = view.step or "none, the run is over"
    return values


def _quorum_values(quorum: QuorumView) -> dict[str, Any]:
    neighbours = f"all {quorum.neighbours} others"
    if quorum.neighbours < quorum.members - 1:
        neighbours = f"{quorum.neighbours} others; of any {quorum.neighbours // 2} in a row {quorum.window_dropped_max} may drop out"
    values = {
        "needed_for_a_sum": quorum.survivors_min,
        "may_drop_out": quorum.members_may_miss,
        "may_collude": quorum.colluders,
        "decryptors_that_may_collude": f"{quorum.decryptor_colluders} of {quorum.decryptors}",
        "masks_shared_with": neighbours,
    }
    return values | ({"caution": quorum.caution} if quorum.caution else {})


def _round_values(view: RoundView) -> dict[str, Any]:
    waiting = (
        f"{join_names(view.waiting_for)} until {format_time(view.deadline_s)}" if view.waiting_for else ""
    )
    end = RunEnd.of_round(view)
    known = {
        "waiting_for": waiting,
        "reported": f"{len(view.reported)}, {view.reports_min} needed" if view.reported else "",
        "survivors": view.survivors,
        "evicted": view.evicted,
        "holders": {f"class {label}:": count for label, count in enumerate(view.holders)},
        "reached": {
            f"{level / 4:g} × least:": count for level, count in zip(ROWS_LEVELS, view.reached, strict=False)
        },
        "cost": None if view.ended else view.cost,
        "seconds": view.phase_seconds,
        "transcript": view.transcript,
        "why": view.fault and reason_of(view),
        "next": end and f"{end.cost} {end.next_for_operator(view)}".strip(),
    }
    return {
        "round": view.round,
        "trust": TRUST_SENTENCE,
        **_spec_values(view.spec),
        "state": view.state,
        "place": f"round {view.sequence}, attempt {view.attempt}",
        "uploaded": f"{len(view.uploaded)} of {len(view.members)}, {view.survivors_min} needed",
        **_drop_empty(known),
    }


def _preflight_values(view: PreflightView) -> dict[str, Any]:
    return {
        "trust": TRUST_SENTENCE,
        **_spec_values(view.spec),
        "members": f"{view.members}, {view.survivors_min} needed",
        "latest_end": format_time(view.spec.latest_end_s),
        "decryptors": view.decryptors.sentence,
        "cost": view.cost,
    }


def record_values(record: ResultRecord, names: Sequence[str]) -> dict[str, Any]:
    """Convert a signed result to names and values for people; `names` are those of the classes."""
    solution = record.solution
    chosen = {"gcv": "chosen by GCV", "given": "given by the study"}
    chosen_by = chosen.get(solution.chosen_by, f"chosen by {solution.chosen_by}")
    ridge = None if solution.ridge is None else f"{solution.ridge:.6g}, {chosen_by}"
    known = {
        "survivors": [survivor.member for survivor in record.survivors],
        "evicted": record.evicted,
        "dropped": record.dropped,
        "rows": record.rows,
        "withheld_classes": [names[place] for place in record.withheld],
        "classes_without_rows": [
            names[place] for place in solution.empty_classes if place not in record.withheld
        ],
        "ridge": ridge,
        "solved_by": solution.chosen_by if ridge is None else None,
        "documents": [view.name for view in record.documents],
    }
    return {
        "study": f"{record.name}, version {record.version}, period {record.period}",
        "step": record.step,
        "round": record.round,
        **_drop_empty(known),
        **noise_values(record.noise),
    }


def _drop_empty(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _spec_values(spec: SpecView) -> dict[str, Any]:
    known = {
        "withheld_classes": spec.withheld,
        "counted_in": spec.count and spec.count[:16],
        **({} if spec.noise is None else noise_values(spec.noise)),
    }
    return {
        "study": f"{spec.name}, version {spec.version}, period {spec.period}",
        "step": spec.step,
        "sums": f"{', '.join(spec.statistics)}: {spec.elements:,} numbers of {spec.ring_bits} bits",
        **_drop_empty(known),
    }
