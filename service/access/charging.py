"""What a request takes: of its caller's limits, and its nonce where it is accepted once."""

from fastapi import Request

from service.access.bodies import ENDING_KEY
from service.access.guards import Guard, gate_of
from service.access.pool import PLACE_KEY, Place
from service.http.callers import ANONYMOUS_CALLER, Caller, Limits, Role, TooMany
from service.http.metering import bill_request


async def charge_request(request: Request, guard: Guard, caller: Caller) -> Caller:
    """Charge an admitted request. Returns whom it was charged to: on a public route, a caller beyond its limits counts as anyone.

    Raises:
        PeerFault: too-many-requests; request-replayed or clock-skew if the route accepts a request once.
    """
    if not guard.limited:
        bill_request(lambda _: None)
        return caller
    try:
        _charge_limits(request, caller)
    except TooMany:
        if caller is ANONYMOUS_CALLER or not guard.public:
            raise
        caller = ANONYMOUS_CALLER
        _charge_limits(request, caller)
    place: Place | None = request.scope.get(PLACE_KEY)
    if place is not None:
        place.note_admission(signed=caller is not ANONYMOUS_CALLER)
    if guard.single_use and caller.role is Role.MEMBER:
        await gate_of(request).take_nonce(request, caller)
    return caller


def body_length(request: Request) -> int:
    """Bytes of the body; 0 without a Content-Length, which signed requests must have (`check_digest`)."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


def _charge_limits(request: Request, caller: Caller) -> None:
    limits: Limits = request.app.state.limits
    limits.charge_request(caller, request)
    bill_request(limits.account_for(caller, request))
    request.scope[ENDING_KEY].enter_context(limits.under_way(caller, request, body_length(request)))
