"""What users met: a count without a sum costs no records, and a member that sleeps keeps its own (member: Ledger)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from client_sdk.errors import Declined, NoResult, PeerFault
from client_sdk.records import Records
from client_sdk.reservations import State
from client_sdk.result import Result
from service.coordination import solving
from service.coordination.documents import DISCLOSURE_DOCUMENT
from service.storage.blobs import FileBlobs
from tests.client_sdk.conftest import dealing_falsely
from tests.support import refusals
from tests.support.answers import refused
from tests.support.consortium import DIM, LEAST, Consortium, unchanged
from veilsum.protocol.causes import Cause
from veilsum.protocol.study import DAY_S
from veilsum.study.vectors import compute_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from client_sdk.reservations import Run
    from tests.support.serving import Stage

HOSPITALS = 5
KEYS = ("a", "b", "c", "d", "e", "f", "g")
LIMITS = {"least": 40, "most": 80, "least_per_class": 5, "rows_per_id": 1}


def hospitals(
    stage: Stage,
    folder: Path,
    classes: tuple[str, ...],
    *,
    members: int = HOSPITALS,
    margin: int = 0,
    **records: int,
) -> Consortium:
    """Found a federation, by default of five, with a study like a draft: it withholds rare classes."""
    question = {
        "classes": list(classes),
        "members_min": members,
        "withhold": {"margin": margin},
        "records": {**LIMITS, **records},
    }
    return Consortium(stage, folder, members, question=question)


def ids(rows: int, period: str = "p1") -> list[str]:
    return [f"{period}-{row}" for row in range(rows)]


def enrolled(consortium: Consortium, period: str, given: Mapping[str, Records]) -> str:
    """Form a cohort of members with these records."""
    cohort = consortium.open_cohort(period)
    answers = consortium.together({m: consortium.member(m).enrol(cohort, given[m]) for m in given})
    assert not [each for each in answers.values() if isinstance(each, Exception)], answers
    return cohort


def to_the_end(consortium: Consortium, cohort: str) -> dict[str, Any]:
    """Let all members go through the run's steps with one call each."""
    flows = consortium.contributions(consortium.open_round(cohort))
    return consortium.together(flows, stuck=consortium.leading_on(cohort))


def run_of(consortium: Consortium, member: str, period: str, number: int = 0) -> Run:
    return [run for run in consortium.open[member].ledger() if run.period == period][number]


def plain_sum(consortium: Consortium, given: Mapping[str, tuple[Any, Any]]) -> list[int]:
    """Return the sum of vectors of these features and class indices, in the last round's spec."""
    spec = consortium.round(consortium.rounds[-1]).attempt.spec
    total: list[int] = np.sum([compute_vector(spec, *rows) for rows in given.values()], axis=0).tolist()
    return total


def assert_summed(consortium: Consortium, results: Mapping[str, Any], members: tuple[str, ...]) -> None:
    assert {member: type(result) for member, result in results.items()} == dict.fromkeys(members, Result)
    for result in results.values():
        result.verify(consortium.admin.public)


# The count leaves too little


def dirichlet_labels(index: int) -> list[str]:
    """Draw a hospital's labels: it has most of its rows in one or two of the six classes."""
    rng = np.random.default_rng([20, index])
    return [str(key) for key in rng.choice(list(KEYS[:6]), 60, p=rng.dirichlet([0.4] * 6))]


def labels_of_own_classes(index: int) -> list[str]:
    """Return a few rows of two classes that all have, and more of one that no other hospital has."""
    return [*"ab" * 8, *KEYS[2 + index] * 24]


