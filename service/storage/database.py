"""The database interface: transactions are durable, and deleted rows are gone.

Work is a function of a SQLAlchemy connection. It runs as a whole, wherever the database keeps its connections.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, Executable, Table

from service.http.metering import charge_task
from service.storage import migrating
from service.storage.faults import Quarantine
from service.telemetry.logs import log
from service.telemetry.metrics import DAMAGED_COUNT, measure_operation

MIGRATION_S = 3600.0
"""Time limit for a change of the tables."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class Database(ABC):
    """A database. Committed transactions are on the disk. `dialects` has one subclass for each product.

    Attributes:
        shared: whether other processes may write at the same time.
        answer_s: time limit of a work, in case the server falls silent; None for a file.
    """

    shared: ClassVar[bool]
    insert: ClassVar[Any]
    """The dialect's INSERT with ON CONFLICT."""
    answer_s: float | None = None
    damage: tuple[str, ...] = ()
    """Findings of `find_damage` at the start."""

    async def start(self, claim: migrating.Change | None = None) -> None:
        """Upgrade the tables.

        Args:
            claim: changes, or refuses, the upgraded tables.

        Raises:
            Misuse: this release does not read them, or as `claim`; nothing was changed.
        """

        def change(connection: Connection) -> None:
            migrating.upgrade_tables(connection)
            if claim is not None:
                claim(connection)

        self.damage = await self.find_damage()
        if self.damage:
            DAMAGED_COUNT.labels("file").inc()
            log.error("storage damaged", what="file", of=self.damage[0])
        await self.migrate_tables(change)

    async def find_damage(self) -> tuple[str, ...]:
        """Check the database's own files, and return what is wrong. PostgreSQL has its own tools for that."""
        return ()

    @abstractmethod
    async def stop(self) -> None:
        """Finish what was begun, and close every connection."""

    async def migrate_tables(self, change: migrating.Change) -> None:
        """Change the tables atomically, one process at a time."""
        await self._write(lambda connection: self._migrate_alone(connection, change))

    def _migrate_alone(self, connection: Connection, change: migrating.Change) -> None:
        self.lock_alone(connection, "migration")
        change(connection)

    async def write(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work` in a transaction, and commit durably unless it raises.

        It may share the transaction with other works, so it neither commits nor rolls back; it raises to undo its changes.

        Raises:
            TimeoutError: it took longer than `answer_s`; it may have been committed.
        """
        with measure_operation("transaction"):
            async with asyncio.timeout(self.answer_s):
                return await self._write(work)

    async def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work`, which only reads. Raises TimeoutError if it takes longer than `answer_s`."""
        async with asyncio.timeout(self.answer_s):
            return await self._read(work)

    async def read_rows(self, query: Executable) -> Sequence[Any]:
        return await self.read(lambda connection: connection.execute(query).all())

    async def read_row(self, query: Executable) -> Any:
        return await self.read(lambda connection: connection.execute(query).one_or_none())

    async def read_values(self, query: Executable) -> Sequence[Any]:
        return await self.read(lambda connection: connection.execute(query).scalars().all())

    async def read_value(self, query: Executable) -> Any:
        """Read one value; None if there is no row."""
        return await self.read(lambda connection: connection.execute(query).scalar_one_or_none())

    def add_row(self, connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
        """Insert a row unless its primary key or a unique key exists, and return whether it was inserted."""
        return bool(connection.execute(self._insert_statement(table), row).rowcount)

    def add_all(
        self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
    ) -> set[tuple[Any, ...]]:
        """Insert the rows that `add_row` would, and return their primary keys."""
        return {tuple(row) for row in connection.execute(self._insert_statement(table, returning=True), rows)}

    def put_row(self, connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
        """Insert a row, or replace the one with its primary key."""
        connection.execute(self._upsert_statement(table), row)

    # Statements are made once: to make one takes longer than to carry it out.

    @classmethod
    @cache
    def _insert_statement(cls, table: Table, *, returning: bool = False) -> Any:
        adding = cls.insert(table).on_conflict_do_nothing()
        return adding.returning(*table.primary_key.columns) if returning else adding

    @classmethod
    @cache
    def _upsert_statement(cls, table: Table) -> Any:
        putting = cls.insert(table)
        new = {column.name: column for column in putting.excluded}
        return putting.on_conflict_do_update(index_elements=table.primary_key.columns, set_=new)

    @cached_property
    def quarantine(self) -> Quarantine:
        """Names of the parts that can't be read."""
        return Quarantine()

    @cached_property
    def process_name(self) -> str:
        """This process's name among all processes of the database."""
        return secrets.token_hex(16)

    @abstractmethod
    async def _write(self, work: Callable[[Connection], Result]) -> Result:
        """`write` without its limits."""

    @abstractmethod
    async def _read(self, work: Callable[[Connection], Result]) -> Result:
        """`read` without its limit."""

    @abstractmethod
    def lock_alone(self, connection: Connection, what: str) -> None:
        """Wait for exclusive use of a thing, and keep it until this transaction ends."""

    @abstractmethod
    def announce_change(self, connection: Connection, topic: str) -> None:
        """Notify every process of a change once this transaction is committed."""

    @abstractmethod
    async def listen_for_changes(self, heard: Callable[[str], None]) -> None:
        """Receive notifications, and count as running, until cancelled. Raises OSError if the connection is lost."""

    @abstractmethod
    def process_gone(self, process: ColumnElement[str]) -> ColumnElement[bool]:
        """Whether a process is not listening. One that has just begun, or lost its connection, is not."""

    @property
    @abstractmethod
    def clock(self) -> ColumnElement[float]:
        """The database's own Unix time in seconds, which all processes agree on."""

    @abstractmethod
    async def erase_deleted(self) -> None:
        """Erase deleted rows from the database's files. Raises OSError if a reader prevented it."""


class Batches(Generic[Item]):
    """Collects items of one kind while a transaction runs, and does them in the next one, as one work.

    The work is completed even if callers are cancelled, because others wait for it too.

    Args:
        work: does the items, and returns for each, in order, None or why it is refused. Its errors are raised to all callers.
    """

    def __init__(self, work: Callable[[list[Item]], Awaitable[Sequence[Exception | None]]]) -> None:
        self._work, self._turn = work, asyncio.Lock()
        self._next: tuple[list[Item], asyncio.Task[Sequence[Exception | None]]] | None = None

    async def put_item(self, item: Item) -> None:
        """Wait until this item's batch is done. Raises if the item is refused."""
        if self._next is None:
            items = list[Item]()
            self._next = items, asyncio.create_task(charge_task(self._run_batch(items)))
        items, done = self._next
        place = len(items)
        items.append(item)
        fault = (await asyncio.shield(done))[place]
        if fault is not None:
            raise fault

    async def _run_batch(self, items: list[Item]) -> Sequence[Exception | None]:
        async with self._turn:
            self._next = None  # what comes now waits for the next batch
            return await self._work(items)
