"""A member's state on disk: one SQLite database, and the files that it names by their SHA-256.

    state.sqlite        what this member has seen, holds and promised: its ledger, its phases, and what an upload follows from
    arrays/SHA-256      rows and vectors of reservations, and a noisy vector until its attempt is closed

What belongs together is one transaction, which is on the disk when it ends. The journal is a rollback journal, which SQLite truncates:
a write-ahead log would keep erased secrets until its next checkpoint, and after a crash one flipped bit in it would silently undo steps
whose messages have left.
"""

import hashlib
import re
import secrets
import sqlite3
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from client_sdk.errors import Misuse, PeerFault, StateError
from client_sdk.files import LOST_STATE_HELP, FolderLock
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.member import History
from veilsum.system.files import make_private, sync_folder, write_durably

T = TypeVar("T")

LEDGER_SECRET_BYTES = 32
STATE_FILE = "state.sqlite"
_DATABASE_FORMAT = 7
# temp_store: no copies of pages elsewhere.
_SETTINGS_SQL = """
PRAGMA page_size = 4096; PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = {};
PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON;
"""
# `room` fills the part of a row that shares its page with others. Values stand in pages of their own, which secure_delete zeroes:
# pages that are shared may keep copies of rows that were moved.
_TABLES_SQL = """
CREATE TABLE sealed (name TEXT PRIMARY KEY, sha256 BLOB NOT NULL, room BLOB NOT NULL DEFAULT (zeroblob(1024)), value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE seal (names BLOB NOT NULL, ledger BLOB NOT NULL);
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    base INTEGER REFERENCES run,
    yes INTEGER NOT NULL,
    study TEXT NOT NULL,
    approval BLOB NOT NULL,
    question BLOB NOT NULL,
    extractor TEXT NOT NULL,
    period TEXT NOT NULL,
    kind TEXT NOT NULL,
    noisy INTEGER NOT NULL,
    mu REAL NOT NULL,
    expires INTEGER NOT NULL,
    least INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    unusable INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    held_out INTEGER NOT NULL,
    beyond INTEGER NOT NULL,
    counted_out INTEGER NOT NULL,
    numbers INTEGER NOT NULL,
    rows_borne INTEGER NOT NULL,
    rows_sha256 BLOB,
    given_up INTEGER NOT NULL DEFAULT 0,
    freed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (question, period)
);
CREATE TABLE held (record BLOB NOT NULL, run INTEGER NOT NULL REFERENCES run, PRIMARY KEY (record, run)) WITHOUT ROWID;
CREATE TABLE attempt (id INTEGER PRIMARY KEY, context BLOB NOT NULL UNIQUE, run INTEGER NOT NULL REFERENCES run, step TEXT NOT NULL, uploaded INTEGER NOT NULL DEFAULT 0, ended TEXT);
CREATE TABLE vector (run INTEGER NOT NULL REFERENCES run, name TEXT NOT NULL, sha256 BLOB NOT NULL, PRIMARY KEY (run, name)) WITHOUT ROWID;
CREATE TABLE summed (record BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE VIEW certified AS
SELECT COALESCE(run.base, run.id) AS base, attempt.id AS number, context, step, ended, noisy FROM attempt JOIN run ON run.id = attempt.run
WHERE ended = 'none' OR (ended = 'lost' AND uploaded);
CREATE VIEW spending AS SELECT * FROM certified WHERE noisy OR step = 'sum';
CREATE VIEW counting AS
SELECT DISTINCT attempt.run AS base FROM attempt
WHERE step IN ('count', 'rows') AND uploaded AND COALESCE(ended, 'none') IN ('none', 'lost');
CREATE VIEW answered AS
SELECT id, base, yes, study, approval, question, extractor, period, kind, noisy, mu, expires, least, rows, unusable, taken, held_out, beyond, counted_out, given_up,
    freed,
    (SELECT COUNT(*) FROM held WHERE held.run = COALESCE(run.base, run.id)) AS records,
    EXISTS (SELECT 1 FROM spending WHERE spending.base = COALESCE(run.base, run.id)) AS spent,
    EXISTS (SELECT 1 FROM counting WHERE counting.base = COALESCE(run.base, run.id)) AS counts,
    (SELECT context FROM spending WHERE spending.base = COALESCE(run.base, run.id) AND step = 'sum' ORDER BY number LIMIT 1) AS summed
FROM run;
"""
_LEDGER_TABLES = {
    "run": "id",
    "held": "record, run",
    "attempt": "id",
    "vector": "run, name",
    "summed": "record",
}
"""The ledger's tables, and the order of their rows."""
_NAMED_ARRAYS_SQL = """
SELECT rows_sha256 FROM run WHERE rows_sha256 IS NOT NULL UNION SELECT sha256 FROM vector
UNION SELECT substr(value, -32) FROM sealed WHERE name GLOB 'unsent/*'
"""
"""The arrays in use."""
_ARRAY_FILE = re.compile(r"\.?[0-9a-f]{64}(\.|$)")
"""The name of an array or of a half-written one."""
_PASSING_ERRORS = (
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_NOMEM",
    "SQLITE_READONLY",
)
"""Errors of the machine that damage nothing."""


