"""A log line, a measurement and a trace for each request."""

import os
import re
from importlib.util import find_spec
from typing import Any

import structlog
from fastapi.telemetry import TelemetryConfig
from starlette.types import Scope

from service.telemetry.logs import LOGGER
from service.telemetry.metrics import REQUESTS
from veilsum.protocol.errors import Misuse
from veilsum.protocol.rest import ROUND_PATTERN

log = structlog.get_logger(LOGGER)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
"""Routes that machines ask for every few seconds."""
_TRACING = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def round_in(scope: Scope) -> dict[str, str]:
    """Return the round that a request is about, for a log line; nothing where its path has no round's id."""
    named = str(scope.get("path_params", {}).get("round_id", ""))
    return {"round": named} if re.match(ROUND_PATTERN, named) else {}


def note(scope: Scope, status: int, seconds: float) -> None:
    """Log and measure an answer."""
    route: Any = scope.get("route")
    template = getattr(route, "path_format", None) or getattr(route, "path", None) or "none"
    method = scope["method"] if scope["method"] in _METHODS else "other"
    REQUESTS.labels(method, template, str(status)).observe(seconds)
    if template not in _QUIET:
        about = {"status": status, "ms": round(1000 * seconds, 1), **round_in(scope)}
        log.info("request", method=method, route=template, **about)


def tracing() -> TelemetryConfig:
    """Trace requests by OpenTelemetry if its environment variables say where to; Misuse where its libraries are missing.

    FastAPI measures by itself. A span has method, route, path and status, and nothing of headers or bodies.
    """
    named = [name for name in ENDPOINTS if os.environ.get(name)]
    if named and not all(map(_installed, _TRACING)):
        raise Misuse(f"{named[0]} asks for traces, which need an extra: pip install 'veilsum[service,otel]'")
    return {
        "tracing": bool(named),
        "metrics": False,  # /metrics has ours
        "logs": False,
        "operation_spans": False,  # they would name parameters
        "auto_configure": bool(named),
    }


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
