"""What each ended round has published, by SHA-256: rounds that ended before are compared as far as their records go. And where a pruned audit log begins."""

import sqlalchemy as sa
from alembic import op

revision = "4.2"
down_revision = "4.1"


def upgrade() -> None:
    op.add_column("rounds", sa.Column("digests", sa.Text))
    op.add_column("audit_head", sa.Column("signature", sa.String(128)))
