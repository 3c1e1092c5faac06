"""The database and the store of blobs that the settings choose."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from service.settings import Settings, check_given
from service.storage import migrating
from service.storage.blobs import Blobs, FileBlobs
from service.storage.database import Database
from service.storage.dialects import Postgres, Sqlite
from service.storage.faults import reword_errors
from service.storage.folder import DATABASE_FILE, check_there, lock_folder
from service.storage.objects import ObjectBlobs
from veilsum.protocol.errors import Misuse
from veilsum.system.exposure import refuse_loose_mode
from veilsum.system.files import make_folder


def prepare_folder(settings: Settings) -> None:
    """Make the data folder. Raises Misuse where others may enter it or read a secret, and for a misspelt setting."""
    check_given()
    make_folder(settings.data_dir)
    refuse_loose_mode(settings.data_dir, group_may=True)


def database_of(settings: Settings) -> Database:
    """Return PostgreSQL if the URL names it, or SQLite in the data folder without one. Raises Misuse for another URL."""
    if settings.database_url is not None:
        return Postgres(settings.database_url.get_secret_value())
    return Sqlite(settings.data_dir / DATABASE_FILE)


def blobs_of(settings: Settings) -> Blobs:
    """Return a bucket if the URL names one, or files in the data folder without one. Raises Misuse for another URL, or an endpoint alone."""
    if settings.blobs_url is not None:
        return ObjectBlobs(settings.blobs_url, settings.blobs_endpoint)
    if settings.blobs_endpoint:
        raise Misuse("VEILSUM_BLOBS_ENDPOINT goes with VEILSUM_BLOBS_URL")
    return FileBlobs(settings.data_dir / "blobs")


@asynccontextmanager
async def open_stores(
    settings: Settings, claim: migrating.Change | None = None
) -> AsyncIterator[tuple[Database, Blobs]]:
    """Open both stores; closed when the block ends.

    Args:
        settings: of a coordinator.
        claim: as in `Database.start`.

    Raises:
        Misuse: another process works on the data folder's SQLite; a URL is of no store we know; the database can't be reached; or
            as `Database.start`.
    """
    async with connect_database(settings, new=True) as database:
        with reword_errors():
            await database.start(claim)
        yield database, blobs_of(settings)


async def database_formats(settings: Settings, *, upgrade: bool = False) -> dict[str, str | None]:
    """Return the format of the database, None without tables, and the one that this release works with.

    Args:
        settings: of a coordinator.
        upgrade: bring the database to that format first; Misuse as `migrating.upgrade_tables`.
    """
    async with connect_database(settings) as database:
        with reword_errors():
            if upgrade:
                await database.migrate_tables(migrating.upgrade_tables)
            found = await database.read(migrating.current_format)
    return {"format": found, "newest": migrating.newest_format()}


@asynccontextmanager
async def connect_database(settings: Settings, *, new: bool = False) -> AsyncIterator[Database]:
    """Yield the database without upgrading it. A file's data folder is locked during the block; the file must exist unless it may be `new`."""
    async with AsyncExitStack() as ending:
        with reword_errors():
            if not new and settings.database_url is None:
                check_there(settings.data_dir)
            prepare_folder(settings)
            if settings.database_url is None:
                ending.enter_context(lock_folder(settings.data_dir))
        database = database_of(settings)
        ending.push_async_callback(database.stop)
        yield database
