"""When each member was last heard from is in a table of its own."""

from alembic import op
from sqlalchemy import func, insert, select

from service.storage.tables import last_heard, nonces
from veilsum.protocol.request_signature import ADMIN_KEYID, SIGNATURE_LIFETIME_S

revision = "3.3"
down_revision = "3.2"
SKEW_S = 60.0
"""Time that a nonce outlived its request, unless the operator chose another."""


def upgrade() -> None:
    """Read it once more from the newest nonces."""
    connection = op.get_bind()
    last_heard.create(connection)
    newest = func.max(nonces.c.expires_s).label("expires_s")
    rows = list[dict[str, object]]()
    for row in connection.execute(select(nonces.c.signer, newest).group_by(nonces.c.signer)):
        federation, _, member = row.signer.partition("/")
        if member != ADMIN_KEYID:
            signed_s = row.expires_s - SKEW_S - SIGNATURE_LIFETIME_S
            rows.append({"federation": federation, "member": member, "signed_s": signed_s})
    if rows:
        connection.execute(insert(last_heard), rows)
