"""Shared parts of routes: declarations, dependencies, raw bodies and long polls."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.access.bodies import ENDING_KEY
from service.access.guarded_route import GuardedRoute
from service.access.guards import EVERYONE_GUARD, Guard, coordinator_of
from service.coordination.coordinator import Coordinator
from service.coordination.rounds import Round
from service.http.callers import Caller, Limits
from service.http.problems import declare_responses
from service.storage.blobs import READ_PIECE_BYTES, in_blob_thread
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import HEX32_PATTERN, MEMBER_PATTERN, ROUND_PATTERN
from veilsum.protocol.rest import MAX_WAIT_S, OCTETS_TYPE, SAFETENSORS_TYPE

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class Routes:
    """Routes about one subject. Each declares its guard, its refusals, and the raw bytes that it takes and returns."""

    def __init__(self, subject: str) -> None:
        self.router = APIRouter(tags=[subject])

    def __call__(
        self,
        method: str,
        path: str,
        guard: Guard,
        *causes: Cause,
        takes: str = "",
        gives: str = "",
        kind: str = OCTETS_TYPE,
        answers: Mapping[int | str, dict[str, Any]] | None = None,
        needs: tuple[Callable[..., Any], ...] = (),
        **options: Any,
    ) -> Callable[[Endpoint], Endpoint]:
        """Serve a path.

        Args:
            method: of HTTP.
            path: with names in braces.
            guard: admits its callers.
            causes: of refusals, beside the guard's.
            takes: what the raw body is; empty for JSON or no body.
            gives: what the raw answer is; empty for JSON.
            kind: the raw answer's media type.
            answers: further responses by status; of 200, what else the answer may be.
            needs: further dependencies.
            options: of FastAPI.
        """
        responses = {**(answers or {}), **declare_responses(*guard.causes, *causes)}
        extra = guard.openapi_security
        if takes:
            extra["requestBody"] = {
                "required": True,
                "content": {OCTETS_TYPE: {"schema": _binary_schema(takes)}},
            }
        if gives:
            schema = {"type": "object"} if kind.endswith("+json") else _binary_schema()
            also = responses.get(200, {})
            responses[200] = {**also, "description": gives, "content": {kind: {"schema": schema}}}
            options.setdefault("response_class", Response)

        def declared_as(endpoint: Endpoint) -> Endpoint:
            self.router.add_api_route(
                path,
                endpoint,
                methods=[method],
                dependencies=[Depends(each) for each in needs],
                responses=responses,
                openapi_extra=extra or None,
                route_class_override=GuardedRoute.behind_guard(guard),
                **options,
            )
            return endpoint

        return declared_as

    def serve_published(
        self, path: str, *causes: Cause, guard: Guard = EVERYONE_GUARD, **options: Any
    ) -> Callable[[Endpoint], Endpoint]:
        """Serve a document that `answer_published` answers with."""
        answers: dict[int | str, dict[str, Any]] = {304: {"description": "If-None-Match names this version"}}
        return self("GET", path, guard, *causes, answers=answers, **options)


def _binary_schema(what: str = "") -> dict[str, str]:
    return {"type": "string", "format": "binary", **({"description": what} if what else {})}


# What requests depend on are coroutines: FastAPI runs anything else in a thread, which costs more than all that these do.


async def here_of(request: Request) -> Coordinator:
    return coordinator_of(request)


async def caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def made_by(request: Request) -> list[str]:
    """What the request makes, for the audit log: `name=id`."""
    made: list[str] = request.state.made
    return made


async def one_stream(request: Request) -> None:
    """Count a stream of events until it ends; TooMany where its caller has enough."""
    limits: Limits = request.app.state.limits
    request.scope[ENDING_KEY].enter_context(limits.count_stream(request.state.caller, request))


async def read_octets(request: Request) -> bytes:
    """Return the raw body. Raises PeerFault(malformed-request) for another content type."""
    check_media_type(request, OCTETS_TYPE)
    return await request.body()


def check_media_type(request: Request, expected: str) -> None:
    """Refuse a body of another content type (malformed-request)."""
    kind = request.headers.get("content-type", OCTETS_TYPE).partition(";")[0].strip().lower()
    if kind != expected:
        raise PeerFault(Cause.MALFORMED_REQUEST, f"send this body as {expected}, not {kind}")


class Later(Response):
    """An answer that is computed when it is sent: by then the request is in the audit log, and its body is freed."""

    def __init__(self, make: Callable[[], Awaitable[Response]]) -> None:
        super().__init__()
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._make()
        await response(scope, receive, send)


async def in_pieces(
    read: Callable[[], tuple[int, Iterator[bytes]]],
    kind: str = SAFETENSORS_TYPE,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Answer with a stored document piece by piece, so that a slow client keeps only one piece in memory.

    Args:
        read: returns its length and its pieces; called in a thread.
        kind: the media type.
        headers: further ones.
    """

    def begin_answer() -> tuple[int, bytes | Iterator[bytes]]:
        size, pieces = read()
        return size, b"".join(pieces) if size <= READ_PIECE_BYTES else pieces

    size, content = await in_blob_thread(begin_answer)
    named = {**(headers or {}), "content-length": str(size)}
    if isinstance(content, bytes):
        return Response(content, headers=named, media_type=kind)
    return StreamingResponse(content, headers=named, media_type=kind)


Here = Annotated[Coordinator, Depends(here_of)]
RoundPath = Annotated[str, Path(pattern=ROUND_PATTERN)]


async def round_of(round_id: RoundPath, request: Request) -> Round:
    """Return the path's round. Raises PeerFault(not-found) before a stream begins."""
    return await coordinator_of(request).catalogue.find_round(round_id)


TheRound = Annotated[Round, Depends(round_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]
Octets = Annotated[bytes, Depends(read_octets)]
Made = Annotated[list[str], Depends(made_by)]
Hex32Path = Annotated[str, Path(pattern=HEX32_PATTERN)]
MemberPath = Annotated[str, Path(pattern=MEMBER_PATTERN)]
CombinationPath = Annotated[str, Path(pattern=ROUND_PATTERN)]
IndexPath = Annotated[int, Path(ge=0, le=1 << 32)]
FederationQuery = Annotated[str | None, Query(pattern=HEX32_PATTERN, description="a federation's id")]
After = Annotated[int, Query(ge=-1, le=1 << 53, description="answer as soon as the version is above this")]
Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="longest wait for it, in seconds")]
