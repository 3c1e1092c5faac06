"""The audit log in the database: appended to, never changed (protocol.audit)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Executable, func, insert, not_, or_, select

from service.storage.database import Batches, Database
from service.storage.tables import audit, audit_head
from veilsum.protocol.audit import PAGE_MAX, START, AuditEntry, AuditHead, AuditPage, End, chained
from veilsum.protocol.identity import SigningKey

COORDINATOR = "coordinator"
DONE = "done"
MAX_TEXT = 2000
"""The longest evidence of a chunk's conflict has less: its signer has no room to push the end out (service.access.gate)."""
_HEAD, _APPEND = select(audit_head.c.number, audit_head.c.head), insert(audit)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


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
    outcome: str = DONE


def write(connection: Connection, database: Database, deeds: Sequence[Deed]) -> None:
    """Append to the log, with what else the transaction does or not at all. The log is locked until it ends: lock nothing afterwards."""
    database.alone(connection, "audit")
    end = _end(connection)
    rows = []
    for deed in deeds:
        texts = (_bounded(text) for text in (deed.who, deed.action, deed.on, deed.outcome))
        entry = chained(end, int(deed.at_s * 1000), *texts)
        rows.append(entry.model_dump())
        end = End(entry.number, entry.head)
    connection.execute(_APPEND, rows)
    database.put(connection, audit_head, {"id": 0, "number": end.number, "head": end.head})


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
    def conditions(self) -> tuple[ColumnElement[bool], ...]:
        """On the rows."""
        found: list[ColumnElement[bool]] = []
        if self.text:
            columns = (audit.c.who, audit.c.action, audit.c.on)
            found.append(or_(*(column.contains(self.text, autoescape=True) for column in columns)))
        if self.outcome:
            done = audit.c.outcome == DONE
            found.append(done if self.outcome == DONE else not_(done))
        return tuple(found)


class Audit:
    """One coordinator's log, shared by all its processes; the key signs heads."""

    def __init__(self, database: Database, key: SigningKey) -> None:
        self._database, self._key = database, key
        self._batches = Batches(self._append)

    async def record(self, deed: Deed) -> None:
        """Append durably; OSError or SQLAlchemyError if it fails; then the request must not be acknowledged."""
        await self._batches.put(deed)

    async def page(self, after: int, limit: int) -> AuditPage:
        """Entries after a number, and the head."""
        following = select(audit).where(audit.c.number > after).order_by(audit.c.number)
        end = await self._database.read(_end)
        entries = await self._entries(following.limit(min(limit, PAGE_MAX)))
        return AuditPage(
            entries=tuple(entry for entry in entries if entry.number <= end.number),
            head=AuditHead.make(self._key, end),
        )

    async def matching(self, chosen: Choice, below: int, most: int) -> Sequence[AuditEntry]:
        """Entries that a choice admits, the newest first, with numbers below one."""
        newest = (
            select(audit).where(audit.c.number < below, *chosen.conditions).order_by(audit.c.number.desc())
        )
        return await self._entries(newest.limit(most))

    async def count(self, chosen: Choice) -> int:
        """Count the entries that a choice admits."""
        return int(
            await self._database.value(select(func.count()).select_from(audit).where(*chosen.conditions))
        )

    async def place(self, chosen: Choice, index: int) -> int:
        """Return the number of the entry that has so many newer ones; 0 if there is none."""
        at = select(audit.c.number).where(*chosen.conditions).order_by(audit.c.number.desc())
        return await self._database.value(at.offset(index).limit(1)) or 0

    async def _append(self, deeds: list[Deed]) -> list[None]:
        await self._database.write(lambda connection: write(connection, self._database, deeds))
        return [None] * len(deeds)

    async def _entries(self, query: Executable) -> list[AuditEntry]:
        rows = await self._database.rows(query)
        return [AuditEntry.model_validate(row, from_attributes=True) for row in rows]


def _end(connection: Connection) -> End:
    row = connection.execute(_HEAD).first()
    return End(row.number, row.head) if row else START


def _bounded(text: str) -> str:
    # PostgreSQL takes no NUL, and a refused row fails its whole batch.
    plain = _CONTROL.sub("?", text[:MAX_TEXT])
    return plain.encode("ascii", "backslashreplace").decode("ascii")[:MAX_TEXT]
