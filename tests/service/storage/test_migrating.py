import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, inspect, select, text

from service.settings import Settings
from service.storage import migrating
from service.storage.database import Database
from service.storage.stores import database_of
from service.storage.tables import audit_head, rosters, tokens
from tests.service import serving
from veilsum.protocol.errors import Misuse

ON_BOTH = True


@pytest.fixture
async def database(tmp_path: Path, stores: str) -> AsyncIterator[Database]:
    own = await serving.SERVERS.settings(tmp_path) if serving.SERVERS is not None else {}
    found = database_of(Settings(data_dir=tmp_path, **own))
    yield found
    await found.stop()


async def test_new_tables_are_at_the_newest_revision(database: Database) -> None:
    await database.start()
    await database.start()
    async with database.transaction() as connection:
        assert await connection.run_sync(migrating.current) == migrating.newest()


async def test_older_tables_are_upgraded_by_the_scripts(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.start()
    scripts = tmp_path / "migrations"
    shutil.copytree(migrating._SCRIPTS, scripts)
    (scripts / "versions" / "later.py").write_text(
        f"from alembic import op\nrevision, down_revision = 'later', '{migrating.newest()}'\n"
        "def upgrade(): op.execute('CREATE TABLE later (number INTEGER)')\n"
    )
    monkeypatch.setattr(migrating, "_SCRIPTS", scripts)
    await database.start()
    async with database.transaction() as connection:
        assert await connection.run_sync(lambda inner: inspect(inner).has_table("later"))
        assert await connection.run_sync(migrating.current) == "later"


async def test_tokens_of_the_first_revision_work_for_all_federations(database: Database) -> None:
    await database.start()
    async with database.transaction() as connection:
        await connection.execute(text("ALTER TABLE tokens DROP COLUMN federation"))
        await connection.execute(text("UPDATE alembic_version SET version_num = 'studies'"))
        await connection.execute(
            text(
                "INSERT INTO tokens (id, sha256, name, scopes, created_s) VALUES ('i', 's', 'n', 'rounds', 0)"
            )
        )
    await database.start()
    async with database.transaction() as connection:
        assert (await connection.execute(select(tokens.c.federation))).scalars().all() == [None]
    await database.stop()


async def test_a_migration_that_fails_leaves_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(connection: Connection) -> None:
        migrating.upgrade(connection)
        raise OSError("the power is gone")

    with pytest.raises(OSError, match="power"):
        await database.migrate(half)
    await database.start()


async def test_what_counts_for_years_has_64_bits(database: Database) -> None:
    await database.start()
    async with database.transaction() as connection:
        await connection.execute(insert(rosters).values(federation="a", number=1 << 40, body=b""))
        await connection.execute(insert(audit_head).values(id=0, number=1 << 40, head="b"))
        assert (await connection.execute(select(rosters.c.number))).scalar_one() == 1 << 40


async def test_unknown_tables_are_refused(database: Database) -> None:
    await database.start()
    for change, said in (
        ("UPDATE alembic_version SET version_num = 'later'", "revision later"),
        ("DELETE FROM alembic_version", "before the first release"),
    ):
        async with database.transaction() as connection:
            await connection.execute(text(change))
        with pytest.raises(Misuse, match=said):
            await database.start()
