from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, insert, inspect, select, text

from protocol.errors import Misuse
from service.settings import Settings
from service.storage import migrating
from service.storage.database import Database
from service.storage.dialects import Postgres, postgres_url
from service.storage.stores import database_of
from service.storage.tables import audit_head, metadata, rosters
from tests.service import serving

ON_BOTH = True


@pytest.fixture
async def database(tmp_path: Path, stores: str) -> Database:
    own = await serving.SERVERS.settings(tmp_path) if serving.SERVERS is not None else {}
    return database_of(Settings(data_dir=tmp_path, **own))


def differences(connection: Connection) -> list[object]:
    return list(compare_metadata(MigrationContext.configure(connection), metadata))


async def test_the_migrations_make_the_tables_and_take_them_away(database: Database) -> None:
    await database.start()
    await database.start()
    async with database.transaction() as connection:
        assert await connection.run_sync(differences) == []
        assert await connection.run_sync(migrating.current) == migrating.newest()
    await database.migrate(migrating.downgrade)
    async with database.transaction() as connection:
        left = await connection.run_sync(lambda inner: inspect(inner).get_table_names())
        assert left == ["alembic_version"]
        assert await connection.run_sync(migrating.current) is None
    await database.start()
    async with database.transaction() as connection:
        assert await connection.run_sync(differences) == []
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
    await database.stop()


async def test_what_counts_for_years_has_64_bits(database: Database) -> None:
    await database.start()
    async with database.transaction() as connection:
        await connection.execute(insert(rosters).values(federation="a", number=1 << 40, body=b""))
        await connection.execute(insert(audit_head).values(id=0, number=1 << 40, head="b"))
        assert (await connection.execute(select(rosters.c.number))).scalar_one() == 1 << 40
    await database.stop()


async def test_unknown_tables_are_refused(database: Database) -> None:
    await database.start()
    for change, said in (
        ("UPDATE alembic_version SET version_num = 'later'", "revision later"),
        ("UPDATE alembic_version SET version_num = 'state'", "before the first release"),
        ("DELETE FROM alembic_version", "before the first release"),
    ):
        async with database.transaction() as connection:
            await connection.execute(text(change))
        with pytest.raises(Misuse, match=said):
            await database.start()
    await database.stop()


@pytest.mark.parametrize("url", ["", "x", "mysql://h/d", "sqlite:///x"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(Misuse, match="postgresql://"):
        Postgres(url)


def test_a_url_may_say_how_to_connect() -> None:
    assert dict(postgres_url("postgresql://v@db/veilsum?sslmode=verify-full").query) == {"ssl": "verify-full"}
    assert dict(postgres_url("postgresql://v@db/veilsum?ssl=require").query) == {"ssl": "require"}
    with pytest.raises(Misuse, match=r"target_session_attrs after its \?; known are host, passfile"):
        postgres_url("postgresql://v@db/veilsum?target_session_attrs=any")
