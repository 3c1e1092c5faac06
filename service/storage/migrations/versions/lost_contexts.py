"""The admin closes attempts that the coordinator does not know."""

from alembic import op

from service.storage.tables import lost_contexts

revision = "3.4"
down_revision = "3.3"


def upgrade() -> None:
    """Make the table."""
    lost_contexts.create(op.get_bind())
