"""Who may call a route. Every route says it, by a guard, which is asked before the route's body is read."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from typing import Any, ClassVar, cast

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader, HTTPBearer
from fastapi.security.base import SecurityBase
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from protocol.access import Scope
from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.messages import Roster
from protocol.published import CombinedRecord
from protocol.request_signature import SIGNATURE_INPUT, WITH_BODY
from protocol.rest import HEX32_PATTERN, MEMBER_PATTERN, ROUND_PATTERN
from protocol.study import read_content
from service.access.bodies import ENDING
from service.access.callers import ANYBODY, Caller, Kind
from service.access.gate import Gate, check_digest
from service.access.limits import Limits, TooMany
from service.audit import DONE, Audit, Deed
from service.combining import stored_record
from service.coordinator import Coordinator
from service.listed import Listed

_TOKEN = HTTPBearer(
    auto_error=False, scheme_name="OperatorToken", description="an operator's token (docs/access.md)"
)
_SIGNATURE = APIKeyHeader(
    name="Signature",
    auto_error=False,
    scheme_name="RequestSignature",
    description="an Ed25519 signature of the member, or the admin, over the request: RFC 9421 with Signature-Input and, in PUT "
    "and POST, Content-Digest (docs/access.md)",
)
_SIGNED = (
    Cause.REQUEST_UNSIGNED,
    Cause.REQUEST_FORGED,
    Cause.REQUEST_REPLAYED,
    Cause.CLOCK_SKEW,
    Cause.DIGEST_MISMATCH,
    Cause.FORBIDDEN,
)

_NAMED_MAX = 64
"""Characters of a path's name that the log takes: the longest that any route takes has as many."""
_NAMES = {
    "federation": HEX32_PATTERN,
    "cohort": HEX32_PATTERN,
    "round_id": ROUND_PATTERN,
    "combination": ROUND_PATTERN,
    "member": MEMBER_PATTERN,
}


class Guard(ABC):
    """Who may call a route.

    Attributes:
        schemes: how the API document says it.
        causes: what it refuses callers for.
        limited: whether callers have limits here.
    """

    schemes: ClassVar[tuple[SecurityBase, ...]] = ()
    causes: ClassVar[tuple[Cause, ...]] = ()
    limited: ClassVar[bool] = True

    @abstractmethod
    async def admit(self, request: Request) -> Caller:
        """Whoever sends the request, known by its headers alone; PeerFault where it may not."""

    async def __call__(self, request: Request) -> Caller:
        """The caller, as the route was told before."""
        caller: Caller = request.state.caller
        return caller

    @property
    def dependencies(self) -> list[Dependency]:
        """For a route's `dependencies`."""
        return [Depends(self), *(Depends(cast("Any", scheme)) for scheme in self.schemes)]


class Anybody(Guard):
    """Anybody: what is asked for is public."""

    async def admit(self, request: Request) -> Caller:
        """Unseen."""
        del request
        return ANYBODY


class MemberOrAnybody(Anybody):
    """Anybody, and a member of the path's federation as itself: by its signature it is heard from (`service.heard`).

    A signature that does not hold, or was there before, changes nothing: the request is anybody's.
    """

    document: ClassVar[dict[str, Any]] = {"security": [{}, {_SIGNATURE.scheme_name: []}]}
    """For a route's `openapi_extra`: a scheme among the dependencies would be said to be needed."""

    async def admit(self, request: Request) -> Caller:
        """By a signature where there is one that holds, else unseen."""
        if SIGNATURE_INPUT in request.headers:
            with suppress(PeerFault):
                return await gate_of(request).member(request, lambda: _roster(request))
        return ANYBODY


class Machines(Anybody):
    """Whoever watches the process: an answer costs no more than a refusal, and refusing it would look like a dead process."""

    limited = False


class Member(Guard):
    """The member that the path names; where it names none, any member of the path's federation."""

    schemes = (_SIGNATURE,)
    causes = (*_SIGNED, Cause.NOT_FOUND)

    async def admit(self, request: Request) -> Caller:
        """By its signature, under the roster of the round, cohort or federation that the path names."""
        caller = await gate_of(request).member(request, lambda: _roster(request))
        named = request.path_params.get("member", caller.name)
        if named != caller.name:
            raise PeerFault(
                Cause.FORBIDDEN, f"this is {named}'s alone, and {caller.name} has signed", [caller.name]
            )
        return caller


