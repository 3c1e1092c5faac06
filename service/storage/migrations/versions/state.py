"""A round that has ended has its state in a column, by which rounds are counted and listed without a look at their views."""

import json

import sqlalchemy as sa
from alembic import op

revision = "state"
down_revision = "wide"

_rounds = sa.table(
    "rounds", sa.column("id", sa.String), sa.column("final", sa.Text), sa.column("state", sa.String)
)


def upgrade() -> None:
    """Add it, as the views have it."""
    op.add_column("rounds", sa.Column("state", sa.String(16)))
    connection = op.get_bind()
    ended = sa.select(_rounds.c.id).where(_rounds.c.final.is_not(None))
    for name in connection.execute(ended).scalars().all():
        own = _rounds.c.id == name
        final = connection.execute(sa.select(_rounds.c.final).where(own)).scalar_one()
        connection.execute(sa.update(_rounds).where(own).values(state=json.loads(final)["state"]))
    op.create_index("rounds_by_state", "rounds", ["state"])


def downgrade() -> None:
    """Take it away."""
    op.drop_index("rounds_by_state", "rounds")
    op.drop_column("rounds", "state")
