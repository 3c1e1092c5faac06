import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Connection, event, func, insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from service.storage import dialects as module
from service.storage.dialects import READING_THREADS, Postgres, Sqlite
from service.storage.tables import events, links, nonces
from tests.support.servers import Servers
from tests.support.serving import carry_out

ROW = {"signer": "x", "nonce": "n", "expires_s": 0.0}


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Sqlite]:
    (tmp_path / "db").touch(mode=0o644)
    found = Sqlite(tmp_path / "db")
    await found.start()
    yield found
    await found.stop()


def modes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}


def holding(folder: Path, needle: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if needle in file.read_bytes()]


async def added(database: Sqlite, times: int = 1, **values: str) -> None:
    await carry_out(database, *[insert(nonces).values({**ROW, **values})] * times)


async def test_every_connection_is_durable_and_forgets(database: Sqlite) -> None:
    wanted = {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 10_000,
        "secure_delete": 1,
    }

    def found(connection: Connection) -> dict[str, object]:
        return {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in wanted}

    assert [await database.read(found), await database.write(found)] == [wanted] * 2


async def test_a_connection_that_cannot_write_any_more_is_not_used_again(database: Sqlite) -> None:
    """As after seconds in which the folder was read-only."""

    def spoil(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA query_only = ON")

    def spoil_slowly(connection: Connection) -> None:
        spoil(connection)
        threading.Event().wait(0.05)  # so that each of them takes a connection of its own

    await asyncio.gather(
        *(database.read(spoil_slowly) for _ in range(READING_THREADS)), database.write(spoil)
    )
    with pytest.raises(OperationalError, match="readonly"):
        await added(database, nonce="lost")
    for number in range(8):
        await added(database, nonce=str(number))


@pytest.mark.parametrize("replaced", [False, True])
async def test_nothing_is_written_to_a_file_that_was_removed(
    tmp_path: Path, database: Sqlite, *, replaced: bool
) -> None:
    await added(database)
    path, aside = tmp_path / "db", tmp_path / "aside"
    path.rename(aside)
    if replaced:
        shutil.copy(aside, path)
    for work in (database.write, database.read):
        with pytest.raises(FileNotFoundError):
            await work(lambda connection: connection.execute(select(nonces)).all())
    assert path.exists() is replaced
    aside.rename(path)
    await added(database, nonce="later")


async def test_the_files_are_private(tmp_path: Path, database: Sqlite) -> None:
    await added(database)
    assert modes(tmp_path) == {"db": 0o600, "db-shm": 0o600, "db-wal": 0o600}


async def test_an_exception_rolls_back_and_tells_no_values(database: Sqlite) -> None:
    with pytest.raises(IntegrityError) as caught:
        await added(database, 2, signer="canary")
    assert "canary" not in str(caught.value)
    assert await database.read_rows(select(nonces)) == []


async def test_what_a_writer_reads_holds_until_it_writes(database: Sqlite) -> None:
    """Two rounds that end at the same moment get two positions in the chain."""

    def append(connection: Connection) -> None:
        position = connection.execute(select(func.count()).select_from(links)).scalar_one()
        connection.execute(insert(links).values(federation="f", position=position, body=b""))

    await asyncio.gather(*(database.write(append) for _ in range(20)))
    positions = await database.read_values(select(links.c.position).order_by(links.c.position))
    assert list(positions) == list(range(20))


@dataclass
class Busy:
    """A busy writer, so that further requests share the next transaction."""

    database: Sqlite
    began: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def work(self, connection: Connection) -> None:
        self.began.set()
        assert self.go_on.wait(10)
        self.database.add_row(connection, nonces, {**ROW, "nonce": "busy"})

    async def begin(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self.database.write(self.work))
        assert await asyncio.to_thread(self.began.wait, 10)
        return task

    def ask(self, work: Callable[[Connection], Any]) -> asyncio.Task[Any]:
        return asyncio.create_task(self.database.write(work))

    def adding(self, nonce: str) -> asyncio.Task[bool]:
        row = {**ROW, "nonce": nonce}
        return self.ask(lambda connection: self.database.add_row(connection, nonces, row))


@pytest.fixture
async def busy(database: Sqlite) -> AsyncIterator[Busy]:
    found = Busy(database)
    task = await found.begin()
    yield found
    found.go_on.set()
    await asyncio.wait([task])


def commits(database: Sqlite) -> list[Connection]:
    """Return a list that grows with each commit."""
    found: list[Connection] = []
    event.listen(database._engine, "commit", found.append)
    return found


async def stored(database: Sqlite) -> set[str]:
    return set(await database.read_values(select(nonces.c.nonce)))


async def test_what_comes_meanwhile_is_committed_at_once(
    database: Sqlite, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORKS_PER_TRANSACTION", 8)
    counted, asked = commits(database), [busy.adding(str(number)) for number in range(20)]
    await asyncio.sleep(0)
    busy.go_on.set()
    assert await asyncio.gather(*asked) == [True] * 20
    assert len(counted) == 4, "the busy one's, then 8, 8 and 4"
    assert len(await stored(database)) == 21


async def test_nothing_is_answered_before_it_is_committed(database: Sqlite, busy: Busy) -> None:
    order: list[str] = []
    event.listen(database._engine, "commit", lambda _: order.append("commit"))
    asked = busy.adding("a"), busy.adding("b")
    for task in asked:
        task.add_done_callback(lambda _: order.append("answer"))
    await asyncio.sleep(0)
    busy.go_on.set()
    await asyncio.gather(*asked)
    assert order == ["commit", "commit", "answer", "answer"]


async def test_a_work_that_fails_undoes_its_own_and_nothing_else(database: Sqlite, busy: Busy) -> None:
    def failing(connection: Connection) -> None:
        assert database.add_row(connection, nonces, {**ROW, "nonce": "undone"})
        raise OSError("full")

    def doubled(connection: Connection) -> None:
        for _ in range(2):
            connection.execute(insert(nonces).values({**ROW, "nonce": "undone, too"}))

    asked = busy.adding("before"), busy.ask(failing), busy.ask(doubled), busy.adding("after")
    await asyncio.sleep(0)
    busy.go_on.set()
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in told] == [bool, OSError, IntegrityError, bool]
    assert await stored(database) == {"busy", "before", "after"}


@pytest.mark.parametrize("how", ["commit", "page", "rollback"])
async def test_all_hear_of_a_transaction_that_is_not_committed(
    database: Sqlite, busy: Busy, how: str
) -> None:
    """Because the commit fails, because SQLite aborts it, as on a full disk, or because one of its requests aborts it."""

    def fails(_: Connection) -> None:
        raise OSError("no room")

    def last(connection: Connection) -> None:
        if how == "commit":
            event.listen(database._engine, "commit", fails, once=True)
        elif how == "rollback":
            connection.rollback()
        else:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            try:
                connection.execute(insert(links).values(federation="f", position=0, body=bytes(1 << 20)))
            finally:
                connection.exec_driver_sql("PRAGMA max_page_count = 1000000")

    asked = busy.adding("before"), busy.ask(last), busy.adding("after")
    await asyncio.sleep(0)
    busy.go_on.set()
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, Exception) for each in told), told
    assert await stored(database) == {"busy"}
    assert await database.write(lambda connection: database.add_row(connection, nonces, ROW))
    assert await stored(database) == {"busy", "n"}


