"""A member's ledger: which of its records are reserved or spent, for which run (docs/protocol-next.md §7).

    ledger.sqlite       runs, the records that each one holds, the attempts under it
    rows/RUN.npz        the rows of a reservation, as they were selected
    vectors/RUN-NAME    vectors of it, each computed once

A yes is a reservation: it is stored, rows included, before the member enrols, and everything that the run uploads later comes from it.
"""

import hashlib
import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from client_sdk.errors import Misuse, StateError
from client_sdk.files import LOSS, make_private, remove_durably, write_durably

Array = npt.NDArray[Any]

_FORMAT = 1
_TABLES = """
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    question BLOB NOT NULL,
    period TEXT NOT NULL,
    state TEXT NOT NULL,
    noisy INTEGER NOT NULL,
    mu REAL NOT NULL,
    rows_sha256 BLOB,
    summed BLOB,
    given_up INTEGER NOT NULL DEFAULT 0,
    UNIQUE (question, period)
);
CREATE TABLE held (record BLOB NOT NULL, run INTEGER NOT NULL REFERENCES run, PRIMARY KEY (record, run)) WITHOUT ROWID;
CREATE TABLE attempt (
    context BLOB PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run,
    step TEXT NOT NULL,
    ended TEXT
) WITHOUT ROWID;
CREATE TABLE vector (run INTEGER NOT NULL REFERENCES run, name TEXT NOT NULL, sha256 BLOB NOT NULL, PRIMARY KEY (run, name));
"""


class State(StrEnum):
    """What became of a run's records."""

    DECLINED = "declined"
    """The member answered no and holds none."""
    RESERVED = "reserved"
    SPENT = "spent"


@dataclass(frozen=True)
class Run:
    """One question and period, as this member's ledger has it.

    Attributes:
        question: digest of the study's question, 32 bytes.
        period: its name.
        state: of its records.
        noisy: whether its sums carry noise.
        records: how many records it holds.
        summed: context of the first sum of it that was certified or lost; None before.
        given_up: whether the member opens nothing more of it.
    """

    question: bytes
    period: str
    state: State
    noisy: bool
    records: int
    summed: bytes | None
    given_up: bool


