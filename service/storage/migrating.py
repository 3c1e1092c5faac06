"""Migrations: Alembic's scripts in `migrations`, run on a connection that somebody else has opened."""

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from protocol.errors import Misuse

Change = Callable[[Connection], None]
"""What changes a database's tables inside a transaction."""

_UNRELEASED = frozenset({"initial", "wide", "state"})
"""Revisions of development versions, whose rounds know no study."""
_SCRIPTS = Path(__file__).parent / "migrations"


def newest() -> str:
    """The revision that this release works with."""
    head = ScriptDirectory(str(_SCRIPTS)).get_current_head()
    assert head is not None
    return head


def known() -> frozenset[str]:
    """Every revision that this release knows."""
    return frozenset(script.revision for script in ScriptDirectory(str(_SCRIPTS)).walk_revisions())


def current(connection: Connection) -> str | None:
    """The revision of a database's tables; None where there are none of ours."""
    return MigrationContext.configure(connection).get_current_revision()


def upgrade(connection: Connection) -> None:
    """To the newest revision.

    Raises:
        Misuse: the tables were made by a newer release, or before the first one.
    """
    found = current(connection)
    if found in _UNRELEASED or (found is None and inspect(connection).has_table("rounds")):
        raise Misuse(
            "the database was made before the first release and cannot be read: stop the coordinator, move its data folder away "
            "(or empty the database) and start again; the admin then publishes roster and studies anew"
        )
    if found is not None and found not in known():
        raise Misuse(
            f"the database is at revision {found}, which this release does not know: run the newer one"
        )
    if found != newest():
        command.upgrade(_config(connection), "head")


def downgrade(connection: Connection, revision: str = "base") -> None:
    """Back to an older revision, `base` for none; what the newer ones keep is lost."""
    command.downgrade(_config(connection), revision)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
