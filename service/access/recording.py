"""What is kept of a request: an entry in the audit log, and when its member was last heard from."""

from dataclasses import replace

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from service.access.guards import coordinator_of
from service.http.callers import Caller, Role
from service.storage.audit import DONE_OUTCOME, Audit, Deed
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.request_signature import RequestSignature

_PARAMETER_CHARACTERS_MAX = 64
"""Characters of a path parameter in the audit log: the length of the longest valid name."""


def record_sign_of_life(request: Request, caller: Caller) -> None:
    """Note that a member was heard from when it signed this request."""
    if caller.role is Role.MEMBER:
        signature: RequestSignature = request.state.signature
        here = coordinator_of(request)
        heard_s = min(signature.created_s, here.now())  # its clock may be ahead
        here.last_heard.note_request(caller.federation, caller.name, heard_s)


async def record_action(request: Request, outcome: str = DONE_OUTCOME) -> None:
    """Write an authenticated caller's action to the audit log."""
    caller: Caller = request.state.caller  # a page may have authenticated it since
    if caller.role is Role.ANONYMOUS:
        return
    of = {"federation": caller.federation} if caller.federation else {}
    named = [
        f"{name}={value[:_PARAMETER_CHARACTERS_MAX]}" for name, value in (of | request.path_params).items()
    ]
    made = " ".join(getattr(request.state, "made", ()))
    action = f"{request.method} {request.scope['route'].path}"
    audit: Audit = request.app.state.audit
    deed = Deed(coordinator_of(request).now(), str(caller), action, " ".join(named), outcome)
    if outcome == DONE_OUTCOME:
        await audit.record_deed(replace(deed, on=" ".join(filter(None, (deed.on, made)))))
    else:
        await audit.record_refusal(deed, caller.federation, made)


def outcome_of(error: BaseException) -> str:
    """Return the cause for which a request failed, as its entry says it."""
    if isinstance(error, PeerFault):
        return error.cause.value
    if isinstance(error, RequestValidationError | HTTPException):
        return Cause.MALFORMED_REQUEST.value
    return Cause.UNAVAILABLE.value