class Reservations:
    """The ledger on disk; one writer at a time, which the identity's lock sees to.

    Args:
        folder: of mode 0700; made if it is missing.

    Raises:
        StateError: from every method, where the ledger is damaged or of another release.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def runs(self) -> tuple[Run, ...]:
        """All runs that were answered, oldest first."""
        with self._open() as ledger:
            return tuple(_run(row) for row in ledger.execute(f"{_SELECT} GROUP BY run.id ORDER BY run.id"))

    def run(self, question: bytes, period: str) -> Run | None:
        """One of them; None before it was answered."""
        with self._open() as ledger:
            return _found(ledger, question, period)

    def free(
        self, records: Sequence[bytes], *, noisy: bool, mu: float = 0.0, mu_budget: float = math.inf
    ) -> set[bytes]:
        """Which of these records a new run may take.

        For an exact run those that no run holds. For a noisy one those that no exact run holds and whose budget bears μ more:
        √Σμ² over all runs that hold them stays within `mu_budget`.
        """
        with self._open() as ledger:
            if not noisy:
                held = {row[0] for row in ledger.execute("SELECT DISTINCT record FROM held")}
                return {record for record in records if record not in held}
            spent = {
                record: math.inf if exact else math.sqrt(squares)
                for record, exact, squares in ledger.execute(
                    "SELECT record, MAX(NOT noisy), SUM(mu * mu) FROM held JOIN run ON run.id = held.run GROUP BY record"
                )
            }
            return {record for record in records if math.hypot(spent.get(record, 0.0), mu) <= mu_budget}

    def decline(self, question: bytes, period: str, *, noisy: bool) -> None:
        """Answer no, for good; Misuse where the answer was yes."""
        with self._open() as ledger, ledger:
            found = _found(ledger, question, period)
            if found is None:
                _add(ledger, question, period, State.DECLINED, noisy=noisy, mu=0.0, rows_sha256=None)
            elif found.state is not State.DECLINED:
                raise Misuse(f"period {period} of this question was answered yes before")

    def reserve(
        self,
        question: bytes,
        period: str,
        records: Sequence[bytes],
        features: Array,
        labels: Array,
        *,
        noisy: bool = False,
        mu: float = 0.0,
    ) -> None:
        """Answer yes: hold these records and their rows for the run, durably.

        Args:
            question: digest of the question.
            period: its name.
            records: keyed ids, each of which `free` names.
            features: (k, dim), the selected rows.
            labels: (k,) class indices.
            noisy: whether its sums carry noise.
            mu: what the whole chain costs of each record's budget.

        Raises:
            Misuse: the run was answered before, or a record is held by another run that excludes this one.
        """
        content = BytesIO()
        np.savez(content, features=features, labels=labels)
        digest = hashlib.sha256(content.getvalue()).digest()
        with self._open() as ledger, ledger:
            ledger.execute("BEGIN IMMEDIATE")
            if _found(ledger, question, period) is not None:
                raise Misuse(f"period {period} of this question was answered before, and an answer is final")
            run = _add(ledger, question, period, State.RESERVED, noisy=noisy, mu=mu, rows_sha256=digest)
            # The rows first: a run that stands in the ledger always has them.
            write_durably(make_private(self._folder / "rows") / f"{run}.npz", content.getvalue())
            ledger.executemany("INSERT INTO held VALUES (?, ?)", [(record, run) for record in records])
            twice = ledger.execute(
                "SELECT COUNT(*) FROM held AS own JOIN held AS other ON other.record = own.record AND other.run != own.run "
                "JOIN run ON run.id = other.run WHERE own.run = ? AND NOT (run.noisy AND ?)",
                (run, noisy),
            ).fetchone()[0]
            if twice:
                raise Misuse(
                    f"{twice} of the records are held by other runs: select among those that are free"
                )

    def rows(self, question: bytes, period: str) -> tuple[Array, Array]:
        """Features (k, dim) and labels (k,) of a reservation, as they were selected."""
        with self._open() as ledger:
            number, digest = _reserved(ledger, question, period)
        path = self._folder / "rows" / f"{number}.npz"
        content = _verified(path, digest)
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            return arrays["features"], arrays["labels"]

    def vector(self, question: bytes, period: str, name: str) -> Array | None:
        """A vector of a reservation that was kept under this name, (elements,) int64; None before there is one."""
        with self._open() as ledger:
            number, _ = _reserved(ledger, question, period)
            found = ledger.execute(
                "SELECT sha256 FROM vector WHERE run = ? AND name = ?", (number, name)
            ).fetchone()
        if found is None:
            return None
        return np.frombuffer(_verified(self._vector_path(number, name), found[0]), "<i8")

    def keep_vector(self, question: bytes, period: str, name: str, vector: Array) -> None:
        """Keep a vector, durably, before anything made of it leaves; another one under this name is a Misuse."""
        content = vector.astype("<i8").tobytes()
        digest = hashlib.sha256(content).digest()
        with self._open() as ledger, ledger:
            number, _ = _reserved(ledger, question, period)
            make_private(self._folder / "vectors")
            before = ledger.execute(
                "SELECT sha256 FROM vector WHERE run = ? AND name = ?", (number, name)
            ).fetchone()
            if before is not None:
                if before[0] != digest:
                    raise Misuse(f"a reservation has one vector {name}, and another one was kept before")
                return
            write_durably(self._vector_path(number, name), content)
            ledger.execute("INSERT INTO vector VALUES (?, ?, ?)", (number, name, digest))

    def opened(self, question: bytes, period: str, context: bytes, step: str) -> None:
        """Note an attempt under a reservation, durably, before anything of it leaves; again without effect.

        Raises:
            Misuse: the run was given up, or has no reservation.
        """
        with self._open() as ledger, ledger:
            found, (number, _) = _found(ledger, question, period), _reserved(ledger, question, period)
            if found is not None and found.given_up:
                raise Misuse(f"period {period} of this question was given up")
            ledger.execute("INSERT OR IGNORE INTO attempt VALUES (?, ?, ?, NULL)", (context, number, step))

    def ended(self, context: bytes, reason: str, *, spends: bool) -> None:
        """Note how an attempt ended. The first end that is noted stays; an attempt of no reservation changes nothing.

        Args:
            context: of the attempt.
            reason: as the chain names it.
            spends: whether it spends the reservation: for a certified set, and for a lost attempt.
        """
        with self._open() as ledger, ledger:
            ledger.execute("BEGIN IMMEDIATE")
            found = ledger.execute(
                "SELECT run, step, ended FROM attempt WHERE context = ?", (context,)
            ).fetchone()
            if found is None or found[2] is not None:
                return
            run, step, _ = found
            ledger.execute("UPDATE attempt SET ended = ? WHERE context = ?", (reason, context))
            if spends:
                ledger.execute("UPDATE run SET state = ? WHERE id = ?", (State.SPENT, run))
                if step == "sum":
                    ledger.execute("UPDATE run SET summed = COALESCE(summed, ?) WHERE id = ?", (context, run))
            self._let_go(ledger, run)

    def give_up(self, question: bytes, period: str) -> None:
        """Open nothing more of a run, for good. Its records are free once all its attempts have ended without spending them."""
        with self._open() as ledger, ledger:
            ledger.execute("BEGIN IMMEDIATE")
            number, _ = _reserved(ledger, question, period)
            ledger.execute("UPDATE run SET given_up = 1 WHERE id = ?", (number,))
            self._let_go(ledger, number)

    def _let_go(self, ledger: sqlite3.Connection, run: int) -> None:
        """Free the records of a run that was given up, unless they are spent or an attempt's end is not known."""
        state, given_up = ledger.execute("SELECT state, given_up FROM run WHERE id = ?", (run,)).fetchone()
        waits = ledger.execute(
            "SELECT COUNT(*) FROM attempt WHERE run = ? AND ended IS NULL", (run,)
        ).fetchone()[0]
        if state != State.RESERVED or not given_up or waits:
            return
        ledger.execute("DELETE FROM held WHERE run = ?", (run,))
        ledger.execute("UPDATE run SET state = ?, mu = 0 WHERE id = ?", (State.DECLINED, run))
        for path in (self._folder / "rows" / f"{run}.npz", *(self._folder / "vectors").glob(f"{run}-*")):
            remove_durably(path)

    def _vector_path(self, run: int, name: str) -> Path:
        return self._folder / "vectors" / f"{run}-{name}"

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        make_private(self._folder)
        path = self._folder / "ledger.sqlite"
        try:
            with closing(sqlite3.connect(path, isolation_level="DEFERRED")) as ledger:
                path.chmod(0o600)
                ledger.execute("PRAGMA synchronous = FULL")
                ledger.execute("PRAGMA foreign_keys = ON")
                version = ledger.execute("PRAGMA user_version").fetchone()[0]
                if version == 0:
                    ledger.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_FORMAT}; COMMIT;")
                elif version != _FORMAT:
                    raise StateError(
                        f"{path} is not of this release: go on with the one that wrote it. Else: {LOSS}"
                    )
                yield ledger
        except sqlite3.DatabaseError as error:
            raise StateError(f"{path} is damaged ({error}). {LOSS}") from error


