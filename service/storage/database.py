"""The database as the rest of the service sees it: transactions are durable, and deleted rows are gone.

Work is a function of a SQLAlchemy connection. It is handed over whole, and runs where the database has its connections.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, ClassVar, Generic, TypeVar

import structlog
from sqlalchemy import ColumnElement, Connection, Executable, Table

from service.metering import charged
from service.storage import migrating
from service.storage.faults import Quarantine
from service.telemetry.logs import LOGGER
from service.telemetry.metrics import DAMAGED, timed

log = structlog.get_logger(LOGGER)

MIGRATION_S = 3600.0
"""Longest change of the tables."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class Database(ABC):
    """A committed transaction is on the disk. `dialects` has one class for each product.

    Attributes:
        shared: whether other processes may write at the same time.
        answer_s: longest time that a work may take, for a server that may fall silent; None for a file.
    """

    shared: ClassVar[bool]
    insert: ClassVar[Any]
    """The dialect's own INSERT, which knows ON CONFLICT."""
    answer_s: float | None = None
    damage: tuple[str, ...] = ()
    """What `check` found at the start."""

    async def start(self, claim: migrating.Change | None = None) -> None:
        """Upgrade the tables, and forget what the last process could not.

        Args:
            claim: changes, or refuses, the upgraded tables.

        Raises:
            Misuse: this release does not read them, or as `claim`; nothing was changed.
        """

        def change(connection: Connection) -> None:
            migrating.upgrade(connection)
            if claim is not None:
                claim(connection)

        self.damage = await self.check()
        if self.damage:
            DAMAGED.labels("file").inc()
            log.error("storage damaged", what="file", of=self.damage[0])
        await self.migrate(change)
        await self.forget()

    async def check(self) -> tuple[str, ...]:
        """Look over the database's own files, and return what is wrong with them; PostgreSQL has tools of its own for that."""
        return ()

    @abstractmethod
    async def stop(self) -> None:
        """Finish what was begun, and close every connection."""

    async def migrate(self, change: migrating.Change) -> None:
        """Change the tables atomically, one process at a time."""
        await self._write(lambda connection: self._migrated(connection, change))

    def _migrated(self, connection: Connection, change: migrating.Change) -> None:
        self.alone(connection, "migration")
        change(connection)

    async def write(self, work: Callable[[Connection], Result], at_least_s: float = 0.0) -> Result:
        """Run `work` in a transaction, and commit durably unless it raises.

        It may share the transaction with others' works: it neither commits nor rolls back, but raises to keep nothing.

        Args:
            work: what is to be done, or undone, as a whole.
            at_least_s: how long it may take, whatever `answer_s` says.

        Raises:
            TimeoutError: it takes longer; it may be committed nevertheless.
        """
        limit_s = None if self.answer_s is None else max(self.answer_s, at_least_s)
        with timed("transaction"):
            async with asyncio.timeout(limit_s):
                return await self._write(work)

    async def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work`, which only reads; TimeoutError if it takes longer than `answer_s`."""
        async with asyncio.timeout(self.answer_s):
            return await self._read(work)

    async def rows(self, query: Executable, given: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Read rows."""
        return await self.read(lambda connection: connection.execute(query, given).all())

    async def row(self, query: Executable, given: Mapping[str, Any] | None = None) -> Any:
        """Read a row; None where there is none."""
        return await self.read(lambda connection: connection.execute(query, given).one_or_none())

    async def values(self, query: Executable, given: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Read one column."""
        return await self.read(lambda connection: connection.execute(query, given).scalars().all())

    async def value(self, query: Executable, given: Mapping[str, Any] | None = None) -> Any:
        """Read one value; None where there is no row."""
        return await self.read(lambda connection: connection.execute(query, given).scalar_one_or_none())

    def add(self, connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
        """Insert a row, unless one stands under its primary key or a unique one; whether it was inserted."""
        return bool(connection.execute(self._adding(table), row).rowcount)

    def add_all(
        self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
    ) -> set[tuple[Any, ...]]:
        """Insert those of one or more rows that `add` would; their primary keys."""
        return {tuple(row) for row in connection.execute(self._adding(table, returning=True), rows)}

    def put(self, connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
        """Insert a row, or replace the one under its primary key."""
        connection.execute(self._putting(table), row)

    # Statements are made once: to make one takes longer than to carry it out.

    @classmethod
    @cache
    def _adding(cls, table: Table, *, returning: bool = False) -> Any:
        adding = cls.insert(table).on_conflict_do_nothing()
        return adding.returning(*table.primary_key.columns) if returning else adding

    @classmethod
    @cache
    def _putting(cls, table: Table) -> Any:
        putting = cls.insert(table)
        new = {column.name: column for column in putting.excluded}
        return putting.on_conflict_do_update(index_elements=table.primary_key.columns, set_=new)

    @cached_property
    def quarantine(self) -> Quarantine:
        """What of it can't be read."""
        return Quarantine()

    @cached_property
    def process(self) -> str:
        """This process's name among all on the database."""
        return secrets.token_hex(16)

    @abstractmethod
    async def _write(self, work: Callable[[Connection], Result]) -> Result:
        """`write` without its limits."""

    @abstractmethod
    async def _read(self, work: Callable[[Connection], Result]) -> Result:
        """`read` without its limit."""

    @abstractmethod
    def blocking(self, connection: Connection, call: Callable[[], None]) -> None:
        """Run a call that blocks in the middle of a work, and not on the event loop."""

    @abstractmethod
    def alone(self, connection: Connection, what: str) -> None:
        """Wait until no other transaction is alone with the same thing, and keep others out until this one ends."""

    @abstractmethod
    def announce(self, connection: Connection, topic: str) -> None:
        """Tell every process, once this transaction is committed, that something changed."""

    @abstractmethod
    async def listen(self, heard: Callable[[str], None]) -> None:
        """Hear what others announce, and be known to run, until cancelled; OSError where the connection is lost."""

    @abstractmethod
    def gone(self, process: ColumnElement[str]) -> ColumnElement[bool]:
        """Whether a process does not listen, as one that has just begun or lost its connection."""

    @property
    @abstractmethod
    def clock(self) -> ColumnElement[float]:
        """The database's own Unix time in seconds, which all processes agree on."""

    @abstractmethod
    async def forget(self) -> None:
        """Remove deleted rows from the database's files; OSError where a reader was in the way."""


class Batches(Generic[Item]):
    """Items of one kind that are asked for while one transaction runs go into the next one, as one work.

    The work goes on to its end even if callers are cancelled: others wait for it too.

    Args:
        work: does what the items ask for, and says of each, in order, why it is refused, or None; what it raises is raised to all of them.
    """

    def __init__(self, work: Callable[[list[Item]], Awaitable[Sequence[Exception | None]]]) -> None:
        self._work, self._turn = work, asyncio.Lock()
        self._next: tuple[list[Item], asyncio.Task[Sequence[Exception | None]]] | None = None

    async def put(self, item: Item) -> None:
        """Wait until the batch that this item is in is done; raises why the item is refused."""
        if self._next is None:
            items = list[Item]()
            self._next = items, asyncio.create_task(charged(self._done(items)))
        items, done = self._next
        place = len(items)
        items.append(item)
        fault = (await asyncio.shield(done))[place]
        if fault is not None:
            raise fault

    async def _done(self, items: list[Item]) -> Sequence[Exception | None]:
        async with self._turn:
            self._next = None  # what comes now waits for the next batch
            return await self._work(items)
