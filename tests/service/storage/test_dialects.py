import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, insert, select
from sqlalchemy.exc import IntegrityError

from service.storage import dialects as module
from service.storage.dialects import Sqlite
from service.storage.tables import links, nonces

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
    async with database.transaction() as connection:
        for _ in range(times):
            await connection.execute(insert(nonces).values({**ROW, **values}))


async def test_every_connection_is_durable_and_forgets(database: Sqlite) -> None:
    wanted = {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 10_000,
        "secure_delete": 1,
    }
    async with database.reading() as one, database.reading() as other:
        for connection in (one, other):
            for name, value in wanted.items():
                assert (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one() == value, name


async def test_the_files_are_private(tmp_path: Path, database: Sqlite) -> None:
    await added(database)
    assert modes(tmp_path) == {"db": 0o600, "db-shm": 0o600, "db-wal": 0o600}


async def test_an_exception_rolls_back_and_tells_no_values(database: Sqlite) -> None:
    with pytest.raises(IntegrityError) as caught:
        await added(database, 2, signer="canary")
    assert "canary" not in str(caught.value)
    async with database.reading() as connection:
        assert (await connection.execute(select(nonces))).all() == []


async def test_what_a_writer_reads_holds_until_it_writes(database: Sqlite) -> None:
    """Two rounds that end in the same moment get two positions in the chain."""

    async def append() -> None:
        async with database.transaction() as connection:
            position = (await connection.execute(select(func.count()).select_from(links))).scalar_one()
            await asyncio.sleep(0)
            await connection.execute(insert(links).values(federation="f", position=position, body=b""))

    await asyncio.gather(*(append() for _ in range(20)))
    async with database.reading() as connection:
        positions = (await connection.execute(select(links.c.position).order_by(links.c.position))).scalars()
        assert list(positions) == list(range(20))


async def test_work_that_is_handed_over_is_kept_whole_or_not_at_all(database: Sqlite) -> None:
    def twice(connection: Connection) -> int:
        return sum(database.add(connection, nonces, ROW) for _ in range(2))

    def failing(connection: Connection) -> None:
        assert database.add(connection, nonces, {**ROW, "nonce": "other"})
        raise OSError("full")

    assert await database.write(twice) == 1
    with pytest.raises(OSError, match="full"):
        await database.write(failing)
    assert await database.values(select(nonces.c.nonce)) == ["n"]


async def test_a_writer_that_goes_away_is_waited_for(database: Sqlite) -> None:
    """Else what the next one reads might not hold until it writes."""
    began, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        began.set()
        go_on.wait(10)
        database.add(connection, nonces, ROW)

    async def next_one() -> int:
        async with database.transaction() as connection:
            counted = await connection.execute(select(func.count()).select_from(nonces))
            return int(counted.scalar_one())

    asked = asyncio.create_task(database.write(slow))
    await asyncio.to_thread(began.wait, 10)
    asked.cancel()
    other = asyncio.create_task(next_one())
    await asyncio.sleep(0.02)
    assert not asked.done()
    assert not other.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert await other == 1


async def test_what_was_deleted_is_gone_from_the_files(tmp_path: Path, database: Sqlite) -> None:
    body = b"a share that nobody may find" * 500
    async with database.transaction() as connection:
        await connection.execute(insert(links).values(federation="f", position=0, body=body))
    await database.forget()
    assert holding(tmp_path, body[:28]) == ["db"]
    async with database.transaction() as connection:
        await connection.execute(links.delete())
    await database.forget()
    assert holding(tmp_path, body[:28]) == []


async def test_forgetting_waits_for_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.PRAGMAS, "busy_timeout", "10")
    database = Sqlite(tmp_path / "db")
    await database.start()
    async with database.reading() as reader:
        await reader.exec_driver_sql("BEGIN")
        (await reader.execute(select(nonces))).all()
        await added(database)
        with pytest.raises(OSError, match="in use"):
            await database.forget()
        await reader.exec_driver_sql("ROLLBACK")
    await database.forget()
    await database.stop()


async def test_a_cancelled_query_holds_no_transaction(database: Sqlite) -> None:
    await added(database)

    async def query() -> None:
        """Its first row takes a while; the others are there."""
        async with database.reading() as connection:
            await connection.exec_driver_sql(
                "WITH RECURSIVE count(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM count WHERE x < 1000000)"
                " SELECT name, (SELECT max(x) FROM count) FROM sqlite_master"
            )

    asked = asyncio.create_task(query())
    await asyncio.sleep(0.02)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await database.forget()
