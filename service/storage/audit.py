"""The audit log in the database: appended to, never changed, and pruned if the settings say so (protocol.audit)."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, Executable, delete, func, insert, not_, or_, select
from sqlalchemy.exc import IntegrityError

from service.storage.database import Batches, Database
from service.storage.faults import DamagedRowError, log_errors
from service.storage.tables import audit, audit_head
from service.telemetry.metrics import AUDIT_ENTRIES
from veilsum.protocol.audit import EMPTY_LOG_END, PAGE_MAX, AuditEntry, AuditHead, AuditPage, End, chain_entry
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.study import DAY_S

COORDINATOR_ACTOR = "coordinator"
DONE_OUTCOME = "done"
MAX_TEXT = 2000
"""The longest evidence of a chunk's conflict has less: its signer has no room to push the end out (service.access.gate)."""
END_ID, START_ID = 0, 1
"""The rows of `audit_head`."""
_HEAD_SQL = select(audit_head.c.number, audit_head.c.head).where(audit_head.c.id == END_ID)
_START_SQL = select(audit_head).where(audit_head.c.id == START_ID)
_APPEND_SQL = insert(audit)
_DAMAGED_LOG_DETAIL = (
    "the end of the audit log, or the number of an entry, is damaged. The coordinator accepts no changes until the operator stops it and "
    "runs `veilsum operator db repair`. No member is at fault"
)
PRUNED_AT_ONCE = 5000
"""Entries that one transaction prunes."""
REFUSAL_WINDOW_S, QUOTA_WINDOW_S = 60.0, 3600.0
"""How long equal refusals are only counted after the first, and how long those beyond a caller's quota are."""
REFUSALS_PER_DAY = 1000
"""Refusals of one caller that are entries of their own on one day."""
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
    """Append to the log, with what else the transaction does or not at all. The log is locked until it ends: lock nothing afterwards.

    Raises:
        DamagedRowError: the log's end is lost, or another entry has the number of the next one.
    """
    database.lock_alone(connection, "audit")
    end = _read_end(connection)
    if end == EMPTY_LOG_END and connection.execute(select(audit.c.number).limit(1)).first() is not None:
        raise _note_damage(database, LookupError("the log's end"))
    rows = []
    for deed in deeds:
        texts = (_bound_text(text) for text in (deed.who, deed.action, deed.on, deed.outcome))
        entry = chain_entry(end, int(deed.at_s * 1000), *texts)
        rows.append(entry.model_dump())
        end = End(entry.number, entry.head)
    try:
        connection.execute(_APPEND_SQL, rows)
    except IntegrityError as error:
        raise _note_damage(database, error) from error
    database.put_row(connection, audit_head, {"id": END_ID, "number": end.number, "head": end.head})


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


@dataclass
class Repeats:
    """Equal refusals since the first, which has an entry.

    Attributes:
        until_s: when they are written, by the monotonic clock.
    """

    until_s: float
    last: Deed
    count: int = 0