_SELECT = (
    "SELECT question, period, state, noisy, COUNT(held.record), summed, given_up "
    "FROM run LEFT JOIN held ON held.run = run.id"
)


def _run(row: Sequence[Any]) -> Run:
    question, period, state, noisy, records, summed, given_up = row
    return Run(question, period, State(state), bool(noisy), records, summed, bool(given_up))


def _found(ledger: sqlite3.Connection, question: bytes, period: str) -> Run | None:
    where = "WHERE question = ? AND period = ? GROUP BY run.id"
    row = ledger.execute(f"{_SELECT} {where}", (question, period)).fetchone()
    return None if row is None else _run(row)


def _reserved(ledger: sqlite3.Connection, question: bytes, period: str) -> tuple[int, bytes]:
    row = ledger.execute(
        "SELECT id, rows_sha256 FROM run WHERE question = ? AND period = ? AND state != ?",
        (question, period, State.DECLINED),
    ).fetchone()
    if row is None:
        raise Misuse(f"this member holds no reservation for period {period} of this question")
    number, digest = row
    return int(number), bytes(digest)


def _add(
    ledger: sqlite3.Connection,
    question: bytes,
    period: str,
    state: State,
    *,
    noisy: bool,
    mu: float,
    rows_sha256: bytes | None,
) -> int:
    values = (question, period, state, noisy, mu, rows_sha256)
    cursor = ledger.execute(
        "INSERT INTO run (question, period, state, noisy, mu, rows_sha256) VALUES (?, ?, ?, ?, ?, ?)", values
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _verified(path: Path, digest: bytes) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise StateError(f"{path} is missing. {LOSS}") from error
    if hashlib.sha256(content).digest() != digest:
        raise StateError(f"{path} is damaged. {LOSS}")
    return content
