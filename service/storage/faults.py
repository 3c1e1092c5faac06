"""Errors of a database in our own words: a driver's may quote a password or a message."""

import sqlite3
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from socket import gaierror
from ssl import SSLError

import asyncpg
import structlog
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from service.telemetry.logs import LOGGER, where
from service.telemetry.metrics import DAMAGED
from veilsum.protocol.errors import Misuse

log = structlog.get_logger(LOGGER)

_FULL = "finds its disk full: make room and start again"
_WHY: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidAuthorizationSpecificationError, "refuses this user, or the password"),
    (asyncpg.InvalidCatalogNameError, "is not there: make it, or name another"),
    (
        asyncpg.exceptions.ClientConfigurationError,
        "can't be connected to as its URL asks: is the certificate of sslmode there?",
    ),
    (asyncpg.DiskFullError, _FULL),
    (SSLError, "can't be connected to by TLS: is its certificate of an authority that is known here?"),
    (gaierror, "is on a host whose name nobody knows"),
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
        if any(getattr(each, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL for each in causes):
            why = _FULL
        raise Misuse(
            f"the database {why or f'fails ({type(causes[-1]).__name__}): look at its log, or its file'}"
        ) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield SQLAlchemy's error, its adapter's, and the driver's."""
    while error is not None:
        yield error
        error = error.__cause__ or getattr(error, "orig", None)


@contextmanager
def quarantined(of: str) -> Iterator[None]:
    """Log and count an error that rows of one federation or round cause, so that the others go on; a store that fails raises it."""
    try:
        yield
    except (OSError, InterfaceError, OperationalError):
        raise
    except Exception as error:  # noqa: BLE001 - damaged rows fail anywhere
        DAMAGED.labels("row").inc()
        log.error("storage damaged", what="row", of=of, **where(error))  # noqa: TRY400 - its words stay out


async def tried(work: Awaitable[None]) -> None:
    """Await a look at what other processes have stored; log an error, as there is a next look."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - who stops listening is deaf for good
        log.warning("others' changes are not read", **where(error))
