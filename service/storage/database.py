"""The database: SQLite in the data folder, every commit on disk before it returns."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from service.storage.tables import metadata

PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": "FULL",
    "foreign_keys": "ON",
    "busy_timeout": "10000",
    # An ended round's events hold shares: zeroed where they stood, not only unlinked. The rows are few.
    "secure_delete": "ON",
}


class Database:
    """Transactions over one SQLite file (WAL, synchronous=FULL); one process, one writer at a time."""

    def __init__(self, path: Path) -> None:
        # Its owner's alone, whatever the folder's mode; SQLite gives its journals the same.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
        # An error's text goes to the log: without the parameters, which are messages and shares.
        self._engine = create_async_engine(f"sqlite+aiosqlite:///{path}", hide_parameters=True)
        event.listen(self._engine.sync_engine, "connect", _configure)
        self._writer = asyncio.Lock()

    async def start(self) -> None:
        """Create what is missing, and forget what the last process could not."""
        async with self.transaction() as connection:
            await connection.run_sync(metadata.create_all)
        await self.forget()

    async def stop(self) -> None:
        """Close every connection."""
        await self._engine.dispose()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Committed, and fsynced, when the block ends without an exception; else rolled back.

        Writers queue here and not in SQLite, which would have them poll; what one reads before it writes holds.
        """
        async with self._writer, self._engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Nothing is written in the block."""
        async with self._engine.connect() as connection:
            yield connection

    async def forget(self) -> None:
        """Empty the write-ahead log, which still holds the rows that were deleted.

        Raises:
            OSError: a reader was in the way; try again.
        """
        async with self._writer, self._engine.connect() as connection:
            busy, *_ = (await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")).one()
        if busy:
            raise OSError("the write-ahead log is in use")


def _configure(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for name, value in PRAGMAS.items():
        cursor.execute(f"PRAGMA {name}={value}")
    cursor.close()
