"""A database's errors in our own words, because a driver's may quote a password or a message."""

import errno
import hashlib
import sqlite3
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from socket import gaierror
from ssl import SSLError

import asyncpg
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError

from service.http.problems import storage_damaged
from service.telemetry.logs import describe_error, error_chain, log
from service.telemetry.metrics import DAMAGED_COUNT
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault

_FULL_ADVICE = "can't write, because its disk is full: make room and start again"
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_DAMAGED_ADVICE = "is damaged: `veilsum operator db check` says where. Restore a backup"
_PERMISSION_ADVICE = "can't be written to: run this as the user that owns its folder"
_ADVICE_OF_CODE = {
    sqlite3.SQLITE_FULL: _FULL_ADVICE,
    sqlite3.SQLITE_IOERR_SHMSIZE: _FULL_ADVICE,  # of the index beside the write-ahead log
    sqlite3.SQLITE_CANTOPEN: _PERMISSION_ADVICE,
    sqlite3.SQLITE_READONLY: _PERMISSION_ADVICE,
    sqlite3.SQLITE_CORRUPT: _DAMAGED_ADVICE,
    sqlite3.SQLITE_NOTADB: _DAMAGED_ADVICE,
}
_ADVICE_OF_ERROR: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidAuthorizationSpecificationError, "rejects this user or password"),
    (asyncpg.InvalidCatalogNameError, "does not exist: create it, or name another"),
    (
        asyncpg.exceptions.ClientConfigurationError,
        "can't be reached as its URL asks: check that the certificate for sslmode is there",
    ),
    (asyncpg.DiskFullError, _FULL_ADVICE),
    (
        asyncpg.exceptions.TargetServerAttributeNotMatched,
        "is read-only: name the primary, or promote this standby",
    ),
    (SSLError, "can't be reached by TLS: check that this machine trusts the authority of its certificate"),
    (gaierror, "is on a host with an unknown name"),
    (TimeoutError, "does not answer"),
    (ConnectionError, "can't be reached, or not with this sslmode: check that it runs at this host and port"),
)
_DATABASE_ERRORS = (
    *(kind for kind, _ in _ADVICE_OF_ERROR),
    SQLAlchemyError,
    sqlite3.DatabaseError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
)


@contextmanager
def reword_errors() -> Iterator[None]:
    """Raise Misuse for an error of a database that is being opened, or for a full disk. It says what to look at and quotes nothing."""
    try:
        yield
    except (*_DATABASE_ERRORS, OSError) as error:
        if getattr(error, "errno", None) in _NO_ROOM:
            raise Misuse("the disk of the data folder is full: make room and start again") from error
        if not isinstance(error, _DATABASE_ERRORS):
            raise
        causes = list(error_chain(error))
        why = next(
            (words for kind, words in _ADVICE_OF_ERROR if any(isinstance(each, kind) for each in causes)),
            None,
        )
        found = [getattr(each, "sqlite_errorcode", 0) for each in causes]
        codes = {*found, *(code & 0xFF for code in found)}  # as they are, and their classes
        why = next((words for code, words in _ADVICE_OF_CODE.items() if code in codes), why)
        raise Misuse(
            f"the database {why or f'fails ({type(causes[-1]).__name__}): check its log or its file'}"
        ) from error


class DamagedRowError(PeerFault):
    """Stored rows can't be read; storage-damaged."""


def check_named(stored: str, found: str) -> None:
    """Refuse a row (storage-damaged) whose content has another name than its key."""
    if stored != found:
        raise storage_damaged(f"the row of {stored} holds {found}")


def seal_text(text: str) -> str:
    """Put a checksum before a text that nothing else verifies."""
    return f"{hashlib.sha256(text.encode()).hexdigest()} {text}"


def unseal_text(stored: str) -> str:
    """Return a sealed text. Raises PeerFault(storage-damaged) if it has changed."""
    _, _, text = stored.partition(" ")
    if seal_text(text) != stored:
        raise storage_damaged("the row's checksum does not match its text")
    return text


class Quarantine:
    """Names of what is damaged in a database, so that everything else can go on.

    Attributes:
        names: of rounds, cohorts, rosters and the like, since the process began.
    """

    def __init__(self) -> None:
        self.names = dict[str, None]()

    def note_damage(self, name: str, error: Exception) -> None:
        """Remember the name of what can't be read; log and count it once."""
        if name not in self.names:
            DAMAGED_COUNT.labels("row").inc()
            log.error("storage damaged", what="row", of=name, **describe_error(error))
        self.names[name] = None

    @contextmanager
    def quarantine_errors(self, name: str) -> Iterator[None]:
        """Raise DamagedRowError for any error in reading rows, and remember their name. Failures of the store itself are raised as they are."""
        try:
            yield
        except (DamagedRowError, OSError, OperationalError):
            raise
        except Exception as error:
            if isinstance(error, SQLAlchemyError) and not isinstance(error, DatabaseError):
                raise  # the server ends the connection, or none is free
            self.note_damage(name, error)
            raise DamagedRowError(
                Cause.STORAGE_DAMAGED,
                f"the coordinator's storage is damaged: {name} can't be read. Everything else still works, and no member is at fault. "
                "`veilsum operator db check` tells the operator more",
                ["coordinator"],
            ) from error

    @contextmanager
    def skip_errors(self, name: str) -> Iterator[None]:
        """Skip what can't be read."""
        with suppress(DamagedRowError), self.quarantine_errors(name):
            yield


async def log_errors(work: Awaitable[None]) -> None:
    """Await a poll of other processes' changes. Errors are only logged, because another poll follows."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - a listener that stops never hears again
        log.warning("others' changes are not read", **describe_error(error))
