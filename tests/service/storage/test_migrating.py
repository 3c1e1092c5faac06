import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, inspect, select, text

from service.storage import migrating
from service.storage.database import Database
from service.storage.stores import database_of
from service.storage.tables import audit_head, rosters
from tests.support.serving import Server, carry_out, running, settings_of
from veilsum.protocol.errors import Misuse
from veilsum.protocol.tags import PROTOCOL_VERSION

pytestmark = pytest.mark.both_stores


@pytest.fixture
async def database(tmp_path: Path, stores: str) -> AsyncIterator[Database]:
    found = database_of(await settings_of(tmp_path))
    yield found
    await found.stop()


def test_a_format_says_whose_protocol_s_messages_it_holds() -> None:
    assert migrating.newest_format().partition(".")[0] == str(PROTOCOL_VERSION)


async def test_new_tables_are_at_the_newest_revision(database: Database) -> None:
    await database.start()
    await database.start()
    assert await database.read(migrating.current_format) == migrating.newest_format()


def later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a later release, whose format has one more table."""
    scripts = folder / "migrations"
    shutil.copytree(migrating._MIGRATIONS_FOLDER, scripts)
    (scripts / "versions" / "later.py").write_text(
        f"from alembic import op\nrevision, down_revision = 'later', '{migrating.newest_format()}'\n"
        "def upgrade(): op.execute('CREATE TABLE later (number INTEGER)')\n"
    )
    monkeypatch.setattr(migrating, "_MIGRATIONS_FOLDER", scripts)


async def test_older_tables_are_upgraded_by_the_scripts(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.start()
    later(tmp_path, monkeypatch)
    await database.start()
    assert await database.read(lambda connection: inspect(connection).has_table("later"))
    assert await database.read(migrating.current_format) == "later"


async def test_tables_of_the_first_format_get_the_columns_of_later_ones(database: Database) -> None:
    await database.start()
    columns = {("rounds", "digests"), ("audit_head", "signature")}
    await carry_out(
        database,
        *(text(f"ALTER TABLE {table} DROP COLUMN {column}") for table, column in sorted(columns)),
        text("UPDATE alembic_version SET version_num = '4.1'"),
    )
    await database.start()

    def find(connection: Connection) -> set[tuple[str, str]]:
        here = inspect(connection)
        return {(table, each["name"]) for table, _ in columns for each in here.get_columns(table)}

    assert await database.read(find) >= columns
    assert await database.read(migrating.current_format) == migrating.newest_format()


async def format_of(server: Server) -> str | None:
    return await server.coordinator.database.read(migrating.current_format)


@pytest.mark.parametrize("wrong", [{"coordinator_key": "5e" * 32}, {"operator_token": "too short"}])
async def test_a_start_that_cannot_work_changes_nothing(
    tmp_path: Path, stores: str, wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    async with running(folder) as server:
        before = await format_of(server)
    later(tmp_path, monkeypatch)
    with pytest.raises(Misuse):
        async with running(folder, **wrong):
            pass
    monkeypatch.undo()
    async with running(folder) as server:
        assert await format_of(server) == before


async def test_a_migration_that_fails_leaves_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(connection: Connection) -> None:
        migrating.upgrade_tables(connection)
        raise OSError("the power is gone")

    with pytest.raises(OSError, match="power"):
        await database.migrate_tables(half)
    await database.start()


async def test_what_counts_for_years_has_64_bits(database: Database) -> None:
    await database.start()
    await carry_out(
        database,
        insert(rosters).values(federation="a", number=1 << 40, body=b""),
        insert(audit_head).values(id=0, number=1 << 40, head="b"),
    )
    assert await database.read_value(select(rosters.c.number)) == 1 << 40


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE alembic_version SET version_num = '2.7'", r"format 2\.7"),
        ("DELETE FROM alembic_version", "format"),
    ],
)
async def test_another_format_is_refused_and_left_as_it_is(
    database: Database, change: str, said: str
) -> None:
    await database.start()
    await carry_out(database, text(change), text("DROP TABLE leases"))
    with pytest.raises(Misuse, match=said):
        await database.start()
    assert not await database.read(lambda connection: inspect(connection).has_table("leases"))