class Audit:
    """One coordinator's log, shared by all its processes; the key signs heads.

    Args:
        clock: monotonic seconds.
    """

    def __init__(
        self, database: Database, key: SigningKey, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database, self._key, self._clock = database, key, clock
        self._batches = Batches(self._append_batch)
        self._repeats, self._day = dict[tuple[str, ...], Repeats](), 0
        self._refusals = Counter[tuple[str, str]]()

    async def record_deed(self, deed: Deed) -> None:
        """Append durably; OSError or SQLAlchemyError if it fails; then the request must not be acknowledged."""
        await self._batches.put_item(deed)

    async def record_refusal(self, deed: Deed, federation: str = "", evidence: str = "") -> None:
        """Append a refusal as `record_deed` does, with its evidence. Equal ones within a minute are counted, and written as one entry.

        Beyond a daily quota all refusals of a caller are equal. Those of one name in two federations are two callers.
        """
        now_s, day = self._clock(), int(deed.at_s // DAY_S)
        if day != self._day:
            self._day, self._refusals = day, Counter()
        window_s = REFUSAL_WINDOW_S
        key: tuple[str, ...] = (deed.who, deed.action, deed.on, deed.outcome)
        caller = deed.who, federation
        if key not in self._repeats and self._refusals[caller] >= REFUSALS_PER_DAY:
            key, window_s, evidence = caller, QUOTA_WINDOW_S, ""
            on = f"federation={federation}" if federation else ""
            deed = replace(deed, action=f"more than {REFUSALS_PER_DAY} refusals a day", on=on)
        if (known := self._repeats.get(key)) is not None:
            known.last, known.count = deed, known.count + 1
            return
        self._repeats[key] = Repeats(now_s + window_s, deed)
        self._refusals[caller] += 1
        try:
            await self.record_deed(replace(deed, on=" ".join(filter(None, (deed.on, evidence)))))
        except BaseException:
            self._repeats.pop(key, None)  # equal ones get an entry
            raise

    async def write_repeats(self, *, all_of_them: bool = False) -> None:
        """Write what was counted, once its time is over."""
        now_s = self._clock()
        for key, each in list(self._repeats.items()):
            if all_of_them or each.until_s <= now_s:
                del self._repeats[key]
                if each.count:
                    on = " ".join(filter(None, (each.last.on, f"repeated={each.count}")))
                    await self.record_deed(replace(each.last, on=on))

    async def keep_writing(self) -> None:
        """Write what was counted from time to time, and measure the log, until cancelled."""
        try:
            while True:
                await log_errors(self._measure())
                await asyncio.sleep(REFUSAL_WINDOW_S / 2)
                await log_errors(self.write_repeats())
        finally:
            await log_errors(self.write_repeats(all_of_them=True))

    async def _measure(self) -> None:
        end = await self._database.read(_read_end)
        start = await self._database.read_row(_START_SQL)
        AUDIT_ENTRIES.set(end.number - (start.number if start else 0))

    async def read_page(self, after: int, limit: int) -> AuditPage:
        """Entries after a number, and the head."""
        following = select(audit).where(audit.c.number > after).order_by(audit.c.number)
        end = await self._database.read(_read_end)
        start = await self._database.read_row(_START_SQL)
        entries = await self._read_entries(following.limit(min(limit, PAGE_MAX)))
        return AuditPage(
            start=None if start is None else AuditHead.model_validate(start, from_attributes=True),
            entries=tuple(entry for entry in entries if entry.number <= end.number),
            head=AuditHead.sign_end(self._key, end),
        )

    async def matching_entries(self, chosen: Choice, first: int, most: int) -> Sequence[AuditEntry]:
        """Entries that a choice admits, the newest first, from the place `first` on."""
        newest = select(audit).where(*chosen.row_conditions).order_by(audit.c.number.desc())
        return await self._read_entries(newest.offset(first).limit(most))

    async def count_entries(self, chosen: Choice) -> int:
        return int(
            await self._database.read_value(
                select(func.count()).select_from(audit).where(*chosen.row_conditions)
            )
        )

    async def _append_batch(self, deeds: list[Deed]) -> list[None]:
        await self._database.write(lambda connection: append_deeds(connection, self._database, deeds))
        return [None] * len(deeds)

    async def _read_entries(self, query: Executable) -> list[AuditEntry]:
        rows = await self._database.read_rows(query)
        return [AuditEntry.model_validate(row, from_attributes=True) for row in rows]


async def prune_entries(database: Database, key: SigningKey, before_s: float, now_s: float) -> None:
    """Delete the entries before a Unix time, but for the last, and sign where the log begins from then on."""

    def prune(connection: Connection) -> int:
        database.lock_alone(connection, "audit")
        start = connection.execute(_START_SQL).first()
        first = start.number if start else 0
        kept = select(func.min(audit.c.number)).where(audit.c.at_ms >= int(before_s * 1000))
        last = connection.execute(select(func.max(audit.c.number))).scalar_one() or 0
        number = min((connection.execute(kept).scalar_one() or last) - 1, first + PRUNED_AT_ONCE)
        if number <= first:
            return 0
        head = connection.execute(select(audit.c.head).where(audit.c.number == number)).scalar_one()
        signed = AuditHead.sign_end(key, End(number, head))
        database.put_row(connection, audit_head, {"id": START_ID, **signed.model_dump()})
        connection.execute(delete(audit).where(audit.c.number <= number))
        return number

    last = 0
    while number := await database.write(prune):
        last = number
    if last:
        deed = Deed(now_s, COORDINATOR_ACTOR, "audit log pruned", f"last={last}")
        await database.write(lambda connection: append_deeds(connection, database, [deed]))


def _note_damage(database: Database, error: Exception) -> DamagedRowError:
    database.quarantine.note_damage("audit log", error)
    return DamagedRowError(Cause.STORAGE_DAMAGED, _DAMAGED_LOG_DETAIL, ["coordinator"])


def _read_end(connection: Connection) -> End:
    row = connection.execute(_HEAD_SQL).first()
    return End(row.number, row.head) if row else EMPTY_LOG_END


def _bound_text(text: str) -> str:
    # PostgreSQL takes no NUL, and a refused row fails its whole batch.
    plain = _ASCII_CONTROLS.sub("?", text[:MAX_TEXT])
    return plain.encode("ascii", "backslashreplace").decode("ascii")[:MAX_TEXT]
