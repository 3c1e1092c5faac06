"""Errors as problem details (RFC 9457): each has a cause of the one enum, and that cause's status."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from service.http.callers import ANONYMOUS_CALLER, TooMany
from service.telemetry.logs import describe_error, log, round_in
from service.telemetry.metrics import REFUSALS_COUNT
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import in_words
from veilsum.protocol.rest import PROBLEM_BASE, PROBLEM_TYPE, Problem

_STATUS_OF_CAUSE = {
    Cause.MALFORMED_REQUEST: 400,
    Cause.UNKNOWN_VERSION: 400,
    Cause.UNKNOWN_MESSAGE: 400,
    Cause.TRUNCATED: 400,
    Cause.LEFT_OVER_BYTES: 400,
    Cause.MALFORMED: 400,
    Cause.DIGEST_MISMATCH: 400,
    Cause.UNAUTHORISED: 401,
    Cause.REQUEST_UNSIGNED: 401,
    Cause.REQUEST_FORGED: 401,
    Cause.CLOCK_SKEW: 401,
    Cause.FORBIDDEN: 403,
    Cause.NOT_FOUND: 404,
    Cause.CONFLICT: 409,
    Cause.WRONG_PHASE: 409,
    Cause.WRONG_CONTEXT: 409,
    Cause.CARD_CONFLICT: 409,
    Cause.PAIRING_CONFLICT: 409,
    Cause.UPLOAD_CONFLICT: 409,
    Cause.ALREADY_VOTED: 409,
    Cause.ROSTER_ROLLBACK: 409,
    Cause.ALREADY_SUMMED: 409,
    Cause.REQUEST_REPLAYED: 409,
    Cause.BODY_INCOMPLETE: 408,
    Cause.OVERSIZED: 413,
    Cause.TOO_MANY_REQUESTS: 429,
    Cause.STORAGE_DAMAGED: 500,
    Cause.UNAVAILABLE: 503,
}
_SCHEME_OF_CAUSE = {
    Cause.UNAUTHORISED: "Bearer",
    Cause.REQUEST_UNSIGNED: "Signature",
    Cause.REQUEST_FORGED: "Signature",
    Cause.CLOCK_SKEW: "Signature",
}
"""The authentication scheme that a 401 names, by cause."""
_CAUSE_OF_STATUS = {404: Cause.NOT_FOUND, 405: Cause.NOT_FOUND, 413: Cause.OVERSIZED}
MAX_DETAIL = 1000
DECODING_CAUSES = (
    Cause.UNKNOWN_VERSION,
    Cause.UNKNOWN_MESSAGE,
    Cause.TRUNCATED,
    Cause.LEFT_OVER_BYTES,
    Cause.MALFORMED,
    Cause.DUPLICATE,
)
"""Causes that any route with a message as its body can answer."""


def status_of(cause: Cause) -> int:
    """Return the HTTP status of a cause: 422 for a valid message that breaks a rule."""
    return _STATUS_OF_CAUSE.get(cause, 422)


def problem_of(fault: PeerFault) -> Problem:
    """Convert a fault to problem details."""
    return Problem(
        type=PROBLEM_BASE + fault.cause.value,
        title=fault.cause.summary,
        status=status_of(fault.cause),
        detail=fault.detail,
        cause=fault.cause.value,
        parties=fault.parties,
    )


def wrong_phase(detail: str) -> PeerFault:
    """Make a fault for a message that comes too early or too late."""
    return PeerFault(Cause.WRONG_PHASE, detail)


def terms_refused(detail: str) -> PeerFault:
    """Make a fault for a round that members would refuse."""
    return PeerFault(Cause.TERMS_REFUSED, detail)


def storage_damaged(detail: str) -> PeerFault:
    """Make a fault for what storage has lost or changed; no member is at fault."""
    return PeerFault(Cause.STORAGE_DAMAGED, detail, ["coordinator"])


def not_found(what: str) -> PeerFault:
    """Make a fault for an unknown name."""
    return PeerFault(Cause.NOT_FOUND, f"there is no such {what}")


def declare_responses(*causes: Cause) -> dict[int | str, dict[str, Any]]:
    """Return a route's `responses` for the API document: these causes and those that every route can answer."""
    always = (
        Cause.MALFORMED_REQUEST,
        Cause.BODY_INCOMPLETE,
        Cause.OVERSIZED,
        Cause.TOO_MANY_REQUESTS,
        Cause.STORAGE_DAMAGED,
        Cause.UNAVAILABLE,
    )
    by_status: dict[int, list[str]] = {}
    for cause in (*always, *causes):
        by_status.setdefault(status_of(cause), []).append(cause.value)
    body = {"content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    return {
        **{status: {"description": ", ".join(names), **body} for status, names in sorted(by_status.items())},
        # Also keeps FastAPI from declaring a 422 of its own, which no route answers.
        "default": {"description": "any other refusal", **body},
    }


