"""Every refusal as problem details (RFC 9457), from the one enum of causes."""

import traceback
from http import HTTPStatus
from pathlib import Path
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.types import Message as ASGIMessage
from starlette.types import Send

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.ledger import LedgerFault
from protocol.rest import PROBLEM, PROBLEM_BASE, Problem, round_name

log = structlog.get_logger("veilsum.service")

_STATUS = {
    Cause.MALFORMED_REQUEST: 400,
    Cause.UNKNOWN_VERSION: 400,
    Cause.UNKNOWN_MESSAGE: 400,
    Cause.TRUNCATED: 400,
    Cause.LEFT_OVER_BYTES: 400,
    Cause.MALFORMED: 400,
    Cause.UNAUTHORISED: 401,
    Cause.NOT_FOUND: 404,
    Cause.CONFLICT: 409,
    Cause.WRONG_PHASE: 409,
    Cause.WRONG_CONTEXT: 409,
    Cause.CARD_CONFLICT: 409,
    Cause.UPLOAD_CONFLICT: 409,
    Cause.ALREADY_VOTED: 409,
    Cause.ROSTER_ROLLBACK: 409,
    Cause.OVERSIZED: 413,
    Cause.UNAVAILABLE: 503,
}
_HTTP = {404: Cause.NOT_FOUND, 405: Cause.NOT_FOUND, 413: Cause.OVERSIZED}
MAX_DETAIL = 1000
DECODING = (
    Cause.UNKNOWN_VERSION,
    Cause.UNKNOWN_MESSAGE,
    Cause.TRUNCATED,
    Cause.LEFT_OVER_BYTES,
    Cause.MALFORMED,
    Cause.DUPLICATE,
)
"""What any route that takes a message may find wrong with its bytes."""


def status_of(cause: Cause) -> int:
    """The HTTP status of a cause; 422 where the message was understood and breaks a rule."""
    return _STATUS.get(cause, 422)


def problem_of(fault: PeerFault) -> Problem:
    """A fault in the form in which it leaves."""
    exposed = fault.group if isinstance(fault, LedgerFault) else None
    return Problem(
        type=PROBLEM_BASE + fault.cause.value,
        title=fault.cause.summary,
        status=status_of(fault.cause),
        detail=fault.detail,
        cause=fault.cause.value,
        parties=fault.parties,
        group=exposed.members if exposed else (),
        rounds=tuple(map(round_name, exposed.rounds)) if exposed else (),
    )


def wrong_phase(detail: str) -> PeerFault:
    """Refuse what comes too early or too late."""
    return PeerFault(Cause.WRONG_PHASE, detail)


def not_found(what: str) -> PeerFault:
    """Refuse a name that is nobody's."""
    return PeerFault(Cause.NOT_FOUND, f"there is no such {what}")


def where(error: BaseException) -> dict[str, str]:
    """An unforeseen error for the log: its type and where it came from, without its words, which may quote anything."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return {
        "error": type(error).__name__,
        "at": " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames)),
    }


def declared(*causes: Cause) -> dict[int | str, dict[str, Any]]:
    """A route's `responses`: which statuses it answers for these causes, beside 400, 413 and 503."""
    always = (Cause.MALFORMED_REQUEST, Cause.OVERSIZED, Cause.UNAVAILABLE)
    by_status: dict[int, list[str]] = {}
    for cause in (*always, *causes):
        by_status.setdefault(status_of(cause), []).append(cause.value)
    body = {"content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    return {
        **{status: {"description": ", ".join(names), **body} for status, names in sorted(by_status.items())},
        # Also keeps FastAPI from declaring a 422 of its own, which is never answered.
        "default": {"description": "any other refusal", **body},
    }


def oversized_as_problem(send: Send) -> Send:
    """FastAPI's body limit answers by itself, in plain text: let it say the same as a problem."""
    body: bytes | None = None

    async def sent(message: ASGIMessage) -> None:
        nonlocal body
        if message["type"] == "http.response.start" and message["status"] == 413:
            problem = _answer(PeerFault(Cause.OVERSIZED, "the body is longer than this route takes"))
            body, message = bytes(problem.body), {**message, "headers": problem.raw_headers}
        elif message["type"] == "http.response.body" and body is not None:
            message, body = {**message, "body": body}, b""
        await send(message)

    return sent


def install(app: FastAPI) -> None:
    """Answer every error of the app as a problem."""
    app.add_exception_handler(PeerFault, _peer_fault)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(OSError, _storage)
    app.add_exception_handler(SQLAlchemyError, _storage)
    app.add_exception_handler(Exception, _unforeseen)


def _answer(
    fault: PeerFault, status: int | None = None, headers: dict[str, str] | None = None
) -> JSONResponse:
    problem = problem_of(fault)
    # A request may quote what is no text: half a surrogate pair, or a key of a megabyte.
    detail = problem.detail[:MAX_DETAIL].encode(errors="replace").decode()
    problem = problem.model_copy(update={"status": status or problem.status, "detail": detail})
    log.info("refused", cause=problem.cause, status=problem.status, parties=problem.parties)
    return JSONResponse(problem.model_dump(mode="json"), problem.status, headers, media_type=PROBLEM)


async def _peer_fault(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PeerFault)
    headers = {"www-authenticate": "Bearer"} if error.cause is Cause.UNAUTHORISED else None
    return _answer(error, headers=headers)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    # Where and why, never what: the value itself may be anything.
    places = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
    return _answer(PeerFault(Cause.MALFORMED_REQUEST, places))


async def _http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    cause = _HTTP.get(error.status_code, Cause.MALFORMED_REQUEST)
    detail = str(error.detail or HTTPStatus(error.status_code).phrase)
    return _answer(PeerFault(cause, detail), error.status_code, dict(error.headers or {}))


async def _storage(_request: Request, error: Exception) -> JSONResponse:
    log.error("storage failed", **where(error))
    return _answer(
        PeerFault(Cause.UNAVAILABLE, "the coordinator cannot store this now; try again"),
        headers={"retry-after": "5"},
    )


async def _unforeseen(_request: Request, error: Exception) -> JSONResponse:
    log.error("request failed", **where(error))
    return _answer(PeerFault(Cause.UNAVAILABLE, "the coordinator failed; its log says where"), 500)