UNEVEN: dict[str, tuple[Callable[[int], list[str]], int, dict[str, str], list[str]]] = {
    "too few classes": (dirichlet_labels, 6, dict.fromkeys("abc", "abc") | dict.fromkeys("def", "def"), ["count"]),
    "too few rows": (
        labels_of_own_classes,
        5,
        {"a": "a", "b": "b", **dict.fromkeys("cde", "rare")},
        ["count", "rows"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", UNEVEN)
def test_records_of_a_count_without_a_sum_are_summed_over_merged_classes(
    stage: Stage, tmp_path: Path, which: str
) -> None:
    labels_of, classes, merged, counts = UNEVEN[which]
    consortium = hospitals(stage, tmp_path, KEYS[:classes], members=3)
    labels = {member: labels_of(index) for index, member in enumerate(consortium.ids)}
    features = {
        member: np.random.default_rng(index).standard_normal((len(labels[member]), DIM))
        for index, member in enumerate(consortium.ids)
    }
    given = {m: Records(features[m], labels[m], ids(len(labels[m]))) for m in consortium.ids}
    ends = to_the_end(consortium, enrolled(consortium, "p1", given))
    assert {type(end) for end in ends.values()} == {NoResult}, ends
    assert {(end.state, end.cause) for end in ends.values()} == {("counted", Cause.COUNT_MISMATCH)}
    assert set(ends) == set(consortium.ids)
    steps = [consortium.round(round_id).attempt.terms.step for round_id in consortium.rounds]
    assert steps == counts
    for member in consortium.ids:
        run = run_of(consortium, member, "p1")
        assert (run.state, run.counted, run.summed) == (State.FREE, True, None)
        assert run.records == len(labels[member])

    keys = list(dict.fromkeys(merged.values()))
    consortium.publish(consortium.make_study({"name": "merged"}, classes=keys))
    mapped = {m: [merged[label] for label in labels[m]] for m in consortium.ids}
    again = {m: Records(features[m], mapped[m], ids(len(mapped[m]))) for m in consortium.ids}
    results = to_the_end(consortium, enrolled(consortium, "p1", again))
    assert_summed(consortium, results, consortium.ids)
    rows = {m: (features[m], np.array([keys.index(label) for label in mapped[m]])) for m in consortium.ids}
    assert consortium.total(consortium.rounds[-1]) == plain_sum(consortium, rows)
    for result in results.values():
        assert (result.record.withheld, result.record.rows) == ((), sum(map(len, labels.values())))
    for member in consortium.ids:
        run = run_of(consortium, member, "p1", 1)
        assert (run.state, run.taken, run.records) == (State.SPENT, 0, len(labels[member]))
        assert run_of(consortium, member, "p1").state is State.FREE


# The run ends by itself, though its classes and rows would do


def fail_counts(consortium: Consortium, patched: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise PeerFault(Cause.SUM_CHECK_FAILED, "a sum counts a negative number of members")

    patched.setattr(solving, "publish_counts", broken)


def hide_disclosures(consortium: Consortium, _patched: pytest.MonkeyPatch) -> None:
    consortium.shows("GET .*/disclosure/.*", refused(Cause.WRONG_PHASE))


def lose_disclosures(consortium: Consortium, patched: pytest.MonkeyPatch) -> None:
    """The coordinator's storage has lost them."""
    kept = FileBlobs.put

    def put(blobs: FileBlobs, name: str, data: bytes) -> None:
        if not name.endswith(DISCLOSURE_DOCUMENT):
            kept(blobs, name, data)

    patched.setattr(FileBlobs, "put", put)


HINDRANCES: dict[str, tuple[Callable[[Consortium, pytest.MonkeyPatch], None], bool, bool]] = {
    "its sum fails a check": (fail_counts, False, True),
    "its disclosure is not shown": (hide_disclosures, True, False),
    "its disclosure is lost": (lose_disclosures, True, True),
}
"""What the coordinator does with a count, whether members wait for the count's latest end, and whether agents take part."""


@pytest.mark.parametrize("how", HINDRANCES)
def test_records_of_a_count_that_cannot_be_recounted_are_free(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    hinder, waits, agents = HINDRANCES[how]
    consortium = hospitals(stage, tmp_path, ("a", "b", "c"), members=3)
    given = {m: Records(*data_of(consortium, m, "p1"), ids(60)) for m in consortium.ids}
    with monkeypatch.context() as patched:
        hinder(consortium, patched)
        count = consortium.open_round(cohort := enrolled(consortium, "p1", given))
        ends = consortium.together(flows_of(consortium, count, given, agents=agents))
        if waits:
            assert {(type(end), end.cause) for end in ends.values()} == {(PeerFault, Cause.WRONG_PHASE)}
            assert {run_of(consortium, m, "p1").state for m in consortium.ids} == {State.RESERVED}
            consortium.clock.ahead_s += DAY_S
            ends = consortium.together(flows_of(consortium, count, given, agents=agents))
    assert {(type(end), end.state) for end in ends.values()} == {(NoResult, "failed-count")}, ends
    for member in consortium.ids:
        run = run_of(consortium, member, "p1")
        assert (run.state, run.given_up, run.counted) == (State.FREE, True, True)
    if not waits:
        with refusals.refused(Cause.COUNT_MISMATCH, "coordinator"):
            consortium.open_round(cohort)
    consortium.on_answer = unchanged
    results = to_the_end(consortium, enrolled(consortium, "p2", given))
    assert_summed(consortium, results, consortium.ids)


def flows_of(
    consortium: Consortium, round_id: str, given: Mapping[str, Records], *, agents: bool
) -> dict[str, Any]:
    """Return what these members do: as agents for one run, or by a call for one round."""
    if not agents:
        return consortium.contributions(round_id, list(given))
    made = {m: consortium.member(m).make_agent(given[m], once=True) for m in given}
    return {m: consortium.open[m].next_result(agent) for m, agent in made.items()}


def test_records_are_free_if_too_few_are_left_that_were_counted(stage: Stage, tmp_path: Path) -> None:
    """Two of seven sleep through the count, and one of the five that are needed proves false."""
    consortium = hospitals(stage, tmp_path, ("a", "b", "c"), members=7)
    given = {m: Records(*data_of(consortium, m, "p1"), ids(60)) for m in consortium.ids}
    cohort = enrolled(consortium, "p1", given)
    count, awake, false = consortium.open_round(cohort), consortium.ids[:5], "member-3"
    with dealing_falsely():
        consortium.run_until(consortium.member(false).contribute(count), "chunks/0")
    flows = flows_of(consortium, count, {m: given[m] for m in awake}, agents=False)
    ends = consortium.together(flows, stuck=consortium.expiring(count))
    assert consortium.operator.round(count).evicted == (false,)
    assert {(type(end), end.state) for end in ends.values()} == {(NoResult, "counted")}, ends
    assert {end.cause for end in ends.values()} == {Cause.COUNT_MISMATCH}
    assert set(ends) == set(awake)
    assert consortium.operator.cohort(cohort).step is None
    late = {m: given[m] for m in consortium.ids[5:]}
    consortium.together(flows_of(consortium, count, late, agents=True))
    for member in consortium.ids:
        run = run_of(consortium, member, "p1")
        assert (run.state, run.given_up, run.counted) == (State.FREE, True, member in awake)


def test_a_count_that_had_no_member_to_spare_goes_on_to_the_sum_without_a_false_one(
    stage: Stage, tmp_path: Path
) -> None:
    """A count needs more members than a sum: its margin is for those that are lost after it."""
    consortium = hospitals(stage, tmp_path, ("a", "b", "c"), members=7, margin=1)
    given = {m: Records(*data_of(consortium, m, "p1"), ids(60)) for m in consortium.ids}
    cohort = enrolled(consortium, "p1", given)
    count, false = consortium.open_round(cohort), "member-3"
    with dealing_falsely():
        consortium.run_until(consortium.member(false).contribute(count), "chunks/0")
    consortium.together(consortium.contributions(count, consortium.ids[:6]), stuck=consortium.expiring(count))
    view = consortium.operator.round(count)
    assert (len(view.survivors), view.survivors_min, view.evicted) == (6, 6, (false,))
    true = tuple(m for m in consortium.ids[:6] if m != false)
    total = consortium.open_round(cohort)
    results = consortium.together(consortium.contributions(total, true), stuck=consortium.expiring(total))
    assert_summed(consortium, results, true)


def test_a_refusal_that_passes_ends_no_run(stage: Stage, tmp_path: Path) -> None:
    consortium = hospitals(stage, tmp_path, ("a", "b", "c"), margin=1)
    given = {m: Records(*data_of(consortium, m, "p1"), ids(60)) for m in consortium.ids}
    cohort = enrolled(consortium, "p1", given)
    count, late = consortium.open_round(cohort), consortium.ids[-1]
    for shown in (Cause.WRONG_PHASE, Cause.STORAGE_DAMAGED, Cause.CLOCK_SKEW, Cause.FORBIDDEN):
        consortium.shows(f"GET .*/disclosure/{late}", refused(shown))
        ends = consortium.together(consortium.contributions(count))
        assert {m: (type(end), end.cause) for m, end in ends.items()} == {late: (PeerFault, shown)}
        consortium.clock.ahead_s += DAY_S
    assert not run_of(consortium, late, "p1").given_up


# A laptop that sleeps

LAPTOP = "member-4"
SLEEPS = {
    "after its announcement in the rows": ("rows", f"uploads/{LAPTOP}"),
    "through the sum after the rows": ("sum", ""),
}
"""The step, and the request after which the laptop sleeps in it, if any. A class is rare, so that its rows are counted."""


def data_of(consortium: Consortium, member: str, period: str, *, rare: bool = False) -> tuple[Any, Any]:
    """Return 60 rows of two classes, and in p1 some of a third that only the first member has if it is rare."""
    index = consortium.ids.index(member)
    rng = np.random.default_rng([index, *period.encode()])
    labels = np.arange(60) % (2 if rare and (index or period != "p1") else 3)
    return rng.standard_normal((60, DIM)), labels


@pytest.mark.parametrize(
    "when",
    [
        "after its announcement in the rows",
        pytest.param("through the sum after the rows", marks=pytest.mark.slow),
    ],
)
def test_a_laptop_that_sleeps_keeps_its_records_for_the_next_month(
    stage: Stage, tmp_path: Path, when: str
) -> None:
    step, request = SLEEPS[when]
    consortium = hospitals(stage, tmp_path, ("a", "b", "c"), margin=1)
    others = consortium.ids[:4]
    assert set(consortium.ids) - set(others) == {LAPTOP}

    def records(member: str, period: str) -> Records:
        return Records(*data_of(consortium, member, period, rare=True), ids(60, period))

    cohort = enrolled(consortium, "p1", {m: records(m, "p1") for m in consortium.ids})
    round_id = consortium.open_round(cohort)
    while consortium.round(round_id).attempt.terms.step != step:
        assert consortium.together(consortium.contributions(round_id)) == {}  # all have recounted, and wait
        round_id = consortium.open_round(cohort)
    if request:
        consortium.run_until(consortium.member(LAPTOP).contribute(round_id), request)
    lead = consortium.leading_on(cohort)

    def stuck() -> bool:
        return lead() or consortium.expiring(consortium.rounds[-1])()

    results = consortium.together(consortium.contributions(round_id, others), stuck=stuck)
    assert_summed(consortium, results, others)
    summed = {m: data_of(consortium, m, "p1", rare=True) for m in others}
    assert consortium.total(consortium.rounds[-1]) == plain_sum(consortium, summed)
    assert {result.record.withheld for result in results.values()} == {(2,)}

    # Next month the laptop has the same records, and the others have new ones.
    period_of = {m: "p1" if m == LAPTOP else "p2" for m in consortium.ids}
    now = {m: records(m, period_of[m]) for m in consortium.ids}
    results = to_the_end(consortium, enrolled(consortium, "p2", now))
    assert_summed(consortium, results, consortium.ids)
    assert all(result.counted for result in results.values())
    summed = {m: data_of(consortium, m, period_of[m], rare=True) for m in consortium.ids}
    assert consortium.total(consortium.rounds[-1]) == plain_sum(consortium, summed)
    first, second = run_of(consortium, LAPTOP, "p1"), run_of(consortium, LAPTOP, "p2")
    assert (first.state, first.given_up, first.counted) == (State.FREE, True, True)
    assert (second.state, second.taken, second.records) == (State.SPENT, 0, 60)
    assert {run_of(consortium, m, "p1").state for m in others} == {State.SPENT}


# Three counts and no more


def test_three_runs_count_a_record_and_no_more(stage: Stage, tmp_path: Path) -> None:
    """After that a study that withholds classes is declined, and one that withholds none takes the records."""
    consortium = hospitals(stage, tmp_path, ("a", "b"), members=3, least=LEAST)
    features = {m: np.random.default_rng(i).standard_normal((30, DIM)) for i, m in enumerate(consortium.ids)}
    labels = {m: np.arange(30) % (1 + (i < 2)) for i, m in enumerate(consortium.ids)}  # three members needed
    given = {m: Records(features[m], labels[m], ids(30)) for m in consortium.ids}
    for number, left in enumerate(("3 runs", "2 runs", "1 run")):
        consortium.events.clear()
        ends = to_the_end(consortium, enrolled(consortium, f"p{number}", given))
        assert {(type(end), end.state) for end in ends.values()} == {(NoResult, "counted")}, ends
        told = {m for m, event in consortium.events if f"{left}, including" in event.detail}
        assert told == set(consortium.ids)

    fourth = consortium.open_cohort("p4")
    for _ in range(2):  # the answer is final, and says the same again
        flows = {m: consortium.member(m).enrol(fourth, given[m]) for m in consortium.ids}
        answers = consortium.together(flows)
        assert {type(each) for each in answers.values()} == {Declined}, answers
        for member, each in answers.items():
            assert re.search(r"\b0 .*\b0 .*\b30 .* three runs", str(each))
            assert run_of(consortium, member, "p4").state is State.DECLINED
    # New records are needed beside the old ones, which stay out.
    fifth = consortium.open_cohort("p5")
    fresh = np.random.default_rng(9).standard_normal((30, DIM))
    both = Records(
        np.r_[features["member-0"], fresh], np.r_[labels["member-0"], np.arange(30) % 2], [*ids(30), *ids(30, "new")]
    )  # fmt: skip
    consortium.run_until(consortium.member("member-0").enrol(fifth, both), "PUT")
    run = run_of(consortium, "member-0", "p5")
    assert (run.state, run.rows, run.taken, run.counted_out) == (State.RESERVED, 30, 30, 30)
    consortium.operator.close_cohort(fifth)

    consortium.publish(consortium.make_study({"name": "plain"}, withhold=None))
    consortium.events.clear()
    results = to_the_end(consortium, enrolled(consortium, "p4", given))
    assert_summed(consortium, results, consortium.ids)
    assert not [event for _, event in consortium.events if "including" in event.detail]
    rows = {m: (features[m], labels[m]) for m in consortium.ids}
    assert consortium.total(consortium.rounds[-1]) == plain_sum(consortium, rows)


def test_a_set_without_a_member_frees_its_records_also_where_another_round_asks(
    stage: Stage, tmp_path: Path
) -> None:
    """A certificate says by itself whose records it spends, not the attempt that the member is in."""
    consortium, m = Consortium(stage, tmp_path, HOSPITALS), LAPTOP
    certified = consortium.enrol("p1")
    first = consortium.open_round(certified)
    consortium.together(
        consortium.contributions(first), stuck=consortium.expiring(first), vanish={m: "/result"}
    )
    consortium.publish(consortium.make_study({"name": "other"}, loss=90))
    second = consortium.open_round(consortium.enrol("p2"))
    flows = consortium.contributions(second)
    consortium.run_until(flows.pop(m), f"uploads/{m}")
    consortium.together(flows, stuck=consortium.expiring(second))
    session = consortium.member(m).session
    context = consortium.round(second).attempt.context
    shown = consortium.alone(session.coordinator.fetch_closing(context, consortium.name))
    stage.pass_time(consortium.operator.round(second).spec.latest_end_s + 1)
    session.erase_expired()
    session.receive_message(bytes.fromhex(certified), shown, first)
    states = {run.period: run.state for run in consortium.open[m].ledger()}
    assert states == {"p1": State.SPENT, "p2": State.FREE}


def test_a_no_names_the_run_that_reserves_the_records(stage: Stage, tmp_path: Path) -> None:
    """After a change of the study, its author's members must give the old run up."""
    consortium = Consortium(stage, tmp_path)
    consortium.enrol("p1")
    name = run_of(consortium, "member-0", "p1").name
    consortium.publish(consortium.make_study({"version": 2}, loss=90))
    cohort = consortium.open_cohort("p2")
    [no] = consortium.together(
        {"member-0": consortium.member("member-0").enrol(cohort, consortium.records("member-0", "p1"))}
    ).values()
    assert isinstance(no, Declined)
    assert name in str(no)
    assert "--give-up" in str(no)
