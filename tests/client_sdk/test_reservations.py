"""The ledger on the disk: rows, vectors, damage, and its state after a crash. What it answers and frees stands in assurance/vectors."""

import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.database import STATE_FILE, StateDatabase
from client_sdk.errors import Misuse, StateError
from client_sdk.records import NO_IDS_MARK, Selection
from client_sdk.reservations import Reservations, Run, State
from tests.support.consortium import Stopped
from tests.support.machine import Machine, files_open_in
from tests.support.refusals import refused
from tests.support.simulator import simulated_content, simulated_question
from veilsum.calibration.privacy.accountant import gdp_epsilon
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import History
from veilsum.protocol.messages import NO_CONTEXT, Link
from veilsum.protocol.study import Content, Noise

A, B, C, D, E, F = (letter * 32 for letter in (b"a", b"b", b"c", b"d", b"e", b"f"))
FEATURES = np.asfortranarray(
    np.arange(6, dtype=np.float32).reshape(3, 2)
)  # rows are kept in any order of memory
LABELS = np.array([0, 1, 1])
EXACT = simulated_content(simulated_question(3), 0).question
RANKS = np.arange(96, dtype=np.uint8).reshape(3, 32)
EXPIRES = 2_000_000


@pytest.fixture
def ledger(tmp_path: Path) -> Reservations:
    return ledger_in(tmp_path / "ledger")


def ledger_in(folder: Path) -> Reservations:
    """Open a folder's ledger as a new process does. A missing ledger is created."""
    opened = StateDatabase(folder)
    opened.create("member-0", 0.0)
    return Reservations(opened)


def study(name: str = "study", *, least: int = 3, mu: float = 0.0, **question: Any) -> Content:
    """Make a study of three members, exempt from the rule about few rows (CONTENT-20)."""
    content = simulated_content({**simulated_question(3), **question}, EXPIRES)
    epsilon = gdp_epsilon(mu, 1e-6)
    noise = Noise(epsilon=epsilon, delta=1e-6, unit="record", recipe="sum") if mu else None
    limits = content.question.records.model_copy(update={"least": least})
    changed = content.question.model_copy(update={"records": limits, "noise": noise})
    changed.__dict__["digest"] = (name.encode() + bytes(32))[:32]
    notes = content.notes.model_copy(update={"name": name})
    found = content.model_copy(update={"question": changed, "notes": notes})
    found.__dict__["approval"] = b"p" * 32
    return found


def selection(*records: bytes, rows: int = 3) -> Selection:
    return Selection(FEATURES[:rows], LABELS[:rows], RANKS[:rows], tuple(records), 1, 2, 3, 4)


def reserve(
    ledger: Reservations,
    *records: bytes,
    period: str = "p1",
    content: Content | None = None,
    rows: int = 3,
    **more: Any,
) -> Run:
    found = selection(*(records or (A, B)), rows=rows)
    return ledger.answer_run(content or study(least=rows), period, found, **more)


class Chain:
    """One member's attempts, from which its history learns."""

    def __init__(self, ledger: Reservations, question: bytes) -> None:
        self.ledger, self.question = ledger, question
        self.history = History()

    def enter(self, context: bytes, step: str = "sum", period: str = "p1", *, uploads: bool = True) -> None:
        attempt = _Attempt(context, self.question, period, step)
        self.learn(replace(self.history, unsettled=(*self.history.unsettled, attempt)))  # type: ignore[arg-type]  # a stand-in
        if uploads:
            self.ledger.mark_uploaded(context)

    def end(
        self, context: bytes, reason: str, step: str = "sum", period: str = "p1", *, left_out: bool = False
    ) -> None:
        survivors = bytes([9] * 32) if reason == "none" else NO_CONTEXT
        link = Link(bytes(32), 0, 0, self.question, period, step, NO_CONTEXT, context, reason, survivors)
        others = tuple(each for each in self.history.settled if each.context != context)
        unsettled = tuple(each for each in self.history.unsettled if each.context != context)
        self.learn(
            replace(self.history, settled=(*others, link), unsettled=unsettled), [context] if left_out else []
        )

    def learn(self, history: History, left_out: Sequence[bytes] = ()) -> None:
        self.ledger.store_history(history, self.history, left_out)
        self.history = history


