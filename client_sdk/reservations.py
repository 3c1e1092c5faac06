"""A member's ledger: its answers to runs, the records they hold, and the attempts made with them (member: Ledger).

A yes is a reservation. It is stored with its rows before the member enrols, and all later uploads of the run come from it. The history of
OPEN-8 to OPEN-14 is in the same database, so that an attempt's end and its effect on a reservation are one durable write.
"""

import math
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pydantic
from safetensors.numpy import load, save

from client_sdk.database import Installation, StateDatabase
from client_sdk.errors import Misuse, PeerFault, StateError
from client_sdk.records import NO_IDS_MARK, Marks, Selection
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import History
from veilsum.protocol.messages import NO_REASON
from veilsum.protocol.messages.opening import LOST_REASON
from veilsum.protocol.periods import PeriodKind, kind_of_period
from veilsum.protocol.study import SUM_STEP, Content, Question, count_rows_needed
from veilsum.study.promise import study_mu

T = TypeVar("T")
Array = npt.NDArray[Any]

_LEFT_OUT_STATE = "left-out"
"""The end of an attempt for a member that is not in the certified sum."""
_RUNS_SQL = """
SELECT id, base, study, approval, question, extractor, period, kind,
    CASE WHEN NOT yes THEN 'declined' WHEN spent THEN 'spent' WHEN freed THEN 'free' ELSE 'reserved' END,
    noisy, mu, expires, least, rows, unusable, taken, held_out, beyond, counted_out, records, summed, counts, given_up
FROM answered
"""
"""The fields of `Run`, in order."""
_OF_QUESTION = "question = ? AND period = ?"
_OF_ATTEMPT = (
    "id = (SELECT COALESCE(run.base, run.id) FROM attempt JOIN run ON run.id = attempt.run WHERE context = ?)"
)

COUNTS_MAX = 3
"""Maximum runs that count a record: each tells how many members hold its class (LEDGER-6)."""
_HELD_SQL = """
SELECT record, MAX(NOT noisy AND (NOT freed OR spent)), SUM(NOT noisy AND counts), MAX(noisy),
    MAX(noisy AND kind = 'data' AND question = ?), SUM(mu * mu)
FROM held JOIN answered ON answered.id = held.run GROUP BY record
"""
"""The fields of `_Held`, after the record."""
_MOST_COUNTED_SQL = """
SELECT COALESCE(MAX(runs), 0) FROM (
    SELECT SUM(NOT noisy AND counts) AS runs FROM held AS own JOIN held AS other ON other.record = own.record AND other.run != own.run
    JOIN answered ON answered.id = other.run WHERE own.run = ? GROUP BY own.record)
"""
_SPENT_ELSEWHERE_SQL = """
SELECT 1 FROM held AS own JOIN held AS other ON other.record = own.record AND other.run != own.run
JOIN answered ON answered.id = other.run WHERE own.run = ? AND spent AND NOT noisy
"""
_MARKED_SQL = "SELECT 1 FROM held JOIN summed ON summed.record = held.record WHERE run = ?"
"""Whether a run holds a record that was marked as summed, if no sum of its own holds it."""


_OTHER_SUMS_SQL = """
SELECT COALESCE(SUM(numbers), 0), COALESCE(SUM(rows_borne), 0) FROM run WHERE COALESCE(base, id) = ? AND question != ? AND yes
AND (NOT given_up OR EXISTS (
    SELECT 1 FROM attempt WHERE attempt.run = run.id AND step = 'sum' AND uploaded AND COALESCE(ended, 'none') IN ('none', 'lost')))
"""


class State(StrEnum):
    """The state of a run's records."""

    DECLINED = "declined"
    """The member answered no, and reserved none."""
    RESERVED = "reserved"
    """They are in no other run's reservation."""
    FREE = "free"
    """The run was given up, and no sum of it holds them: another run may reserve them."""
    SPENT = "spent"
    """A sum holds them, or a lost one may. They are in no other exact sum, for life."""


@dataclass(frozen=True)
class _Held:
    """What the ledger holds of a record, over all runs.

    Attributes:
        reserved: whether an exact run has reserved or spent it.
        counts: exact runs that count it.
        charged: whether a noisy run charges it.
        own: whether a noisy run over data of the question at hand charges it.
        squares: Σμ² of its charges.
    """

    reserved: int
    counts: int
    charged: int
    own: int
    squares: float


