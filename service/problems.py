"""Every refusal as problem details (RFC 9457), from the one enum of causes."""

from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.rest import PROBLEM, PROBLEM_BASE, Problem

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


def status_of(cause: Cause) -> int:
    """The HTTP status of a cause; 422 where the message was understood and breaks a rule."""
    return _STATUS.get(cause, 422)


def problem_of(fault: PeerFault) -> Problem:
    """A fault in the form in which it leaves."""
    return Problem(
        type=PROBLEM_BASE + fault.cause.value,
        title=fault.cause.summary,
        status=status_of(fault.cause),
        detail=fault.detail,
        cause=fault.cause.value,
        parties=fault.parties,
    )


def wrong_phase(detail: str) -> PeerFault:
    """Refuse what comes too early or too late."""
    return PeerFault(Cause.WRONG_PHASE, detail)


def not_found(what: str) -> PeerFault:
    """Refuse a name that is nobody's."""
    return PeerFault(Cause.NOT_FOUND, f"there is no such {what}")


def declared(*causes: Cause) -> dict[int | str, dict[str, Any]]:
    """A route's `responses`: which statuses it answers for these causes, beside 400, 413 and 503."""
    always = (Cause.MALFORMED_REQUEST, Cause.OVERSIZED, Cause.UNAVAILABLE)
    by_status: dict[int, list[str]] = {}
    for cause in (*always, *causes):
        by_status.setdefault(status_of(cause), []).append(cause.value)
    schema = Problem.model_json_schema()
    return {
        status: {"description": ", ".join(names), "content": {PROBLEM: {"schema": schema}}}
        for status, names in sorted(by_status.items())
    }


def install(app: FastAPI) -> None:
    """Answer every error of the app as a problem."""

    def answer(
        fault: PeerFault, status: int | None = None, headers: dict[str, str] | None = None
    ) -> JSONResponse:
        problem = problem_of(fault)
        problem = problem.model_copy(update={"status": status or problem.status})
        log.info("refused", cause=problem.cause, status=problem.status, parties=problem.parties)
        return JSONResponse(problem.model_dump(mode="json"), problem.status, headers, media_type=PROBLEM)

    async def peer_fault(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, PeerFault)
        headers = {"www-authenticate": "Bearer"} if error.cause is Cause.UNAUTHORISED else None
        return answer(error, headers=headers)

    async def invalid(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        # Where and why, never what: the value itself may be anything.
        where = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        return answer(PeerFault(Cause.MALFORMED_REQUEST, where))

    async def http(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        cause = _HTTP.get(error.status_code, Cause.MALFORMED_REQUEST)
        detail = str(error.detail or HTTPStatus(error.status_code).phrase)
        return answer(PeerFault(cause, detail), error.status_code, dict(error.headers or {}))

    async def storage(_request: Request, error: Exception) -> JSONResponse:
        log.error("storage failed", error=type(error).__name__)
        return answer(
            PeerFault(Cause.UNAVAILABLE, "the coordinator cannot store this now; try again"),
            headers={"retry-after": "5"},
        )

    app.add_exception_handler(PeerFault, peer_fault)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(OSError, storage)
