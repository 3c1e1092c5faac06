"""The first tables of a released version."""

import sqlalchemy as sa
from alembic import op

revision = "studies"
down_revision = None

WIDE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "audit",
        sa.Column("number", WIDE, autoincrement=False, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("on", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("head", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", WIDE, nullable=False),
        sa.Column("head", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "cards",
        sa.Column("cohort", sa.String(length=64), nullable=False),
        sa.Column("member", sa.String(length=64), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("cohort", "member"),
    )
    op.create_table(
        "cohorts",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("federation", sa.String(length=64), nullable=False),
        sa.Column("roster_number", WIDE, nullable=False),
        sa.Column("study", sa.String(length=64), nullable=False),
        sa.Column("period", sa.String(length=64), nullable=False),
        sa.Column("repeats", sa.String(length=64), nullable=True),
        sa.Column("counter", sa.Integer(), nullable=False),
        sa.Column("deadline_s", sa.Float(), nullable=False),
        sa.Column("manifest", sa.LargeBinary(), nullable=True),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("changes", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("federation", "counter"),
    )
    op.create_index(op.f("ix_cohorts_federation"), "cohorts", ["federation"], unique=False)
    op.create_table(
        "coordinator",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("public_key", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "events",
        sa.Column("round", sa.String(length=16), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("round", "number"),
    )
    op.create_table(
        "leases",
        sa.Column("key", sa.String(length=80), nullable=False),
        sa.Column("holder", sa.String(length=32), nullable=False),
        sa.Column("until_s", sa.Float(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "links",
        sa.Column("federation", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("federation", "position"),
    )
    op.create_table(
        "nonces",
        sa.Column("signer", sa.String(length=140), nullable=False),
        sa.Column("nonce", sa.String(length=64), nullable=False),
        sa.Column("expires_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("signer", "nonce"),
    )
    op.create_index(op.f("ix_nonces_expires_s"), "nonces", ["expires_s"], unique=False)
    op.create_table(
        "rosters",
        sa.Column("federation", sa.String(length=64), nullable=False),
        sa.Column("number", WIDE, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("federation", "number"),
    )
    op.create_table(
        "rounds",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("federation", sa.String(length=64), nullable=False),
        sa.Column("cohort", sa.String(length=64), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("opening", sa.LargeBinary(), nullable=False),
        sa.Column("opened_s", sa.Float(), nullable=False),
        sa.Column("final", sa.Text(), nullable=True),
        sa.Column("closing", sa.LargeBinary(), nullable=True),
        sa.Column("record", sa.Text(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("cohort", "sequence", "attempt"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("rounds_by_state", "rounds", ["state"], unique=False)
    op.create_index(op.f("ix_rounds_cohort"), "rounds", ["cohort"], unique=False)
    op.create_index(op.f("ix_rounds_federation"), "rounds", ["federation"], unique=False)
    op.create_index(
        "one_live_round",
        "rounds",
        ["federation"],
        unique=True,
        sqlite_where=sa.text("final IS NULL"),
        postgresql_where=sa.text("final IS NULL"),
    )
    op.create_table(
        "studies",
        sa.Column("federation", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("version", WIDE, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("published_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("federation", "hash"),
        sa.UniqueConstraint("federation", "name", "version"),
    )
    op.create_table(
        "sums",
        sa.Column("round", sa.String(length=16), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("blob", sa.String(length=32), nullable=False),
        sa.Column("members", sa.Text(), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("round", "part"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=8), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("created_s", sa.Float(), nullable=False),
        sa.Column("expires_s", sa.Float(), nullable=True),
        sa.Column("revoked_s", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("sha256"),
    )


def downgrade() -> None:
    """Drop them, and all that they hold."""
    op.drop_table("tokens")
    op.drop_table("sums")
    op.drop_table("studies")
    op.drop_index(
        "one_live_round",
        table_name="rounds",
        sqlite_where=sa.text("final IS NULL"),
        postgresql_where=sa.text("final IS NULL"),
    )
    op.drop_index(op.f("ix_rounds_federation"), table_name="rounds")
    op.drop_index(op.f("ix_rounds_cohort"), table_name="rounds")
    op.drop_index("rounds_by_state", table_name="rounds")
    op.drop_table("rounds")
    op.drop_table("rosters")
    op.drop_index(op.f("ix_nonces_expires_s"), table_name="nonces")
    op.drop_table("nonces")
    op.drop_table("links")
    op.drop_table("leases")
    op.drop_table("events")
    op.drop_table("coordinator")
    op.drop_index(op.f("ix_cohorts_federation"), table_name="cohorts")
    op.drop_table("cohorts")
    op.drop_table("cards")
    op.drop_table("audit_head")
    op.drop_table("audit")
