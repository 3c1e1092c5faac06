"""The revision of the database's tables, by Alembic, on a connection that somebody else has opened."""

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from service.storage.tables import metadata
from veilsum.protocol.errors import Misuse

Change = Callable[[Connection], None]
"""What changes a database's tables inside a transaction."""
_SCRIPTS = Path(__file__).parent / "migrations"


def newest() -> str:
    """Return the revision that this release works with."""
    head = ScriptDirectory(str(_SCRIPTS)).get_current_head()
    assert head is not None
    return head


def current(connection: Connection) -> str | None:
    """Return the revision of a database's tables; None without any."""
    return MigrationContext.configure(connection).get_current_revision()


def upgrade(connection: Connection) -> None:
    """Make the tables, or bring them to the newest revision.

    Raises:
        Misuse: the tables are of another release, which is newer, or older than the first one.
    """
    found = current(connection)
    known = {script.revision for script in ScriptDirectory(str(_SCRIPTS)).walk_revisions()}
    if found not in {None, *known} or (found is None and inspect(connection).has_table("rounds")):
        raise Misuse(
            f"the database is at revision {found}, which this release does not know. Run the newer release; or, if the database was made "
            "before the first release, move the data folder away (or empty the database), start again, and publish roster and studies anew"
        )
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if found is None:
        metadata.create_all(connection)
        command.stamp(config, "head")
    elif found != newest():
        command.upgrade(config, "head")
