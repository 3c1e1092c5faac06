"""Canaries among a member's records, and the check before every enrolment."""

from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from client_sdk.effects import Flow
from client_sdk.errors import Misuse
from client_sdk.evidence import Evidence
from client_sdk.records import Records, select_canaries
from client_sdk.result import Result
from tests.client_sdk.test_doctor import examine
from tests.support.consortium import CLASSES, DIM, NOISY, WITHHOLDING, Consortium
from tests.support.refusals import refused
from veilsum.calibration.errors import ShapeMismatch
from veilsum.cli.features import FileRecords
from veilsum.protocol.causes import Cause
from veilsum.protocol.rest import round_name
from veilsum.study.canaries import CanaryPack
from veilsum.study.vectors import compute_vector

IDS = [f"canary-{place}" for place in range(8)]
ROWS = np.random.default_rng(5).standard_normal((len(IDS), DIM))
KEYS = [CLASSES[place % 2] for place in range(len(IDS))]


@pytest.fixture
def pack(consortium: Consortium) -> CanaryPack:
    """The pack of a published study."""
    made = CanaryPack(IDS, KEYS, ROWS, slips={"bgr": ROWS[:, ::-1]}, inputs={"0.txt": b"public"})
    digest = made.digest
    consortium.rehearsal = {"pack": digest, "tolerance": 1e-3}
    consortium.revise()
    consortium.operator.publish_canaries(consortium.name, made)
    return made


def with_canaries(records: Records, rows: Any = ROWS, keys: Any = KEYS, ids: Any = IDS) -> Records:
    """Put canary rows among records, the first of them first."""
    labels = [CLASSES[label] for label in records.labels]
    return Records(
        np.concatenate([rows[:1], records.features, rows[1:]]),
        [*keys[:1], *labels, *keys[1:]],
        [*ids[:1], *records.keys, *ids[1:]],
    )


@pytest.mark.parametrize("kind", [Records, FileRecords])
def test_canaries_are_no_records(consortium: Consortium, kind: type[Records]) -> None:
    plain = consortium.records("member-0")
    mixed = with_canaries(plain)
    own = kind(mixed.features, mixed.labels, mixed.ids, canaries=mixed.canaries)
    whole = kind(
        np.concatenate([plain.features, ROWS]),
        np.array([*plain.labels, *(CLASSES.index(key) for key in KEYS)]),
        [*(key.decode() for key in plain.keys), *IDS],
    )
    for each in (own, whole):
        assert len(each) == len(plain)
        assert each.canaries is not None
        assert [key.decode() for key in each.canaries.keys] == IDS
        assert each.canaries.index_labels(CLASSES).tolist() == [CLASSES.index(key) for key in KEYS]
        assert np.array_equal(each.canaries.features, ROWS)
        assert each.index_labels(CLASSES).tolist() == plain.index_labels(CLASSES).tolist()
        assert replace(each, features=each.features + 1).canaries is not None


def test_canaries_stand_in_one_place_under_their_ids(consortium: Consortium) -> None:
    plain = consortium.records("member-0")
    apart = Records(ROWS, KEYS, IDS)
    given = Records(plain.features, plain.labels, plain.ids, canaries=apart)
    assert given.canaries is not None
    with pytest.raises(Misuse, match="in one place"):
        replace(with_canaries(plain), ids=[*plain.keys[1:], b"canary-1"], canaries=apart)
    for wrong in (plain, Records(plain.features, plain.labels)):
        with pytest.raises(Misuse, match="begin with canary-"):
            Records(plain.features, plain.labels, canaries=wrong)


def test_a_run_with_canaries_sums_what_one_without_them_sums(
    consortium: Consortium, pack: CanaryPack
) -> None:
    cohort, flows = consortium.open_cohort(), {}
    for place, member in enumerate(consortium.ids, 1):
        given = with_canaries(consortium.records(member), rows=place * ROWS)
        flows[member] = consortium.member(member).enrol(cohort, given)
    consortium.together(flows)
    results = consortium.run(cohort)
    assert {type(result) for result in results.values()} == {Result}, results
    [round_id] = consortium.rounds
    assert consortium.total(round_id) == consortium.expected(round_id)
    assert len(consortium.requests("/canaries/")) == len(consortium.ids)
    found = consortium.alone(consortium.member("member-0").canaries(consortium.study.hash))
    assert found.inputs == pack.inputs


