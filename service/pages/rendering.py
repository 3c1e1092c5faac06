"""Templates to answers: one environment, one set of headers."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from protocol.identity import fingerprint
from protocol.rest import PROBLEM_BASE, Problem
from service.pages import paths
from service.pages.problems import advice, cause_named
from service.pages.session import session_of
from service.pages.wording import STATES

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


def page(
    request: Request, template: str, context: Mapping[str, Any] | None = None, status: int = 200
) -> HTMLResponse:
    """A page, for whoever looks at it."""
    values = {
        "here": request.url.path,
        "session": session_of(request),
        "base_url": str(request.base_url).rstrip("/"),
        **(context or {}),
    }
    content = environment().get_template(template).render(values)
    return HTMLResponse(content, status, HEADERS)


def problem_page(request: Request, problem: Problem) -> HTMLResponse | None:
    """A refusal, for a browser; None for everybody else, and for the REST routes."""
    if request.url.path.startswith("/v1/") or "text/html" not in request.headers.get("accept", ""):
        return None
    return page(
        request,
        "refusal.html",
        {"problem": problem, "advice": advice()[problem.cause], "cause": cause_named(problem.cause)},
        problem.status,
    )


@cache
def environment() -> Environment:
    """The templates, with what they need to show times, keys and sizes."""
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "utc": utc,
        "iso": lambda at_s: datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds"),
        "groups": lambda key: fingerprint(bytes.fromhex(key)),
        "short": lambda key: key[:12],
        "seconds": seconds,
        "figure": figure,
        "count": lambda number: f"{number:,}",
        "sentence": sentence,
    }
    made.globals |= {"STATES": STATES, "PROBLEM_BASE": PROBLEM_BASE, "asset": asset}
    return made


@cache
def asset(name: str) -> str:
    """A static file's address, which changes with its content."""
    digest = sha256((files(__package__) / "static" / name).read_bytes()).hexdigest()
    return f"{paths.STATIC.format(name=name)}?{digest[:12]}"


def sentence(words: str) -> str:
    """Words as a sentence; `capitalize` would lower the others' capitals."""
    return f"{words[0].upper()}{words[1:].rstrip('.')}."


def utc(at_s: float) -> str:
    """A time as people read it."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def seconds(duration_s: float) -> str:
    """A duration as people read it."""
    if duration_s < 60:
        return f"{duration_s:.1f} s"
    minutes, rest = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def figure(number: float | None) -> str:
    """A number to four digits."""
    if number is None or not math.isfinite(number):
        return "–"
    return f"{number:.4g}"