class _Attempt:
    """As much of an attempt as the ledger reads; it has no encoding."""

    def __init__(
        self, context: bytes, question: bytes, period: str, step: str, repeats: bytes = NO_CONTEXT
    ) -> None:
        self.context, self.repeats = context, repeats != NO_CONTEXT
        self.question = type("Question", (), {"digest": question})
        self.manifest = type("Manifest", (), {"period": period, "repeats": repeats})
        self.terms = type("Terms", (), {"step": step})
        self.spec = type("Spec", (), {"name": f"study, period {period}"})


@pytest.fixture(autouse=True)
def _histories_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Don't store histories: stand-ins can't be encoded."""
    monkeypatch.setattr(History, "encode", lambda _history: b"history")
    monkeypatch.setattr(Reservations, "load_history", lambda _ledger: KNOWN[-1])
    true = Reservations.store_history

    def remember(
        self: Reservations, history: History, since: History, left_out: Collection[bytes] = ()
    ) -> None:
        KNOWN.append(since)
        true(self, history, since, left_out)

    monkeypatch.setattr(Reservations, "store_history", remember)


KNOWN = [History()]


def test_a_commit_is_on_the_disk_and_leaves_no_earlier_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With less syncing, a power cut could undo a commit; other tests turn syncing off."""
    ledger_in(tmp_path)
    monkeypatch.undo()
    with StateDatabase(tmp_path).read() as opened:
        settings = [opened.execute(f"PRAGMA {name}").fetchone() for name in ("synchronous", "journal_mode")]
    assert settings == [(2,), ("truncate",)]  # FULL


def test_a_yes_is_stored_whole_and_final(ledger: Reservations, tmp_path: Path) -> None:
    assert ledger.find_run(study().question.digest, "p1") is None
    run = reserve(ledger)
    again = ledger_in(tmp_path / "ledger")
    assert again.find_run(study().question.digest, "p1") == run
    assert (run.study, run.period, run.state, run.records) == ("study", "p1", State.RESERVED, 2)
    counts = (run.rows, run.least, run.unusable, run.taken, run.held_out, run.beyond)
    assert counts == (3, 3, 1, 2, 3, 4)
    features, labels, ranks = again.load_rows(run)
    assert features.dtype == np.float32
    for stored, given in ((features, FEATURES), (labels, LABELS), (ranks, RANKS)):
        assert np.array_equal(stored, given)
    for records, period in (((C,), "p1"), ((B, C), "p2")):
        with pytest.raises(Misuse):
            reserve(again, *records, period=period)
    declined = again.answer_run(study(least=4), "p2", selection(C))
    with pytest.raises(Misuse):
        again.load_rows(declined)


def test_the_secret_is_drawn_once(ledger: Reservations, tmp_path: Path) -> None:
    assert len(ledger.installation.secret) == 32
    assert ledger.installation.secret == ledger_in(tmp_path / "ledger").installation.secret
    assert repr(ledger.installation.secret) == "<SecretBytes 32 B>"
    assert ledger.installation.secret != ledger_in(tmp_path / "other").installation.secret


