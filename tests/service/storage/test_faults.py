"""A database that can't be worked with is named in words that quote nothing."""

from pathlib import Path

import asyncpg
import pytest
from pydantic import SecretStr
from sqlalchemy.exc import OperationalError

from protocol.errors import Misuse
from service.settings import Settings
from service.storage.dialects import postgres_url
from service.storage.faults import worded
from service.storage.stores import opened
from tests.service.servers import ADMIN_URL, lacking

CANARY = "c4n4ry"


@pytest.mark.parametrize(
    "password",
    [
        f"a@{CANARY}:1",
        f"a@{CANARY}",
        f"a@b/{CANARY}",
        f"a@b?x={CANARY}",
        f"a@b?ssl={CANARY}",
        f"a:b@{CANARY}",
    ],
)
def test_a_password_that_is_not_encoded_is_refused_and_not_quoted(password: str) -> None:
    with pytest.raises(Misuse, match="percent-encode the password") as refused:
        postgres_url(f"postgresql://veilsum:{password}@db:5432/veilsum")
    chain = [refused.value, refused.value.__context__, refused.value.__cause__]
    assert CANARY not in str(chain)


@pytest.mark.parametrize(
    "url", [f"postgresql://v/{CANARY}:x@db/veilsum", f"postgresql://db:{CANARY}/veilsum"]
)
def test_neither_is_what_stands_where_it_should_not(url: str) -> None:
    with pytest.raises(Misuse, match="percent-encode") as refused:
        postgres_url(url)
    assert CANARY not in str([refused.value, refused.value.__context__])


def test_an_encoded_password_is_taken() -> None:
    url = postgres_url("postgresql://v:p%40s%3As%2F%3Fword:x@db:5432/veilsum")
    assert (url.password, url.host, url.port, url.database) == ("p@s:s/?word:x", "db", 5432, "veilsum")
    assert postgres_url("postgresql:///veilsum?host=a:1&host=b:2").query["host"] == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sslmode=always", "sslmode in VEILSUM_DATABASE_URL is to be one of disable, allow, prefer"),
        ("ssl=true", "is to be one of"),
        (f"port={CANARY}", "a numbered port for each host"),
        ("host=a&host=b:1", "a numbered port for each host"),
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
    with pytest.raises(Misuse, match=r"the database fails \(DatabaseError\)"):
        async with opened(Settings(data_dir=tmp_path)):
            pass


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("postgres:x@127.0.0.1:1/veilsum", "can't be reached"),
        ("postgres:x@host.invalid/veilsum", "whose name nobody knows"),
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
