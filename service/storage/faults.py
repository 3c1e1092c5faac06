"""Why a database can't be worked with, in our own words: a driver's may quote what it was given."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from socket import gaierror
from ssl import SSLError

import asyncpg
import structlog
from sqlalchemy.exc import SQLAlchemyError

from protocol.errors import Misuse
from service.telemetry.logs import LOGGER, where

log = structlog.get_logger(LOGGER)

_WHY: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidAuthorizationSpecificationError, "refuses this user, or the password"),
    (asyncpg.InvalidCatalogNameError, "is not there: make it, or name another"),
    (
        asyncpg.exceptions.ClientConfigurationError,
        "can't be connected to as its URL asks: is the certificate of sslmode there?",
    ),
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
    """Turn what a database raises while it is opened into Misuse that says what to look at, and quotes nothing."""
    try:
        yield
    except _FAULTS as error:
        causes = list(_chain(error))
        why = next((words for kind, words in _WHY if any(isinstance(each, kind) for each in causes)), None)
        raise Misuse(
            f"the database {why or f'fails ({type(causes[-1]).__name__}): look at its log, or its file'}"
        ) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from: SQLAlchemy's, its adapter's, the driver's."""
    while error is not None:
        yield error
        error = error.__cause__ or getattr(error, "orig", None)


async def tried(work: Awaitable[None]) -> None:
    """Storage may fail now, and a defect that one change finds is not for the others to suffer; there is a next look."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - who stops listening is deaf for good
        log.warning("others' changes are not read", **where(error))
