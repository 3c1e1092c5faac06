"""Logs as JSON lines, uvicorn's included, and a trace and measurement for each request.

No line holds a header, a body, a query or an error's message.
"""

import errno
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

import structlog
from fastapi.telemetry import TelemetryConfig
from starlette.types import Scope
from structlog.typing import EventDict, Processor, WrappedLogger

from service.telemetry.metrics import REQUEST_SECONDS
from veilsum.protocol.errors import Misuse
from veilsum.protocol.forms import ROUND_PATTERN

log = structlog.get_logger()
_SERVER_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.asgi")


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes: SQLAlchemy's error, its adapter's, and the driver's."""
    while error is not None:
        yield error
        error = error.__cause__ or getattr(error, "orig", None)


def name_reason(error: BaseException) -> str:
    """Name what is behind an error: the system's or SQLite's code, such as ENOSPC or SQLITE_FULL, or else the type of the first cause."""
    # A timeout is caused by a cancellation, which is no error.
    first = [each for each in error_chain(error) if each is error or isinstance(each, Exception)][-1]
    code = errno.errorcode.get(first.errno or 0) if isinstance(first, OSError) else None
    return code or str(getattr(first, "sqlite_errorname", type(first).__name__))


def describe_error(error: BaseException) -> dict[str, str]:
    """Describe an unexpected error by type, reason and place, without its message, which may quote anything."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return {
        "error": type(error).__name__,
        "reason": name_reason(error),
        "at": " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames)),
    }


def configure_logs(stream: TextIO | None = None, *, quiet: bool = False) -> None:
    """Send everything to one stream, standard output by default, one JSON object a line; with `quiet` only warnings and errors."""
    level = logging.WARNING if quiet else logging.INFO
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        _without_words,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda: structlog.PrintLogger(stream or sys.stdout),
    )
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    for name in _SERVER_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler] if name == "uvicorn" else [], name != "uvicorn"
        logger.setLevel(level)
    # Our own request lines have the route's template instead of the path, which may hold anything.
    access = logging.getLogger("uvicorn.access")
    access.handlers, access.propagate = [logging.NullHandler()], False


def _without_words(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace a traceback by its type and place, and drop its message."""
    found: Any = event.pop("exc_info", None)
    record: logging.LogRecord | None = event.get("_record")
    if record is not None and record.exc_info:
        found, record.exc_info, record.exc_text = record.exc_info, None, None
    error = found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event["event"] = str(event["event"]).splitlines()[0]
        event.update(describe_error(error))
    # uvicorn passes on the traceback that Starlette logs when a start fails.
    if str(event["event"]).startswith("Traceback"):
        event["event"] = "traceback omitted"
    return event


_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_QUIET_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
"""Routes that probes request every few seconds."""
_TRACING_MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def round_in(scope: Scope) -> dict[str, str]:
    """Return the round in a request's path for a log line; empty without one."""
    named = str(scope.get("path_params", {}).get("round_id", ""))
    return {"round": named} if re.match(ROUND_PATTERN, named) else {}


def note_answer(scope: Scope, status: int, seconds: float) -> None:
    """Log and measure an answer."""
    route: Any = scope.get("route")
    template = getattr(route, "path_format", None) or getattr(route, "path", None) or "none"
    method = scope["method"] if scope["method"] in _KNOWN_METHODS else "other"
    REQUEST_SECONDS.labels(method, template, str(status)).observe(seconds)
    if template not in _QUIET_PATHS:
        about = {"status": status, "ms": round(1000 * seconds, 1), **round_in(scope)}
        log.info("request", method=method, route=template, **about)


def configure_tracing() -> TelemetryConfig:
    """Trace requests by OpenTelemetry if its environment variables name an endpoint. Raises Misuse if its libraries are missing.

    FastAPI records the spans: method, route, path and status, without headers or bodies.
    """
    named = [name for name in ENDPOINTS if os.environ.get(name)]
    if named and not all(map(_is_installed, _TRACING_MODULES)):
        raise Misuse(f"{named[0]} asks for traces, which need an extra: pip install 'veilsum[service,otel]'")
    return {
        "tracing": bool(named),
        "metrics": False,  # /metrics has ours
        "logs": False,
        "operation_spans": False,  # they would name parameters
        "auto_configure": bool(named),
    }


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
