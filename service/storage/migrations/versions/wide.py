"""Roster versions and numbers of the audit log have 64 bits, where an integer has 32."""

import sqlalchemy as sa
from alembic import op

revision = "wide"
down_revision = "initial"

_COLUMNS = (
    ("rosters", "version"),
    ("cohorts", "roster_version"),
    ("audit", "number"),
    ("audit_head", "number"),
)


def upgrade() -> None:
    """Widen them; SQLite's are wide."""
    _change(sa.BigInteger())


def downgrade() -> None:
    """Narrow them; an error where a number does not fit."""
    _change(sa.Integer())


def _change(kind: sa.BigInteger | sa.Integer) -> None:
    if op.get_context().dialect.name == "postgresql":
        for table, column in _COLUMNS:
            op.alter_column(table, column, type_=kind)
