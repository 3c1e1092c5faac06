"""The ten attacks on studies, against the real coordinator and SDK members with default policies. None gains anything.

The tests compare the bytes that the coordinator stores and the requests that members send. `test_study_attacks` has the attacks that
need too many cases for this.
"""

import math
import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import rfc8785

from assurance.reference.study import Study as ReferenceStudy
from assurance.reference.wire import Refused
from client_sdk.database import STATE_FILE
from client_sdk.errors import Declined, Misuse
from client_sdk.identity import Identity
from client_sdk.records import Records
from client_sdk.result import Result
from service.storage.database import Database
from tests.support.answers import changed
from tests.support.consortium import (
    CLASSES,
    DIM,
    LEAST,
    NOISY,
    PATIENCE_S,
    WITHHOLDING,
    Consortium,
    Stopped,
    hostile,
    nothing,
    unchanged,
)
from tests.support.lying_members import founded
from tests.support.serving import Sent, Stage, coordinator
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import NOTHING_REVEALED, Erased, Study
from veilsum.protocol.rest import RoundView
from veilsum.study.promise import study_mu
from veilsum.study.vectors import compute_vector

EMPTY = Records(np.zeros((0, DIM)), np.zeros(0), [])
ASKING = re.compile("/requests/|/answers$")
"""Paths whose answers contain members' requests."""
ONE_STEP = {**NOISY, "noise": {**NOISY["noise"], "recipe": "sum"}}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with coordinator(tmp_path_factory.mktemp("stage") / "service") as made:
        yield made


