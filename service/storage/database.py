"""The database as everybody else sees it: transactions that are durable, and deleted rows that are gone."""

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
    """Committed means on disk. What differs from one make to another is in `dialects`.

    Attributes:
        shared: whether other processes may write to it at the same time.
        answer_s: longest time that a block may take, lest one whom nobody answers waits for ever; None for a file, which answers.
    """

    shared: ClassVar[bool]
    answer_s: float | None = None
    _engine: AsyncEngine

    async def start(self) -> None:
        """Bring its tables to this release's, and forget what the last process could not.

        Raises:
            Misuse: its tables are a newer release's, or no release's.
        """
        await self.migrate(migrating.upgrade)
        await self.forget()

    async def stop(self) -> None:
        """Close every connection."""
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
        """Committed, and fsynced, when the block ends without an exception; else rolled back.

        Args:
            at_least_s: which the block may take, whatever `answer_s` says.

        Raises:
            TimeoutError: it takes longer; it may be committed nevertheless.
        """
        limit_s = None if self.answer_s is None else max(self.answer_s, at_least_s)
        with timed("transaction"):
            async with asyncio.timeout(limit_s), self._transaction() as connection:
                yield connection

    @abstractmethod
    def _transaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """As `transaction`, which measures it."""

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Nothing is written in the block; TimeoutError where it takes longer than `answer_s`."""
        async with asyncio.timeout(self.answer_s), self._engine.connect() as connection:
            yield connection

    @abstractmethod
    async def alone(self, connection: AsyncConnection, what: str) -> None:
        """Until the transaction ends nobody else is alone with the same thing."""

    async def add(self, connection: AsyncConnection, table: Table, row: Mapping[str, Any]) -> bool:
        """Insert a row; False, and nothing changes, where one stands under its primary key or a unique one."""
        done = await connection.execute(self._adding(table).values(row))
        return bool(done.rowcount)

    async def add_all(
        self, connection: AsyncConnection, table: Table, rows: Sequence[Mapping[str, Any]]
    ) -> set[tuple[Any, ...]]:
        """Insert those of the rows, one at the least, that `add` would; their primary keys."""
        statement = self._adding(table).returning(*table.primary_key.columns)
        return {tuple(row) for row in await connection.execute(statement, rows)}

    @abstractmethod
    def _adding(self, table: Table) -> Any:
        """INSERT … ON CONFLICT DO NOTHING."""

    @abstractmethod
    async def put(self, connection: AsyncConnection, table: Table, row: Mapping[str, Any]) -> None:
        """Insert a row, or replace the one that stands under its primary key."""

    @abstractmethod
    async def announce(self, connection: AsyncConnection, topic: str) -> None:
        """Tell every process, once this transaction is committed, that something changed."""

    @cached_property
    def process(self) -> str:
        """What this process is called, among all on the database."""
        return secrets.token_hex(16)

    @abstractmethod
    async def listen(self, heard: Callable[[str], None]) -> None:
        """Until cancelled, be known to run and hear what others announce; OSError where the connection is lost: refresh all, and listen again."""

    @abstractmethod
    def gone(self, process: ColumnElement[str]) -> ColumnElement[bool]:
        """Whether a process does not listen; one that has just begun, or lost its connection, does not either."""

    @property
    @abstractmethod
    def clock(self) -> ColumnElement[float]:
        """The database's own time, Unix seconds: all processes agree on it."""

    @abstractmethod
    async def forget(self) -> None:
        """Let nothing stay in the database's files of the rows that were deleted.

        Raises:
            OSError: a reader was in the way; try again.
        """
