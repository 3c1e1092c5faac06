"""A member's ledger: its answers to runs, the records they hold, and the attempts made with them (docs/protocol.md §7).

    ledger.sqlite       answers, records held, attempts, the installation's secret, and what is known of the federation's chain
    rows/RUN.npz        the rows of a reservation, as they were selected
    vectors/RUN-NAME    vectors of it, each computed once

A yes is a reservation: it is stored, rows included, before the member enrols, and everything that the run uploads later comes from it.
The history of §4.3 stands in the same database, so that the end of an attempt and what it does to a reservation are one durable write.
"""

import hashlib
import math
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from client_sdk.errors import Misuse, PeerFault, StateError
from client_sdk.files import LOSS, make_private, remove_durably, whole, write_durably
from client_sdk.ledger import Database, keep_in, kept_in, verified
from client_sdk.records import Selection
from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.codec import SecretBytes
from protocol.member import History
from protocol.messages import NO_REASON
from protocol.messages.opening import LOST_REASON
from protocol.study import SUM_STEP, Content

T = TypeVar("T")
Array = npt.NDArray[Any]

SECRET_BYTES = 32
_BY_QUESTION = "SELECT * FROM answered WHERE question = ? AND period = ?"
_BY_NUMBER = "SELECT * FROM answered WHERE id = ?"
_BY_CONTEXT = (
    "SELECT * FROM answered WHERE id = (SELECT COALESCE(run.base, run.id) FROM attempt JOIN run ON run.id = attempt.run "
    "WHERE context = ?)"
)


class State(StrEnum):
    """What became of a run's records."""

    DECLINED = "declined"
    """The member answered no, or gave the run up, and holds none."""
    RESERVED = "reserved"
    SPENT = "spent"


@dataclass(frozen=True)
class Run:
    """One question and period, as this member's ledger has it.

    Attributes:
        number: in the ledger.
        base: of the run whose records this one sums again, under another extractor; None for a run of its own.
        study: its name.
        approval, question: digests of 32 bytes.
        extractor: digest in hexadecimal.
        period: its name.
        state: of its records.
        noisy: whether its sums carry noise.
        mu: what the whole chain costs of each record's budget.
        expires: when the study does, Unix time in seconds.
        least: fewest rows for a yes.
        rows: rows selected.
        unusable, taken, beyond: rows skipped, as `Selection` counts them.
        records: how many records it holds.
        summed: context of the first sum of it that was certified or lost; None before.
        given_up: whether the member opens nothing more of it.
    """

    number: int
    base: int | None
    study: str
    approval: bytes
    question: bytes
    extractor: str
    period: str
    state: State
    noisy: bool
    mu: float
    expires: int
    least: int
    rows: int
    unusable: int
    taken: int
    beyond: int
    records: int
    summed: bytes | None
    given_up: bool

    @property
    def name(self) -> str:
        """The study and period in words."""
        return f"{self.study}, period {self.period}"