class Operator(Guard):
    """An operator whose token has this scope.

    Args:
        scope: that it takes.
    """

    schemes: ClassVar[tuple[SecurityBase, ...]] = (_TOKEN,)
    causes: ClassVar[tuple[Cause, ...]] = (Cause.UNAUTHORISED, Cause.FORBIDDEN)

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    async def admit(self, request: Request) -> Caller:
        """By its token."""
        caller = await gate_of(request).operator(request)
        if not caller.may(self.scope):
            raise PeerFault(
                Cause.FORBIDDEN,
                f"token {caller.name} has the scopes {', '.join(sorted(caller.scopes)) or 'of nobody'}: this takes '{self.scope}'",
            )
        return caller


class ReaderOrOperator(Operator):
    """A member whom the admin lists as a reader, in the round's roster and in the newest, or an operator."""

    schemes = (_TOKEN, _SIGNATURE)
    causes = (Cause.UNAUTHORISED, *_SIGNED, Cause.NOT_FOUND)

    async def admit(self, request: Request) -> Caller:
        """By a signature where there is one, else by a token."""
        if SIGNATURE_INPUT not in request.headers:
            return await super().admit(request)
        caller = await gate_of(request).member(request, lambda: _roster(request))
        newest = await coordinator_of(request).federations.newest(caller.federation)
        if not all(caller.name in roster.readers for roster in (await _roster(request), newest)):
            raise PeerFault(
                Cause.FORBIDDEN,
                f"{caller.name} may not read sums: have the admin sign a roster with --reader {caller.name}, before the round",
                [caller.name],
            )
        return caller


class HeadReader(Operator):
    """Who may read a head: a member of the federation or an operator, and anybody where the study says so."""

    schemes = (_TOKEN, _SIGNATURE)
    causes = (Cause.UNAUTHORISED, *_SIGNED, Cause.NOT_FOUND)

    async def admit(self, request: Request) -> Caller:
        """By a signature where there is one, else by a token; by neither where anyone may read."""
        if SIGNATURE_INPUT in request.headers:
            return await gate_of(request).member(request, lambda: _roster(request))
        if "authorization" not in request.headers and await _is_public(request):
            return ANYBODY
        return await super().admit(request)


class AdminOrOperator(Operator):
    """The admin of the path's federation, or an operator, who passes on what the admin signed."""

    schemes = (_TOKEN, _SIGNATURE)
    causes = (Cause.UNAUTHORISED, *_SIGNED)

    async def admit(self, request: Request) -> Caller:
        """By a signature where there is one, else by a token."""
        if SIGNATURE_INPUT not in request.headers:
            return await super().admit(request)
        return await gate_of(request).admin(request, lambda: _federation(request))


class GuardedRoute(APIRoute):
    """A route that asks its guard first, then reads the body; Misuse for one that names no guard."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's own handler, behind its guard."""
        inner, guard = super().get_route_handler(), guard_of(self)

        async def handle(request: Request) -> Response:
            request.state.caller = caller = await _admitted(request, guard)
            if request.method not in WITH_BODY:
                return await inner(request)
            # Whatever changes something is in the log before anybody is told what came of it.
            request.state.made = list[str]()
            try:
                # Until it is answered, and not until the answer is taken: a client that reads nothing keeps no room.
                with ExitStack() as place:
                    whole = await request.app.state.room.enter(_length(request), place)
                    if caller.kind in {Kind.MEMBER, Kind.ADMIN}:
                        request.state.digest = await check_digest(request)
                    else:
                        # Here, where a body that does not come is told from one that can't be parsed.
                        await request.body()
                    whole()
                    response = await inner(request)
                    request._body = b""  # noqa: SLF001 - Starlette keeps it until the answer is taken
            except BaseException as error:
                await _record(request, self.path, _outcome(error))
                raise
            await _record(request, self.path, DONE)
            return response

        return handle


