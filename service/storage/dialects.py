"""SQLite and PostgreSQL: everything that differs between them."""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from sqlite3 import SQLITE_CANTOPEN, SQLITE_FULL, SQLITE_IOERR, SQLITE_IOERR_SHMSIZE, SQLITE_READONLY
from typing import Any
from urllib.parse import quote

import asyncpg
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Float,
    create_engine,
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
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from service.storage.database import MIGRATION_S, Database, Result
from service.storage.migrating import Change
from veilsum.protocol.errors import Misuse

PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": "FULL",
    "foreign_keys": "ON",
    "busy_timeout": "10000",
    # An ended round's events hold shares: zeroed where they stood, not only unlinked. The rows are few.
    "secure_delete": "ON",
}
CONNECTIONS_MAX = 16
"""Most connections of one process to PostgreSQL."""
NO_DAMAGE = frozenset({SQLITE_CANTOPEN, SQLITE_FULL, SQLITE_IOERR_SHMSIZE, SQLITE_READONLY})
"""SQLite's errors of a full disk, or of a folder that another user owns."""
_CONNECTION_ERRORS = frozenset({SQLITE_CANTOPEN, SQLITE_IOERR, SQLITE_READONLY})
"""Classes of SQLite's errors after which a connection may fail for good."""
READING_THREADS = 4
"""Threads that read SQLite's file side by side."""
WORKS_PER_TRANSACTION = 64
"""Most works in one of SQLite's transactions: the first one's caller waits for all of them."""
NOTIFY_CHANNEL = "veilsum"
CONNECTION_TIMEOUT_S = 10
"""How long a replica waits for a connection."""
VACUUM_LOCK_TIMEOUT_S = 0.5
"""How long `erase_deleted` waits for others' transactions, while all new ones wait behind it: a dump keeps the events for as long as it runs."""
ANSWER_TIMEOUT_S = 30.0
"""How long a replica waits for an answer: a server, or the network to it, may fall silent and leave its connections open."""
COMMAND_TIMEOUT_S = 120.0
"""Longest time in which a replica does nothing in a transaction before the server ends it and frees its locks, and longest time that a
replica waits for one command, such as the rollback that it sends when `ANSWER_TIMEOUT_S` is over."""


class Sqlite(Database):
    """One SQLite file (WAL, synchronous=FULL); one process, one writer at a time.

    Group commit: works that come while a transaction runs share the next one, each under a savepoint of its own, and one sync.
    A cancelled caller goes on only once its work is committed, undone, or sure never to begin.
    """

    shared, insert = False, staticmethod(sqlite.insert)

    def __init__(self, path: Path) -> None:
        # Private, whatever the folder's mode; SQLite gives its journals the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
        self._path, self._place = path, path.stat()
        # An error's text goes to the log, and parameters are messages and shares.
        # A cached statement keeps its last parameters: tens of megabytes of uploads' announcements.
        # Without an isolation level, Python's driver begins no transactions of its own.
        # A file that was removed is not made again: that would hide that everything is gone.
        self._engine = create_engine(
            URL.create("sqlite", database=f"file:{quote(str(path))}", query={"mode": "rw", "uri": "true"}),
            hide_parameters=True,
            connect_args={"cached_statements": 0, "isolation_level": None},
            pool_size=READING_THREADS + 1,
            max_overflow=0,
        )
        event.listen(self._engine, "connect", _set_pragmas)
        event.listen(self._engine, "handle_error", _discard_unusable)
        self._writing = ThreadPoolExecutor(1, "veilsum-writer")
        self._reading = ThreadPoolExecutor(READING_THREADS, "veilsum-reader")
        self._waiting = deque[tuple[Callable[[Connection], Any], Future[Any]]]()

    async def stop(self) -> None:
        for threads in (self._writing, self._reading):
            threads.shutdown()
        self._engine.dispose()

    async def _write(self, work: Callable[[Connection], Result]) -> Result:
        done = Future[Result]()
        self._waiting.append((work, done))
        self._writing.submit(self._commit_waiting)
        answer = asyncio.wrap_future(done)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if not done.cancel():  # it has begun: the next caller finds it done, or undone
                while not answer.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([answer])
                answer.exception()  # mark it as retrieved
            raise

    def _commit_waiting(self) -> None:
        """Run what waits in one transaction, and answer once that is on the disk."""
        batch = list[tuple[Callable[[Connection], Any], Future[Any]]]()
        while self._waiting and len(batch) < WORKS_PER_TRANSACTION:
            work, done = self._waiting.popleft()
            if done.set_running_or_notify_cancel():
                batch.append((work, done))
        if not batch:  # an earlier call has taken all
            return
        outcomes: list[Callable[[Future[Any]], None]]
        try:
            self._check_place()
            with self._engine.begin() as connection:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                outcomes = [_run_work(connection, work) for work, _ in batch]
        except BaseException as error:  # noqa: BLE001 - all of them hear it
            outcomes = [partial(Future.set_exception, exception=error)] * len(batch)
        for (_, done), answer in zip(batch, outcomes, strict=True):
            answer(done)

    async def _read(self, work: Callable[[Connection], Result]) -> Result:
        def read_now() -> Result:
            self._check_place()
            with self._engine.connect() as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._reading, read_now)

    def _check_place(self) -> None:
        """Raise FileNotFoundError if the file was removed or replaced: what is written to it would be lost."""
        if not os.path.samestat(self._path.stat(), self._place):
            raise FileNotFoundError(errno.ENOENT, "another file than at the start", str(self._path))

    async def find_damage(self) -> tuple[str, ...]:
        try:
            found = await self.read(
                lambda connection: connection.exec_driver_sql("PRAGMA quick_check(10)").scalars().all()
            )
        except DatabaseError as error:
            code = getattr(error.orig, "sqlite_errorcode", 0)
            if {code, code & 0xFF} & NO_DAMAGE:
                raise
            return (str(error.orig),)
        return tuple(words for words in found if words != "ok")

    def lock_alone(self, connection: Connection, what: str) -> None:
        pass  # there is one writer

    def announce_change(self, connection: Connection, topic: str) -> None:
        pass  # there is one process

    async def listen_for_changes(self, heard: Callable[[str], None]) -> None:
        await asyncio.Event().wait()

    def process_gone(self, process: ColumnElement[str]) -> ColumnElement[bool]:
        return false()

    @property
    def clock(self) -> ColumnElement[float]:
        return literal_column("(julianday('now') - 2440587.5) * 86400.0", Float)

    async def erase_deleted(self) -> None:
        def checkpoint() -> int:
            # The write-ahead log still holds the deleted rows.
            self._check_place()
            with self._engine.connect() as connection:
                busy, *_ = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
                return int(busy)

        if await asyncio.get_running_loop().run_in_executor(self._writing, checkpoint):
            raise OSError("the write-ahead log is in use")


