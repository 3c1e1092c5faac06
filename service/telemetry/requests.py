"""One line and one measurement for each request, under an id of our own that its answer names."""

import re
import secrets
import time
from typing import Any

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from protocol.rest import REQUEST_ID_HEADER, ROUND_PATTERN
from service.telemetry.logs import LOGGER
from service.telemetry.metrics import REQUESTS

log = structlog.get_logger(LOGGER)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds by machines."""


class RequestTelemetry:
    """ASGI middleware. A client's own id is not taken up: it could be anything, and would stand in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id, started, status = secrets.token_hex(8), time.perf_counter(), 500

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        with bound_contextvars(request=request_id):
            try:
                await self.app(scope, receive, sent)
            finally:
                _note(scope, status, time.perf_counter() - started)


def round_in(scope: Scope) -> dict[str, str]:
    """The round that a request is about, for a log line; empty where it names none in the form of one."""
    named = str(scope.get("path_params", {}).get("round_id", ""))
    return {"round": named} if re.match(ROUND_PATTERN, named) else {}


def _note(scope: Scope, status: int, seconds: float) -> None:
    route: Any = scope.get("route")
    template = getattr(route, "path_format", None) or getattr(route, "path", None) or "none"
    method = scope["method"] if scope["method"] in _METHODS else "other"
    REQUESTS.labels(method, template, str(status)).observe(seconds)
    if template not in _QUIET:
        log.info(
            "request",
            method=method,
            route=template,
            status=status,
            ms=round(1000 * seconds, 1),
            **round_in(scope),
        )
