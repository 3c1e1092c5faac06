"""Render pages: templates, response headers, the advice in causes.md, and the cache of public pages."""

import math
import re
import time
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from service.access.guarded_route import GuardedRoute, Handler
from service.access.guards import coordinator_of, gate_of
from service.coordination.cache import Recent
from service.pages.session import session_of
from service.pages.wording import STATE_WORDS, words_of
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import fingerprint
from veilsum.protocol.rest import PROBLEM_BASE, Problem
from veilsum.system.intervals import PAGE_POLL_S

PAGE_HEADERS = {
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


def render_page(request: Request, template: str, status: int = 200, /, **context: Any) -> HTMLResponse:
    """Render a page for the caller."""
    values = {
        "here": request.url.path,
        "session": session_of(request),
        "base_url": (gate_of(request).public_url or str(request.base_url)).rstrip("/"),
        "now_s": request.app.state.coordinator.now(),
        **context,
    }
    return HTMLResponse(template_environment().get_template(template).render(values), status, PAGE_HEADERS)


def problem_page(request: Request, problem: Problem) -> HTMLResponse | None:
    """Render a refusal for a browser; None for other clients, and for the REST routes."""
    if request.url.path.startswith("/v1/") or "text/html" not in request.headers.get("accept", ""):
        return None
    own = cause_advice()[problem.cause]
    return render_page(
        request, "refusal.html", problem.status, problem=problem, advice=own, cause=Cause(problem.cause)
    )


@cache
def cause_advice() -> dict[str, Markup]:
    """Return what causes.md says to do about each cause, as HTML."""
    text = (files(__package__) / "causes.md").read_text("utf-8")
    sections = re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    markdown = MarkdownIt("commonmark", {"html": False})
    # Our own file, with HTML off. Each section's first paragraph is the summary, which the page has already.
    return {
        name: Markup(markdown.render(body.strip().partition("\n\n")[2]))  # noqa: S704
        for name, body in sections
    }


@cache
def template_environment() -> Environment:
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "utc": format_utc,
        "iso": lambda at_s: datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds"),
        "ago": format_age,
        "groups": lambda key: fingerprint(bytes.fromhex(key)),
        "seconds": format_duration,
        "figure": format_figure,
        "count": lambda number: f"{number:,}",
        "sentence": to_sentence,
        "code": mark_code,
    }
    made.globals |= {
        "STATES": STATE_WORDS,
        "words_of": words_of,
        "POLL_S": PAGE_POLL_S,
        "PROBLEM_BASE": PROBLEM_BASE,
        "asset": asset_address,
    }
    return made


@cache
def asset_address(name: str) -> str:
    """Return a static file's address, which changes with its content."""
    digest = sha256((files(__package__) / "static" / name).read_bytes()).hexdigest()
    return f"/static/{name}?{digest[:12]}"


def to_sentence(words: str) -> str:
    # `capitalize` would lower the other capitals.
    return f"{words[0].upper()}{words[1:].rstrip('.')}."


def mark_code(words: str) -> Markup:
    """Mark what stands between backticks as code."""
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", escape(words)))  # noqa: S704 - escaped


def format_utc(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_age(at_s: float, now_s: float) -> str:
    """Return how long ago a time was, in its largest unit."""
    past_s = max(0.0, now_s - at_s)
    for unit_s, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if past_s >= unit_s:
            return f"{past_s // unit_s:.0f} {name} ago"
    return "just now"


def format_duration(duration_s: float) -> str:
    if duration_s < 60:
        return f"{duration_s:.1f} s"
    minutes, rest = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_TIMES_TEN_TO_THE = "\N{NARROW NO-BREAK SPACE}×\N{NARROW NO-BREAK SPACE}10"


def format_figure(number: float | None) -> str:
    if number is None or not math.isfinite(number):
        return "–"
    plain, (digits, _, power) = f"{number:.4g}", f"{number:.2e}".partition("e")
    if "e" not in plain and abs(number) < 1000:
        return plain
    if 3 <= int(power) < 6:
        return f"{float(plain):,.0f}"
    exponent = str(int(power)).translate(_SUPERSCRIPTS)
    return f"{digits.rstrip('0').rstrip('.')}{_TIMES_TEN_TO_THE}{exponent}"


PAGE_CACHED_S = 1.0
"""Longest time that a page is cached: by then it shows the changes of other processes, ages and counts."""
PAGE_CACHE_BYTES = 4 << 20

KeptPages = Recent[str, tuple[int, float, Response]]
"""By address: the change counter, the expiry in monotonic seconds, and the page."""


class KeptRoute(GuardedRoute):
    """A page's route: anonymous visitors get a cached page until this process changes something, and for at most `PAGE_CACHED_S`."""

    def wrap_handler(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            if request.method != "GET" or "cookie" in request.headers:
                return await handler(request)
            pages: KeptPages = request.app.state.pages
            address, changes = str(request.url), coordinator_of(request).changes
            found = pages.get_value(address)
            if found is not None and found[0] == changes and time.monotonic() < found[1]:
                return found[2]
            response = await handler(request)
            if response.status_code == 200:
                kept = changes, time.monotonic() + PAGE_CACHED_S, response
                pages.put_value(address, kept, len(address) + len(response.body))
            return response

        return answer
