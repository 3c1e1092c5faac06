"""Errors of a database in our own words: a driver's may quote a password or a message."""

import sqlite3
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from socket import gaierror
from ssl import SSLError

import asyncpg
import structlog
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from service.telemetry.logs import LOGGER, where
from service.telemetry.metrics import DAMAGED
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault

log = structlog.get_logger(LOGGER)

_FULL = "finds its disk full: make room and start again"
_DAMAGED = "is damaged: `veilsum operator db check` says where; restore a backup"
_CODES = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}
_WHY: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidAuthorizationSpecificationError, "refuses this user, or the password"),
    (asyncpg.InvalidCatalogNameError, "is not there: make it, or name another"),
    (
        asyncpg.exceptions.ClientConfigurationError,
        "can't be connected to as its URL asks: is the certificate of sslmode there?",
    ),
    (asyncpg.DiskFullError, _FULL),
    (SSLError, "can't be connected to by TLS: is its certificate of an authority that is known here?"),
    (gaierror, "is on a host with an unknown name"),
    (TimeoutError, "does not answer"),
    (ConnectionError, "can't be reached, or not as sslmode asks: does it run, at this host and port?"),
)
_FAULTS = (
    *(kind for kind, _ in _WHY),
    SQLAlchemyError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
)


@contextmanager
def worded() -> Iterator[None]:
    """Raise Misuse for an error of a database that is being opened. It says what to look at and quotes nothing."""
    try:
        yield
    except _FAULTS as error:
        causes = list(_chain(error))
        why = next((words for kind, words in _WHY if any(isinstance(each, kind) for each in causes)), None)
        codes = {getattr(each, "sqlite_errorcode", 0) & 0xFF for each in causes}
        why = next((words for code, words in _CODES.items() if code in codes), why)
        raise Misuse(
            f"the database {why or f'fails ({type(causes[-1]).__name__}): look at its log, or its file'}"
        ) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield SQLAlchemy's error, its adapter's, and the driver's."""
    while error is not None:
        yield error
        error = error.__cause__ or getattr(error, "orig", None)


class DamagedRowError(PeerFault):
    """Stored rows can't be read; storage-damaged."""


def check_named(stored: str, found: str) -> None:
    """Refuse a row (storage-damaged) whose content has another name than its key."""
    if stored != found:
        raise PeerFault(Cause.STORAGE_DAMAGED, f"the row of {stored} holds {found}")


class Quarantine:
    """What was found damaged in a database, by the name of what it concerns, so that all else goes on.

    Attributes:
        names: of rounds, cohorts, rosters and the like, since the process began.
    """

    def __init__(self) -> None:
        self.names = dict[str, None]()

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Raise DamagedRowError for whatever goes wrong with rows, and remember their name; a store that fails raises its own error."""
        try:
            yield
        except (DamagedRowError, OSError, InterfaceError, OperationalError):
            raise
        except Exception as error:
            if name not in self.names:
                DAMAGED.labels("row").inc()
                log.error("storage damaged", what="row", of=name, **where(error))  # noqa: TRY400 - its words stay out
            self.names[name] = None
            raise DamagedRowError(
                Cause.STORAGE_DAMAGED,
                f"the coordinator's storage is damaged: {name} can't be read, and all else goes on; no member is at fault. "
                "`veilsum operator db check` tells the operator more",
                ["coordinator"],
            ) from error

    @contextmanager
    def skipping(self, name: str) -> Iterator[None]:
        """Leave out what can't be read."""
        with suppress(DamagedRowError), self.reading(name):
            yield


async def tried(work: Awaitable[None]) -> None:
    """Await a look at what other processes have stored; log an error, as there is a next look."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - a listener that stops never hears again
        log.warning("others' changes are not read", **where(error))
