"""Write the one migration anew from the tables: `python -m service.storage.migrations`, in a checkout."""

from pathlib import Path

from alembic.autogenerate import produce_migrations, render_python_code
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine

from service.storage.tables import metadata

_SCRIPT = Path(__file__).parent / "versions" / "initial.py"
_TEXT = '''"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "initial"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    {upgrade}


def downgrade() -> None:
    """Drop them, and all that they hold."""
    {downgrade}
'''


def main() -> None:
    """Write it; let the formatter have a look afterwards."""
    with create_engine("sqlite://").connect() as connection:
        context = MigrationContext.configure(connection, opts={"target_metadata": metadata})
        operations = produce_migrations(context, metadata)
    assert operations.upgrade_ops is not None
    assert operations.downgrade_ops is not None
    upgrade, downgrade = (
        "\n".join(line for line in render_python_code(each).splitlines() if "# ###" not in line).strip()
        for each in (operations.upgrade_ops, operations.downgrade_ops)
    )
    _SCRIPT.write_text(_TEXT.format(upgrade=upgrade, downgrade=downgrade))


if __name__ == "__main__":
    main()
