"""Logs as JSON lines, uvicorn's own through the same: never a header, a body, a query, or an error's words."""

import logging
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LOGGER = "veilsum.service"
_SERVER = ("uvicorn", "uvicorn.error", "uvicorn.asgi")


def where(error: BaseException) -> dict[str, str]:
    """An unforeseen error for the log: its type and where it came from, without its words, which may quote anything."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return {
        "error": type(error).__name__,
        "at": " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames)),
    }


def configure(stream: TextIO | None = None, *, quiet: bool = False) -> None:
    """Send everything to one stream, one JSON object a line.

    Args:
        stream: None for standard output.
        quiet: warnings and errors only.
    """
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
        logger_factory=lambda *_: structlog.PrintLogger(stream or sys.stdout),
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
    for name in _SERVER:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler] if name == "uvicorn" else [], name != "uvicorn"
        logger.setLevel(level)
    # Our own line for each request has its route's template and no path, which may hold anything.
    access = logging.getLogger("uvicorn.access")
    access.handlers, access.propagate = [logging.NullHandler()], False


def _without_words(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A traceback becomes its type and place, or nothing where a library wrote it out itself; its words are dropped."""
    found: Any = event.pop("exc_info", None)
    record: logging.LogRecord | None = event.get("_record")
    if record is not None and record.exc_info:
        found, record.exc_info, record.exc_text = record.exc_info, None, None
    error = found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event["event"] = str(event["event"]).splitlines()[0]
        event.update(where(error))
    # uvicorn hands on what Starlette wrote of a start that failed.
    if str(event["event"]).startswith("Traceback"):
        event["event"] = "a traceback, left out"
    return event