def test_rows_and_vectors_that_a_crash_left_are_removed(ledger: Reservations, tmp_path: Path) -> None:
    """Removes those of abandoned runs and of runs never stored, and half-written ones; nothing else."""
    arrays = tmp_path / "ledger/arrays"
    other = reserve(ledger, C, period="p2", rows=2)
    ledger.keep_vector(other, "sum", np.arange(3))
    kept = {path.name for path in arrays.iterdir()} | {"notes~"}
    assert len(kept) == 3
    run = reserve(ledger)
    ledger.keep_vector(run, "sum", np.arange(4))
    own = {path for path in arrays.iterdir() if path.name not in kept}
    (arrays / "notes~").write_text("the owner's")
    for left in ("ab" * 32, f".{'cd' * 32}.0f0f"):
        (arrays / left).write_bytes(b"left")
    left_by_a_crash = {path: path.read_bytes() for path in arrays.iterdir()}
    ledger.give_up(run)
    assert not own & {*arrays.iterdir()}
    for path, content in left_by_a_crash.items():
        path.write_bytes(content)
    again = StateDatabase(tmp_path / "ledger")
    again.open()
    again.close()
    assert {path.name for path in arrays.iterdir()} == kept
    assert np.array_equal(ledger.load_rows(other)[0], FEATURES[:2])


def test_runs_of_expired_studies_are_given_up(ledger: Reservations) -> None:
    reserve(ledger)
    later = reserve(ledger, C, period="p2")
    ledger.renew_run(later, EXPIRES + 10)
    ledger.renew_run(later, EXPIRES - 10)
    ledger.give_up_expired(EXPIRES - 1)
    assert {run.state for run in ledger.list_runs()} == {State.RESERVED}
    ledger.give_up_expired(EXPIRES)
    assert [(run.state, run.given_up) for run in ledger.list_runs()] == [("free", True), ("reserved", False)]


def test_a_yes_to_noise_charges_its_records_and_a_no_charges_none(ledger: Reservations) -> None:
    noisy = reserve(ledger, content=study("noisy", mu=0.75))
    declined = ledger.answer_run(study(least=4), "p2", selection(C))
    assert noisy.mu == pytest.approx(0.75)
    assert (noisy.noisy, declined.noisy, declined.mu) == (True, False, 0.0)
    assert declined.state is State.DECLINED


def test_a_rehearsal_takes_the_place_of_those_before_it(ledger: Reservations) -> None:
    """Nothing is held for them: neither records nor rows."""
    other = reserve(ledger)
    first, second = (
        ledger.answer_run(study(), f"rehearsal-{number}", selection(rows=2 + number)) for number in range(2)
    )
    assert [run.given_up for run in ledger.list_runs()] == [False, True, False]
    with pytest.raises(Misuse):
        ledger.load_rows(first)
    assert [len(ledger.load_rows(run)[1]) for run in (other, second)] == [3, 3]
    elsewhere = ledger.answer_run(study("other"), "rehearsal-2", selection())
    assert [run.given_up for run in ledger.list_runs()] == [False, True, False, False]
    assert len(ledger.load_rows(elsewhere)[1]) == 3


def test_an_attempt_is_entered_with_a_reservation_whose_records_no_other_sum_may_hold(
    ledger: Reservations,
) -> None:
    def enter(question: bytes, step: str = "sum", repeats: bytes = NO_CONTEXT) -> Run:
        return ledger.check_attempt(_Attempt(F, question, "p1", step, repeats))  # type: ignore[arg-type]  # a stand-in

    question = study().question.digest
    with refused(Cause.POLICY_REFUSED):
        enter(question)
    run = reserve(ledger)
    assert enter(question) == run
    ledger.mark_summed({B})
    with refused(Cause.ALREADY_SUMMED):
        enter(question)
    chain = Chain(ledger, question)
    chain.enter(C)
    chain.end(C, "none")
    with refused(Cause.REPEAT_MISMATCH, "coordinator"):
        enter(question)
    assert enter(question, repeats=C).summed == C
    chain.enter(D)
    chain.end(D, "none")
    with refused(Cause.REPEAT_MISMATCH, "coordinator"):
        enter(question, repeats=D)
    chain.enter(E, "count")
    chain.end(E, "none", "count")
    with refused(Cause.ALREADY_SUMMED, "coordinator"):
        enter(question, "count")
    with pytest.raises(Misuse):
        ledger.answer_run(study("other"), "p1", selection(), base=run)
    other = ledger.answer_run(study("other", extractor="ab" * 32), "p1", selection(), base=run)
    assert enter(other.question, repeats=C) == other
    with refused(Cause.REPEAT_MISMATCH, "coordinator"):
        enter(other.question)
    ledger.give_up(run)
    with refused(Cause.POLICY_REFUSED):
        enter(question, repeats=C)