@pytest.fixture(scope="module")
def summed(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    """Five members whose records of period p1 were summed."""
    with founded(stage, tmp_path_factory.mktemp("summed")) as made:
        made.play()
        assert not made.refusals()
        yield made


def new(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    """Return the tables and folders with new entries; check that old entries are unchanged."""
    assert before.items() <= after.items()
    return {name.split("/")[0] for name in after.keys() - before.keys()}


def plain(made: Consortium, data: dict[str, Any]) -> list[int]:
    """Return the sum of these vectors without masks, for the last run's question."""
    spec = next(each.spec for each in made.outcomes.values() if isinstance(each, Result))
    total: list[int] = np.sum([compute_vector(spec, *each) for each in data.values()], axis=0).tolist()
    return total


# 1. A lattice that gives rows back, or too few rows


def spoilt(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the study with single changes that would let sums give rows back."""
    question, [statistic] = values["question"], values["question"]["statistics"]
    yield {**values, "lattice": "features"}
    for place in ("question", "after", "notes"):
        yield {**values, place: {**values[place], "lattice": "features"}}
    for change in (
        {"statistics": [{**statistic, "lattice": "features"}]},
        {"statistics": [{**statistic, "centre": [0.0] * DIM}]},
        {"statistics": [{"kind": "features"}]},
        {"records": {**question["records"], "least": LEAST - 1}},
        {"records": {**question["records"], "most": 2**46}},
        {"dim": 30},
        {"a": 0},
        {"listable": True},
    ):
        yield {**values, "question": {**question, **change}}


def test_1_what_would_give_rows_back_is_refused_by_everybody(summed: Consortium, stage: Stage) -> None:
    """The service refuses it; so do members and the second implementation if a coordinator shows it to them anyway."""
    before, values = stage.stored(), summed.content({"version": 1000}).model_dump(mode="json")
    ReferenceStudy(rfc8785.dumps(values))
    summed.sent["member-0"].clear()
    for other in spoilt(values):
        content = rfc8785.dumps(other)
        study = Study.make_signed(summed.admin, federation=summed.admin.public, content=content)
        with pytest.raises(PeerFault) as by_service:
            summed.operator.publish_study(study)
        with pytest.raises(Refused, match="study-refused"):
            ReferenceStudy(content)

        def shown(_: str, sent: Sent, answer: httpx.Response, study: Study = study) -> httpx.Response:
            return httpx.Response(200, content=study.to_bytes()) if "/studies/" in sent.path else answer

        summed.on_answer = shown
        with summed.sdk("member-0") as member, pytest.raises(PeerFault) as by_member:
            member.study(study.hash)
        assert by_service.value.cause is by_member.value.cause is Cause.STUDY_REFUSED
    summed.on_answer = unchanged
    assert stage.stored() == before
    assert {each.method for each in summed.sent["member-0"]} == {"GET"}


# 2. A second sum over the same records


def test_2_another_floor_gives_no_second_sum(summed: Consortium, stage: Stage) -> None:
    """It would have other survivors, and the difference of the sums would reveal a few members.

    Members have no fresh records for it, and refuse it as a repetition.
    """
    sums, before, first = summed.sums(), stage.stored(), summed.links()[0].context.hex()
    summed.given = {member: summed.records(member) for member in summed.ids}
    summed.revise(loss=50)
    with pytest.raises(PeerFault, match="repeat-mismatch"):
        summed.play("p1", first)
    with hostile(summed):
        summed.play("p1", first)
    assert (summed.refusals(), summed.kinds()) == ({Misuse}, set())
    summed.play(f"p{summed.number}")
    assert (summed.refusals(), summed.kinds()) == ({Declined}, set())
    assert new(before, stage.stored()) == {"studies", "cohorts"}
    assert summed.sums() == sums


@pytest.mark.parametrize(
    ("links", "change", "by_service", "by_members"),
    [
        (None, {}, "already-summed", Cause.ALREADY_SUMMED),
        ((), {}, "already-summed", Cause.OUTCOME_MISSING),
        (None, {"extractor": "ab" * 32, "loss": 50}, "repeat-mismatch", Declined),
    ],
    ids=["again", "without a history", "as a repetition"],
)
def test_2_neither_does_another_cohort(
    stage: Stage, tmp_path: Path, links: Any, change: dict[str, Any], by_service: str, by_members: Any
) -> None:
    with founded(stage, tmp_path, 4) as made:
        made.play()
        sums, before, repeats = made.sums(), stage.stored(), None
        if change:
            repeats = made.links()[0].context.hex()
            made.revise(**change)
        with pytest.raises(PeerFault, match=by_service):
            made.play("p1", repeats)
        with hostile(made, links=links):
            made.play("p1", repeats)
        # Three honest members' rows don't bear another sum, so they say no before a card.
        assert (made.refusals(), made.kinds()) == (
            {by_members},
            set() if by_members is Declined else {"Enrolment", "Pairing"},
        )
        assert new(before, stage.stored()) <= {
            *("studies", "cohorts", "cards", "pairings", "ciphertexts", "rounds")
        }
        assert made.sums() == sums


def test_2_and_5_a_repetition_is_the_same_sum_whatever_the_notes_say(summed: Consortium) -> None:
    """Even if data has changed meanwhile, all members send the same vectors, bit for bit."""
    summed.revise({"purpose": "Another purpose.", "display": ["L", "R"]})
    summed.given = {member: Records(np.ones((30, DIM)), np.arange(30) % 2) for member in summed.ids}
    summed.play("p1", summed.links()[0].context.hex())
    assert not summed.refusals()
    for member in summed.ids:
        first, *later = summed.vectors[member, "p1", "sum"]
        assert later
        assert all(np.array_equal(first, each) for each in later)
    first, *again = summed.sums()
    assert all(first == each for each in again)


# 3. A colluder that changes its mind


def test_3_a_colluder_flips_its_class_bit_between_two_runs(stage: Stage, tmp_path: Path) -> None:
    """Its bit decides whether a class is withheld. Two sums, with and without the class, would reveal its few holders."""
    records = {"least": LEAST, "most": 40, "least_per_class": LEAST, "rows_per_id": 1}
    question = {**WITHHOLDING, "withhold": {"margin": 1}, "members_min": 5, "records": records}
    with founded(stage, tmp_path, **question) as made:
        rows, labels = np.random.default_rng(3).standard_normal((40, DIM)), np.arange(40) % 2
        made.given = {member: Records(rows, labels, range(40)) for member in made.ids}
        colluder, bits = made.ids[4], [1, 1]
        made.lie = lambda member, spec, own: (
            np.array(bits) if spec.is_disclosed and member == colluder else own
        )
        made.play()
        assert (made.refusals(), made.last.spec.withheld) == (set(), ())
        count, certified = (link.context.hex() for link in made.links())
        bits[0] = 0
        with hostile(made, "count"):
            made.play()
        assert (made.refusals(), made.kinds()) == ({Cause.ALREADY_SUMMED}, {"Enrolment", "Pairing"})
        assert made.come_back().state == "erased"
        # A count is never repeated, nor does the sum's repeat leave out what its count published.
        with pytest.raises(PeerFault) as refused:
            made.open_cohort("p1", count)
        assert refused.value.cause is Cause.REPEAT_MISMATCH
        with hostile(made, withheld=(0,)):
            made.play("p1", certified)
        assert (made.refusals(), made.kinds()) == ({Cause.TERMS_REFUSED}, {"Enrolment", "Pairing"})
        assert len(made.sums()) == 1


# 4. Records that change, and members that leave


def test_4_later_sums_hold_new_ids_only(stage: Stage, tmp_path: Path) -> None:
    """Every member changes a record and one leaves: no record is summed again."""
    with founded(stage, tmp_path) as made:
        *staying, leaving = made.ids
        made.play()
        for member in staying:
            old, fresh = made.records(member), made.records(member, "p2")
            features = np.concatenate([old.features, fresh.features])
            features[0] += 1.0
            ids = [key.decode() for key in (*old.keys, *fresh.keys)]
            made.given[member] = Records(features, [*old.labels, *fresh.labels], ids)
        made.given[leaving] = made.records(leaving)  # no new records
        made.play("p2")
        assert [type(made.outcomes[member]) for member in made.ids] == [*[Result] * 4, Declined]
        assert made.sums()[1] == plain(made, {member: made.data(member, "p2") for member in staying})


# 6. The same ids, extracted again


@pytest.mark.parametrize("change", [1e-12, "extractor"])
def test_6_records_extracted_again_add_no_rows(summed: Consortium, stage: Stage, change: Any) -> None:
    """Features slightly changed, or from another extractor; in another period and cohort, under another version of the study."""
    before, sums, other = stage.stored(), summed.sums(), change == "extractor"
    question: dict[str, Any] = {"extractor": "ab" * 32, "dim": DIM + 1} if other else {}
    summed.revise(**question)
    for member in summed.ids:
        features, labels = summed.data(member)
        again = np.ones((len(labels), DIM + 1)) if other else features + change
        summed.given[member] = Records(again, labels, [f"p1-{row}" for row in range(len(labels))])
    summed.play(f"again-{summed.number}")
    assert (summed.refusals(), summed.kinds()) == ({Declined}, set())
    assert new(before, stage.stored()) == {"studies", "cohorts"}
    assert summed.sums() == sums


def test_6_another_extractor_sums_the_frozen_set(stage: Stage, tmp_path: Path) -> None:
    """A repetition includes all survivors with all of their rows. New records add nothing."""
    with founded(stage, tmp_path) as made:
        made.play()
        made.revise(extractor="ab" * 32, dim=DIM + 1)
        expected = {}
        for member in made.ids:
            _, labels = made.data(member)
            features = np.random.default_rng(9).standard_normal((len(labels) + 2, DIM + 1))
            ids = [*(f"p1-{row}" for row in range(len(labels))), "new", "newer"]
            made.given[member] = Records(features, [*labels, 0, 1], ids)
            expected[member] = features[:-2], labels
        made.play("p1", made.links()[0].context.hex())
        assert (made.refusals(), made.last.survivors) == (set(), made.ids)
        assert made.sums()[1] == plain(made, expected)


# 7. Poisoned records


def poisoned(how: str, period: str) -> Records:  # noqa: C901 - one case a poison
    """Make thirty rows of two classes, at least one of them poisoned."""
    count, rng = 30, np.random.default_rng(7)
    labels: Any = np.arange(count) % len(CLASSES) * 1.0
    features, ids = (
        rng.standard_normal((count, DIM)) + labels[:, None],
        [f"{period}-{row}" for row in range(count)],
    )
    match how:
        case "nan":
            features[3, 1] = np.nan
        case "huge":
            features[3] = 1e308
        case "zero row":
            features[3] = 0
        case "unknown label":
            labels[3] = -1
        case "missing label":
            labels[3] = np.nan
        case "extra class":
            labels[3] = len(CLASSES)
        case "duplicate id":
            ids[3] = ids[4]
        case "spent id":
            ids[3] = "p0-3"
        case "one too many":
            features, labels = np.vstack([features, features[:11]]), np.r_[labels, labels[:11]]
            ids += [f"{period}-x{row}" for row in range(11)]
        case "fewest":
            features, labels, ids = features[:LEAST], labels[:LEAST], ids[:LEAST]
        case "one class":
            labels[:] = 0
        case "empty":
            return EMPTY
    return Records(features, labels, ids)


POISONS = (
    "nan", "huge", "zero row", "missing label", "extra class", "duplicate id", "spent id", "one too many", "fewest", "one class",
)  # fmt: skip


@pytest.mark.parametrize(
    ("question", "poisons"),
    [
        ({}, POISONS),
        pytest.param(
            WITHHOLDING,
            ("nan", "extra class", "spent id", "one too many", "one class"),
            marks=pytest.mark.slow,
        ),
        (ONE_STEP, ("huge", "unknown label", "spent id", "one too many", "empty")),
    ],
    ids=["exact", "withholding", "noisy"],
)
def test_7_poisoned_records_change_no_request(
    stage: Stage, tmp_path: Path, question: dict[str, Any], poisons: tuple[str, ...]
) -> None:
    """Method, path, order, headers and lengths of all requests equal those of a run with clean records.

    No member votes or reveals before all are asked to: the coordinator asks none any more once enough have answered.
    """
    with founded(stage, tmp_path, **question) as made:
        all_asked = threading.Barrier(len(made.ids), timeout=PATIENCE_S)

        def together(_: str, sent: Sent, moment: str) -> None:
            if (sent.kind, moment) in {("Vote", "before"), ("Reveal", "before")}:
                all_asked.wait()

        made.on_request = together

        def traces(period: str, *kinds: str) -> dict[str, Any]:
            kinds = (*kinds, *["clean"] * len(made.ids))[: len(made.ids)]
            made.given = {member: poisoned(how, period) for member, how in zip(made.ids, kinds, strict=True)}
            made.play(period)
            assert not made.refusals(), made.outcomes
            return {member: made.trace(member) for member in made.ids}

        clean = traces("p0")
        assert len({repr(trace) for trace in clean.values()}) == 1
        for start in range(0, len(poisons), 5):
            for member, trace in traces(f"p{1 + start}", *poisons[start : start + 5]).items():
                assert trace == clean[member], poisons[start : start + 5]


# 8. Restored copies; crashes are in tests/client_sdk/test_crash.py


def test_8_a_restored_copy_pairs_otherwise_and_is_in_no_sum(stage: Stage, tmp_path: Path) -> None:
    """It would encapsulate other secrets than it sent: the service takes no second pairing, and no record is spent."""
    with founded(stage, tmp_path) as made:
        (victim, *others), copy = made.ids, tmp_path / "copy"
        folder = made.folder / victim

        def restored(member: str, sent: Sent, moment: str) -> None:
            if (member, sent.kind, moment) == (victim, "Enrolment", "after"):
                shutil.copytree(folder, copy)
            if (member, sent.kind, moment) == (victim, "Pairing", "after") and copy.exists():
                shutil.rmtree(folder)
                copy.rename(folder)
                raise Stopped

        made.on_request = restored
        made.play()
        refused = made.outcomes[victim]
        assert isinstance(refused, PeerFault)
        assert (refused.cause, refused.parties) == (Cause.PAIRING_CONFLICT, (victim,))
        assert (victim, "p1", "sum") not in made.vectors
        expected = np.sum([made.vectors[each, "p1", "sum"][0] for each in others], axis=0)
        assert made.sums() == [expected.tolist()]


@pytest.mark.parametrize("copied", ["before the yes", "before the upload"])
def test_8_a_restored_copy_has_the_same_vector(stage: Stage, tmp_path: Path, copied: str) -> None:
    """Whatever history it is shown, it selects the same rows as before, of more than `most`."""
    with founded(stage, tmp_path) as made:
        (victim, *others), copy = made.ids, tmp_path / "copy"
        folder, rows = made.folder / victim, np.random.default_rng(5).standard_normal((60, DIM))
        made.given[victim] = Records(rows, np.arange(60) % 2, [f"row-{row}" for row in range(60)])
        if copied == "before the yes":
            with made.sdk(victim) as process:
                _ = process._flows.session.store.ledger.installation
            shutil.copytree(folder, copy)
            made.play()
            shutil.rmtree(folder)
            copy.rename(folder)
            cohort = made.open_cohort("p2")
            with made.sdk(victim) as process, pytest.raises(PeerFault) as caught:
                process.enrol(cohort, made.given[victim])
            assert (caught.value.cause, caught.value.parties) == (Cause.STATE_RESTORED, (victim,))
            made.operator.close_cohort(cohort)
            # A coordinator may keep the newest card to itself, and take two cards of one serial.
            made.shows("GET .*/invitation", changed(card=None), [victim])
            add_row = Database.add_row

            def add_any(database: Database, connection: Any, table: Any, row: Any) -> bool:
                other = {"serial": os.urandom(8)} if "serial" in row else {}
                return add_row(database, connection, table, {**row, **other})

            with hostile(made, links=()), pytest.MonkeyPatch.context() as patched:
                patched.setattr(Database, "add_row", add_any)
                made.play()
        else:
            copies = list[str]()

            def restored(member: str, sent: Sent, moment: str) -> None:
                if member == victim and "/rounds/" in sent.path and not copies:
                    copies.append(sent.path)  # it has paired, and asks for the opening
                    shutil.copytree(folder, copy)
                if (member, sent.kind, moment) == (victim, "Upload", "after") and copy.exists():
                    shutil.rmtree(folder)
                    copy.rename(folder)
                    raise Stopped

            made.on_request = restored
            made.play()
        assert not isinstance(made.outcomes[victim], Result)
        first, second = made.vectors[victim, "p1", "sum"]
        assert np.array_equal(first, second)
        summed = made.ids if copied == "before the yes" else others
        assert made.sums() == [
            np.sum([made.vectors[each, "p1", "sum"][0] for each in summed], axis=0).tolist()
        ]


# 9. Erasure


@pytest.mark.parametrize("silent", [1, pytest.param(2, marks=pytest.mark.slow), 3])
def test_9_an_erasure_and_enough_reveals_never_exist_together(
    stage: Stage, tmp_path: Path, silent: int
) -> None:
    """Some members stop before they reveal, the service gets no reveals of the others, and a colluder reports that it revealed nothing."""
    with founded(stage, tmp_path) as made:
        (first, *others, liar), revealed, replies = made.ids, set[str](), list[httpx.Response]()
        made.silent, made.away = set(made.ids[:silent]), set(made.ids)

        def revealing(member: str, sent: Sent, moment: str) -> None:
            if (sent.kind, moment) == ("Reveal", "before"):
                revealed.add(member)
                raise Stopped

        def noted(member: str, sent: Sent, answer: httpx.Response) -> httpx.Response:
            if member == first and ASKING.search(sent.path) and answer.content:
                replies.append(answer)
            return answer

        made.on_request, made.on_answer = revealing, noted
        made.play()
        view = made.last
        assert (view.state, len(revealed)) == ("revealing", len(made.ids) - silent)
        made.on_request, made.on_answer, made.silent, made.away = nothing, unchanged, set(), set()
        assert made.come_back([first]).state == "erasing"
        key, context = Identity.load(made.folder / liar).key, bytes.fromhex(view.context)
        lie = Erased.make_signed(key, context=context, member=liar, revealed=NOTHING_REVEALED)
        with made.sdk(liar) as process:
            process._driver.run(process._flows.session.coordinator.send_answer(view.round, lie, view.version))
        ended = made.come_back(others)
        assert not [name for name in stage.stored() if name.startswith(f"results/{view.round}")]
        if len(revealed) >= view.threshold:
            assert ended.state == "failed"  # certified without a sum: its records are spent
            return
        assert ended.state == "erased"
        replay(made, first, view, replies)
        # Nothing was revealed about these records, so the next attempt sums them.
        made.tries = 2
        made.play(resumed=True)
        assert not made.refusals()
        assert made.sums() == [plain(made, {member: made.data(member) for member in made.ids})]


def replay(made: Consortium, member: str, view: RoundView, replies: list[httpx.Response]) -> None:
    """After its erasure, show a member its earlier box and certificate again: it answers nothing."""
    shown = httpx.Response(200, content=view.model_copy(update={"state": "revealing"}).model_dump_json())
    for reply in replies:
        asked = list[str]()

        def again(_: str, sent: Sent, answer: httpx.Response, reply: Any = reply, asked: Any = asked) -> Any:
            asked.append(sent.path)
            if len(asked) > 12:
                raise Stopped
            return shown if sent.path.endswith(view.round) else reply if ASKING.search(sent.path) else answer

        made.on_answer = again
        made.sent[member].clear()
        with made.sdk(member) as process, suppress(PeerFault, Stopped):
            process.contribute(view.round)
        assert any(map(ASKING.search, asked))
        assert {each.method for each in made.sent[member]} == {"GET"}
    made.on_answer = unchanged


# 10. Noise


@pytest.mark.slow  # test_noise_chains checks each part on a simulated service
def test_10_charges_stay_within_the_budget_whatever_happens(stage: Stage, tmp_path: Path) -> None:
    """Over VOID attempts, whole chains, a LOST one and other studies, a record is charged as stated and never beyond its budget."""
    with founded(stage, tmp_path, 4, **ONE_STEP) as made:
        noise = made.content().question.noise
        assert noise is not None
        whole = study_mu(noise)

        def cancelling(member: str, sent: Sent, moment: str) -> None:
            if (member, sent.kind, moment) == (made.ids[0], "Upload", "after"):  # one member: once
                made.on_request = nothing
                made.operator.cancel(sent.path.split("/")[3], "a test")

        # An attempt that ends VOID costs nothing, and the next attempt draws new noise.
        made.on_request, made.tries = cancelling, 2
        made.given = {member: made.records(member) for member in made.ids}
        made.play("p1")
        assert not made.refusals()
        assert made.outcomes[made.ids[0]].record.noise.spent_epsilon <= noise.epsilon
        assert charges(made) == {whole}
        first, second = made.vectors[made.ids[0], "p1", "sum"]
        assert not np.array_equal(first, second)
        certified, made.tries = made.links()[-1].context.hex(), 1
        # No budget is left for another run over these records, of any kind.
        made.play("p2")
        assert {made.ledger(member)[-1].rows for member in made.ids} == {0}
        made.revise(noise=None)
        made.play("p3")
        assert made.refusals() == {Declined}
        # The admin gives up a run over new records: the charge stays, and another study takes no more than what is left.
        made.revise()
        made.given, made.silent = {}, set(made.ids[:3])
        made.play("p4")
        assert made.last.state == "erasing"
        made.lose(made.last.round)
        made.silent = set()
        assert made.come_back().state == "lost"
        assert charges(made) == {whole}
        made.given = {member: made.records(member, "p4") for member in made.ids}
        made.revise(noise={**ONE_STEP["noise"], "epsilon": 1.0})
        made.play("p5")
        assert not made.refusals()
        assert whole < max(charges(made)) <= made.policy.mu_budget
        # A run that is given up before its first certified step costs nothing.
        before, made.given, made.on_request = charges(made), {}, cancelling
        made.play("p6")
        assert (made.last.state, charges(made) > before) == ("voided", True)
        for member in made.ids:
            with made.sdk(member) as process:
                process.give_up("study", "p6")
        assert charges(made) == before
        made.play("p7")
        assert not made.refusals()
        # A certified step is never repeated.
        made.revise()
        with hostile(made):
            made.play("p1", certified)
        assert made.refusals() == {Cause.TERMS_REFUSED}


def charges(made: Consortium) -> set[float]:
    """Return the ledgers' charges to records: √Σμ²."""
    found = set[float]()
    for path in made.folder.glob(f"*/state/{STATE_FILE}"):
        with closing(sqlite3.connect(path)) as ledger:
            rows = ledger.execute(
                "SELECT SUM(mu * mu) FROM held JOIN run ON run.id = held.run GROUP BY record"
            )
            found |= {math.sqrt(squares) for (squares,) in rows}
    return found
