"""The audit log in the database: appended to, never changed (protocol.audit)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.batches import Batches
from service.storage.database import Database
from service.storage.tables import audit, audit_head
from veilsum.protocol.audit import PAGE_MAX, START, AuditEntry, AuditHead, AuditPage, End, chained
from veilsum.protocol.identity import SigningKey

COORDINATOR = "coordinator"
DONE = "done"
MAX_TEXT = 2000
"""The longest evidence of a chunk's conflict has less: whoever signs it has no room to push its end out (service.access.gate)."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Deed:
    """Something that is to be in the log.

    Attributes:
        at_s: Unix time in seconds.
        who: by whom, as `AuditEntry.who`.
        action: a route, or what was done.
        on: ids.
        outcome: `DONE`, or a cause.
    """

    at_s: float
    who: str
    action: str
    on: str = ""
    outcome: str = DONE


async def begin(database: Database, connection: AsyncConnection) -> None:
    """Let nobody else write to the log until the transaction ends; its first statement."""
    await database.alone(connection, "audit")


async def write(database: Database, connection: AsyncConnection, deeds: Sequence[Deed]) -> None:
    """Append to the log, in a transaction that `begin` began: with what it is about, or not at all."""
    end = await _end(connection)
    rows = []
    for deed in deeds:
        texts = (_bounded(text) for text in (deed.who, deed.action, deed.on, deed.outcome))
        entry = chained(end, int(deed.at_s * 1000), *texts)
        rows.append(entry.model_dump())
        end = End(entry.number, entry.head)
    await connection.execute(insert(audit), rows)
    await database.put(connection, audit_head, {"id": 0, "number": end.number, "head": end.head})


class Audit:
    """One coordinator's log.

    Args:
        database: shared by all its processes.
        key: signs heads.
    """

    def __init__(self, database: Database, key: SigningKey) -> None:
        self._database, self._key = database, key
        self._batches = Batches(self._append)

    async def record(self, deed: Deed) -> None:
        """Append durably; OSError or SQLAlchemyError where that can't be done, and then nobody may be answered."""
        await self._batches.put(deed)

    async def page(self, after: int, limit: int) -> AuditPage:
        """Entries after a number, and the head."""
        following = select(audit).where(audit.c.number > after).order_by(audit.c.number)
        async with self._database.reading() as connection:
            end = await _end(connection)
            rows = (await connection.execute(following.limit(min(limit, PAGE_MAX)))).mappings()
            entries = tuple(AuditEntry.model_validate(dict(row)) for row in rows)
        return AuditPage(
            entries=tuple(entry for entry in entries if entry.number <= end.number),
            head=AuditHead.make(self._key, end),
        )

    async def _append(self, deeds: list[Deed]) -> list[None]:
        async with self._database.transaction() as connection:
            await begin(self._database, connection)
            await write(self._database, connection, deeds)
        return [None] * len(deeds)


async def _end(connection: AsyncConnection) -> End:
    row = (await connection.execute(select(audit_head.c.number, audit_head.c.head))).first()
    return End(row.number, row.head) if row else START


def _bounded(text: str) -> str:
    # PostgreSQL takes no NUL, and what is refused there fails for everybody in its batch.
    plain = _CONTROL.sub("?", text[:MAX_TEXT])
    return plain.encode("ascii", "backslashreplace").decode("ascii")[:MAX_TEXT]
