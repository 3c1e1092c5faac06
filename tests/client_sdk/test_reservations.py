import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk import reservations
from client_sdk.errors import Misuse, StateError
from client_sdk.files import write_durably
from client_sdk.reservations import Reservations, State

ONE, OTHER = b"1" * 32, b"2" * 32
A, B, C, D = (letter * 32 for letter in (b"a", b"b", b"c", b"d"))
CTX, CTX2 = b"x" * 32, b"y" * 32
FEATURES = np.arange(6, dtype=np.float32).reshape(3, 2)
LABELS = np.array([0, 1, 1])


@pytest.fixture
def ledger(tmp_path: Path) -> Reservations:
    return Reservations(tmp_path / "ledger")


def reserve(
    ledger: Reservations,
    records: tuple[bytes, ...] = (A, B),
    question: bytes = ONE,
    period: str = "p1",
    **more: Any,
) -> None:
    ledger.reserve(question, period, records, FEATURES, LABELS, **more)


def test_a_yes_is_stored_whole_and_private(ledger: Reservations, tmp_path: Path) -> None:
    assert ledger.run(ONE, "p1") is None
    reserve(ledger)
    again = Reservations(tmp_path / "ledger")
    found = again.run(ONE, "p1")
    assert found is not None
    assert (found.state, found.records, found.noisy, found.summed, found.given_up) == (
        State.RESERVED,
        2,
        False,
        None,
        False,
    )
    features, labels = again.rows(ONE, "p1")
    assert features.dtype == np.float32
    assert np.array_equal(features, FEATURES)
    assert np.array_equal(labels, LABELS)
    files = [path for path in (tmp_path / "ledger").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_an_answer_is_final(ledger: Reservations) -> None:
    ledger.decline(ONE, "p1", noisy=False)
    ledger.decline(ONE, "p1", noisy=False)
    with pytest.raises(Misuse, match="final"):
        reserve(ledger)
    with pytest.raises(Misuse, match="holds no reservation"):
        ledger.rows(ONE, "p1")
    reserve(ledger, period="p2")
    with pytest.raises(Misuse, match="answered yes"):
        ledger.decline(ONE, "p2", noisy=False)
    with pytest.raises(Misuse, match="final"):
        reserve(ledger, (C,), period="p2")
    assert [(run.period, run.state) for run in ledger.runs()] == [("p1", "declined"), ("p2", "reserved")]


def test_a_held_record_is_free_for_no_other_exact_run(ledger: Reservations) -> None:
    reserve(ledger)
    assert ledger.free([A, B, C], noisy=False) == {C}
    with pytest.raises(Misuse, match="1 of the records are held"):
        reserve(ledger, (B, C), question=OTHER)
    assert ledger.run(OTHER, "p1") is None
    assert ledger.free([A, B, C], noisy=False) == {C}


def test_exact_or_noisy_for_life(ledger: Reservations) -> None:
    reserve(ledger, (A,))
    reserve(ledger, (B,), period="p2", noisy=True, mu=1.0)
    assert ledger.free([A, B, C], noisy=False) == {C}
    assert ledger.free([A, B, C], noisy=True, mu=1.0, mu_budget=2.0) == {B, C}
    with pytest.raises(Misuse, match="held by other runs"):
        reserve(ledger, (A,), period="p3", noisy=True, mu=1.0)
    with pytest.raises(Misuse, match="held by other runs"):
        reserve(ledger, (B,), period="p3")


def test_a_records_budget_is_spent_over_all_studies(ledger: Reservations) -> None:
    reserve(ledger, (A, B), noisy=True, mu=1.5)
    reserve(ledger, (A,), question=OTHER, noisy=True, mu=1.0)

    def free(mu: float) -> set[bytes]:
        return ledger.free([A, B, C], noisy=True, mu=mu, mu_budget=2.0)

    assert free(0.8) == {A, B, C}
    assert free(1.0) == {B, C}
    assert free(1.4) == {C}
    assert free(2.1) == set()
    ledger.give_up(OTHER, "p1")
    assert free(1.0) == {A, B, C}


@pytest.mark.parametrize("reason", ["none", "lost"])
def test_a_certified_or_lost_attempt_spends_for_ever(ledger: Reservations, reason: str) -> None:
    reserve(ledger)
    ledger.opened(ONE, "p1", CTX, "sum")
    ledger.ended(CTX, reason, spends=True)
    found = ledger.run(ONE, "p1")
    assert found is not None
    assert (found.state, found.summed) == (State.SPENT, CTX)
    ledger.give_up(ONE, "p1")
    assert ledger.free([A, B], noisy=False) == set()
    assert np.array_equal(ledger.rows(ONE, "p1")[0], FEATURES)


def test_the_first_end_that_is_noted_stays(ledger: Reservations) -> None:
    reserve(ledger)
    ledger.opened(ONE, "p1", CTX, "sum")
    ledger.ended(CTX, "erased", spends=False)
    ledger.ended(CTX, "none", spends=True)
    found = ledger.run(ONE, "p1")
    assert found is not None
    assert found.state is State.RESERVED
    ledger.ended(CTX2, "none", spends=True)
    assert ledger.free([A], noisy=False) == set()


def test_the_first_sum_is_remembered_and_an_indicator_is_none(ledger: Reservations) -> None:
    reserve(ledger)
    ledger.opened(ONE, "p1", C, "indicator")
    ledger.ended(C, "none", spends=True)
    found = ledger.run(ONE, "p1")
    assert found is not None
    assert (found.state, found.summed) == (State.SPENT, None)
    for context in (CTX, CTX2):
        ledger.opened(ONE, "p1", context, "sum")
        ledger.ended(context, "none", spends=True)
    found = ledger.run(ONE, "p1")
    assert found is not None
    assert found.summed == CTX


def test_what_was_given_up_is_free_once_every_attempt_has_ended(ledger: Reservations, tmp_path: Path) -> None:
    reserve(ledger)
    ledger.keep_vector(ONE, "p1", "sum", np.arange(3))
    ledger.opened(ONE, "p1", CTX, "indicator")
    ledger.opened(ONE, "p1", CTX, "indicator")
    ledger.give_up(ONE, "p1")
    assert ledger.free([A], noisy=False) == set()
    with pytest.raises(Misuse, match="given up"):
        ledger.opened(ONE, "p1", CTX2, "indicator")
    ledger.ended(CTX, "survivors-too-few", spends=False)
    assert ledger.free([A], noisy=False) == {A}
    assert not [
        path for path in (tmp_path / "ledger").rglob("*") if path.is_file() and path.suffix != ".sqlite"
    ]
    with pytest.raises(Misuse, match="final"):
        reserve(ledger)
    reserve(ledger, period="p2")


def test_a_reservation_has_one_vector_of_a_name(ledger: Reservations) -> None:
    reserve(ledger)
    assert ledger.vector(ONE, "p1", "sum") is None
    ledger.keep_vector(ONE, "p1", "sum", np.array([1, -2, 3]))
    ledger.keep_vector(ONE, "p1", "sum", np.array([1, -2, 3]))
    kept = ledger.vector(ONE, "p1", "sum")
    assert kept is not None
    assert kept.tolist() == [1, -2, 3]
    with pytest.raises(Misuse, match="one vector sum"):
        ledger.keep_vector(ONE, "p1", "sum", np.array([1, -2, 4]))
    with pytest.raises(Misuse, match="no reservation"):
        ledger.keep_vector(ONE, "p2", "sum", np.array([1]))


def damage_rows(folder: Path) -> None:
    [path] = (folder / "rows").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


def remove_rows(folder: Path) -> None:
    [path] = (folder / "rows").iterdir()
    path.unlink()


def damage_ledger(folder: Path) -> None:
    (folder / "ledger.sqlite").write_bytes(b"not a database" * 100)


def age_ledger(folder: Path) -> None:
    with sqlite3.connect(folder / "ledger.sqlite") as database:
        database.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (damage_rows, "npz is damaged"),
        (remove_rows, "is missing"),
        (damage_ledger, "ledger.sqlite is damaged"),
        (age_ledger, "not of this release"),
    ],
)
def test_damage_is_refused_and_never_guessed_at(
    ledger: Reservations, tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    reserve(ledger)
    harm(tmp_path / "ledger")
    with pytest.raises(StateError, match=said):
        ledger.rows(ONE, "p1")


class Crash(BaseException):
    pass


def test_a_crash_at_every_durable_write_leaves_the_old_state_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reserve, keep a vector, open, end and give up, cut off at each write and run again: one reservation, one vector, no record lost."""
    written = write_durably

    def life(ledger: Reservations) -> None:
        if ledger.run(ONE, "p1") is None:
            reserve(ledger)
        if ledger.vector(ONE, "p1", "sum") is None:
            ledger.keep_vector(ONE, "p1", "sum", np.array([1, 2]))
        ledger.opened(ONE, "p1", CTX, "sum")
        ledger.ended(CTX, "void", spends=False)
        ledger.opened(ONE, "p1", CTX2, "sum")
        ledger.ended(CTX2, "none", spends=True)

    for before in range(2):
        for point in range(2):
            folder = tmp_path / f"{before}-{point}"
            left = point

            def crashing(path: Path, data: bytes, *, early: bool = bool(before)) -> None:
                nonlocal left
                left -= 1
                if left < 0 and early:
                    raise Crash
                written(path, data)
                if left < 0:
                    raise Crash

            monkeypatch.setattr(reservations, "write_durably", crashing)
            with pytest.raises(Crash):
                life(Reservations(folder))
            monkeypatch.setattr(reservations, "write_durably", written)
            again = Reservations(folder)
            # Nothing is half there: a run in the ledger has its rows, a vector in the ledger its file.
            for run in again.runs():
                again.rows(run.question, run.period)
                again.vector(run.question, run.period, "sum")
            life(again)
            [run] = again.runs()
            assert (run.state, run.records, run.summed) == (State.SPENT, 2, CTX2)
            assert again.free([A, B, C, D], noisy=False) == {C, D}