@pydantic.dataclasses.dataclass(frozen=True)
class Run:
    """One question and period in this member's ledger.

    Attributes:
        number: in the ledger.
        base: the run that this one repeats under another extractor; None for a run of its own.
        study: its name.
        approval, question: digests of 32 bytes.
        extractor: digest in hexadecimal.
        period: its name.
        kind: which rows it adds up.
        state: of its records.
        noisy: whether its sums carry noise.
        mu: what the whole chain costs of each record's budget.
        expires: when the study does, Unix time in seconds.
        least: fewest rows for a yes.
        rows: rows selected.
        unusable, taken, held_out, beyond, counted_out: rows skipped, as `Selection` counts them.
        records: how many records it holds.
        summed: context of the first sum of it that was certified or lost; None before.
        counted: whether the run counts its records (member: Ledger).
        given_up: whether the member opens and uploads nothing more of it.
    """

    number: int
    base: int | None
    study: str
    approval: bytes
    question: bytes
    extractor: str
    period: str
    kind: PeriodKind
    state: State
    noisy: bool
    mu: float
    expires: int
    least: int
    rows: int
    unusable: int
    taken: int
    held_out: int
    beyond: int
    counted_out: int
    records: int
    summed: bytes | None
    counted: bool
    given_up: bool

    @property
    def name(self) -> str:
        """The study and period in words."""
        return f"{self.study}, period {self.period}"

    @property
    def reservation(self) -> int:
        """The number of the run whose rows it sums."""
        return self.base or self.number


