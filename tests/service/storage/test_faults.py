"""Errors about an unusable database quote nothing from it."""

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest
from pydantic import SecretStr
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from service.coordination.checking import find_damage
from service.settings import Settings
from service.storage import dialects
from service.storage.dialects import Postgres
from service.storage.faults import reword_errors
from service.storage.stores import open_stores
from tests.support.servers import ADMIN_URL, Servers, execute, lacking
from tests.support.serving import running
from veilsum.cli.backup import create_backup
from veilsum.protocol.errors import Misuse

CANARY = "c4n4ry"


@pytest.mark.parametrize(
    "url",
    [
        *(
            f"postgresql://veilsum:{password}@db:5432/veilsum"
            for password in (
                f"a@{CANARY}:1",
                f"a@{CANARY}",
                f"a@b/{CANARY}",
                f"a@b?x={CANARY}",
                f"a@b?ssl={CANARY}",
                f"a:b@{CANARY}",
            )
        ),
        f"postgresql://v/{CANARY}:x@db/veilsum",
        f"postgresql://db:{CANARY}/veilsum",
        "",
        "x",
        "mysql://h/d",
        "sqlite:///x",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(Misuse, match="postgresql://") as refused:
        Postgres(url)
    assert CANARY not in str([refused.value, refused.value.__context__, refused.value.__cause__])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (asyncpg.InvalidPasswordError(CANARY), "password"),
        (TimeoutError(CANARY), "answer"),
        (ConnectionError(CANARY), "reached"),
        (asyncpg.TooManyConnectionsError(CANARY), "TooManyConnectionsError"),
        (OperationalError(CANARY, None, asyncpg.InvalidPasswordError(CANARY)), "password"),
    ],
)
def test_a_driver_s_error_is_a_sentence_of_ours(error: Exception, said: str) -> None:
    with pytest.raises(Misuse, match=said) as raised, reword_errors():
        raise error
    assert CANARY not in str(raised.value)


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "coordinator.sqlite3").write_bytes(b"no database" * 100)
    with pytest.raises(Misuse, match="is damaged"):
        async with open_stores(Settings(data_dir=tmp_path)):
            pass


@pytest.mark.parametrize(
    ("place", "said"),
    [("postgres:x@127.0.0.1:1/veilsum", "reached"), ("postgres:x@host.invalid/veilsum", "host")],
)
async def test_a_server_that_is_not_there(tmp_path: Path, place: str, said: str) -> None:
    with pytest.raises(Misuse, match=said):
        async with open_stores(Settings(data_dir=tmp_path, database_url=SecretStr(f"postgresql://{place}"))):
            pass


async def test_a_server_that_refuses(tmp_path: Path) -> None:
    try:
        await (await asyncpg.connect(ADMIN_URL)).close()
    except (OSError, asyncpg.PostgresError) as error:
        lacking(f"no PostgreSQL: {error}")
    elsewhere, nobody = ADMIN_URL.rpartition("/")[0], ADMIN_URL.replace("://postgres", "://veilsum-nobody")
    for url, said in (
        (f"{elsewhere}/veilsum-none", "exist"),
        (nobody, "password"),
        (f"{ADMIN_URL}?sslmode=verify-full", "reached|TLS|sslmode"),
    ):
        with pytest.raises(Misuse, match=said):
            async with open_stores(Settings(data_dir=tmp_path, database_url=SecretStr(url))):
                pass


async def test_a_database_that_takes_no_writes(servers: Servers, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, **await servers.settings(tmp_path))
    assert settings.database_url is not None
    url = settings.database_url.get_secret_value()
    await execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_read_only = on")
    with pytest.raises(Misuse, match="read-only"):
        async with open_stores(settings):
            pass
    await servers.drop()  # no other test can use it


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 2 MB, and return its folder."""
    command = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(tmp_path)]
    if (mounted := subprocess.run(command, capture_output=True, check=False)).returncode:
        lacking(f"no file system can be mounted: {mounted.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


def fill(disk: Path, left: int = 0) -> None:
    with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - left)


@pytest.mark.parametrize("left", [0, 4096, 16_384, 100_000])
@pytest.mark.parametrize("existing", [False, True])
async def test_a_start_on_a_full_disk_says_so(small: Path, left: int, *, existing: bool) -> None:
    """Wherever the start runs out of space: at the folder, the key, or any of the database's files."""
    folder = small / "data"
    if existing:
        async with running(folder):
            pass
    fill(small, left)
    if existing and left == 100_000:  # it needs no more
        async with running(folder) as server:
            assert (await server.client.get("/healthz")).status_code == 200
        return
    with pytest.raises(Misuse, match=r"disk.* full"):
        async with running(folder):
            pass


async def test_a_full_disk_is_no_damage(small: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, archive = small / "data", tmp_path_factory.mktemp("other") / "a.zip"
    async with running(folder):
        pass
    fill(small)
    with pytest.raises(Misuse, match="disk is full"):
        create_backup(folder, archive)
    with pytest.raises(Misuse, match="disk is full"):
        await find_damage(Settings(data_dir=folder))


async def test_a_server_that_ends_a_connection_or_has_none_left_is_no_damage(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialects, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(dialects, "CONNECTION_TIMEOUT_S", 0.2)
    database = Postgres((await servers.settings(tmp_path))["database_url"])

    async def ask(query: str) -> None:
        with database.quarantine.quarantine_errors("round 1"):
            await database.read_rows(text(query))

    with pytest.raises(DBAPIError):
        await ask("SELECT pg_terminate_backend(pg_backend_pid())")
    kept = asyncio.create_task(ask("SELECT pg_sleep(2)"))
    await asyncio.sleep(0.2)
    with pytest.raises(SQLAlchemyError):
        await ask("SELECT 1")
    await kept
    await database.stop()
    assert not database.quarantine.names


async def test_another_user_s_folder_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path / "data"):
        pass
    monkeypatch.setattr(dialects, "PRAGMAS", {"query_only": "ON", "user_version": "1"})
    with pytest.raises(Misuse, match="can't be written"):
        await find_damage(Settings(data_dir=tmp_path / "data"))


def test_a_full_disk_is_said() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError) as full:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(Misuse, match="disk is full"), reword_errors():
        raise OperationalError("", None, full.value) from full.value
