"""The database: SQLite in the data folder, every commit on disk before it returns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from service.storage.tables import metadata


class Database:
    """Transactions over one SQLite file (WAL, synchronous=FULL)."""

    def __init__(self, path: Path) -> None:
        self._engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        event.listen(self._engine.sync_engine, "connect", _configure)

    async def start(self) -> None:
        """Create what is missing."""
        async with self._engine.begin() as connection:
            await connection.run_sync(metadata.create_all)

    async def stop(self) -> None:
        """Close every connection."""
        await self._engine.dispose()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Committed, and fsynced, when the block ends without an exception; else rolled back."""
        async with self._engine.begin() as connection:
            yield connection


def _configure(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