Page = Callable[[Request, Problem], Response | None]
"""Render a problem as a page for a browser that asked for HTML; None for other clients."""


def install_handlers(app: FastAPI, page: Page) -> None:
    """Answer every error of the app as problem details."""
    for kind in (PeerFault, RequestValidationError, HTTPException, OSError, SQLAlchemyError, Exception):
        app.add_exception_handler(kind, partial(_handle_error, page))


Refusal = tuple[PeerFault, int | None, Mapping[str, str]]
"""An error's answer: the fault, a status that overrides its cause's, and headers."""


async def _handle_error(page: Page, request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and not hasattr(request.state, "caller"):
        try:  # no route's guard has charged it: the path is unknown, or takes another method
            request.app.state.limits.charge_request(ANONYMOUS_CALLER, request)
        except TooMany as many:
            error = many
    if isinstance(error, TooMany):
        await request.app.state.limits.delay_refusal(request)
    fault, status, headers = _describe_refusal(error)
    about = round_in(request.scope)
    problem = note_refusal(fault, status, about)
    if about and about["round"] in request.app.state.coordinator.catalogue.rounds:
        counts = request.app.state.refused.get_value(about["round"]) or Counter()
        counts[problem.cause] += 1
        request.app.state.refused.put_value(about["round"], counts, 1)
    shown = page(request, problem)
    if shown is None:
        return answer_of(problem, headers)
    shown.headers.update(headers)
    return shown


def note_refusal(
    fault: PeerFault, status: int | None = None, about: Mapping[str, str] | None = None
) -> Problem:
    """Count and log a refusal, and convert it to problem details."""
    problem = problem_of(fault)
    # The detail may quote the request: half a surrogate pair, or a key of a megabyte.
    detail = problem.detail[:MAX_DETAIL].encode(errors="replace").decode()
    REFUSALS_COUNT.labels(problem.cause).inc()
    problem = problem.model_copy(update={"status": status or problem.status, "detail": detail})
    log.info("refused", cause=problem.cause, status=problem.status, **about or {})
    return problem


def answer_of(problem: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Make the JSON answer of a problem."""
    return JSONResponse(problem.model_dump(mode="json"), problem.status, headers, media_type=PROBLEM_TYPE)


def _describe_refusal(error: Exception) -> Refusal:
    match error:
        case PeerFault():
            headers = dict[str, str]()
            if (scheme := _SCHEME_OF_CAUSE.get(error.cause)) is not None:
                headers["www-authenticate"] = scheme
            if isinstance(error, TooMany):
                headers["retry-after"] = str(error.after_s)
            if error.cause is Cause.BODY_INCOMPLETE:
                headers["connection"] = "close"  # do not wait for the rest of the body
            return error, None, headers
        case RequestValidationError():
            # Name the place and the rule, never the value.
            places = "; ".join(f"{'.'.join(map(str, e['loc']))}: {in_words(e)}" for e in error.errors()[:5])
            return PeerFault(Cause.MALFORMED_REQUEST, places), None, {}
        case HTTPException():
            cause = _CAUSE_OF_STATUS.get(error.status_code, Cause.MALFORMED_REQUEST)
            detail = str(error.detail or HTTPStatus(error.status_code).phrase)
            if error.status_code == HTTPStatus.NOT_FOUND:  # the router's own: routes raise PeerFault
                detail = "the coordinator has no such path: check its address"
            return PeerFault(cause, detail), error.status_code, error.headers or {}
        case OSError() | SQLAlchemyError():
            log.error("storage failed", **describe_error(error))
            detail = "the coordinator cannot read or write its storage now: try again"
            return PeerFault(Cause.UNAVAILABLE, detail), None, {"retry-after": "5"}
    log.error("request failed", **describe_error(error))
    detail = "internal error: the coordinator's log shows the operator where"
    return PeerFault(Cause.UNAVAILABLE, detail), 500, {}