async def test_who_is_cancelled_in_the_queue_is_never_served(database: Sqlite, busy: Busy) -> None:
    gone, stays = busy.adding("gone"), busy.adding("stays")
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    busy.go_on.set()
    assert await stays
    assert await stored(database) == {"busy", "stays"}


async def test_who_is_cancelled_in_the_midst_hears_it_once_it_is_decided(database: Sqlite) -> None:
    """However often it is cancelled: the caller's lock is free when the next reader finds the result."""
    busy = Busy(database)
    task = await busy.begin()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
    busy.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await stored(database) == {"busy"}


async def test_what_was_deleted_is_gone_from_the_files(tmp_path: Path, database: Sqlite) -> None:
    body = b"a share that nobody may find" * 500
    await carry_out(database, insert(links).values(federation="f", position=0, body=body))
    await database.erase_deleted()
    assert holding(tmp_path, body[:28]) == ["db"]
    await carry_out(database, links.delete())
    await database.erase_deleted()
    assert holding(tmp_path, body[:28]) == []


async def test_forgetting_waits_for_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.PRAGMAS, "busy_timeout", "10")
    database = Sqlite(tmp_path / "db")
    await database.start()
    began, go_on = threading.Event(), threading.Event()

    def reading(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")
        connection.execute(select(nonces)).all()
        began.set()
        assert go_on.wait(10)

    reader = asyncio.create_task(database.read(reading))
    await asyncio.to_thread(began.wait, 10)
    await added(database)
    with pytest.raises(OSError, match="in use"):
        await database.erase_deleted()
    go_on.set()
    await reader
    await database.erase_deleted()
    await database.stop()


async def test_a_dump_of_the_events_holds_up_neither_others_nor_a_start(
    servers: Servers, tmp_path: Path
) -> None:
    url = (await servers.settings(tmp_path))["database_url"]
    database, started = Postgres(url), Postgres(url)
    await database.start()
    dumping = await asyncpg.connect(url)
    async with dumping.transaction():
        await dumping.execute("SELECT 1 FROM events")
        forgetting = asyncio.create_task(database.erase_deleted())
        await asyncio.sleep(0.2)  # until it waits for its lock
        async with asyncio.timeout(5):
            assert await database.read_rows(select(events)) == []
        with pytest.raises(OSError, match="in use"):
            await forgetting
        await started.start()
    await database.erase_deleted()
    await dumping.close()
    for each in (database, started):
        await each.stop()


async def test_a_cancelled_query_holds_no_transaction(database: Sqlite) -> None:
    await added(database)

    slow = text(
        "WITH RECURSIVE count(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM count WHERE x < 1000000)"
        " SELECT name, (SELECT max(x) FROM count) FROM sqlite_master"
    )
    asked = asyncio.create_task(database.read_rows(slow))
    await asyncio.sleep(0.02)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await database.erase_deleted()
