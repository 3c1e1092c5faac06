"""The database as the rest of the service sees it: transactions are durable, and deleted rows are gone."""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Table
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.storage import migrating
from service.telemetry.metrics import timed

MIGRATION_S = 3600.0
"""Longest change of the tables."""


class Database(ABC):
    """A committed transaction is on the disk. `dialects` has one class for each product.

    Attributes:
        shared: whether other processes may write at the same time.
        answer_s: longest time that a block may take, for a server that may fall silent; None for a file.
    """

    shared: ClassVar[bool]
    insert: ClassVar[Any]
    """The dialect's own INSERT, which knows ON CONFLICT."""
    answer_s: float | None = None
    _engine: AsyncEngine

    async def start(self) -> None:
        """Upgrade the tables, and forget what the last process could not; Misuse for the tables of another release."""
        await self.migrate(migrating.upgrade)
        await self.forget()

    async def stop(self) -> None:
        await self._engine.dispose()

    async def migrate(self, change: migrating.Change) -> None:
        """Change the tables, whole or not at all, while nobody else does."""
        async with self.transaction(MIGRATION_S) as connection:
            await self._migrated(connection, change)

    async def _migrated(self, connection: AsyncConnection, change: migrating.Change) -> None:
        await self.alone(connection, "migration")
        await connection.run_sync(change)

    @asynccontextmanager
    async def transaction(self, at_least_s: float = 0.0) -> AsyncIterator[AsyncConnection]:
        """Commit durably when the block ends without an exception, else roll back.

        Args:
            at_least_s: how long the block may take, whatever `answer_s` says.

        Raises:
            TimeoutError: it takes longer; it may be committed nevertheless.
        """
        limit_s = None if self.answer_s is None else max(self.answer_s, at_least_s)
        with timed("transaction"):
            async with asyncio.timeout(limit_s), self._transaction() as connection:
                yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Read in the block; TimeoutError where it takes longer than `answer_s`."""
        async with asyncio.timeout(self.answer_s), self._engine.connect() as connection:
            yield connection

    async def add(self, connection: AsyncConnection, table: Table, row: Mapping[str, Any]) -> bool:
        """Insert a row, unless one stands under its primary key or a unique one; whether it was inserted."""
        done = await connection.execute(self.insert(table).on_conflict_do_nothing().values(row))
        return bool(done.rowcount)

    async def add_all(
        self, connection: AsyncConnection, table: Table, rows: Sequence[Mapping[str, Any]]
    ) -> set[tuple[Any, ...]]:
        """Insert those of one or more rows that `add` would; their primary keys."""
        statement = self.insert(table).on_conflict_do_nothing().returning(*table.primary_key.columns)
        return {tuple(row) for row in await connection.execute(statement, rows)}

    async def put(self, connection: AsyncConnection, table: Table, row: Mapping[str, Any]) -> None:
        """Insert a row, or replace the one under its primary key."""
        statement = self.insert(table).values(row)
        await connection.execute(
            statement.on_conflict_do_update(index_elements=table.primary_key.columns, set_=row)
        )

    @cached_property
    def process(self) -> str:
        """This process's name among all on the database."""
        return secrets.token_hex(16)

    @abstractmethod
    def _transaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """`transaction` without its limits."""

    @abstractmethod
    async def alone(self, connection: AsyncConnection, what: str) -> None:
        """Wait until no other transaction is alone with the same thing, and keep others out until this one ends."""

    @abstractmethod
    async def announce(self, connection: AsyncConnection, topic: str) -> None:
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
