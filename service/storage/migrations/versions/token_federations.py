"""Tokens that work for one federation only."""

import sqlalchemy as sa
from alembic import op

revision = "federations"
down_revision = "studies"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("federation", sa.String(64)))
