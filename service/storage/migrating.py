"""The format of what a database holds, by Alembic, on the caller's connection.

A format is a revision of Alembic's: the protocol version of the stored messages, a dot, and a number that rises with every other change of
what is stored.
"""

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
_MIGRATIONS_FOLDER = Path(__file__).parent / "migrations"


def newest_format() -> str:
    """Return the format that this release works with."""
    head = ScriptDirectory(str(_MIGRATIONS_FOLDER)).get_current_head()
    assert head is not None
    return head


def current_format(connection: Connection) -> str | None:
    """Return a database's format; None without tables."""
    return MigrationContext.configure(connection).get_current_revision()


def upgrade_tables(connection: Connection) -> None:
    """Make the tables, or bring them to the newest format.

    Raises:
        Misuse: this release does not read the format; nothing was changed.
    """
    found = current_format(connection)
    known = {script.revision for script in ScriptDirectory(str(_MIGRATIONS_FOLDER)).walk_revisions()}
    if found not in {None, *known} or (found is None and inspect(connection).has_table("rounds")):
        raise Misuse(
            f"the database has the format {found or 'of no release'}, and this release reads {', '.join(sorted(known))}; nothing was "
            "changed. Run the release that wrote it. To start over instead, name another data folder (or an empty database), and publish "
            "roster and studies there"
        )
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    if found is None:
        metadata.create_all(connection)
        command.stamp(config, "head")
    elif found != newest_format():
        command.upgrade(config, "head")
