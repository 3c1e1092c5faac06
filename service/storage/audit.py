"""The audit log in the database: appended to, never changed (protocol.audit)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Executable, func, insert, not_, or_, select

from service.storage.database import Batches, Database
from service.storage.tables import audit, audit_head
from veilsum.protocol.audit import EMPTY_LOG_END, PAGE_MAX, AuditEntry, AuditHead, AuditPage, End, chain_entry
from veilsum.protocol.identity import SigningKey

COORDINATOR_ACTOR = "coordinator"
DONE_OUTCOME = "done"
MAX_TEXT = 2000
"""The longest evidence of a chunk's conflict has less: its signer has no room to push the end out (service.access.gate)."""
_HEAD_SQL, _APPEND_SQL = select(audit_head.c.number, audit_head.c.head), insert(audit)
_ASCII_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Deed:
    """Something that is to be in the log.

    Attributes:
        who: the actor, as `AuditEntry.who`.
    """

    at_s: float
    who: str
    action: str
    on: str = ""
    outcome: str = DONE_OUTCOME


def append_deeds(connection: Connection, database: Database, deeds: Sequence[Deed]) -> None:
    """Append to the log, with what else the transaction does or not at all. The log is locked until it ends: lock nothing afterwards."""
    database.lock_alone(connection, "audit")
    end = _read_end(connection)
    rows = []
    for deed in deeds:
        texts = (_bound_text(text) for text in (deed.who, deed.action, deed.on, deed.outcome))
        entry = chain_entry(end, int(deed.at_s * 1000), *texts)
        rows.append(entry.model_dump())
        end = End(entry.number, entry.head)
    connection.execute(_APPEND_SQL, rows)
    database.put_row(connection, audit_head, {"id": 0, "number": end.number, "head": end.head})


@dataclass(frozen=True)
class Choice:
    """Which entries a page shows; empty for all.

    Attributes:
        text: stands in who, action or ids.
        outcome: "done", "refused" or empty.
    """

    text: str = ""
    outcome: str = ""

    @property
    def row_conditions(self) -> tuple[ColumnElement[bool], ...]:
        """On the rows."""
        found: list[ColumnElement[bool]] = []
        if self.text:
            columns = (audit.c.who, audit.c.action, audit.c.on)
            found.append(or_(*(column.contains(self.text, autoescape=True) for column in columns)))
        if self.outcome:
            done = audit.c.outcome == DONE_OUTCOME
            found.append(done if self.outcome == DONE_OUTCOME else not_(done))
        return tuple(found)


class Audit:
    """One coordinator's log, shared by all its processes; the key signs heads."""

    def __init__(self, database: Database, key: SigningKey) -> None:
        self._database, self._key = database, key
        self._batches = Batches(self._append_batch)

    async def record_deed(self, deed: Deed) -> None:
        """Append durably; OSError or SQLAlchemyError if it fails; then the request must not be acknowledged."""
        await self._batches.put_item(deed)

    async def read_page(self, after: int, limit: int) -> AuditPage:
        """Entries after a number, and the head."""
        following = select(audit).where(audit.c.number > after).order_by(audit.c.number)
        end = await self._database.read(_read_end)
        entries = await self._read_entries(following.limit(min(limit, PAGE_MAX)))
        return AuditPage(
            entries=tuple(entry for entry in entries if entry.number <= end.number),
            head=AuditHead.sign_end(self._key, end),
        )

    async def matching_entries(self, chosen: Choice, below: int, most: int) -> Sequence[AuditEntry]:
        """Entries that a choice admits, the newest first, with numbers below one."""
        newest = (
            select(audit)
            .where(audit.c.number < below, *chosen.row_conditions)
            .order_by(audit.c.number.desc())
        )
        return await self._read_entries(newest.limit(most))

    async def count_entries(self, chosen: Choice) -> int:
        """Count the entries that a choice admits."""
        return int(
            await self._database.read_value(
                select(func.count()).select_from(audit).where(*chosen.row_conditions)
            )
        )

    async def number_at(self, chosen: Choice, index: int) -> int:
        """Return the number of the entry that has so many newer ones; 0 if there is none."""
        at = select(audit.c.number).where(*chosen.row_conditions).order_by(audit.c.number.desc())
        return await self._database.read_value(at.offset(index).limit(1)) or 0

    async def _append_batch(self, deeds: list[Deed]) -> list[None]:
        await self._database.write(lambda connection: append_deeds(connection, self._database, deeds))
        return [None] * len(deeds)

    async def _read_entries(self, query: Executable) -> list[AuditEntry]:
        rows = await self._database.read_rows(query)
        return [AuditEntry.model_validate(row, from_attributes=True) for row in rows]


def _read_end(connection: Connection) -> End:
    row = connection.execute(_HEAD_SQL).first()
    return End(row.number, row.head) if row else EMPTY_LOG_END


def _bound_text(text: str) -> str:
    # PostgreSQL takes no NUL, and a refused row fails its whole batch.
    plain = _ASCII_CONTROLS.sub("?", text[:MAX_TEXT])
    return plain.encode("ascii", "backslashreplace").decode("ascii")[:MAX_TEXT]
