"""The two stores that the settings choose, opened together with what keeps others from spoiling them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from service.settings import Settings
from service.storage.blobs import Blobs, FileBlobs
from service.storage.database import Database
from service.storage.dialects import Postgres, Sqlite
from service.storage.faults import worded
from service.storage.folder import FolderLock, make_folder
from service.storage.objects import ObjectBlobs
from service.storage.timing import TimedBlobs


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
    """Both stores, ready; closed when the block ends.

    Raises:
        Misuse: another process works on the data folder's SQLite; a URL is of no store we know; the database can't be reached; or
            as `Database.start`.
    """
    async with AsyncExitStack() as ending:
        make_folder(settings.data_dir)
        if settings.database_url is None:
            ending.enter_context(FolderLock(settings.data_dir))
        database = database_of(settings)
        ending.push_async_callback(database.stop)
        with worded():
            await database.start()
        yield database, TimedBlobs(blobs_of(settings))