@pytest.mark.parametrize(
    ("changes", "said"), [({"rows": ROWS[:, ::-1]}, "blue, green, red"), (None, "Missing 8 of 8 canaries")]
)
@pytest.mark.usefixtures("pack")
def test_nothing_is_answered_while_canaries_differ(
    consortium: Consortium, changes: dict[str, Any] | None, said: str
) -> None:
    plain, cohort = consortium.records("member-0"), consortium.open_cohort()
    before = consortium.state("member-0")
    given = plain if changes is None else with_canaries(plain, **changes)
    member = consortium.member("member-0")
    with refused(Cause.CANARIES_DIFFER, "member-0") as caught:
        consortium.alone(member.enrol(cohort, given))
    assert said in caught.value.detail
    assert member.ledger() == ()
    assert not consortium.operator.cohort(cohort).cards
    after = consortium.state("member-0")
    kept = {name for name in after if after[name] != before.get(name) and not name.startswith("canaries/")}
    assert kept <= {"seal", "sealed"}, "a roster and a study that passed their own checks"
    consortium.run_until(member.enrol(cohort, with_canaries(plain)), "PUT")
    assert consortium.operator.cohort(cohort).cards == ("member-0",)


@pytest.mark.usefixtures("pack")
def test_records_of_another_extractor_are_refused_before_their_canaries_are_missed(
    consortium: Consortium,
) -> None:
    plain, cohort = consortium.records("member-0"), consortium.open_cohort()
    narrow = Records(plain.features[:, :-1], plain.labels, plain.ids)
    with pytest.raises(ShapeMismatch):
        consortium.alone(consortium.member("member-0").enrol(cohort, narrow))


def test_a_doctor_checks_canaries_if_it_has_them_and_the_pack(
    consortium: Consortium, pack: CanaryPack
) -> None:
    plain = consortium.records("member-0")
    for records, ok in ((None, None), (with_canaries(plain), True), (with_canaries(plain, ROWS + 1), False)):
        assert examine(consortium, records=records)["canaries of study"].ok is ok
    consortium.shows("GET .*/canaries/.*", lambda _: httpx.Response(200, content=pack.to_bytes()[:-1]))
    assert examine(consortium, records=with_canaries(plain))["canaries of study"].ok is False


@pytest.mark.usefixtures("pack")
def test_an_agent_ends_its_only_run_and_otherwise_waits_for_another(consortium: Consortium) -> None:
    consortium.open_cohort()
    results = consortium.together(consortium.agent_flows())
    assert {each.cause for each in results.values()} == {Cause.CANARIES_DIFFER}
    assert consortium.together(consortium.agent_flows(once=False)) == {}
    assert sum("canaries-differ" in event.detail for _, event in consortium.events) == len(consortium.ids)


def test_a_study_without_a_pack_leaves_canaries_alone(consortium: Consortium) -> None:
    cohort, given = consortium.open_cohort(), with_canaries(consortium.records("member-0"))
    consortium.run_until(consortium.member("member-0").enrol(cohort, given), "PUT")
    with pytest.raises(Misuse, match="pack"):
        consortium.alone(consortium.member("member-0").canaries(consortium.study.hash))


def test_a_pack_that_is_missing_or_another_is_refused(consortium: Consortium, pack: CanaryPack) -> None:
    other = CanaryPack(IDS, KEYS, ROWS + 1)
    given, cohort = with_canaries(consortium.records("member-0")), consortium.open_cohort()
    before = consortium.on_answer
    consortium.shows("GET .*/canaries/.*", lambda _: httpx.Response(200, content=other.to_bytes()))
    with refused(Cause.MALFORMED, "coordinator"):
        consortium.alone(consortium.member("member-0").enrol(cohort, given))
    consortium.on_answer = before
    consortium.run_until(consortium.member("member-0").enrol(cohort, given), "PUT")
    consortium.rehearsal = {"pack": "ab" * 32, "tolerance": 1e-3}
    consortium.revise()
    with refused(Cause.NOT_FOUND):
        consortium.alone(consortium.member("member-0").canaries(consortium.study.hash))


@pytest.mark.parametrize(
    "question",
    [pytest.param({}, marks=pytest.mark.slow), WITHHOLDING, NOISY],
    ids=["exact", "withholding", "noisy"],
)
def test_a_rehearsal_sums_canaries_without_noise_and_leaves_no_record_held(
    consortium: Consortium, pack: CanaryPack, question: dict[str, Any]
) -> None:
    consortium.revise(**question)
    rehearse(consortium, "rehearsal-1")
    consortium.revise(**question)  # a version of one question
    last = rehearse(consortium, "rehearsal-2")
    found = Result.load(consortium.open["member-0"].session.store.result_folder(last))
    alike = select_canaries(with_canaries(consortium.records("member-0")), found.spec.question)
    assert alike.labels.tolist() == [0] * 9 + [1] * 9
    vector = compute_vector(found.spec, alike.features, alike.labels, found.material)
    assert consortium.total(last) == (3 * vector).tolist()
    sites = consortium.operator.site_reports(consortium.round(last).attempt.manifest.cohort.hex()).sites
    assert [each.member for each in sites] == [*consortium.ids]
    assert all(each.report.slips == () and each.report.upload_bytes for each in sites)
    for member in consortium.ids:
        state, ledger = consortium.state(member), consortium.open[member]
        assert not state["held"]
        assert not state["summed"]
        assert ledger.ledger() == ()
        history = ledger.session.store.ledger.load_history()
        assert history.finished == (), "rehearsals are never repeated, and go on for ever"
        kept = {path.name for path in ledger.session.store.result_folder(last).parent.iterdir()}
        assert {round_name(each.context) for each in history.counted} <= kept
        assert kept == {*consortium.operator.cohort(found.record.cohort).rounds}, "the newest rehearsal's"


