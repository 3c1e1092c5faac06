"""OpenTelemetry traces, off unless the environment names where they go.

FastAPI measures itself; a span has method, route, path, status and nothing of headers or bodies. Where they go, and what the
service is called, is said by OpenTelemetry's own variables.
"""

import os
from importlib.util import find_spec

from fastapi.telemetry import TelemetryConfig

from protocol.errors import Misuse

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXTRA = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def tracing() -> TelemetryConfig:
    """FastAPI's configuration; Misuse where traces are asked for and their libraries are missing."""
    named = [name for name in ENDPOINTS if os.environ.get(name)]
    if named and not all(map(_installed, _EXTRA)):
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
