"""The database's tables. A live round is its events in order; everything else about it is derived."""

from sqlalchemy import (
    Column,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

tokens = Table("tokens", metadata, Column("sha256", String(64), primary_key=True))

rosters = Table(
    "rosters",
    metadata,
    Column("federation", String(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("federation", "version"),
)

cohorts = Table(
    "cohorts",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("federation", String(64), nullable=False, index=True),
    Column("roster_version", Integer, nullable=False),
    Column("counter", Integer, nullable=False),
    Column("request", Text, nullable=False),
    Column("deadline_s", Float, nullable=False),
    Column("manifest", LargeBinary),
    Column("fault", Text),
    UniqueConstraint("federation", "counter"),
)

cards = Table(
    "cards",
    metadata,
    Column("cohort", String(64), nullable=False),
    Column("member", String(64), nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("cohort", "member"),
)

# Apart from members' cards: a cohort's id is made alike in both modes.
helper_cards = Table(
    "helper_cards",
    metadata,
    Column("cohort", String(64), nullable=False),
    Column("member", String(64), nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("cohort", "member"),
)

rounds = Table(
    "rounds",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(16), nullable=False, unique=True),
    Column("federation", String(64), nullable=False, index=True),
    Column("cohort", String(64), nullable=False, index=True),
    Column("sequence", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("opening", LargeBinary, nullable=False),
    Column("windows", Text, nullable=False),
    Column("opened_s", Float, nullable=False),
    # Filled when the round ends; its events and chunks are deleted in the same breath.
    Column("final", Text),
    Column("closing", LargeBinary),
    Column("record", Text),
    UniqueConstraint("cohort", "sequence", "attempt"),
)

events = Table(
    "events",
    metadata,
    Column("round", String(16), nullable=False),
    Column("number", Integer, nullable=False),
    Column("at_s", Float, nullable=False),
    Column("kind", String(8), nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("round", "number"),
)

links = Table(
    "links",
    metadata,
    Column("federation", String(64), nullable=False),
    Column("position", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("past", LargeBinary, nullable=False),
    PrimaryKeyConstraint("federation", "position"),
)