@pytest.mark.usefixtures("pack")
def test_a_past_rehearsal_without_a_result_keeps_its_evidence_until_its_latest_end(
    consortium: Consortium,
) -> None:
    before = consortium.on_answer
    consortium.misstate(rows=1 << 30)
    cohort = consortium.open_cohort("rehearsal-1")
    ended = consortium.together(rehearsing(consortium, "rehearsal-1"), stuck=consortium.leading_on(cohort))
    assert {fault.cause for fault in ended.values()} == {Cause.RESULT_MISMATCH}
    [past] = consortium.rounds
    session = consortium.open["member-0"].session
    question = consortium.round(past).attempt.question.digest
    session.store.ledger.give_up_over(question, "rehearsal-1")
    session.forget_past_rehearsals(question)
    assert Evidence.saved_in(session.store.result_folder(past))
    consortium.on_answer = before
    consortium.stage.pass_time(float(consortium.round(past).attempt.terms.latest_end_s))
    rehearse(consortium, "rehearsal-2")
    assert not session.store.result_folder(past).exists()


@pytest.mark.usefixtures("pack")
def test_a_rehearsals_upload_is_sent_once_and_its_last_chunk_brings_the_next_request(
    consortium: Consortium,
) -> None:
    cohort = consortium.open_cohort("rehearsal-1")
    consortium.together(
        {m: consortium.member(m).enrol(cohort, with_canaries(consortium.records(m))) for m in consortium.ids}
    )
    round_id = consortium.open_round(cohort)
    *_, last = consortium.ids
    for member in consortium.ids:
        part = "/answers" if member == last else "/sites/"
        consortium.until(consortium.open[member].contribute(round_id), part, "before").close()
    chunks = consortium.round(round_id).attempt.chunk_count
    assert chunks > 1
    sent = [each.path.rpartition("/")[2] for each in consortium.requests("/chunks/")]
    assert sorted(sent) == sorted(str(index) for index in range(chunks) for _ in consortium.ids)
    assert len(consortium.requests(f"{round_id}/requests/{last}")) == 1


@pytest.mark.usefixtures("pack")
def test_an_agent_leaves_a_rehearsal_that_another_one_has_replaced(consortium: Consortium) -> None:
    """Its operator left it after the count."""
    consortium.revise(**WITHHOLDING)
    lead = consortium.leading_on(consortium.open_cohort("rehearsal-1"))
    flows = rehearsing(consortium, "rehearsal-1", once=False)
    consortium.together(flows, stuck=lambda: not consortium.rounds and lead())
    [past] = consortium.rounds
    consortium.stage.pass_time(float(consortium.round(past).attempt.terms.latest_end_s))
    asked = len([sent for sent in consortium.requests() if sent.path == f"/v1/rounds/{past}"])
    lead = consortium.leading_on(consortium.open_cohort("rehearsal-2"))
    consortium.together(rehearsing(consortium, "rehearsal-2", once=False), stuck=lead)
    store = consortium.open["member-0"].session.store
    assert not store.result_folder(past).exists()
    assert Result.saved_in(store.result_folder(consortium.rounds[-1]))
    assert len([sent for sent in consortium.requests() if sent.path == f"/v1/rounds/{past}"]) == asked


def rehearse(consortium: Consortium, period: str) -> str:
    """Play a rehearsal to its end, and return its last round."""
    flows, cohort = rehearsing(consortium, period), consortium.open_cohort(period)
    ended = consortium.together(flows, stuck=consortium.leading_on(cohort))
    assert [*ended.values()] == [None] * len(consortium.ids)
    return consortium.operator.cohort(cohort).rounds[-1]


def rehearsing(consortium: Consortium, period: str, *, once: bool = True) -> dict[str, Flow[Result | None]]:
    """Return a flow for each member that takes part in a rehearsal."""
    flows = {}
    for member in consortium.ids:
        process, records = consortium.member(member), with_canaries(consortium.records(member))
        flows[member] = process.next_result(process.make_agent(records, once=once, period=period))
    return flows