def _set_pragmas(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for name, value in PRAGMAS.items():
        cursor.execute(f"PRAGMA {name}={value}")
    cursor.close()


def _discard_unusable(context: ExceptionContext) -> None:
    """Close every connection after an error that outlasts its cause: one that was opened on a read-only disk never writes again."""
    code = getattr(context.original_exception, "sqlite_errorcode", 0)
    if code & 0xFF in _CONNECTION_ERRORS:
        context.is_disconnect = True


def _run_work(connection: Connection, work: Callable[[Connection], Any]) -> Callable[[Future[Any]], None]:
    """Run a work, and undo what it did if it raises; raise that only if SQLite has given up the whole transaction, as on a full disk."""
    driver: Any = connection.connection.driver_connection
    connection.exec_driver_sql("SAVEPOINT work")
    try:
        result = work(connection)
        connection.exec_driver_sql("RELEASE work")
    except Exception as error:
        if connection.invalidated or not driver.in_transaction:
            raise
        connection.exec_driver_sql("ROLLBACK TO work")
        connection.exec_driver_sql("RELEASE work")
        return partial(Future.set_exception, exception=error)
    return partial(Future.set_result, result=result)


class Postgres(Database):
    """A PostgreSQL database, for any number of replicas.

    Args:
        url: `postgresql://user:password@host:port/database`.

    Raises:
        Misuse: another kind of URL.
    """

    shared, insert = True, staticmethod(postgresql.insert)

    def __init__(self, url: str) -> None:
        self.answer_s = ANSWER_TIMEOUT_S
        self._url = postgres_url(url)
        self._engine = self._make_engine(
            COMMAND_TIMEOUT_S,
            pool_size=CONNECTIONS_MAX,
            max_overflow=0,
            pool_timeout=CONNECTION_TIMEOUT_S,
            pool_pre_ping=True,  # the server may have been restarted
        )

    def _make_engine(self, command_s: float, **pool: Any) -> AsyncEngine:
        connecting = {
            "timeout": CONNECTION_TIMEOUT_S,
            "command_timeout": command_s,
            "target_session_attrs": "read-write",  # of several hosts the primary
            # Whatever the server's defaults, committed rows are on its disk.
            "server_settings": {
                "application_name": "veilsum",
                "synchronous_commit": "on",
                "idle_in_transaction_session_timeout": f"{1000 * COMMAND_TIMEOUT_S:.0f}",
            },
        }
        return create_async_engine(self._url, hide_parameters=True, connect_args=connecting, **pool)

    async def start(self, claim: Change | None = None) -> None:
        fsync = await self.read(lambda connection: connection.exec_driver_sql("SHOW fsync").scalar_one())
        if fsync != "on":
            raise Misuse(
                "the PostgreSQL server runs with fsync = off and may lose what it acknowledged: turn it on"
            )
        await super().start(claim)

    async def stop(self) -> None:
        await self._engine.dispose()

    async def migrate_tables(self, change: Change) -> None:
        # On a connection of its own: its commands may take longer.
        engine = self._make_engine(MIGRATION_S, poolclass=NullPool)
        async with asyncio.timeout(MIGRATION_S), engine.begin() as connection:
            await connection.run_sync(self._migrate_alone, change)

    async def _write(self, work: Callable[[Connection], Result]) -> Result:
        # READ COMMITTED: code that relies on what it read says so by a condition, a key or a row lock.
        async with self._engine.begin() as connection:
            return await connection.run_sync(work)

    async def _read(self, work: Callable[[Connection], Result]) -> Result:
        async with self._engine.connect() as connection:
            return await connection.run_sync(work)

    def lock_alone(self, connection: Connection, what: str) -> None:
        connection.exec_driver_sql(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"veilsum {what}",)
        )

    def announce_change(self, connection: Connection, topic: str) -> None:
        connection.exec_driver_sql("SELECT pg_notify($1, $2)", (NOTIFY_CHANNEL, topic))

    async def listen_for_changes(self, heard: Callable[[str], None]) -> None:
        # This connection holds an advisory lock, which the server frees as soon as the process is dead.
        lost = asyncio.Event()
        async with AsyncExitStack() as ending:
            async with asyncio.timeout(CONNECTION_TIMEOUT_S):
                connection = await ending.enter_async_context(self._engine.connect())
                driver: Any = (await connection.get_raw_connection()).driver_connection
                driver.add_termination_listener(lambda _: lost.set())
                await connection.execute(
                    select(func.pg_advisory_lock(_process_lock(literal(self.process_name))))
                )
                await connection.commit()
                await driver.add_listener(
                    NOTIFY_CHANNEL, lambda _connection, _pid, _channel, topic: heard(topic)
                )
            try:
                while not lost.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(CONNECTION_TIMEOUT_S):
                            await lost.wait()
                    # A connection may be gone without a word.
                    await driver.execute("SELECT 1", timeout=CONNECTION_TIMEOUT_S)
            except (DBAPIError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                raise OSError("the connection to the database is lost") from error
            finally:
                await connection.invalidate()
        raise OSError("the connection to the database is lost")

    def process_gone(self, process: ColumnElement[str]) -> ColumnElement[bool]:
        return func.pg_try_advisory_xact_lock_shared(_process_lock(process))

    @property
    def clock(self) -> ColumnElement[float]:
        return literal_column("extract(epoch from clock_timestamp())::float8", Float)

    async def erase_deleted(self) -> None:
        # The old file, with shares in it, is unlinked. The server's write-ahead log and its archives keep copies until they are recycled.
        async with asyncio.timeout(COMMAND_TIMEOUT_S), self._engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.exec_driver_sql(f"SET lock_timeout = {1000 * VACUUM_LOCK_TIMEOUT_S:.0f}")
            try:
                await connection.exec_driver_sql("VACUUM FULL events")
            except DBAPIError as error:
                raise OSError("the events are in use") from error
            finally:
                await connection.exec_driver_sql("RESET lock_timeout")


def _process_lock(process: ColumnElement[str]) -> ColumnElement[int]:
    return func.hashtextextended("veilsum process " + process, 0)


_PARAMETERS = frozenset({"host", "passfile", "port", "ssl", "sslmode"})
_TLS = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
"""libpq's words, which asyncpg takes as `ssl`."""


def postgres_url(url: str) -> Any:
    """Parse a PostgreSQL URL for SQLAlchemy and asyncpg; Misuse, which quotes nothing of it, for any other."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the port is not a number: perhaps the end of a password
        parsed = None
    # An "@" in a password would end it early, and make its rest the host or the port, which errors and logs name.
    if (
        parsed is None
        or parsed.get_backend_name() not in {"postgresql", "postgres"}
        or url.count("@") > (parsed.username is not None)
    ):
        raise Misuse(
            "VEILSUM_DATABASE_URL: expected postgresql://user:password@host:port/database; percent-encode the password: "
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
        raise Misuse(f"sslmode in VEILSUM_DATABASE_URL: expected one of {', '.join(_TLS)}")
    driven = parsed.set(drivername="postgresql+asyncpg", query=query)
    try:
        driven.get_dialect()().create_connect_args(driven)
    except (ArgumentError, ValueError):
        raise Misuse(
            "after the ? of VEILSUM_DATABASE_URL: expected one host and one port, or a numbered port for each host"
        ) from None
    return driven
