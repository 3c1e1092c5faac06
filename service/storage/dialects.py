"""SQLite and PostgreSQL: all that differs between them stands here."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import asyncpg
from sqlalchemy import (
    ColumnElement,
    Float,
    Table,
    event,
    false,
    func,
    literal,
    literal_column,
    make_url,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from protocol.errors import Misuse
from service.storage.database import MIGRATION_S, Database
from service.storage.migrating import Change

PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": "FULL",
    "foreign_keys": "ON",
    "busy_timeout": "10000",
    # An ended round's events hold shares: zeroed where they stood, not only unlinked. The rows are few.
    "secure_delete": "ON",
}
CONNECTIONS = 16
"""Of one replica to PostgreSQL, at the most."""
CHANNEL = "veilsum"
PATIENCE_S = 10
"""How long a replica waits for a connection, or `forget` for others' transactions."""
ANSWER_S = 30.0
"""How long for an answer: a server, or the network to it, may fall silent and leave its connections open."""
IDLE_S = 120.0
"""After which the server ends a transaction in which a replica does nothing: it stands still, or its machine is gone, and holds locks.
And after which a replica gives up one command, such as the rollback that it sends when `ANSWER_S` is over."""


class Sqlite(Database):
    """One SQLite file (WAL, synchronous=FULL); one process, one writer at a time."""

    shared: ClassVar[bool] = False

    def __init__(self, path: Path) -> None:
        # Its owner's alone, whatever the folder's mode; SQLite gives its journals the same.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
        # An error's text goes to the log: without the parameters, which are messages and shares.
        # A statement that is kept to be run again keeps what it was last given: of uploads' announcements tens of megabytes.
        self._engine = create_async_engine(
            f"sqlite+aiosqlite:///{path}", hide_parameters=True, connect_args={"cached_statements": 0}
        )
        event.listen(self._engine.sync_engine, "connect", _configure)
        event.listen(self._engine.sync_engine, "handle_error", _keep)
        self._writer = asyncio.Lock()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        """Writers queue here and not in SQLite, which would have them poll; what one reads before it writes holds."""
        async with self._writer, self._engine.begin() as connection:
            yield connection

    async def alone(self, connection: AsyncConnection, what: str) -> None:
        """Every writer is; this only begins the transaction, which Python's driver would put off until a row changes."""
        del what
        await connection.exec_driver_sql("BEGIN IMMEDIATE")

    def _adding(self, table: Table) -> Any:
        """SQLite's."""
        return sqlite.insert(table).on_conflict_do_nothing()

    async def put(self, connection: AsyncConnection, table: Table, row: Mapping[str, Any]) -> None:
        """By ON CONFLICT DO UPDATE."""
        statement = sqlite.insert(table).values(row)
        await connection.execute(statement.on_conflict_do_update(table.primary_key.columns, set_=row))

    async def announce(self, connection: AsyncConnection, topic: str) -> None:
        """There is nobody else."""

    async def listen(self, heard: Callable[[str], None]) -> None:
        """There is nobody else."""
        del heard
        await asyncio.Event().wait()

    def gone(self, process: ColumnElement[str]) -> ColumnElement[bool]:
        """There is one process, and it runs."""
        del process
        return false()

    @property
    def clock(self) -> ColumnElement[float]:
        """By Julian days."""
        return literal_column("(julianday('now') - 2440587.5) * 86400.0", Float)

    async def forget(self) -> None:
        """Empty the write-ahead log, which still holds the rows that were deleted."""
        async with self._writer, self._engine.connect() as connection:
            busy, *_ = (await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")).one()
        if busy:
            raise OSError("the write-ahead log is in use")


def _configure(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for name, value in PRAGMAS.items():
        cursor.execute(f"PRAGMA {name}={value}")
    cursor.close()


def _keep(context: ExceptionContext) -> None:
    """A cancelled query is no lost connection: SQLAlchemy would leave its cursor, and the read transaction, to the collector."""
    if isinstance(context.original_exception, asyncio.CancelledError):
        context.is_disconnect = False


class Postgres(Database):
    """A PostgreSQL database, for any number of replicas.

    Args:
        url: `postgresql://user:password@host:port/database`.

    Raises:
        Misuse: another kind of URL.
    """

    shared: ClassVar[bool] = True

    def __init__(self, url: str) -> None:
        self.answer_s = ANSWER_S
        self._url = postgres_url(url)
        self._engine = self._connecting(
            IDLE_S,
            pool_size=CONNECTIONS,
            max_overflow=0,
            pool_timeout=PATIENCE_S,
            pool_pre_ping=True,  # the server may have been restarted
        )

    def _connecting(self, command_s: float, **pool: Any) -> AsyncEngine:
        """Connections whose commands take so long at the most."""
        connecting = {
            "timeout": PATIENCE_S,
            "command_timeout": command_s,
            # Whatever the server's default: what is committed is on its disk.
            "server_settings": {
                "application_name": "veilsum",
                "synchronous_commit": "on",
                "idle_in_transaction_session_timeout": f"{1000 * IDLE_S:.0f}",
            },
        }
        return create_async_engine(self._url, hide_parameters=True, connect_args=connecting, **pool)

    async def start(self) -> None:
        """As every database, and refuse a server that would acknowledge what it may lose."""
        async with self.reading() as connection:
            if (await connection.exec_driver_sql("SHOW fsync")).scalar_one() != "on":
                raise Misuse(
                    "the PostgreSQL server runs with fsync = off and may lose what it acknowledged: turn it on"
                )
        await super().start()

    async def migrate(self, change: Change) -> None:
        """On a connection of its own, whose commands may take longer than others'."""
        engine = self._connecting(MIGRATION_S, poolclass=NullPool)
        async with asyncio.timeout(MIGRATION_S), engine.begin() as connection:
            await self._migrated(connection, change)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        """READ COMMITTED: who relies on what it read says so by a condition, a key or a row lock."""
        async with self._engine.begin() as connection:
            yield connection

    async def alone(self, connection: AsyncConnection, what: str) -> None:
        """By an advisory lock."""
        await connection.exec_driver_sql(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"veilsum {what}",)
        )

    def _adding(self, table: Table) -> Any:
        """PostgreSQL's: it waits for a transaction that is to commit or not commit the same key."""
        return postgresql.insert(table).on_conflict_do_nothing()

    async def put(self, connection: AsyncConnection, table: Table, row: Mapping[str, Any]) -> None:
        """By ON CONFLICT DO UPDATE."""
        statement = postgresql.insert(table).values(row)
        await connection.execute(statement.on_conflict_do_update(index_elements=table.primary_key, set_=row))

    async def announce(self, connection: AsyncConnection, topic: str) -> None:
        """By NOTIFY."""
        await connection.exec_driver_sql("SELECT pg_notify($1, $2)", (CHANNEL, topic))

    async def listen(self, heard: Callable[[str], None]) -> None:
        """By LISTEN, on a connection of its own, which holds an advisory lock: the server lets go of it as soon as the process is dead."""
        lost = asyncio.Event()
        async with AsyncExitStack() as ending:
            async with asyncio.timeout(PATIENCE_S):
                connection = await ending.enter_async_context(self._engine.connect())
                driver: Any = (await connection.get_raw_connection()).driver_connection
                driver.add_termination_listener(lambda _: lost.set())
                await connection.execute(select(func.pg_advisory_lock(_named(literal(self.process)))))
                await connection.commit()
                await driver.add_listener(CHANNEL, lambda _connection, _pid, _channel, topic: heard(topic))
            try:
                while not lost.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(PATIENCE_S):
                            await lost.wait()
                    # A connection may be gone without a word.
                    await driver.execute("SELECT 1", timeout=PATIENCE_S)
            except (DBAPIError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                raise OSError("the connection to the database is lost") from error
            finally:
                await connection.invalidate()
        raise OSError("the connection to the database is lost")

    def gone(self, process: ColumnElement[str]) -> ColumnElement[bool]:
        """Its lock can be had."""
        return func.pg_try_advisory_xact_lock_shared(_named(process))

    @property
    def clock(self) -> ColumnElement[float]:
        """By its clock, and not the transaction's beginning."""
        return literal_column("extract(epoch from clock_timestamp())::float8", Float)

    async def forget(self) -> None:
        """Write the events anew without the deleted ones; the old file, with shares in it, is unlinked.

        The server's write-ahead log keeps its copy until it is recycled, and so does whatever was archived of it.
        """
        async with asyncio.timeout(IDLE_S), self._engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.exec_driver_sql(f"SET lock_timeout = '{PATIENCE_S}s'")
            try:
                await connection.exec_driver_sql("VACUUM FULL events")
            except DBAPIError as error:
                raise OSError("the events are in use") from error
            finally:
                await connection.exec_driver_sql("RESET lock_timeout")


def _named(process: ColumnElement[str]) -> ColumnElement[int]:
    """The number of a process's advisory lock."""
    return func.hashtextextended("veilsum process " + process, 0)


_PARAMETERS = frozenset({"host", "passfile", "port", "ssl", "sslmode"})
_TLS = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
"""libpq's words, which asyncpg takes as `ssl`."""


def postgres_url(url: str) -> Any:
    """For SQLAlchemy, with asyncpg as the driver; Misuse, which quotes nothing of it, where it is no PostgreSQL's."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number, which may be a password's end
        parsed = None
    # A password's own "@" would end it early, and its rest become the host, the port, or what errors and logs name.
    if (
        parsed is None
        or parsed.get_backend_name() not in {"postgresql", "postgres"}
        or url.count("@") > (parsed.username is not None)
    ):
        raise Misuse(
            "VEILSUM_DATABASE_URL is to be postgresql://user:password@host:port/database; percent-encode the password: "
            "@ is %40, : is %3A, / is %2F"
        )
    query = dict(parsed.query)
    if unknown := sorted(query.keys() - _PARAMETERS):
        raise Misuse(
            f"VEILSUM_DATABASE_URL has {', '.join(unknown)} after its ?; known are {', '.join(sorted(_PARAMETERS))}"
        )
    if "sslmode" in query:
        query = {"ssl": query.pop("sslmode"), **query}
    if query.get("ssl", _TLS[0]) not in _TLS:
        raise Misuse(f"sslmode in VEILSUM_DATABASE_URL is to be one of {', '.join(_TLS)}")
    driven = parsed.set(drivername="postgresql+asyncpg", query=query)
    try:
        driven.get_dialect()().create_connect_args(driven)
    except (ArgumentError, ValueError):
        raise Misuse(
            "host and port after the ? of VEILSUM_DATABASE_URL are to be one of each, or a numbered port for each host"
        ) from None
    return driven