def _length(request: Request) -> int:
    """Of the body, in bytes; 0 where it is not said, as no signed one may (`check_digest`)."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


def guard_of(route: APIRoute) -> Guard:
    """Who may call a route."""
    for each in route.dependencies:
        if isinstance(each.dependency, Guard):
            return each.dependency
    raise Misuse(f"{route.path} does not say who may call it")


async def _admitted(request: Request, guard: Guard) -> Caller:
    """Whoever the guard lets in, within its limits; who proves nothing has used its address's."""
    limits: Limits = request.app.state.limits
    try:
        caller = await guard.admit(request)
    except PeerFault:
        limits.charge(ANYBODY, request)
        raise
    if not guard.limited:
        return caller
    if caller is not ANYBODY and isinstance(guard, Anybody):
        # Sent before, too many, or a nonce that can't be kept: what is public is no less so for whoever signs.
        with suppress(PeerFault, OSError, SQLAlchemyError):
            await _count(request, caller)
            return caller
        caller = ANYBODY
    try:
        await _count(request, caller)
    except TooMany:
        raise
    except PeerFault:
        limits.charge(ANYBODY, request)
        raise
    return caller


async def _count(request: Request, caller: Caller) -> None:
    """Take a caller's token and its request's nonce, and count it as under way; PeerFault: too-many-requests, or as `Gate.take`."""
    limits: Limits = request.app.state.limits
    # Before the nonce, which is a write, and as no more than a loan: or whoever sends a member's request again would use up its bucket.
    limits.charge(caller, request)
    if caller is not ANYBODY:
        try:
            await gate_of(request).take(request)
        except PeerFault:
            limits.give_back(caller, request)
            raise
    request.scope[ENDING].enter_context(limits.under_way(caller, request, _length(request)))


async def _record(request: Request, path: str, outcome: str) -> None:
    audit: Audit = request.app.state.audit
    caller: Caller = request.state.caller  # who a page has found out to be signed in, too
    if caller.kind is Kind.ANYBODY:
        return
    named = (
        {"federation": caller.federation, **request.path_params} if caller.federation else request.path_params
    )
    on = " ".join([*(f"{name}={value[:_NAMED_MAX]}" for name, value in named.items()), *request.state.made])
    now_s = coordinator_of(request).now()
    await audit.record(Deed(now_s, str(caller), f"{request.method} {path}", on, outcome))


def _outcome(error: BaseException) -> str:
    if isinstance(error, PeerFault):
        return error.cause.value
    if isinstance(error, RequestValidationError | HTTPException):
        return Cause.MALFORMED_REQUEST.value
    return Cause.UNAVAILABLE.value


def gate_of(request: Request) -> Gate:
    """The app's gate."""
    gate: Gate = request.app.state.gate
    return gate


def coordinator_of(request: Request) -> Coordinator:
    """The app's coordinator."""
    coordinator: Coordinator = request.app.state.coordinator
    return coordinator


async def _roster(request: Request) -> Roster | Listed:
    """Under which the path's round or cohort was formed, or the federation's newest; PeerFault(not-found)."""
    here, path = coordinator_of(request), _path(request)
    if "round_id" in path:
        found: Roster = (await here.round(path["round_id"])).attempt.roster
        return found
    if "cohort" in path:
        return (await here.cohort(path["cohort"])).roster
    if "combination" in path:
        return await here.federations.newest((await _combined(request)).federation)
    return await here.federations.newest(path["federation"])


async def _combined(request: Request) -> CombinedRecord:
    return await asyncio.to_thread(
        stored_record, _path(request)["combination"], coordinator_of(request).blobs
    )


async def _is_public(request: Request) -> bool:
    """Whether anyone may read the head of the path's round or combination; PeerFault(not-found)."""
    here, path = coordinator_of(request), _path(request)
    if "round_id" in path:
        content = (await here.round(path["round_id"])).attempt.content
    else:
        record = await _combined(request)
        content = read_content((await here.studies.study(record.federation, record.study)).content)
    return content.after.readers == "anyone"


async def _federation(request: Request) -> str:
    """The path's, or the one that its round belongs to; PeerFault: unauthorised, not-found."""
    named = _path(request).get("federation")
    if named is None:
        return (await _roster(request)).federation.hex()
    await coordinator_of(request).federations.check_known(named)
    return named


def _path(request: Request) -> dict[str, str]:
    """The path's names, which nobody else has looked at yet; PeerFault(malformed-request)."""
    for name, value in request.path_params.items():
        if name in _NAMES and not re.fullmatch(_NAMES[name], value):
            raise PeerFault(Cause.MALFORMED_REQUEST, f"path.{name}: must match {_NAMES[name]}")
    return request.path_params