HELD: dict[str, tuple[Callable[[Reservations], object], dict[str, set[bytes]]]] = {
    "nothing": (
        lambda ledger: None,
        {"none": {NO_IDS_MARK}, "exact": {A, B}, "noisy": {A, B}, "member": {A, B}},
    ),
    "an exact run": (lambda ledger: reserve(ledger, A), {"exact": {B}, "noisy": {B}, "member": {B}}),
    "a noisy run": (
        lambda ledger: reserve(ledger, A, content=study("other", mu=0.5)),
        {"exact": {B}, "noisy": {A, B}, "costly": {B}, "member": {A, B}},
    ),
    "a noisy run of this question": (
        lambda ledger: reserve(ledger, A, content=study("noisy", mu=0.5)),
        {"exact": {B}, "noisy": {B}, "member": set()},
    ),
    "a run without ids": (lambda ledger: reserve(ledger, NO_IDS_MARK), {}),
    "a mark": (lambda ledger: ledger.mark_summed({A}), {"exact": {B}, "noisy": {B}, "member": set()}),
}
"""What holds a record A of the two; and which of the two, or of data without ids, other runs may take."""


@pytest.mark.parametrize("holder", HELD)
def test_records_are_free_by_what_holds_them(ledger: Reservations, holder: str) -> None:
    hold, free = HELD[holder]
    hold(ledger)
    exact, noisy, costly = study().question, study("noisy", mu=0.5).question, study("noisy", mu=0.9).question
    assert noisy.noise is not None
    member = noisy.model_copy(update={"noise": noisy.noise.model_copy(update={"unit": "member"})})
    member.__dict__["digest"] = noisy.digest
    found = {
        name: ledger.free_records([NO_IDS_MARK] if name == "none" else [A, B], question, mu_budget=1.0)
        for name, question in {
            "none": exact, "exact": exact, "noisy": noisy, "costly": costly, "member": member
        }.items()
    }  # fmt: skip
    assert found == {**{name: set() for name in found}, "costly": free.get("noisy", set()), **free}


