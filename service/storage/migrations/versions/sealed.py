"""The views and records of ended rounds have a checksum."""

from alembic import op
from sqlalchemy import select, update

from service.storage.faults import seal_text
from service.storage.tables import rounds

revision = "3.2"
down_revision = "3.1"


def upgrade() -> None:
    """Seal what is stored."""
    connection = op.get_bind()
    ended = select(rounds.c.id, rounds.c.final, rounds.c.record).where(rounds.c.final.is_not(None))
    for row in connection.execute(ended).all():
        columns = {"final": seal_text(row.final), "record": seal_text(row.record) if row.record else None}
        connection.execute(update(rounds).where(rounds.c.id == row.id).values(columns))