@dataclass(frozen=True, repr=False)
class Installation:
    """What identifies an installation's records, drawn once and for life.

    Attributes:
        secret: 32 bytes.
        held_out_share: of the records that are in no count and no sum; the secret draws them.
        member: the id under which all its attempts are made. By it certified sets say whose records they spend.
    """

    secret: SecretBytes
    held_out_share: float
    member: str

    def encode(self) -> bytes:
        """Encode it for `from_bytes`."""
        return self.secret + struct.pack("<d", self.held_out_share) + self.member.encode("ascii")

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Parse what `encode` returned. Raises ValueError or struct.error if it is damaged."""
        rest = content[LEDGER_SECRET_BYTES:]
        (share,), member = struct.unpack("<d", rest[:8]), rest[8:].decode("ascii")
        return cls(SecretBytes(content[:LEDGER_SECRET_BYTES]), share, member)


class StateDatabase:
    """The database and its arrays. The identity's lock ensures a single writer.

    Args:
        folder: where `create` makes it.

    Raises:
        StateError: from every method, if the database is missing, damaged or of another release.
        OSError: from every method, if the disk is full, or refuses.
    """

    synchronous: ClassVar[str] = "FULL"
    """SQLite's: with less a power cut may undo what was committed. Tests that pull no plug turn it off."""

    def __init__(self, folder: Path) -> None:
        self.path, self._arrays = folder / STATE_FILE, folder / "arrays"
        self._connection: sqlite3.Connection | None = None
        self._turn = threading.RLock()
        self._seen = dict[str, tuple[bytes, Any]]()
        self._there = set[str]()  # files of arrays

    @property
    def is_made(self) -> bool:
        """Whether `create` finished here."""
        if not self.path.exists():
            return False
        with self._translate_errors(), closing(self._open_connection(made=False)) as db:
            return bool(db.execute("PRAGMA user_version").fetchone()[0])

    def create(self, member: str, held_out_share: float) -> None:
        """Make the database with an empty ledger, unless it is there. Raises Misuse if another member's is there."""
        if self.is_made:
            self.check_member(member)
        else:
            with self._creating_transaction() as db:
                secret = SecretBytes(secrets.token_bytes(LEDGER_SECRET_BYTES))
                drawn = Installation(secret, held_out_share, member)
                _upsert_sealed(db, "secret", drawn.encode())
                _upsert_sealed(db, "history", History().encode())

    def take_over(self, old: "StateDatabase", member: str) -> None:
        """Create the database with the ledger of another identity, which loses its state. A repeated call resumes after a failure.

        Raises:
            Misuse: the other identity has no state, or another member's; or this one has another ledger.
            IdentityError: a member is using the other identity.
        """
        given = old.path
        leaving, carried = given.with_name("leaving.sqlite"), given.with_name("carried-over.sqlite")
        old.path = next((path for path in (given, leaving, carried) if path.exists()), given)
        if self.is_made:
            if old.path == given or old.read_value_alone("secret") != self.read_value_alone("secret"):
                raise Misuse(f"{self.path} exists already")
        elif old.path == carried or not old.path.exists():
            raise Misuse(f"{given} does not exist")
        old.check_member(member)
        with FolderLock(given.parent.parent):
            # Before the copy: two identities with one ledger could sum the same records twice.
            heir, own = given.with_name("heir"), str(self.path.resolve())
            if (chosen := heir.read_text("utf-8") if heir.exists() else own) != own:
                raise Misuse(f"{given} is being carried over to {chosen}: run that command again")
            write_durably(heir, own.encode())
            if old.path == given:
                with old.read(whole=False):
                    pass  # a journal that a crash left belongs to this name
                given.rename(leaving)
                sync_folder(leaving.parent)
                old.path = leaving
            if not self.is_made:
                self._copy_ledger(old)
            if old.path == leaving:
                leaving.rename(carried)
                sync_folder(carried.parent)

    def read_value_alone(self, name: str) -> bytes:
        """Return a stored value although others may be gone. Raises StateError if it is gone itself, or has changed."""
        with self.read(whole=False) as db:
            query = "SELECT sha256, value FROM sealed WHERE name = ?"
            digest, content = db.execute(query, (name,)).fetchone() or (b"", b"")
        if hashlib.sha256(content).digest() != digest:
            raise self._damaged_error(name)
        return bytes(content)

    def check_member(self, member: str) -> None:
        """Refuse another member id: what was uploaded under the first would count as left out of every set."""
        if (own := Installation.from_bytes(self.read_value_alone("secret")).member) != member:
            raise Misuse(
                f"{self.path} is the ledger of {own}, not of {member}, and its sums name that member: keep the id, and give the new public key to "
                "the admin. For another id take an empty folder, and mark all of today's records as summed: `veilsum member mark-summed`"
            )

    def _copy_ledger(self, old: "StateDatabase") -> None:
        with self._creating_transaction() as db, old.read(whole=False) as ledger:
            for name in ("secret", "history"):
                _upsert_sealed(db, name, old.read_value_alone(name))
            for table in _LEDGER_TABLES:
                for row in ledger.execute(f"SELECT * FROM {table}"):  # noqa: S608 - our own names
                    db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
            for (digest,) in db.execute(_NAMED_ARRAYS_SQL).fetchall():
                self.put_array(old.read_array(digest))

    @contextmanager
    def _creating_transaction(self) -> Iterator[sqlite3.Connection]:
        """The transaction that makes the database; without its commit there is none."""
        for folder in (self.path.parent, self._arrays):
            make_private(folder)
        self.path.touch(0o600)
        with self._translate_errors(), closing(self._open_connection(made=False)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            if db.execute("PRAGMA user_version").fetchone() != (0,):
                raise Misuse(f"another process has just made {self.path}: run the same command again")
            for statement in _TABLES_SQL.split(";"):
                db.execute(statement)
            yield db
            db.execute("INSERT INTO seal VALUES (?, ?)", (_seal_of(db), _ledger_seal(db)))
            db.execute(f"PRAGMA user_version = {_DATABASE_FORMAT}")

    def open(self) -> None:
        """Keep a connection until `close`, instead of one for each transaction; remove arrays that a crash left."""
        with self._turn, self._translate_errors():
            self._connection = self._open_connection()
            make_private(self.path.parent)  # a copy may be open to others
            self._there = {path.name for path in self._arrays.iterdir() if _ARRAY_FILE.match(path.name)}
            self._remove_unnamed_arrays(self._connection)

    def close(self) -> None:
        """Close what `open` opened; later transactions open the database again."""
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    @contextmanager
    def read(self, *, whole: bool = True) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone; without `whole`, sealed values may be gone, but the ledger is checked all the same."""
        with self._turn, self._translate_errors():
            if self._connection is not None:
                yield self._connection
                return
            self._connection = self._open_connection(whole=whole)
            try:
                yield self._connection
            finally:
                self.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction, all of it or nothing; inside another one, a part of it."""
        with self.read() as db:
            if db.in_transaction:
                yield db
                return
            with db:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("UPDATE seal SET names = ?", (_seal_of(db),))
            self._remove_unnamed_arrays(db)

    @contextmanager
    def write_ledger(self) -> Iterator[sqlite3.Connection]:
        """`write`, for the ledger's tables."""
        with self.write() as db:
            yield db
            db.execute("UPDATE seal SET ledger = ?", (_ledger_seal(db),))

    # Sealed values

    def load_sealed(self, name: str, load: Callable[[bytes], T]) -> T | None:
        """Return a stored value, parsed by `load`, or None."""
        with self.read() as db:
            known, value = self._seen.get(name, (b"", None))
            query = "SELECT sha256, CASE WHEN sha256 = ? THEN NULL ELSE value END FROM sealed WHERE name = ?"
            row = db.execute(query, (known, name)).fetchone()
            if row is None:
                return None
            digest, content = row
            if content is not None:
                if hashlib.sha256(content).digest() != digest:
                    raise self._damaged_error(name)
                try:
                    value = load(content)
                except (PeerFault, Misuse, ValueError, TypeError, LookupError, AttributeError) as error:
                    raise self._of_another_release() from error
                self._seen[name] = digest, value
            found: T = value
            return found

    def store_sealed(self, name: str, value: object, content: bytes) -> None:
        """Store a value, encoded as `content`, in place of an earlier one."""
        with self.write() as db:
            self._seen[name] = _upsert_sealed(db, name, content), value

    def erase_sealed(self, name: str) -> None:
        self._seen.pop(name, None)
        with self.write() as db:
            db.execute("DELETE FROM sealed WHERE name = ?", (name,))

    def sealed_names(self, kind: str) -> list[str]:
        """Return the names of the values of a kind, without `kind/`."""
        with self.read() as db:
            found = db.execute("SELECT name FROM sealed WHERE name GLOB ? ORDER BY name", (f"{kind}/*",))
            return [name.removeprefix(f"{kind}/") for (name,) in found]

    # Arrays

    def put_array(self, content: bytes | memoryview) -> bytes:
        """Write an array, in the transaction that names it, and return its SHA-256."""
        digest = hashlib.sha256(content).digest()
        self._there.add(digest.hex())
        write_durably(self._arrays / digest.hex(), content)
        return digest

    def read_array(self, digest: bytes) -> bytes:
        """Return an array's bytes. Raises StateError if they are missing or have changed."""
        path = self._arrays / digest.hex()
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise StateError(f"{path} is missing. {LOST_STATE_HELP}") from error
        if hashlib.sha256(content).digest() != digest:
            raise StateError(f"{path} is damaged. {LOST_STATE_HELP}")
        return content

    def _remove_unnamed_arrays(self, db: sqlite3.Connection) -> None:
        """Remove arrays that are no longer named."""
        named = {digest.hex() for (digest,) in db.execute(_NAMED_ARRAYS_SQL)}
        for name in (gone := self._there - named):
            (self._arrays / name).unlink(missing_ok=True)
        if gone:
            sync_folder(self._arrays)
        self._there = named

    # Connections and errors

    def _open_connection(self, *, made: bool = True, whole: bool = True) -> sqlite3.Connection:
        if made and not self.path.exists():
            raise StateError(f"{self.path} is missing. {LOST_STATE_HELP}")
        # A flow's steps run in several threads, one at a time: `_turn`.
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            db.executescript(_SETTINGS_SQL.format(self.synchronous))
            if made:
                self._check_seals(db, whole=whole)
        except BaseException:
            db.close()
            raise
        return db

    def _check_seals(self, db: sqlite3.Connection, *, whole: bool) -> None:
        with db:
            db.execute("BEGIN")  # another process may write
            [version] = db.execute("PRAGMA user_version").fetchone()
            if version == 0:  # an empty file
                raise StateError(f"{self.path} is missing. {LOST_STATE_HELP}")
            if version != _DATABASE_FORMAT:
                raise self._of_another_release()
            names, ledger = db.execute("SELECT names, ledger FROM seal").fetchone() or (b"", b"")
            if ledger != _ledger_seal(db) or (whole and names != _seal_of(db)):
                raise self._damaged_error("a stored value has changed or is missing")

    def _damaged_error(self, why: object) -> StateError:
        return StateError(f"{self.path} is damaged ({why}). {LOST_STATE_HELP}")

    def _of_another_release(self) -> StateError:
        return StateError(
            f"{self.path} was written by another release: use that release. Otherwise: {LOST_STATE_HELP}"
        )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "").startswith(_PASSING_ERRORS):
                raise OSError(f"{self.path}: {error}") from error
            raise self._damaged_error(error) from error


def _seal_of(db: sqlite3.Connection) -> bytes:
    """Of all names and their values' digests: none is lost or taken for another."""
    whole = hashlib.sha256()
    for name, digest in db.execute("SELECT name, sha256 FROM sealed ORDER BY name"):
        whole.update(b"%s\n%s" % (name.encode(), digest))
    return whole.digest()


def _ledger_seal(db: sqlite3.Connection) -> bytes:
    """Of the ledger's rows: SQLite has no checksums, and one flipped bit would free a record that was summed."""
    whole = hashlib.sha256()
    for table, order in _LEDGER_TABLES.items():
        whole.update(table.encode())
        for row in db.execute(f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608 - our own names
            whole.update(repr(row).encode())
    return whole.digest()


def _upsert_sealed(db: sqlite3.Connection, name: str, content: bytes) -> bytes:
    digest = hashlib.sha256(content).digest()
    db.execute(
        "INSERT INTO sealed (name, sha256, value) VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET sha256 = excluded.sha256, value = excluded.value",
        (name, digest, content),
    )
    return digest
