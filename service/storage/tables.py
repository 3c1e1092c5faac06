"""The database's tables. A live round is stored as its events in order; everything else about it is derived.

A change of the tables, or of what their columns hold, needs a script in `migrations/versions` that changes existing databases the same way.
"""

from functools import partial

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()
required = partial(Column, nullable=False)

WIDE_INTEGER = BigInteger().with_variant(Integer, "sqlite")
"""64 bits: SQLite's integers have them anyway."""

# One row: the coordinator that owns this database.
coordinator = Table(
    "coordinator", metadata, Column("number", Integer, primary_key=True), required("public_key", String(64))
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(8), primary_key=True),
    required("sha256", String(64), unique=True),
    required("name", String(64)),
    required("scopes", Text),
    # The only one that it works for.
    Column("federation", String(64)),
    required("created_s", Float),
    Column("expires_s", Float),
    Column("revoked_s", Float),
)

rosters = Table(
    "rosters",
    metadata,
    Column("federation", String(64), primary_key=True),
    Column("number", WIDE_INTEGER, primary_key=True),
    required("body", LargeBinary),
)

# Every version of every study that was published.
studies = Table(
    "studies",
    metadata,
    Column("federation", String(64), primary_key=True),
    Column("hash", String(64), primary_key=True),
    required("name", String(64)),
    required("version", WIDE_INTEGER),
    required("body", LargeBinary),
    required("published_s", Float),
    UniqueConstraint("federation", "name", "version"),
)

cohorts = Table(
    "cohorts",
    metadata,
    Column("id", String(64), primary_key=True),
    required("federation", String(64), index=True),
    required("roster_number", WIDE_INTEGER),
    required("study", String(64)),
    required("period", String(64)),
    # The context of the attempt that the run repeats.
    Column("repeats", String(64)),
    required("counter", Integer),
    required("deadline_s", Float),
    # The newest, and how many were made; it is formed once all members of the manifest have paired.
    Column("manifest", LargeBinary),
    required("manifests", Integer, default=0),
    required("formed", Boolean, default=False),
    # When the last of its members that is not Ready erases its keys: from then on no ciphertext is of use. NULL once they are deleted.
    Column("lapses_s", Float),
    Column("fault", Text),
    # Grows with every card, pairing and manifest; a process that has not seen the last change makes none.
    required("changes", Integer),
    UniqueConstraint("federation", "counter"),
)

cards = Table(
    "cards",
    metadata,
    Column("cohort", String(64), primary_key=True),
    Column("member", String(64), primary_key=True),
    # Which of the cohort's changes added it.
    required("change", Integer),
    # The key that signed it; 8 bytes, big-endian, because SQL has no unsigned integers.
    required("key", String(64)),
    required("serial", LargeBinary),
    required("body", LargeBinary),
    required("mlkem_key", LargeBinary),
    # Two cards of one serial are of a folder and its copy. The index finds a member's newest card.
    UniqueConstraint("key", "serial"),
)

# Who has paired under the newest manifest of a cohort.
pairings = Table(
    "pairings",
    metadata,
    Column("cohort", String(64), primary_key=True),
    Column("member", String(64), primary_key=True),
    required("change", Integer),
    required("signature", LargeBinary),
)

# What these pairings hold, as each recipient is shown it, until the members' keys lapse.
ciphertexts = Table(
    "ciphertexts",
    metadata,
    Column("cohort", String(64), primary_key=True),
    Column("recipient", String(64), primary_key=True),
    Column("sender", String(64), primary_key=True),
    required("body", LargeBinary),
)

rounds = Table(
    "rounds",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    required("id", String(16), unique=True),
    required("federation", String(64), index=True),
    required("cohort", String(64), index=True),
    required("sequence", Integer),
    required("attempt", Integer),
    required("opening", LargeBinary),
    required("opened_s", Float),
    # Filled when the round ends; its events and chunks are deleted in the same breath. Texts have a checksum (`faults.seal_text`).
    Column("final", Text),
    Column("closing", LargeBinary),
    Column("record", Text),
    # SHA-256 of its transcript and documents, by name; NULL if it ended before format 4.2.
    Column("digests", Text),
    Column("state", String(16)),
    # Whether its uploads are deleted, and the audit log says so.
    required("cleared", Boolean, default=False),
    UniqueConstraint("cohort", "sequence", "attempt"),
    Index("rounds_by_state", "state"),
)

# One round at a time: what a set may be signed for depends on everything that was opened before.
Index(
    "one_live_round",
    rounds.c.federation,
    unique=True,
    sqlite_where=rounds.c.final.is_(None),
    postgresql_where=rounds.c.final.is_(None),
)

events = Table(
    "events",
    metadata,
    Column("round", String(16), primary_key=True),
    Column("number", Integer, primary_key=True),
    required("at_s", Float),
    required("kind", String(8)),
    required("body", LargeBinary),
)

# A live round's sum by ranges of chunks, masked and then not; the numbers are in the blob that each row names.
sums = Table(
    "sums",
    metadata,
    Column("round", String(16), primary_key=True),
    Column("part", Integer, primary_key=True),
    required("blob", String(32)),
    required("members", Text),
    required("done", Boolean),
)

links = Table(
    "links",
    metadata,
    Column("federation", String(64), primary_key=True),
    Column("position", Integer, primary_key=True),
    required("body", LargeBinary),
)

# The admin's Lost of attempts that this coordinator does not know. Each context stays closed.
lost_contexts = Table(
    "lost_contexts",
    metadata,
    Column("federation", String(64), primary_key=True),
    Column("context", String(64), primary_key=True),
    required("body", LargeBinary),
)

# Work that one process does at a time. A later holder raises the fence.
leases = Table(
    "leases",
    metadata,
    Column("key", String(80), primary_key=True),
    required("holder", String(32)),
    required("until_s", Float),
    required("fence", Integer),
)

# Appended to, never changed; its oldest entries may be pruned.
audit = Table(
    "audit",
    metadata,
    Column("number", WIDE_INTEGER, primary_key=True, autoincrement=False),
    required("at_ms", BigInteger),
    required("who", Text),
    required("action", Text),
    required("on", Text),
    required("outcome", Text),
    required("head", String(64)),
)

# Where the log ends (0), so that a shortened log is noticed; and, once it was pruned, the entry before the first one kept (1), signed.
audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    required("number", WIDE_INTEGER),
    required("head", String(64)),
    Column("signature", String(128)),
)

# Nonces of signed requests that have not expired, and one row for each signer that says until when the others were deleted.
nonces = Table(
    "nonces",
    metadata,
    Column("signer", String(140), primary_key=True),
    Column("nonce", String(64), primary_key=True),
    required("expires_s", Float, index=True),
)

# When each member signed its newest admitted request, by its own clock.
last_heard = Table(
    "last_heard",
    metadata,
    Column("federation", String(64), primary_key=True),
    Column("member", String(64), primary_key=True),
    required("signed_s", Float),
)