class Reservations(Database):
    """The ledger's meaning: answers, reservations, attempts and vectors.

    Raises:
        StateError: from every method, if the ledger is damaged or of another release.
    """

    @cached_property
    def secret(self) -> SecretBytes:
        """32 bytes of this installation, drawn once: records are recognised by them, for life."""
        with self._write() as ledger:
            if (kept := kept_in(ledger, "secret")) is None:
                keep_in(ledger, "secret", kept := secrets.token_bytes(SECRET_BYTES))
            return SecretBytes(kept)

    # What is known of the federation's chain

    def history(self) -> History:
        """The newest: every opening is checked against it, in whichever cohort."""
        with self._open() as ledger:
            return _history(ledger)

    def remember(self, history: History, since: History) -> None:
        """Store what was learned before the phase that learned it, and with it what it means for reservations.

        Attempts that the member takes part in from now on are noted under their run. Attempts that have ended spend its records, or
        free them where the run was given up. Done twice it comes to the same.

        Args:
            history: with what was learned.
            since: without it.

        Raises:
            StateError: `since` is not what is stored: rounds that this member knows would be forgotten.
        """
        entered = [attempt for attempt in history.unsettled if attempt not in since.unsettled]
        ended = [link for link in history.settled if link not in since.settled]
        with self._write() as ledger:
            if _history(ledger) not in {since, history}:
                raise StateError("the history has grown since this step began: run the same call again")
            keep_in(ledger, "history", history.encode_fields())
            for attempt in entered:
                ledger.execute(
                    "INSERT OR IGNORE INTO attempt (context, run, step) "
                    "SELECT ?, id, ? FROM run WHERE question = ? AND period = ? AND yes",
                    (attempt.context, attempt.terms.step, attempt.question.digest, attempt.manifest.period),
                )
            for link in ended:
                ledger.execute("UPDATE attempt SET ended = ? WHERE context = ?", (link.reason, link.context))
            freed = _let_go(ledger)
        self._forget(freed)

    # Answers

    def runs(self) -> tuple[Run, ...]:
        """All runs that were answered, oldest first."""
        with self._open() as ledger:
            return tuple(_run(row) for row in ledger.execute("SELECT * FROM answered ORDER BY id"))

    def run(self, question: bytes, period: str) -> Run | None:
        """One of them; None before it was answered."""
        with self._open() as ledger:
            return _found(ledger, _BY_QUESTION, (question, period))

    def under(self, context: bytes) -> Run | None:
        """The reservation behind an attempt, as it was first made for one extractor; None if this member holds none."""
        with self._open() as ledger:
            return _found(ledger, _BY_CONTEXT, (context,))

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

    def answer(
        self, content: Content, period: str, found: Selection, *, mu: float = 0.0, base: Run | None = None
    ) -> Run:
        """Answer a run for good, durably: yes where enough rows were selected or the study has noise, else no.

        Args:
            content: of the study.
            period: which records.
            found: the rows selected. A yes holds them and their records.
            mu: what the whole chain costs of each record's budget.
            base: the reservation whose records are summed again, under another extractor.

        Raises:
            Misuse: the run was answered before, the reservation has a question for this extractor, or another run holds a record.
        """
        question = content.question
        noisy, least = question.noise is not None, question.records.least
        yes = noisy or base is not None or len(found.labels) >= least
        rows = BytesIO()
        np.savez(rows, features=found.features, labels=found.labels, ranks=found.ranks)
        digest = hashlib.sha256(rows.getvalue()).digest() if yes else None
        values = (
            None if base is None else base.number, yes, content.notes.name, content.approval, question.digest, question.extractor,
            period, noisy, mu if yes else 0.0, content.notes.expires, least, len(found.labels), found.unusable, found.taken,
            found.beyond, digest,
        )  # fmt: skip
        with self._write() as ledger:
            if _found(ledger, _BY_QUESTION, (question.digest, period)) is not None:
                raise Misuse(f"period {period} of this question was answered before, and an answer is final")
            if base is not None:
                self._check_other_extractor(ledger, base, question.extractor)
            number = ledger.execute(
                "INSERT INTO run (base, yes, study, approval, question, extractor, period, noisy, mu, expires, least, rows, unusable, "
                "taken, beyond, rows_sha256) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            ).lastrowid
            assert number is not None
            if yes:
                # The rows first: a reservation that stands in the ledger always has them.
                write_durably(self._rows_path(number), rows.getvalue())
                _hold(ledger, number, found.records, noisy=noisy)
            answered = _found(ledger, _BY_NUMBER, (number,))
            assert answered is not None
        return answered

    @staticmethod
    def _check_other_extractor(ledger: sqlite3.Connection, base: Run, extractor: str) -> None:
        number = base.base or base.number
        if ledger.execute(
            "SELECT 1 FROM run WHERE COALESCE(base, id) = ? AND extractor = ?", (number, extractor)
        ).fetchone():
            raise Misuse("these records were summed under this extractor before, for another question")

    def renew(self, run: Run, expires: int) -> None:
        """Note that a later version of the study expires later."""
        with self._write() as ledger:
            ledger.execute("UPDATE run SET expires = MAX(expires, ?) WHERE id = ?", (expires, run.number))

    # What a reservation sends

    def check(self, attempt: Attempt) -> Run:
        """The reservation that an attempt is made with, before it is opened (docs/protocol.md §7.3).

        Raises:
            PeerFault: policy-refused without a reservation, and for a run given up; already-summed for a step that was certified or
                lost; repeat-mismatch where the attempt repeats another one than the reservation's.
        """
        run = self.run(attempt.question.digest, attempt.manifest.period)
        if run is None or run.state is State.DECLINED or run.given_up:
            said = "gave up" if run is not None and run.given_up else "holds no reservation for"
            raise PeerFault(Cause.POLICY_REFUSED, f"this member {said} {attempt.spec.name}")
        step = attempt.terms.step
        with self._open() as ledger:
            certified = ledger.execute(
                "SELECT context, ended FROM spending WHERE base = ? AND step = ? ORDER BY number",
                (run.base or run.number, step),
            ).fetchall()
        if attempt.repeats:
            # Of a sum the first one alone: later ones repeat it too.
            repeatable = certified[:1] if step == SUM_STEP else certified
            if (attempt.manifest.repeats, NO_REASON) not in repeatable:
                raise PeerFault(
                    Cause.REPEAT_MISMATCH,
                    "the run repeats another attempt than the one this reservation was summed in",
                    ["coordinator"],
                )
        elif certified:
            raise PeerFault(
                Cause.ALREADY_SUMMED,
                f"step {step} of {attempt.spec.name} was {'lost' if certified[0][1] == LOST_REASON else 'certified'} before",
                ["coordinator"],
            )
        return run

    def rows(self, run: Run) -> tuple[Array, Array, Array]:
        """Features (k, dim), labels (k,) and ranks (k, 32) of a reservation, as they were selected."""
        with self._open() as ledger:
            found = ledger.execute(
                "SELECT rows_sha256 FROM run WHERE id = ? AND yes", (run.number,)
            ).fetchone()
        if found is None or found[0] is None:
            raise Misuse(f"this member holds no reservation for {run.name}")
        content = verified(self._rows_path(run.number), found[0])
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            return arrays["features"], arrays["labels"], arrays["ranks"]

    def vector(self, run: Run, name: str) -> Array | None:
        """A vector that was kept under this name, (elements,) int64; None before there is one."""
        with self._open() as ledger:
            digest = _vector_digest(ledger, run, name)
        return (
            None
            if digest is None
            else np.frombuffer(verified(self._vector_path(run.number, name), digest), "<i8")
        )

    def keep_vector(self, run: Run, name: str, vector: Array) -> None:
        """Keep a vector durably before anything made of it leaves; Misuse for a different one under this name."""
        content = vector.astype("<i8").tobytes()
        digest = hashlib.sha256(content).digest()
        with self._write() as ledger:
            before = _vector_digest(ledger, run, name)
            if before is None:
                write_durably(self._vector_path(run.number, name), content)
                ledger.execute("INSERT INTO vector VALUES (?, ?, ?)", (run.number, name, digest))
            elif before != digest:
                raise Misuse(f"a reservation has one vector {name}, and another one was kept before")

    # Giving up

    def give_up(self, run: Run) -> None:
        """Open nothing more of a run, for good. Its records are free once all its attempts have ended without spending them."""
        with self._write() as ledger:
            ledger.execute("UPDATE run SET given_up = 1 WHERE id = ?", (run.number,))
            freed = _let_go(ledger)
        self._forget(freed)

    def give_up_expired(self, now_s: float) -> None:
        """Give up the runs of studies that have expired, where nothing was spent."""
        for run in self.runs():
            if run.state is State.RESERVED and run.expires <= now_s and not run.given_up:
                self.give_up(run)

    # Files

    def _forget(self, freed: Sequence[int]) -> None:
        """Remove what no run needs any more; files that a crash leaves behind are overwritten by the next run's."""
        for number in freed:
            remove_durably(self._rows_path(number))
            for path in make_private(self._folder / "vectors").glob(f"{number}-*"):
                remove_durably(path)

    def _rows_path(self, number: int) -> Path:
        return make_private(self._folder / "rows") / f"{number}.npz"

    def _vector_path(self, number: int, name: str) -> Path:
        return make_private(self._folder / "vectors") / f"{number}-{name}"


def _hold(ledger: sqlite3.Connection, run: int, records: Sequence[bytes], *, noisy: bool) -> None:
    ledger.executemany("INSERT INTO held VALUES (?, ?)", [(record, run) for record in records])
    twice = ledger.execute(
        "SELECT COUNT(*) FROM held AS own JOIN held AS other ON other.record = own.record AND other.run != own.run "
        "JOIN run ON run.id = other.run WHERE own.run = ? AND NOT (run.noisy AND ?)",
        (run, noisy),
    ).fetchone()[0]
    if twice:
        raise Misuse(f"{twice} of the records are held by other runs: select among those that are free")


def _let_go(ledger: sqlite3.Connection) -> list[int]:
    """Free the records of runs that were given up, unless they are spent or the end of an attempt is not known."""
    freed = [
        number
        for (number,) in ledger.execute(
            "SELECT id FROM run WHERE given_up AND yes AND base IS NULL "
            "AND NOT EXISTS (SELECT 1 FROM spending WHERE spending.base = run.id) "
            "AND NOT EXISTS (SELECT 1 FROM attempt WHERE attempt.run = run.id AND ended IS NULL)"
        )
    ]
    for number in freed:
        ledger.execute("DELETE FROM held WHERE run = ?", (number,))
        ledger.execute("DELETE FROM vector WHERE run = ?", (number,))
        ledger.execute("UPDATE run SET yes = 0, mu = 0 WHERE id = ?", (number,))
    return freed


def _run(row: Sequence[Any]) -> Run:
    (
        number,
        base,
        yes,
        study,
        approval,
        question,
        extractor,
        period,
        noisy,
        mu,
        expires,
        least,
        rows,
        unusable,
        taken,
        beyond,
    ) = row[:16]
    given_up, records, spent, summed = row[16:]
    state = State.DECLINED if not yes else State.SPENT if spent else State.RESERVED
    return Run(
        number, base, study, approval, question, extractor, period, state, bool(noisy), mu, expires, least, rows, unusable, taken,
        beyond, records, summed, bool(given_up),
    )  # fmt: skip


def _found(ledger: sqlite3.Connection, query: str, values: tuple[object, ...]) -> Run | None:
    row = ledger.execute(query, values).fetchone()
    return None if row is None else _run(row)


def _history(ledger: sqlite3.Connection) -> History:
    content = kept_in(ledger, "history")
    if content is None:
        return History()
    return _decoded(content, whole(History.decode_fields))


def _decoded(content: bytes, load: Callable[[bytes], T]) -> T:
    try:
        return load(content)
    except PeerFault as error:
        raise StateError(
            f"the ledger is not of this release: go on with the one that wrote it. Else: {LOSS}"
        ) from error


def _vector_digest(ledger: sqlite3.Connection, run: Run, name: str) -> bytes | None:
    row = ledger.execute(
        "SELECT sha256 FROM vector WHERE run = ? AND name = ?", (run.number, name)
    ).fetchone()
    return None if row is None else bytes(row[0])
