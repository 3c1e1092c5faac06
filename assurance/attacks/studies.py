"""A simulated federation whose members have records and real ledgers, and upload the vectors of their reservations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import rfc8785

from client_sdk.database import StateDatabase
from client_sdk.records import Marks, Records, select_again, select_rows
from client_sdk.reservations import Reservations, Run, State
from tests.support.simulator import Federation, Vector, simulated_content, simulated_question
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import Opened
from veilsum.protocol.messages import NO_CONTEXT
from veilsum.protocol.study import Content
from veilsum.study.vectors import compute_vector

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from veilsum.protocol.messages import Message

DIM = 2
RECORD_RULES = {"least": 20, "most": 24, "least_per_class": 2, "rows_per_id": 1}
"""Three honest members with 20 rows each have more than the 50 rows that a sum needs."""
QUESTION = {"dim": DIM, "classes": ["a", "b"], "records": RECORD_RULES}
NOISE = {"epsilon": 8.0, "delta": 1e-6, "unit": "record", "recipe": "sum"}
Json = dict[str, Any]


def whole(**question: Any) -> Json:
    """Make a study of twelve members, as JSON."""
    content = simulated_content({**simulated_question(12), **QUESTION, **question}, 10**7)
    return content.model_dump(mode="json")


def read(values: Json) -> Content:
    return Content.from_bytes(rfc8785.dumps(values))


def refusal(values: Json) -> str | None:
    """Return why the parser refuses a study; None if it accepts it."""
    try:
        read(values)
    except PeerFault as fault:
        return fault.detail if fault.cause is Cause.STUDY_REFUSED else fault.cause.value
    return None


def outcomes(federation: Federation) -> set[Cause]:
    """Return the causes for which members refused messages."""
    return {fault.cause for member, fault in federation.faults if member != "coordinator"}


def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mechanism, "add_noise", lambda *_: None)


class QuickDatabase(StateDatabase):
    """A database without fsync; no test cuts its power."""

    synchronous: ClassVar[str] = "OFF"


class QuickReservations(Reservations):
    """A new ledger in its own database."""

    def __init__(self, folder: Path) -> None:
        database = QuickDatabase(folder)
        database.create("member-0", 0.0)
        super().__init__(database)


def rows_of(member: int, first: int = 0, count: int = 24, dim: int = DIM) -> Records:
    """Make a member's records, with ids that name the member and with both classes."""
    rng = np.random.default_rng([member, first, dim])
    ids = [f"patient-{member}-{number}" for number in range(first, first + count)]
    return Records(rng.standard_normal((count, dim)), np.arange(count) % 2, ids)


class Ledgered(Federation):
    """A simulator whose members answer, reserve and compute as the SDK does.

    Attributes:
        data: all records of each member.
        ledgers: each member's ledger.
        declined: members that declined the last cohort.
        sent: masked vectors, by context and member.
    """

    folder: Path
    ledgers: dict[str, Reservations]
    data: dict[str, Records]
    declined: set[str]
    sent: dict[bytes, dict[str, Vector]]

    @classmethod
    def of(cls, folder: Path, members: int, **settings: Any) -> Ledgered:
        """Make a federation with a ledger for each member below this folder, before any enrolment."""
        question = {**QUESTION, **settings.pop("question", {})}
        federation = cls.__new__(cls)
        federation.ledgers, federation.data, federation.declined = {}, {}, set()
        federation.sent, federation.folder = {}, folder
        Federation.__init__(federation, members, question=question, **settings)
        for index, member in enumerate(federation.ids):
            federation.ledgers[member] = QuickReservations(folder / member)
            federation.data[member] = rows_of(index)
        return federation

    def marks(self, member: str) -> Marks:
        """Return the keys by which a member recognises its records."""
        return self.ledgers[member].marks_in(self.roster.federation)

    def answer(self, member: str, period: str, repeats: bytes = NO_CONTEXT) -> Run | None:
        """Return a member's reservation if it says yes; None if it declines (member: Selection)."""
        ledger, question = self.ledgers[member], self.content.question
        run = ledger.find_run(question.digest, period)
        if run is None:
            base = None if repeats == NO_CONTEXT else ledger.run_of_attempt(repeats)
            free = partial(ledger.free_records, question=question, mu_budget=2.0)
            found = select_rows(self.data[member], question, self.marks(member), free)
            if base is not None:
                _, labels, ranks = ledger.load_rows(base)
                again = select_again(self.data[member], question, self.marks(member), ranks, labels)
                found = type(found)(again, labels, ranks, (), 0, 0, 0, 0)
            run = ledger.answer_run(self.content, period, found, mu_budget=2.0, base=base)
        return None if run.state is State.DECLINED or run.given_up else run

    def enrol(self, period: str, repeats: bytes = NO_CONTEXT) -> None:
        """Form a cohort of the members that say yes."""
        if not self.ledgers:
            return  # no member has records yet
        self.declined = {member for member in self.ids if self.answer(member, period, repeats) is None}
        before, absent, kept = self.tamper, self.declined, dict(self.phases)

        def silent(sender: str, message: Message) -> Message | None:
            return None if sender in absent else before(sender, message)

        self.tamper = silent
        try:
            super().enrol(period, repeats)
        finally:
            self.tamper = before
            for member in absent & self.phases.keys():
                del self.phases[member]
                if member in kept:
                    self.phases[member] = kept[member]

    def own_vector(self, member: str, opened: Opened) -> Vector:
        """Return the vector of a member's reservation. An exact vector is stored, and sent again."""
        spec, ledger = opened.attempt.spec, self.ledgers[member]
        run = ledger.check_attempt(opened.attempt)
        name = f"{spec.step}-{'-'.join(map(str, spec.withheld))}"
        kept = None if spec.noisy else ledger.load_vector(run, name)
        if kept is None:
            features, labels, _ = ledger.load_rows(run)
            kept = compute_vector(spec, features, labels, random_bytes=self.random)
            if not spec.noisy:
                ledger.keep_vector(run, name, kept)
        self.sent.setdefault(opened.attempt.context, {})[member] = kept
        return kept

    def _upload(self, member: str, opened: Opened) -> tuple[Message, ...]:
        try:
            self.vectors_now = {member: self.own_vector(member, opened)}
        except PeerFault as fault:
            self.faults.append((member, fault))
            return ()
        before = opened.history
        replies = super()._upload(member, opened)
        self._remember(member, before)
        self.ledgers[member].mark_uploaded(opened.attempt.context)
        return replies

    def tell_member(self, member: str, message: Message) -> tuple[Message, ...]:
        before = self.phases[member].history  # type: ignore[attr-defined]  # every phase has one
        replies = super().tell_member(member, message)
        self._remember(member, before)
        return replies

    def _remember(self, member: str, before: Any) -> None:
        after = self.phases[member].history  # type: ignore[attr-defined]  # as above
        if after != before:
            self.ledgers[member].store_history(after, before)
