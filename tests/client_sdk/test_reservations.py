"""The ledger: answers, held records, attempts, vectors, and its state after a crash (member: Ledger)."""

import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk import database
from client_sdk.database import STATE_FILE, StateDatabase
from client_sdk.errors import Misuse, StateError
from client_sdk.records import NO_IDS_MARK, Selection
from client_sdk.reservations import COUNTS_MAX, Reservations, Run, State, sum_size
from tests.support.refusals import refused
from tests.support.simulator import Federation, simulated_content, simulated_question
from veilsum.calibration.privacy.accountant import gdp_epsilon
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import History
from veilsum.protocol.messages import NO_CONTEXT, Link
from veilsum.protocol.study import Content, Noise
from veilsum.system.files import write_durably

A, B, C, D = (letter * 32 for letter in (b"a", b"b", b"c", b"d"))
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
        with Federation(3) as federation:
            federation.begin()
            self.attempt = federation.phase.attempt
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


def test_a_yes_is_stored_whole_and_private(ledger: Reservations, tmp_path: Path) -> None:
    assert ledger.find_run(study().question.digest, "p1") is None
    run = reserve(ledger)
    again = ledger_in(tmp_path / "ledger")
    assert again.find_run(study().question.digest, "p1") == run
    assert (run.state, run.records, run.rows, run.noisy, run.summed, run.given_up) == (
        State.RESERVED,
        2,
        3,
        False,
        None,
        False,
    )
    assert (run.study, run.period, run.least, run.unusable, run.taken, run.held_out, run.beyond) == (
        "study",
        "p1",
        3,
        1,
        2,
        3,
        4,
    )
    features, labels, ranks = again.load_rows(run)
    assert features.dtype == np.float32
    assert np.array_equal(features, FEATURES)
    assert np.array_equal(labels, LABELS)
    assert np.array_equal(ranks, RANKS)
    files = [path for path in (tmp_path / "ledger").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_the_secret_is_drawn_once(ledger: Reservations, tmp_path: Path) -> None:
    assert len(ledger.installation.secret) == 32
    assert ledger.installation.secret == ledger_in(tmp_path / "ledger").installation.secret
    assert repr(ledger.installation.secret) == "<SecretBytes 32 B>"
    assert ledger.installation.secret != ledger_in(tmp_path / "other").installation.secret
    for harm in ("UPDATE sealed SET value = x'00'", "DELETE FROM sealed"):
        with closing(sqlite3.connect(tmp_path / "ledger" / STATE_FILE)) as opened, opened:
            opened.execute(harm)
        with pytest.raises(StateError, match="is damaged"):
            _ = ledger_in(tmp_path / "ledger").installation.secret


def test_marked_records_are_spent_for_life(ledger: Reservations, tmp_path: Path) -> None:
    one, two = A, B
    assert ledger.mark_summed({one}) == 1
    assert ledger.mark_summed({one, two}) == 1
    assert ledger.count_marked() == 2
    again = ledger_in(tmp_path / "ledger")
    noisy = study(mu=0.1).question
    for question in (study().question, noisy):
        assert again.free_records([one, two, b"z" * 32], question) == {b"z" * 32}
    with pytest.raises(Misuse, match="held"):
        reserve(ledger)
    assert ledger.mark_summed({NO_IDS_MARK}) == 1
    assert again.free_records([b"z" * 32], study().question) == set()
    assert ledger.free_records([NO_IDS_MARK], study().question) == set()


def test_marked_records_are_sealed(ledger: Reservations, tmp_path: Path) -> None:
    ledger.mark_summed({A, B})
    with closing(sqlite3.connect(tmp_path / "ledger" / STATE_FILE)) as opened, opened:
        opened.execute("DELETE FROM summed")
    with pytest.raises(StateError, match="is damaged"):
        ledger_in(tmp_path / "ledger").list_runs()


def test_an_answer_is_final(ledger: Reservations) -> None:
    few = ledger.answer_run(study(least=4), "p1", selection(A))
    assert (few.state, few.records, few.rows, few.least) == (State.DECLINED, 0, 3, 4)
    with pytest.raises(Misuse, match="final"):
        reserve(ledger)
    with pytest.raises(Misuse, match="holds no reservation"):
        ledger.load_rows(few)
    reserve(ledger, period="p2")
    with pytest.raises(Misuse, match="final"):
        reserve(ledger, C, period="p2")
    assert [(run.period, run.state) for run in ledger.list_runs()] == [("p1", "declined"), ("p2", "reserved")]


def test_a_noisy_study_is_answered_yes_however_few_rows_there_are(ledger: Reservations) -> None:
    run = ledger.answer_run(study(least=4, mu=1.0), "p1", selection(rows=0))
    assert (run.state, run.rows, run.records) == (State.RESERVED, 0, 0)
    assert ledger.load_rows(run)[0].shape == (0, 2)


def test_who_was_left_out_stays_out_whatever_certificate_is_shown(ledger: Reservations) -> None:
    run = reserve(ledger)
    chain = Chain(ledger, run.question)
    chain.enter(C)
    chain.end(C, "none", left_out=True)
    other = replace(chain.history.settled[-1], survivors=bytes([8] * 32))
    chain.learn(replace(chain.history, settled=(other,)))
    assert [each.state for each in ledger.list_runs()] == [State.FREE]


def test_a_count_that_was_opened_and_not_uploaded_to_does_not_stand(ledger: Reservations) -> None:
    run = reserve(ledger)
    Chain(ledger, run.question).enter(C, "count", uploads=False)
    assert not ledger.list_runs()[0].counted


def test_records_that_three_runs_have_counted_are_not_counted_again(ledger: Reservations) -> None:
    for number in range(COUNTS_MAX):
        run = reserve(ledger, period=f"p{number}")
        assert ledger.counts_left(run) == COUNTS_MAX - number
        chain = Chain(ledger, run.question)
        chain.enter(bytes([number]) * 32, "count", run.period)
        chain.end(bytes([number]) * 32, "none", "count", run.period)
        ledger.give_up(run)
    last = reserve(ledger, period="p9")
    assert ledger.counts_left(last) == 0


def test_a_freed_record_that_turns_up_in_a_sum_is_spent_and_takes_part_in_no_other(
    ledger: Reservations,
) -> None:
    old = reserve(ledger)
    ledger.give_up(old)
    new = reserve(ledger, B, C, period="p2")
    assert ledger.check_attempt(attempt(new)) == new
    chain = Chain(ledger, old.question)
    chain.enter(D)
    chain.end(D, "none")
    assert [run.state for run in ledger.list_runs()] == [State.SPENT, State.RESERVED]
    with refused(Cause.ALREADY_SUMMED):
        ledger.check_attempt(attempt(new))
    ledger.give_up(new)
    assert ledger.free_records([A, B, C], EXACT) == {C}


def test_what_was_given_up_is_free_once_every_attempt_has_ended(ledger: Reservations, tmp_path: Path) -> None:
    run = reserve(ledger)
    ledger.keep_vector(run, "sum", np.arange(3))
    chain = Chain(ledger, run.question)
    chain.enter(C)
    ledger.give_up(run)
    assert ledger.free_records([A], EXACT) == set()
    with refused(Cause.POLICY_REFUSED):
        ledger.check_attempt(attempt(run))
    chain.end(C, "survivors-too-few")
    assert ledger.free_records([A], EXACT) == {A}
    assert list((tmp_path / "ledger/arrays").iterdir()) == []
    with pytest.raises(Misuse, match="final"):
        reserve(ledger)
    reserve(ledger, period="p2")


def test_rows_and_vectors_that_a_crash_left_are_removed(ledger: Reservations, tmp_path: Path) -> None:
    """Removes those of abandoned runs and of runs never stored, and half-written ones; nothing else."""
    arrays = tmp_path / "ledger/arrays"
    other = reserve(ledger, C, period="p2", rows=2)
    ledger.keep_vector(other, "sum", np.arange(3))
    kept = {path.name for path in arrays.iterdir()} | {"notes~"}
    assert len(kept) == 3
    run = reserve(ledger)
    ledger.keep_vector(run, "sum", np.arange(4))
    (arrays / "notes~").write_text("the owner's")
    for left in ("ab" * 32, f".{'cd' * 32}.0f0f"):
        (arrays / left).write_bytes(b"left")
    left_by_a_crash = {path: path.read_bytes() for path in arrays.iterdir()}
    ledger.give_up(run)
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


def attempt(run: Run, step: str = "sum", repeats: bytes = NO_CONTEXT) -> Attempt:
    return _Attempt(D, run.question, run.period, step, repeats)  # type: ignore[return-value]  # as much of one as is read


def test_each_step_is_opened_once_and_a_sum_is_repeated_as_it_was(ledger: Reservations) -> None:
    run = reserve(ledger)
    chain = Chain(ledger, run.question)
    assert ledger.check_attempt(attempt(run)) == run
    with refused("repeat-mismatch", "coordinator"):
        ledger.check_attempt(attempt(run, repeats=C))
    for context, reason in ((A, "void"), (B, "none")):
        chain.enter(context)
        chain.end(context, reason)
    with refused(Cause.REPEAT_MISMATCH, "coordinator"):
        ledger.check_attempt(attempt(run))
    assert ledger.check_attempt(attempt(run, repeats=B)).state is State.SPENT
    chain.enter(C)
    chain.end(C, "none")
    for other in (A, C):
        with refused("repeat-mismatch", "coordinator"):
            ledger.check_attempt(attempt(run, repeats=other))
    with refused("policy-refused"):
        ledger.check_attempt(attempt(replace(run, period="p9")))


def test_one_reservation_has_one_question_for_each_extractor(ledger: Reservations) -> None:
    run = reserve(ledger)
    chain = Chain(ledger, run.question)
    chain.enter(C)
    chain.end(C, "none")
    base = ledger.run_of_attempt(C)
    assert base is not None
    assert base.number == run.number
    other = study("other", extractor="ab" * 32)
    derived = ledger.answer_run(other, "p1", selection(), base=base)
    assert (derived.base, derived.state, derived.records, derived.summed) == (run.number, State.SPENT, 2, C)
    for again in (study("third", extractor="ab" * 32), study("fourth")):
        with pytest.raises(Misuse, match="this extractor"):
            ledger.answer_run(again, "p1", selection(), base=base)
    assert ledger.other_sums(derived, other.question.digest) == sum_size(study().question)
    assert ledger.run_of_attempt(D) is None
    assert ledger.free_records([A, B, C], EXACT) == {C}


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


def flip_a_bit_of_a_record(folder: Path) -> None:
    with closing(sqlite3.connect(folder / STATE_FILE)) as opened:
        [record] = opened.execute("SELECT record FROM held LIMIT 1").fetchone()
    content = bytearray((folder / STATE_FILE).read_bytes())
    content[content.index(record) + 31] ^= 1
    (folder / STATE_FILE).write_bytes(content)


def age_ledger(folder: Path) -> None:
    with closing(sqlite3.connect(folder / STATE_FILE)) as opened:
        opened.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (damage_rows, "arrays/[0-9a-f]{64} is damaged"),
        (remove_rows, "is missing"),
        (damage_ledger, "state.sqlite is damaged"),
        (flip_a_bit_of_a_record, "state.sqlite is damaged"),
        (age_ledger, "by another release"),
    ],
)
def test_damage_is_refused_and_never_guessed_at(
    ledger: Reservations, tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    run = reserve(ledger)
    harm(tmp_path / "ledger")
    with pytest.raises(StateError, match=said):
        ledger.load_rows(run)


class Crash(BaseException):
    pass


@pytest.mark.parametrize("early", [True, False])
def test_a_crash_at_every_durable_write_leaves_the_old_state_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, early: bool
) -> None:
    """Reserve, store a vector, enter and end, each cut off at every write and repeated: one reservation, one vector, no lost record."""
    written, transaction = write_durably, StateDatabase.write

    def life(ledger: Reservations) -> None:
        run = ledger.find_run(study().question.digest, "p1") or reserve(ledger)
        if ledger.load_vector(run, "sum") is None:
            ledger.keep_vector(run, "sum", np.array([1, 2]))
        chain = Chain(ledger, run.question)
        chain.enter(C)
        chain.end(C, "void")
        chain.enter(D)
        chain.end(D, "none")

    point, crashed = 0, True
    while crashed:
        folder, left, crashed = tmp_path / str(point), point, False

        def strike() -> None:
            nonlocal left, crashed
            left -= 1
            if left == -1:
                crashed = True
                raise Crash

        def crashing(path: Path, data: bytes) -> None:
            if early:
                strike()
            written(path, data)
            if not early:
                strike()

        with monkeypatch.context() as patched:
            patched.setattr(database, "write_durably", crashing)
            patched.setattr(StateDatabase, "write", _struck(transaction, strike, early=early))
            with suppress(Crash):
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
        point += 1
    assert point > 8


def _struck(transaction: Any, strike: Callable[[], None], *, early: bool) -> Any:
    """A transaction in which, or right after which, the machine stops."""

    @contextmanager
    def write(self: StateDatabase) -> Any:
        with transaction(self) as ledger:
            yield ledger
            if early:
                strike()
        if not early:
            strike()

    return write


def test_data_without_ids_that_was_only_reserved_keeps_nothing(ledger: Reservations) -> None:
    ledger.give_up(reserve(ledger, NO_IDS_MARK))
    assert ledger.free_records([A], EXACT) == {A}
    ledger.give_up(reserve(ledger, A, period="p2"))
    assert ledger.free_records([NO_IDS_MARK], EXACT) == {NO_IDS_MARK}