def test_all_sums_of_a_reservations_records_are_added_up(ledger: Reservations) -> None:
    def sized(name: str, rows_per_id: int, **question: Any) -> Content:
        content = study(name, **question)
        limits = content.question.records.model_copy(update={"rows_per_id": rows_per_id})
        changed = content.question.model_copy(update={"records": limits})
        changed.__dict__["digest"] = content.question.digest
        return content.model_copy(update={"question": changed})

    first, second = sized("first", 2), sized("second", 3, extractor="ab" * 32)
    numbers, dim = EXACT.elements, EXACT.dim
    sizes = [(per_id * numbers, per_id * -(-2 * numbers // (dim - 1))) for per_id in (2, 3)]
    run = reserve(ledger, content=first)
    assert ledger.other_sums(run, first.question.digest) == (0, 0)
    again = ledger.answer_run(second, "p1", selection(), base=run)
    for base in (run, again):
        assert ledger.other_sums(base, second.question.digest) == sizes[0]
        assert ledger.other_sums(base, first.question.digest) == sizes[1]
        assert ledger.other_sums(base, C) == (sizes[0][0] + sizes[1][0], sizes[0][1] + sizes[1][1])
    ledger.give_up(again)
    assert ledger.other_sums(run, first.question.digest) == (0, 0)


def test_a_reservation_has_one_vector_of_a_name(ledger: Reservations) -> None:
    run = reserve(ledger)
    assert ledger.load_vector(run, "sum") is None
    ledger.keep_vector(run, "sum", np.array([1, -2, 3]))
    ledger.keep_vector(run, "sum", np.array([1, -2, 3]))
    kept = ledger.load_vector(run, "sum")
    assert kept is not None
    assert kept.tolist() == [1, -2, 3]
    with pytest.raises(Misuse, match="one vector sum"):
        ledger.keep_vector(run, "sum", np.array([1, -2, 4]))


def damage_rows(folder: Path) -> None:
    [path] = (folder / "arrays").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


def remove_rows(folder: Path) -> None:
    [path] = (folder / "arrays").iterdir()
    path.unlink()


def damage_ledger(folder: Path) -> None:
    (folder / STATE_FILE).write_bytes(b"not a database" * 100)


def empty_ledger(folder: Path) -> None:
    (folder / STATE_FILE).write_bytes(b"")


def flip_a_bit_of_a_record(folder: Path) -> None:
    with closing(sqlite3.connect(folder / STATE_FILE)) as opened:
        [record] = opened.execute("SELECT record FROM held LIMIT 1").fetchone()
    content = bytearray((folder / STATE_FILE).read_bytes())
    content[content.index(record) + 31] ^= 1
    (folder / STATE_FILE).write_bytes(content)


def executing(statement: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        with closing(sqlite3.connect(folder / STATE_FILE)) as opened, opened:
            opened.execute(statement)

    return harm


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (damage_rows, "arrays/[0-9a-f]{64} is damaged"),
        (remove_rows, "is missing"),
        (damage_ledger, "state.sqlite is damaged"),
        (empty_ledger, "state.sqlite is missing"),
        (flip_a_bit_of_a_record, "state.sqlite is damaged"),
        (executing("PRAGMA user_version = 99"), "by another release"),
        (executing("UPDATE sealed SET value = x'00'"), "is damaged"),
        (executing("DELETE FROM sealed"), "is damaged"),
        (executing("DELETE FROM summed"), "is damaged"),
    ],
)
def test_damage_is_refused_and_never_guessed_at(
    ledger: Reservations, tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    run = reserve(ledger)
    ledger.mark_summed({C})
    harm(tmp_path / "ledger")
    again, opened = Reservations(StateDatabase(tmp_path / "ledger")), files_open_in(tmp_path)
    with pytest.raises(StateError, match=said):
        _ = again.load_rows(run), again.installation
    assert files_open_in(tmp_path) == opened


@pytest.mark.parametrize("early", [True, False])
def test_a_crash_at_every_durable_write_leaves_the_old_state_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, early: bool
) -> None:
    """Reserve, store a vector, enter and end, each cut off at every write and repeated: one reservation, one vector, no lost record."""

    def life(ledger: Reservations) -> None:
        run = ledger.find_run(study().question.digest, "p1") or reserve(ledger)
        if ledger.load_vector(run, "sum") is None:
            ledger.keep_vector(run, "sum", np.array([1, 2]))
        chain = Chain(ledger, run.question)
        chain.enter(C)
        chain.end(C, "void")
        chain.enter(D)
        chain.end(D, "none")

    for point in count(1):
        folder = tmp_path / str(point)
        machine = Machine(folder, point, early=early)
        with machine.on(monkeypatch), suppress(Stopped):
            life(ledger_in(folder))
        again = ledger_in(folder)
        # Nothing is half there: a run in the ledger has its rows, a vector in the ledger its file.
        for run in again.list_runs():
            again.load_rows(run)
            again.load_vector(run, "sum")
        life(again)
        [run] = again.list_runs()
        assert (run.state, run.records, run.summed) == (State.SPENT, 2, D)
        assert again.free_records([A, B, C, D], EXACT) == {C, D}
        if not machine.stops:
            break
    assert point > 9
