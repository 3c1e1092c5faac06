"""What the routes share: the coordinator at hand, callers, raw bodies, long-polls."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from fastapi.responses import StreamingResponse

from protocol.access import Scope
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.rest import HEX32_PATTERN, MAX_WAIT_S, MEMBER_PATTERN, OCTETS, ROUND_PATTERN
from service.access.bodies import ENDING
from service.access.callers import Caller
from service.access.gate import headers_signed
from service.access.guards import (
    AdminOrOperator,
    Anybody,
    HeadReader,
    Machines,
    Member,
    MemberOrAnybody,
    Operator,
    ReaderOrOperator,
    coordinator_of,
    gate_of,
)
from service.access.limits import Limits
from service.coordinator import Coordinator
from service.rounds import Round

ANYBODY, MACHINES, MEMBER, WAITING = Anybody(), Machines(), Member(), MemberOrAnybody()
READ, ROUNDS, ADMIN = Operator(Scope.READ), Operator(Scope.ROUNDS), Operator(Scope.ADMIN)
READERS, HEADS = ReaderOrOperator(Scope.READ), HeadReader(Scope.READ)
PUBLISHING, CLOSING = AdminOrOperator(Scope.FEDERATIONS), AdminOrOperator(Scope.ROUNDS)


# What requests depend on are coroutines: FastAPI runs anything else in a thread, which costs more than all that these do.


async def here_of(request: Request) -> Coordinator:
    """The app's coordinator."""
    return coordinator_of(request)


async def caller_of(request: Request) -> Caller:
    """Whoever the route's guard has let in."""
    caller: Caller = request.state.caller
    return caller


async def made_by(request: Request) -> list[str]:
    """What the request makes, for the audit log: `name=id`."""
    made: list[str] = request.state.made
    return made


async def digest_of_body(request: Request) -> bytes:
    """The SHA-256 of a signed request's body."""
    digest: bytes = request.state.digest
    return digest


def signed_headers(request: Request) -> str:
    """By what anybody sees who has signed this request, and over which body (docs/access.md), for the audit log."""
    return headers_signed(request, gate_of(request).target(request))


async def one_stream(request: Request) -> None:
    """Count a stream of events until it ends; TooMany where its caller has enough."""
    limits: Limits = request.app.state.limits
    request.scope[ENDING].enter_context(limits.streaming(request.state.caller, request))


async def octets(request: Request) -> bytes:
    """The raw body; PeerFault(malformed-request) where it is declared as something else."""
    kind = request.headers.get("content-type", OCTETS).partition(";")[0].strip().lower()
    if kind != OCTETS:
        raise PeerFault(Cause.MALFORMED_REQUEST, f"send this body as {OCTETS}, not {kind}")
    return await request.body()


def in_pieces(
    size: int, pieces: Iterator[bytes], kind: str, headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """A body as its reader takes it: one who takes nothing holds a piece of it in memory, and counts as being answered."""
    return StreamingResponse(
        pieces, media_type=kind, headers={**(headers or {}), "content-length": str(size)}
    )


def octets_in(what: str) -> dict[str, Any]:
    """OpenAPI's description of a raw body."""
    schema = {"type": "string", "format": "binary", "description": what}
    return {"requestBody": {"required": True, "content": {OCTETS: {"schema": schema}}}}


def octets_out(what: str, kind: str = OCTETS) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's description of a raw answer."""
    schema = {"type": "object"} if kind.endswith("+json") else {"type": "string", "format": "binary"}
    return {200: {"description": what, "content": {kind: {"schema": schema}}}}


Here = Annotated[Coordinator, Depends(here_of)]
RoundPath = Annotated[str, Path(pattern=ROUND_PATTERN)]


async def round_of(round_id: RoundPath, here: Here) -> Round:
    """The path's round; PeerFault(not-found), and that before a stream has begun."""
    return await here.round(round_id)


TheRound = Annotated[Round, Depends(round_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]
Octets = Annotated[bytes, Depends(octets)]
Made = Annotated[list[str], Depends(made_by)]
BodyDigest = Annotated[bytes, Depends(digest_of_body)]
Hex32Path = Annotated[str, Path(pattern=HEX32_PATTERN)]
MemberPath = Annotated[str, Path(pattern=MEMBER_PATTERN)]
NamePath = Annotated[str, Path(pattern=MEMBER_PATTERN)]
CombinationPath = Annotated[str, Path(pattern=ROUND_PATTERN)]
IndexPath = Annotated[int, Path(ge=0, le=1 << 32)]
After = Annotated[int, Query(ge=-1, le=1 << 53, description="answer as soon as the version is above this")]
Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="seconds to wait for that at the most")]
