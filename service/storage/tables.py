"""The database's tables. A live round is stored as its events in order; everything else about it is derived.

A change of the tables, or of what their columns hold, needs a script in `migrations/versions` that changes existing databases the same way.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
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

WIDE_INTEGER = BigInteger().with_variant(Integer, "sqlite")
"""64 bits: SQLite's integers have them anyway."""

# One row: the coordinator that owns this database.
coordinator = Table(
    "coordinator",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("public_key", String(64), nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(8), primary_key=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("name", String(64), nullable=False),
    Column("scopes", Text, nullable=False),
    # The only one that it works for.
    Column("federation", String(64)),
    Column("created_s", Float, nullable=False),
    Column("expires_s", Float),
    Column("revoked_s", Float),
)

rosters = Table(
    "rosters",
    metadata,
    Column("federation", String(64), nullable=False),
    Column("number", WIDE_INTEGER, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("federation", "number"),
)

# Every version of every study that was published.
studies = Table(
    "studies",
    metadata,
    Column("federation", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("version", WIDE_INTEGER, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("published_s", Float, nullable=False),
    PrimaryKeyConstraint("federation", "hash"),
    UniqueConstraint("federation", "name", "version"),
)

cohorts = Table(
    "cohorts",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("federation", String(64), nullable=False, index=True),
    Column("roster_number", WIDE_INTEGER, nullable=False),
    Column("study", String(64), nullable=False),
    Column("period", String(64), nullable=False),
    # The context of the attempt that the run repeats.
    Column("repeats", String(64)),
    Column("counter", Integer, nullable=False),
    Column("deadline_s", Float, nullable=False),
    # The newest, and how many were made; it is formed once all members of the manifest have paired.
    Column("manifest", LargeBinary),
    Column("manifests", Integer, nullable=False, default=0),
    Column("formed", Boolean, nullable=False, default=False),
    # When the last of its members that is not Ready erases its keys: from then on no ciphertext is of use. NULL once they are deleted.
    Column("lapses_s", Float),
    Column("fault", Text),
    # Grows with every card, pairing and manifest; a process that has not seen the last change makes none.
    Column("changes", Integer, nullable=False),
    UniqueConstraint("federation", "counter"),
)

cards = Table(
    "cards",
    metadata,
    Column("cohort", String(64), nullable=False),
    Column("member", String(64), nullable=False),
    # Which of the cohort's changes added it.
    Column("change", Integer, nullable=False),
    # The key that signed it; 8 bytes, big-endian, because SQL has no unsigned integers.
    Column("key", String(64), nullable=False),
    Column("serial", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("mlkem_key", LargeBinary, nullable=False),
    PrimaryKeyConstraint("cohort", "member"),
    # Two cards of one serial are of a folder and its copy. The index finds a member's newest card.
    UniqueConstraint("key", "serial"),
)

# Who has paired under the newest manifest of a cohort.
pairings = Table(
    "pairings",
    metadata,
    Column("cohort", String(64), nullable=False),
    Column("member", String(64), nullable=False),
    Column("change", Integer, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    PrimaryKeyConstraint("cohort", "member"),
)

# What these pairings hold, as each recipient is shown it, until the members' keys lapse.
ciphertexts = Table(
    "ciphertexts",
    metadata,
    Column("cohort", String(64), nullable=False),
    Column("recipient", String(64), nullable=False),
    Column("sender", String(64), nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("cohort", "recipient", "sender"),
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
    Column("opened_s", Float, nullable=False),
    # Filled when the round ends; its events and chunks are deleted in the same breath. Texts have a checksum (`faults.seal_text`).
    Column("final", Text),
    Column("closing", LargeBinary),
    Column("record", Text),
    # SHA-256 of its transcript and documents, by name; NULL if it ended before format 4.2.
    Column("digests", Text),
    Column("state", String(16)),
    # Whether its uploads are deleted, and the audit log says so.
    Column("cleared", Boolean, nullable=False, default=False),
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
    Column("round", String(16), nullable=False),
    Column("number", Integer, nullable=False),
    Column("at_s", Float, nullable=False),
    Column("kind", String(8), nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("round", "number"),
)

# A live round's sum by ranges of chunks, masked and then not; the numbers are in the blob that each row names.
sums = Table(
    "sums",
    metadata,
    Column("round", String(16), nullable=False),
    Column("part", Integer, nullable=False),
    Column("blob", String(32), nullable=False),
    Column("members", Text, nullable=False),
    Column("done", Boolean, nullable=False),
    PrimaryKeyConstraint("round", "part"),
)

links = Table(
    "links",
    metadata,
    Column("federation", String(64), nullable=False),
    Column("position", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("federation", "position"),
)

# The admin's Lost of attempts that this coordinator does not know. Each context stays closed.
lost_contexts = Table(
    "lost_contexts",
    metadata,
    Column("federation", String(64), nullable=False),
    Column("context", String(64), nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("federation", "context"),
)

# Work that one process does at a time. A later holder raises the fence.
leases = Table(
    "leases",
    metadata,
    Column("key", String(80), primary_key=True),
    Column("holder", String(32), nullable=False),
    Column("until_s", Float, nullable=False),
    Column("fence", Integer, nullable=False),
)

# Appended to, never changed; its oldest entries may be pruned.
audit = Table(
    "audit",
    metadata,
    Column("number", WIDE_INTEGER, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("on", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("head", String(64), nullable=False),
)

# Where the log ends (0), so that a shortened log is noticed; and, once it was pruned, the entry before the first one kept (1), signed.
audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", WIDE_INTEGER, nullable=False),
    Column("head", String(64), nullable=False),
    Column("signature", String(128)),
)

# Nonces of signed requests that have not expired, and one row for each signer that says until when the others were deleted.
nonces = Table(
    "nonces",
    metadata,
    Column("signer", String(140), nullable=False),
    Column("nonce", String(64), nullable=False),
    Column("expires_s", Float, nullable=False, index=True),
    PrimaryKeyConstraint("signer", "nonce"),
)

# When each member signed its newest admitted request, by its own clock.
last_heard = Table(
    "last_heard",
    metadata,
    Column("federation", String(64), nullable=False),
    Column("member", String(64), nullable=False),
    Column("signed_s", Float, nullable=False),
    PrimaryKeyConstraint("federation", "member"),
)
