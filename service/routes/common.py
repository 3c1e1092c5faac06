"""What the routes share: the coordinator at hand, the operator's token, raw bodies, long-polls."""

from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from fastapi.security import HTTPBearer

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.rest import HEX32_PATTERN, MAX_WAIT_S, MEMBER_PATTERN, OCTETS, ROUND_PATTERN
from service.access import check_token
from service.coordinator import Coordinator
from service.rounds import Round

_bearer = HTTPBearer(auto_error=False, description="the operator's token")


def coordinator_of(request: Request) -> Coordinator:
    """The app's coordinator."""
    coordinator: Coordinator = request.app.state.coordinator
    return coordinator


def is_operator(request: Request) -> bool:
    """Whether the request carries the operator's token."""
    try:
        check_operator(request)
    except PeerFault:
        return False
    return True


def check_operator(request: Request) -> None:
    """Refuse a request without the operator's token."""
    check_token(request.app.state.token_hash, request.headers.get("authorization"))


async def octets(request: Request) -> bytes:
    """The raw body; PeerFault(malformed-request) where it is declared as something else."""
    kind = request.headers.get("content-type", OCTETS).partition(";")[0].strip().lower()
    if kind != OCTETS:
        raise PeerFault(Cause.MALFORMED_REQUEST, f"send this body as {OCTETS}, not {kind}")
    return await request.body()


def octets_in(what: str) -> dict[str, Any]:
    """OpenAPI's description of a raw body."""
    schema = {"type": "string", "format": "binary", "description": what}
    return {"requestBody": {"required": True, "content": {OCTETS: {"schema": schema}}}}


def octets_out(what: str, kind: str = OCTETS) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's description of a raw answer."""
    return {200: {"description": what, "content": {kind: {"schema": {"type": "string", "format": "binary"}}}}}


Here = Annotated[Coordinator, Depends(coordinator_of)]
RoundPath = Annotated[str, Path(pattern=ROUND_PATTERN)]


def round_of(round_id: RoundPath, here: Here) -> Round:
    """The path's round; PeerFault(not-found), and that before a stream has begun."""
    return here.round(round_id)


TheRound = Annotated[Round, Depends(round_of)]
Operator = Depends(check_operator)
Bearer = Depends(_bearer)
IsOperator = Annotated[bool, Depends(is_operator)]
Octets = Annotated[bytes, Depends(octets)]
Hex32Path = Annotated[str, Path(pattern=HEX32_PATTERN)]
MemberPath = Annotated[str, Path(pattern=MEMBER_PATTERN)]
IndexPath = Annotated[int, Path(ge=0, le=1 << 32)]
After = Annotated[int, Query(ge=-1, le=1 << 53, description="answer as soon as the version is above this")]
Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="seconds to wait for that at the most")]
