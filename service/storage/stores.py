"""The database and the store of blobs that the settings choose."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from service.settings import Settings
from service.storage import migrating
from service.storage.blobs import Blobs, FileBlobs
from service.storage.database import Database
from service.storage.dialects import Postgres, Sqlite
from service.storage.faults import worded
from service.storage.folder import DataFolderLock, make_folder
from service.storage.objects import ObjectBlobs


def database_of(settings: Settings) -> Database:
    """PostgreSQL where a URL names it, else SQLite in the data folder; Misuse for another URL."""
    if settings.database_url is not None:
        return Postgres(settings.database_url.get_secret_value())
    return Sqlite(settings.data_dir / "coordinator.sqlite3")


def blobs_of(settings: Settings) -> Blobs:
    """A bucket where a URL names it, else files in the data folder; Misuse for another URL."""
    if settings.blobs_url is not None:
        return ObjectBlobs(settings.blobs_url, settings.blobs_endpoint)
    return FileBlobs(settings.data_dir / "blobs")


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[tuple[Database, Blobs]]:
    """Open both stores; closed when the block ends.

    Raises:
        Misuse: another process works on the data folder's SQLite; a URL is of no store we know; the database can't be reached; or
            as `Database.start`.
    """
    async with _database(settings) as database:
        with worded():
            await database.start()
        yield database, blobs_of(settings)


async def revisions(settings: Settings, *, upgrade: bool = False) -> dict[str, str | None]:
    """Return the revision of the database's tables, None without tables, and the one that this release needs.

    Args:
        settings: of a coordinator.
        upgrade: bring the tables to that revision first; Misuse as `migrating.upgrade`.
    """
    async with _database(settings) as database:
        with worded():
            if upgrade:
                await database.migrate(migrating.upgrade)
            async with database.reading() as connection:
                found = await connection.run_sync(migrating.current)
    return {"revision": found, "newest": migrating.newest()}


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[Database]:
    """Nobody else's meanwhile, if it is a file."""
    async with AsyncExitStack() as ending:
        make_folder(settings.data_dir)
        if settings.database_url is None:
            ending.enter_context(DataFolderLock(settings.data_dir))
        database = database_of(settings)
        ending.push_async_callback(database.stop)
        yield database
