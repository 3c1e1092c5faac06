"""Studies, records and ledgers of the attacks on studies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import rfc8785

from client_sdk.database import StateDatabase
from client_sdk.records import Records
from client_sdk.reservations import Reservations
from tests.support.simulator import simulated_content, simulated_question
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.study import Content

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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