class Reservations:
    """The ledger's meaning: answers, reservations, attempts and vectors.

    Raises:
        StateError: from every method, if the ledger is damaged or of another release.
    """

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    @property
    def installation(self) -> Installation:
        """What identifies this installation's records."""
        installation = self._database.load_sealed("secret", Installation.from_bytes)
        assert installation is not None  # as old as the database
        return installation

    def marks_in(self, federation: bytes) -> Marks:
        """Derive the pseudonyms of this installation's records in a federation."""
        return Marks(self.installation.secret, federation, self.installation.held_out_share)

    # What is known of the federation's chain

    def load_history(self) -> History:
        """Return the member's history, against which every opening in any cohort is checked."""
        history = self._database.load_sealed("history", History.from_bytes)
        assert history is not None  # as old as the database
        return history

    def store_history(self, history: History, since: History, left_out: Collection[bytes] = ()) -> None:
        """Store a newer history, with its effect on reservations.

        New attempts of this member are noted under their run. Ended sums spend the run's records, or free them if the run was given up. A
        run over fresh records whose count or sum was certified without this member is given up: it can't be in the sum.

        Args:
            history: the newer one.
            since: the one before.
            left_out: contexts of attempts that were certified without this member, and spend none of its records.

        Raises:
            StateError: `since` is not the stored history, so that known rounds would be forgotten.
        """
        entered = [attempt for attempt in history.unsettled if attempt not in since.unsettled]
        ended = [link for link in history.settled if link not in since.settled]
        with self._database.write_ledger() as ledger:
            if self.load_history() != since:
                raise StateError("the history has grown since this step began: run the same call again")
            self._database.store_sealed("history", history, history.encode())
            for attempt in entered:
                ledger.execute(
                    "INSERT OR IGNORE INTO attempt (context, run, step) "
                    "SELECT ?, id, ? FROM run WHERE question = ? AND period = ? AND yes",
                    (attempt.context, attempt.terms.step, attempt.question.digest, attempt.manifest.period),
                )
            for link in ended:
                ended_by = _LEFT_OUT_STATE if link.context in left_out else link.reason
                # A context has only one certificate: a member left out stays out, even if the certificate is replaced.
                ledger.execute(
                    "UPDATE attempt SET ended = ? WHERE context = ? AND ended IS NOT ?",
                    (ended_by, link.context, _LEFT_OUT_STATE),
                )
            _give_up_left_out(ledger)
            _free_given_up(ledger)

    def knows_attempt(self, context: bytes) -> bool:
        """Whether the member opened an attempt, or erased its keys unopened."""
        with self._database.read() as ledger:
            return (
                ledger.execute("SELECT 1 FROM attempt WHERE context = ?", (context,)).fetchone() is not None
            )

    def past_rehearsals(self, question: bytes) -> set[bytes]:
        """Return the contexts of a question's rehearsals that another one has replaced, or that were given up."""
        sql = "SELECT context FROM attempt JOIN run ON run.id = attempt.run WHERE kind = 'rehearsal' AND given_up AND question = ?"
        with self._database.read() as ledger:
            return {context for (context,) in ledger.execute(sql, (question,))}

    def mark_uploaded(self, context: bytes) -> None:
        """Note that an upload of an attempt is stored. From here on the attempt counts the run's records, and if lost spends them."""
        with self._database.write_ledger() as ledger:
            ledger.execute("UPDATE attempt SET uploaded = 1 WHERE context = ?", (context,))

    # Answers

    def list_runs(self) -> tuple[Run, ...]:
        """Return all answered runs, oldest first."""
        with self._database.read() as ledger:
            return tuple(Run(*row) for row in ledger.execute(_RUNS_SQL + "ORDER BY id"))

    def find_run(self, question: bytes, period: str) -> Run | None:
        """Return a run; None if it has not been answered."""
        with self._database.read() as ledger:
            return _find_run(ledger, _OF_QUESTION, question, period)

    def idle_runs(self, question: bytes, kind: PeriodKind) -> list[Run]:
        """Return the runs of a question, over one kind of rows, whose own records are neither spent nor free."""
        return [
            run
            for run in self.list_runs()
            if (run.question, run.kind) == (question, kind)
            and run.base is None
            and run.state is State.RESERVED
        ]

    def run_of_attempt(self, context: bytes) -> Run | None:
        """Return the reservation behind an attempt, made for its first extractor; None if this member holds none."""
        with self._database.read() as ledger:
            return _find_run(ledger, _OF_ATTEMPT, context)

    def free_records(
        self, records: Sequence[bytes], question: Question, mu_budget: float = math.inf
    ) -> set[bytes]:
        """Return which of these records a new run of this question may take (member: Selection).

        An exact run takes records that no reservation holds and no sum has spent. If its study withholds classes, fewer than
        `COUNTS_MAX` runs count them. A noisy run takes records that no exact run holds, counts or has spent and no other run of its
        question charges, and whose budget suffices: √Σμ² over all runs that charge them stays within `mu_budget`. If the unit is the
        member, it takes none once another run of the question charges any.
        """
        with self._database.read() as ledger:
            return _free_records(ledger, records, question, mu_budget)

    def unjudged_records(self, records: Sequence[bytes]) -> set[bytes]:
        """Return which of these records no run holds, and none was marked as summed: a record is judged once in its life (PERIOD-3)."""
        with self._database.read() as ledger:
            return _unjudged_records(ledger, records)

    def answer_run(
        self,
        content: Content,
        period: str,
        found: Selection,
        *,
        mu_budget: float = math.inf,
        base: Run | None = None,
        bears: bool = True,
    ) -> Run:
        """Store the final answer to a run: no if an exact sum over data would have too few rows or features, otherwise yes.

        Args:
            content: of the study.
            period: which records.
            found: the rows selected. A yes holds them and their records; a rehearsal has none.
            mu_budget: of each record.
            base: the reservation that is summed again under another extractor.
            bears: whether the rows have features enough for the sum.

        Raises:
            Misuse: the run was answered before, the reservation has a question for this extractor, or a record is not free any more.
        """
        question, kind = content.question, kind_of_period(period)
        mu, least = run_mu(question, kind), question.records.least
        noisy = mu > 0
        yes = noisy or kind is PeriodKind.REHEARSAL or (len(found.labels) >= least and bears)
        assert kind is not PeriodKind.REHEARSAL or not found.records
        values = (
            None if base is None else base.number, yes, content.notes.name, content.approval, question.digest, question.extractor,
            period, kind, noisy, mu, content.notes.expires, least, len(found.labels), found.unusable, found.taken,
            found.held_out, found.beyond, found.counted_out, *sum_size(question),
        )  # fmt: skip
        with self._database.write_ledger() as ledger:
            if _find_run(ledger, _OF_QUESTION, question.digest, period) is not None:
                raise Misuse(f"period {period} of this question was answered before, and an answer is final")
            if base is not None:
                same = ledger.execute(
                    "SELECT 1 FROM run WHERE COALESCE(base, id) = ? AND extractor = ? AND yes",
                    (base.reservation, question.extractor),
                ).fetchone()
                if same:
                    raise Misuse(
                        "these records were summed under this extractor before, for another question"
                    )
            if kind is PeriodKind.JUDGE:
                free = _unjudged_records(ledger, found.records)
            else:
                free = _free_records(ledger, found.records, question, mu_budget)
            taken = len(found.records) - len(free)
            if yes and taken:
                raise Misuse(
                    f"{taken} of the records are held by other runs: select among those that are free"
                )
            if kind is PeriodKind.REHEARSAL:
                _forget_rehearsals(ledger, question)
            digest = self._keep_rows(found) if yes else None
            number = ledger.execute(
                "INSERT INTO run (base, yes, study, approval, question, extractor, period, kind, noisy, mu, expires, least, rows, unusable, "
                "taken, held_out, beyond, counted_out, numbers, rows_borne, rows_sha256) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*values, digest),
            ).lastrowid
            if yes:
                ledger.executemany(
                    "INSERT INTO held VALUES (?, ?)", [(each, number) for each in found.records]
                )
            answered = _find_run(ledger, "id = ?", number)
            assert answered is not None
        return answered

    def _keep_rows(self, found: Selection) -> bytes:
        arrays = {"features": found.features, "labels": found.labels, "ranks": found.ranks}
        # `save` writes memory as it lies.
        return self._database.put_array(
            save({name: np.ascontiguousarray(each) for name, each in arrays.items()})
        )

    def counts_left(self, run: Run) -> int:
        """Return how many runs may still count all records of a run, itself included."""
        with self._database.read() as ledger:
            (most,) = ledger.execute(_MOST_COUNTED_SQL, (run.number,)).fetchone()
        return max(0, COUNTS_MAX - int(most))

    def other_sums(self, base: Run, question: bytes) -> tuple[int, int]:
        """Return the size of all sums of a reservation's records under other questions, as `sum_size` gives it.

        It counts every question that was answered yes, for its sum may still come; of a run that was given up only a sum that may be known.
        """
        with self._database.read() as ledger:
            row = ledger.execute(_OTHER_SUMS_SQL, (base.reservation, question)).fetchone()
        return int(row[0]), int(row[1])

    def renew_run(self, run: Run, expires: int) -> None:
        """Note that a later version of the study expires later."""
        if expires > run.expires:
            with self._database.write_ledger() as ledger:
                ledger.execute("UPDATE run SET expires = ? WHERE id = ?", (expires, run.number))

    # What a reservation sends

    def check_attempt(self, attempt: Attempt) -> Run:
        """Find the reservation for an attempt before it is opened (LEDGER-4, LEDGER-9).

        Raises:
            PeerFault: policy-refused without a reservation, or for a run given up; already-summed for another step than an exact sum that
                was certified or lost, or if a sum holds one of the records; repeat-mismatch if the attempt does not repeat the
                reservation's sum although there is one.
        """
        run = self.find_run(attempt.question.digest, attempt.manifest.period)
        if run is None or run.state in {State.DECLINED, State.FREE} or run.given_up:
            said = "gave up" if run is not None and run.given_up else "holds no reservation for"
            raise PeerFault(Cause.POLICY_REFUSED, f"this member {said} {attempt.spec.name}")
        step = attempt.terms.step
        with self._database.read() as ledger:
            certified = ledger.execute(
                "SELECT context, ended FROM certified WHERE base = ? AND step = ? ORDER BY number",
                (run.reservation, step),
            ).fetchall()
            own = (run.reservation,)
            elsewhere = not run.noisy and ledger.execute(_SPENT_ELSEWHERE_SQL, own).fetchone()
            elsewhere = elsewhere or (
                run.state is State.RESERVED and ledger.execute(_MARKED_SQL, own).fetchone()
            )
        if elsewhere:
            raise PeerFault(
                Cause.ALREADY_SUMMED,
                f"a sum of another run holds records of {attempt.spec.name}: give this run up",
            )
        if attempt.repeats:
            # The first sum alone: later ones repeat it too.
            if (attempt.manifest.repeats, NO_REASON) not in certified[:1]:
                raise PeerFault(
                    Cause.REPEAT_MISMATCH,
                    "the run repeats another attempt than the one this reservation was summed in",
                    ["coordinator"],
                )
        elif run.base is not None:
            raise PeerFault(
                Cause.REPEAT_MISMATCH,
                f"{attempt.spec.name} sums the records of an earlier run, in cohorts that repeat its sum alone",
                ["coordinator"],
            )
        elif certified:
            spent = step == SUM_STEP and not run.noisy
            raise PeerFault(
                Cause.REPEAT_MISMATCH if spent else Cause.ALREADY_SUMMED,
                f"step {step} of {attempt.spec.name} was {'lost' if certified[0][1] == LOST_REASON else 'certified'} before",
                ["coordinator"],
            )
        return run

    def load_rows(self, run: Run) -> tuple[Array, Array, Array]:
        """Return a reservation's features (k, dim), labels (k,) and ranks (k, 32), as selected."""
        with self._database.read() as ledger:
            found = ledger.execute(
                "SELECT rows_sha256 FROM run WHERE id = ? AND yes", (run.number,)
            ).fetchone()
        if found is None or found[0] is None:
            raise Misuse(f"this member holds no reservation for {run.name}")
        arrays = load(self._database.read_array(found[0]))
        return arrays["features"], arrays["labels"], arrays["ranks"]

    def load_vector(self, run: Run, name: str) -> Array | None:
        """Return the vector stored under this name, (elements,) int64, or None."""
        with self._database.read() as ledger:
            digest = _vector_digest(ledger, run, name)
        return None if digest is None else np.frombuffer(self._database.read_array(digest), "<i8")

    def keep_vector(self, run: Run, name: str | None, vector: Array) -> bytes:
        """Store a vector for good, and return its SHA-256.

        Args:
            run: the run whose rows it sums.
            name: for `load_vector`; None if the caller's transaction names the SHA-256 elsewhere.
            vector: (elements,).

        Raises:
            Misuse: another one was kept under this name.
        """
        with self._database.write_ledger() as ledger:
            digest = self._database.put_array(np.ascontiguousarray(vector, "<i8").data)
            before = digest if name is None else _vector_digest(ledger, run, name)
            if before is None:
                ledger.execute("INSERT INTO vector VALUES (?, ?, ?)", (run.number, name, digest))
            elif before != digest:
                raise Misuse(f"a reservation has one vector {name}, and another one was kept before")
        return digest

    # Records that were summed under another identity

    def mark_summed(self, records: Collection[bytes]) -> int:
        """Mark records as spent for life. Returns how many were not marked before."""
        with self._database.write_ledger() as ledger:
            before = ledger.total_changes
            ledger.executemany(
                "INSERT OR IGNORE INTO summed VALUES (?)", [(each,) for each in sorted(records)]
            )
            return ledger.total_changes - before

    def count_marked(self) -> int:
        """Return how many records `mark_summed` has marked."""
        with self._database.read() as ledger:
            (marked,) = ledger.execute("SELECT COUNT(*) FROM summed").fetchone()
        return int(marked)

    # Giving up

    def give_up(self, run: Run) -> None:
        """Withdraw from a run for good. Its records are free once no sum of it can hold them (member: Ledger)."""
        with self._database.write_ledger() as ledger:
            ledger.execute("UPDATE run SET given_up = 1 WHERE id = ?", (run.number,))
            _free_given_up(ledger)

    def give_up_over(self, question: bytes, period: str) -> None:
        """Give up a run that is over, unless its records are spent, or an attempt that may spend them has no known end."""
        with self._database.write_ledger() as ledger:
            ledger.execute(
                "UPDATE run SET given_up = 1 WHERE question = ? AND period = ? AND yes AND base IS NULL "
                "AND NOT EXISTS (SELECT 1 FROM spending WHERE spending.base = run.id) "
                "AND NOT EXISTS (SELECT 1 FROM attempt WHERE attempt.run = run.id AND ended IS NULL)",
                (question, period),
            )
            _free_given_up(ledger)

    def give_up_expired(self, now_s: float) -> None:
        """Give up the unspent runs of expired studies."""
        for run in self.list_runs():
            if run.state is State.RESERVED and run.expires <= now_s and not run.given_up:
                self.give_up(run)


