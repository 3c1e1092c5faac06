"""A member's ledger on disk: one SQLite database, and files beside it that it names by their SHA-256."""

import hashlib
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar

from client_sdk.errors import Misuse, StateError
from client_sdk.files import LOSS, make_private, sync_folder, write_durably
from client_sdk.identity import FolderLock

_FORMAT = 2
DATABASE = "ledger.sqlite"
_TABLES = """
CREATE TABLE kept (name TEXT PRIMARY KEY, value BLOB NOT NULL, sha256 BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    base INTEGER REFERENCES run,
    yes INTEGER NOT NULL,
    study TEXT NOT NULL,
    approval BLOB NOT NULL,
    question BLOB NOT NULL,
    extractor TEXT NOT NULL,
    period TEXT NOT NULL,
    noisy INTEGER NOT NULL,
    mu REAL NOT NULL,
    expires INTEGER NOT NULL,
    least INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    unusable INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    beyond INTEGER NOT NULL,
    rows_sha256 BLOB,
    given_up INTEGER NOT NULL DEFAULT 0,
    UNIQUE (question, period)
);
CREATE TABLE held (record BLOB NOT NULL, run INTEGER NOT NULL REFERENCES run, PRIMARY KEY (record, run)) WITHOUT ROWID;
CREATE TABLE attempt (id INTEGER PRIMARY KEY, context BLOB NOT NULL UNIQUE, run INTEGER NOT NULL REFERENCES run, step TEXT NOT NULL, ended TEXT);
CREATE TABLE vector (run INTEGER NOT NULL REFERENCES run, name TEXT NOT NULL, sha256 BLOB NOT NULL, PRIMARY KEY (run, name)) WITHOUT ROWID;
CREATE VIEW spending AS
SELECT COALESCE(run.base, run.id) AS base, attempt.id AS number, context, step, ended FROM attempt JOIN run ON run.id = attempt.run
WHERE ended IN ('none', 'lost');
CREATE VIEW answered AS
SELECT id, base, yes, study, approval, question, extractor, period, noisy, mu, expires, least, rows, unusable, taken, beyond, given_up,
    (SELECT COUNT(*) FROM held WHERE held.run = COALESCE(run.base, run.id)) AS records,
    EXISTS (SELECT 1 FROM spending WHERE spending.base = COALESCE(run.base, run.id)) AS spent,
    (SELECT context FROM spending WHERE spending.base = COALESCE(run.base, run.id) AND step = 'sum' ORDER BY number LIMIT 1) AS summed
FROM run;
"""


class LedgerDatabase:
    """The database; one writer at a time, which the identity's lock sees to.

    Args:
        folder: of mode 0700; made if it is missing.

    Raises:
        StateError: from every method, if the database is damaged or of another release.
    """

    synchronous: ClassVar[str] = "EXTRA"
    """SQLite's: with less a power cut may undo what was committed. Tests that pull no plug turn it off."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: sqlite3.Connection | None = None
        self._turn = threading.Lock()

    def keep_open(self) -> None:
        """Open the database once instead of for each transaction, until `close`."""
        with self._turn, self._errors():
            self._kept = self._connected()

    def close(self) -> None:
        """Close what `keep_open` opened; later transactions open the database again."""
        with self._turn:
            kept, self._kept = self._kept, None
            if kept is not None:
                kept.close()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing."""
        with self._open() as ledger, ledger:
            ledger.execute("BEGIN IMMEDIATE")
            yield ledger

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._turn, self._errors():
            if self._kept is not None:
                yield self._kept
                return
            with closing(self._connected()) as ledger:
                yield ledger

    def _connected(self) -> sqlite3.Connection:
        path = make_private(self._folder) / DATABASE
        # A flow's steps run in several threads, one at a time: `_turn`.
        ledger = sqlite3.connect(path, isolation_level="DEFERRED", check_same_thread=False)
        try:
            path.chmod(0o600)
            self._prepare(ledger, path)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _prepare(self, ledger: sqlite3.Connection, path: Path) -> None:
        ledger.execute(f"PRAGMA synchronous = {self.synchronous}")
        ledger.execute("PRAGMA foreign_keys = ON")
        version = ledger.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            ledger.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_FORMAT}; COMMIT;")
        elif version != _FORMAT:
            raise StateError(f"{path} is not of this release: go on with the one that wrote it. Else: {LOSS}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise StateError(f"{self._folder / DATABASE} is damaged ({error}). {LOSS}") from error


def kept_in(ledger: sqlite3.Connection, name: str) -> bytes | None:
    """A value under its name; None before there is one."""
    row = ledger.execute("SELECT value, sha256 FROM kept WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    if hashlib.sha256(row[0]).digest() != row[1]:
        raise StateError(f"the ledger's {name} is damaged. {LOSS}")
    return bytes(row[0])


def keep_in(ledger: sqlite3.Connection, name: str, value: bytes) -> None:
    """Keep a value under its name."""
    ledger.execute(
        "INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (name, value, hashlib.sha256(value).digest())
    )


def verified(path: Path, digest: bytes) -> bytes:
    """A file's bytes; StateError if they are missing or others than were written."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise StateError(f"{path} is missing. {LOSS}") from error
    if hashlib.sha256(content).digest() != digest:
        raise StateError(f"{path} is damaged. {LOSS}")
    return content


def carry_over(old: Path, new: Path) -> None:
    """Move the ledger of an identity that lost its other state into a new one's folder, so that no record is summed twice.

    Args:
        old: the identity's folder, unusable afterwards. Its ledger must not be older than the last attempt it took
            part in (docs/protocol.md §4).
        new: a folder without a ledger.

    Raises:
        Misuse: `old` has no ledger, or `new` has one.
        StateError: the ledger is damaged.
        IdentityError: a member uses `old` now.
    """
    source, target = old / "state/ledger", new / "state/ledger"
    if target.exists() or not source.exists():
        raise Misuse(f"{target} exists already" if target.exists() else f"{source} does not exist")
    with FolderLock(old):
        _copy(source, target)
        # Two identities with one ledger could sum the same records twice.
        source.rename(source.with_name("ledger-carried-over"))
        sync_folder(source.parent)


def _copy(source: Path, target: Path) -> None:
    with LedgerDatabase(source)._open() as ledger:  # noqa: SLF001 - its own class
        named = ledger.execute(
            "SELECT id, rows_sha256 FROM run WHERE rows_sha256 IS NOT NULL AND yes"
        ).fetchall()
    for number, digest in named:
        verified(source / "rows" / f"{number}.npz", digest)
    make_private(target.parent)
    for folder in (source, *(each for each in source.iterdir() if each.is_dir())):
        fresh = make_private(target / folder.relative_to(source))
        for path in folder.iterdir():
            # The database last: without it there is no ledger yet.
            if path.is_file() and path.name != DATABASE:
                write_durably(fresh / path.name, path.read_bytes())
    write_durably(target / DATABASE, (source / DATABASE).read_bytes())
