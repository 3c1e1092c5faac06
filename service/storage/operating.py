"""What an operator does to the database's tables by hand."""

from contextlib import nullcontext
from functools import partial

from protocol.errors import Misuse
from service.settings import Settings
from service.storage import migrating
from service.storage.faults import worded
from service.storage.folder import FolderLock, make_folder
from service.storage.stores import database_of


class Tables:
    """The tables of the database that the settings name."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def revisions(self) -> dict[str, str | None]:
        """Where they are, None where there are none, and which revision this release works with."""
        return await self._changed(None)

    async def upgrade(self) -> dict[str, str | None]:
        """To this release's; Misuse as `migrating.upgrade`."""
        return await self._changed(migrating.upgrade)

    async def downgrade(self, revision: str) -> dict[str, str | None]:
        """To an older one.

        Raises:
            Misuse: there is no such revision.
        """
        if revision not in {"base", *migrating.known()}:
            raise Misuse(f"there is no revision {revision}: `base`, {', '.join(sorted(migrating.known()))}")
        return await self._changed(partial(migrating.downgrade, revision=revision))

    async def _changed(self, change: migrating.Change | None) -> dict[str, str | None]:
        make_folder(self._settings.data_dir)
        own = self._settings.database_url is None
        with FolderLock(self._settings.data_dir) if own else nullcontext():
            database = database_of(self._settings)
            try:
                with worded():
                    if change is not None:
                        await database.migrate(change)
                    async with database.reading() as connection:
                        found = await connection.run_sync(migrating.current)
                return {"revision": found, "newest": migrating.newest()}
            finally:
                await database.stop()