def sum_size(question: Question) -> tuple[int, int]:
    """Return how many numbers an exact sum of the question is, and how many rows they take up; both times `rows_per_id`."""
    per_id = question.records.rows_per_id
    return per_id * question.elements, per_id * count_rows_needed(question.elements, 0, question.dim)


def run_mu(question: Question, kind: PeriodKind) -> float:
    """Return what a run charges to each of its records, in μ of Gaussian differential privacy; 0 without noise."""
    if kind is PeriodKind.REHEARSAL:
        return 0.0
    source = question.judge if kind is PeriodKind.JUDGE else question.noise
    return 0.0 if source is None else study_mu(source)


def _unjudged_records(ledger: sqlite3.Connection, records: Sequence[bytes]) -> set[bytes]:
    held = ledger.execute("SELECT record FROM held UNION SELECT record FROM summed").fetchall()
    return {*records}.difference(record for (record,) in held)


def _free_records(
    ledger: sqlite3.Connection, records: Sequence[bytes], question: Question, mu_budget: float
) -> set[bytes]:
    held = {record: _Held(*rest) for record, *rest in ledger.execute(_HELD_SQL, (question.digest,))}
    # For life, as sums of every kind would hold them.
    marked = _Held(reserved=1, counts=COUNTS_MAX, charged=1, own=1, squares=math.inf)
    held |= {record: marked for (record,) in ledger.execute("SELECT record FROM summed")}
    used = {record for record, found in held.items() if found.reserved or found.counts or found.charged}
    if (NO_IDS_MARK in records and used - {NO_IDS_MARK}) or (
        NO_IDS_MARK in used and set(records) - {NO_IDS_MARK}
    ):
        return set()  # any record may stand in data without ids
    if (noise := question.noise) is None:
        counts_max = math.inf if question.withhold is None else COUNTS_MAX
        return {
            record
            for record in records
            if (found := held.get(record)) is None
            or not (found.reserved or found.charged or found.counts >= counts_max)
        }
    if noise.unit == "member" and any(each.own for each in held.values()):
        return set()
    mu = study_mu(noise)

    def fits_budget(record: bytes) -> bool:
        if (found := held.get(record)) is None:
            return mu <= mu_budget
        exact = found.reserved or found.counts
        return not (exact or found.own) and math.hypot(math.sqrt(found.squares), mu) <= mu_budget

    return set(filter(fits_budget, records))


