"""A database that can't be worked with is named in words that quote nothing."""

import sqlite3
from pathlib import Path

import asyncpg
import pytest
from pydantic import SecretStr
from sqlalchemy.exc import OperationalError

from service.settings import Settings
from service.storage.dialects import Postgres, postgres_url
from service.storage.faults import worded
from service.storage.stores import opened
from tests.service.servers import ADMIN_URL, lacking
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
    with pytest.raises(Misuse, match=r"postgresql://.*percent-encode the password") as refused:
        Postgres(url)
    assert CANARY not in str([refused.value, refused.value.__context__, refused.value.__cause__])


def test_a_url_is_read_as_it_stands() -> None:
    url = postgres_url("postgresql://v:p%40s%3As%2F%3Fword:x@db:5432/veilsum")
    assert (url.password, url.host, url.port, url.database) == ("p@s:s/?word:x", "db", 5432, "veilsum")
    assert postgres_url("postgresql:///veilsum?host=a:1&host=b:2").query["host"] == ("a:1", "b:2")
    for name, value in (("sslmode", "verify-full"), ("ssl", "require")):
        assert dict(postgres_url(f"postgresql://v@db/veilsum?{name}={value}").query) == {"ssl": value}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sslmode=always", "sslmode in VEILSUM_DATABASE_URL is to be one of disable, allow, prefer"),
        ("ssl=true", "is to be one of"),
        (f"port={CANARY}", "a numbered port for each host"),
        ("host=a&host=b:1", "a numbered port for each host"),
        ("target_session_attrs=any", r"target_session_attrs after its \?; known are host, passfile"),
    ],
)
def test_values_after_the_question_mark_are_looked_at(query: str, said: str) -> None:
    with pytest.raises(Misuse, match=said) as refused:
        postgres_url(f"postgresql://v@db/veilsum?{query}")
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (asyncpg.InvalidPasswordError(CANARY), "the database refuses this user, or the password"),
        (TimeoutError(CANARY), "does not answer"),
        (ConnectionError(CANARY), "can't be reached"),
        (asyncpg.TooManyConnectionsError(CANARY), r"fails \(TooManyConnectionsError\): look at its log"),
        (OperationalError(CANARY, None, asyncpg.InvalidPasswordError(CANARY)), "or the password"),
    ],
)
def test_a_driver_s_error_is_a_sentence_of_ours(error: Exception, said: str) -> None:
    with pytest.raises(Misuse, match=said) as raised, worded():
        raise error
    assert CANARY not in str(raised.value)


def test_what_is_no_database_s_passes() -> None:
    with pytest.raises(PermissionError), worded():
        raise PermissionError


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "coordinator.sqlite3").write_bytes(b"no database" * 100)
    with pytest.raises(Misuse, match=r"the database is damaged: .* restore a backup"):
        async with opened(Settings(data_dir=tmp_path)):
            pass


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("postgres:x@127.0.0.1:1/veilsum", "can't be reached"),
        ("postgres:x@host.invalid/veilsum", "a host with an unknown name"),
    ],
)
async def test_a_server_that_is_not_there(tmp_path: Path, place: str, said: str) -> None:
    with pytest.raises(Misuse, match=said):
        async with opened(Settings(data_dir=tmp_path, database_url=SecretStr(f"postgresql://{place}"))):
            pass


async def test_a_server_that_refuses(tmp_path: Path) -> None:
    try:
        await (await asyncpg.connect(ADMIN_URL)).close()
    except (OSError, asyncpg.PostgresError) as error:
        lacking(f"no PostgreSQL: {error}")
    elsewhere, nobody = ADMIN_URL.rpartition("/")[0], ADMIN_URL.replace("://postgres", "://veilsum-nobody")
    for url, said in (
        (f"{elsewhere}/veilsum-none", "is not there: make it"),
        (nobody, "refuses this user, or the password"),
        (
            f"{ADMIN_URL}?sslmode=verify-full",
            "can't be connected to as its URL asks|by TLS|not as sslmode asks",
        ),
    ):
        with pytest.raises(Misuse, match=said):
            async with opened(Settings(data_dir=tmp_path, database_url=SecretStr(url))):
                pass


def test_a_full_disk_is_said() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError) as full:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(Misuse, match="finds its disk full: make room"), worded():
        raise OperationalError("", None, full.value) from full.value