def _give_up_left_out(ledger: sqlite3.Connection) -> None:
    """Give up exact runs over fresh records that can't end in a sum for this member: a step was certified without it, or lost."""
    ledger.execute(
        "UPDATE run SET given_up = 1 WHERE base IS NULL AND NOT noisy AND NOT given_up "
        "AND EXISTS (SELECT 1 FROM attempt WHERE attempt.run = run.id AND ended IN (?, 'lost')) "
        "AND NOT EXISTS (SELECT 1 FROM spending WHERE spending.base = run.id)",
        (_LEFT_OUT_STATE,),
    )


def _free_given_up(ledger: sqlite3.Connection) -> None:
    """Free the records of runs that were given up, unless they are spent or the end of an attempt that may spend them is not known.

    The ledger keeps which records an exact run counted; a noisy run's charge is refunded.
    """
    freed = ledger.execute(
        "SELECT id, noisy FROM run WHERE given_up AND yes AND NOT freed AND base IS NULL "
        "AND NOT EXISTS (SELECT 1 FROM spending WHERE spending.base = run.id) "
        "AND NOT EXISTS (SELECT 1 FROM attempt WHERE attempt.run = run.id AND uploaded AND ended IS NULL AND (run.noisy OR step = 'sum'))"
    ).fetchall()
    for number, noisy in freed:
        ledger.execute("DELETE FROM vector WHERE run = ?", (number,))
        if noisy:
            ledger.execute("DELETE FROM held WHERE run = ?", (number,))
        ledger.execute("UPDATE run SET freed = 1, mu = 0, rows_sha256 = NULL WHERE id = ?", (number,))


def _forget_rehearsals(ledger: sqlite3.Connection, question: Question) -> None:
    """Give up a question's earlier rehearsals, with their rows: nothing is to be held for them."""
    own = "kind = 'rehearsal' AND question = ?"
    ledger.execute(f"DELETE FROM vector WHERE run IN (SELECT id FROM run WHERE {own})", (question.digest,))  # noqa: S608 - our own text
    ledger.execute(f"UPDATE run SET given_up = 1, rows_sha256 = NULL WHERE {own}", (question.digest,))  # noqa: S608


def _find_run(ledger: sqlite3.Connection, where: str, *values: object) -> Run | None:
    row = ledger.execute(f"{_RUNS_SQL} WHERE {where}", values).fetchone()
    return None if row is None else Run(*row)


def _vector_digest(ledger: sqlite3.Connection, run: Run, name: str) -> bytes | None:
    row = ledger.execute(
        "SELECT sha256 FROM vector WHERE run = ? AND name = ?", (run.number, name)
    ).fetchone()
    return None if row is None else bytes(row[0])
