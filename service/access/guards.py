"""Guards: each route names one, which admits or refuses the caller before the body is read."""

import re
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from service.access.bodies import ENDING, whole_body
from service.access.gate import Gate, check_digest
from service.coordination.combining import stored_record
from service.coordination.coordinator import Coordinator
from service.http.callers import STRANGER, Caller, Limits, Role, TooMany
from service.http.metering import bill
from service.storage.audit import DONE, Audit, Deed
from service.storage.blobs import in_blob_thread
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import HEX32_PATTERN, MEMBER_PATTERN, ROUND_PATTERN
from veilsum.protocol.messages import Roster
from veilsum.protocol.record import CombinedRecord
from veilsum.protocol.request_signature import SIGNATURE_INPUT, WITH_BODY, RequestSignature
from veilsum.protocol.rest import Scope
from veilsum.protocol.study import read_content

_TOKEN, _SIGNATURE = "OperatorToken", "RequestSignature"
SCHEMES: dict[str, dict[str, str]] = {
    _TOKEN: {"type": "http", "scheme": "bearer", "description": "an operator's token (docs/access.md)"},
    _SIGNATURE: {
        "type": "apiKey",
        "in": "header",
        "name": "Signature",
        "description": "an Ed25519 signature of the member, or the admin, over the request: RFC 9421 with Signature-Input and, in PUT "
        "and POST, Content-Digest (docs/access.md)",
    },
}
"""Security schemes of the API document. FastAPI's own would be resolved at each request."""
_SIGNED = (
    Cause.REQUEST_UNSIGNED,
    Cause.REQUEST_FORGED,
    Cause.CLOCK_SKEW,
    Cause.DIGEST_MISMATCH,
    Cause.FORBIDDEN,
)

_NAMED_MAX = 64
"""Characters of a path parameter in the audit log: the length of the longest valid name."""
_NAMES = {
    "federation": HEX32_PATTERN,
    "cohort": HEX32_PATTERN,
    "round_id": ROUND_PATTERN,
    "combination": ROUND_PATTERN,
    "member": MEMBER_PATTERN,
}
Admission = Callable[[Request], Awaitable[Caller]]
"""Authenticates a request by its headers alone. Raises PeerFault if the caller may not send it."""


@dataclass(frozen=True, eq=False)
class Guard:
    """Admits the callers of a route.

    Attributes:
        admit: lets callers in.
        schemes: names in `SCHEMES`.
        causes: of refusals.
        public: whether unauthenticated callers are admitted.
        limited: whether rate limits apply.
        single_use: whether a signed request is accepted once.
    """

    admit: Admission
    schemes: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    public: bool = False
    limited: bool = True
    single_use: bool = False

    @property
    def document(self) -> dict[str, Any]:
        """For a route's `openapi_extra`."""
        needs = [dict[str, list[str]]({scheme: []}) for scheme in self.schemes]
        return {"security": [{}, *needs] if self.public else needs} if needs else {}


async def _unauthenticated(request: Request) -> Caller:  # noqa: ARG001 - an Admission
    return STRANGER


async def _signed(request: Request) -> Caller:
    """Admit a member under the roster of the round, cohort or federation that the path names."""
    return await gate_of(request).member(request, lambda: _roster(request))


async def _signed_or_not(request: Request) -> Caller:
    """Admit members by name, so that `service.coordination.liveness` sees them, and all other callers, bad signatures included."""
    if SIGNATURE_INPUT in request.headers:
        with suppress(PeerFault):
            return await _signed(request)
    return STRANGER


async def _member(request: Request) -> Caller:
    """Admit the member that the path names, or any member of the path's federation if it names none."""
    caller = await _signed(request)
    named = request.path_params.get("member", caller.name)
    if named != caller.name:
        raise PeerFault(
            Cause.FORBIDDEN, f"only {named} may do this, and {caller.name} signed the request", [caller.name]
        )
    return caller


async def _reader(request: Request) -> Caller:
    """Admit a member that is a reader both in the round's roster and in the newest."""
    caller = await _signed(request)
    newest = await coordinator_of(request).federations.roster(caller.federation)
    if not all(caller.name in roster.readers for roster in (await _roster(request), newest)):
        raise PeerFault(
            Cause.FORBIDDEN,
            f"{caller.name} may not read sums: have the admin sign a roster with --reader {caller.name}, before the round",
            [caller.name],
        )
    return caller


async def _admin(request: Request) -> Caller:
    """Admit the admin of the path's federation."""
    return await gate_of(request).admin(request, lambda: _federation(request))


def _operator(scope: Scope) -> Admission:
    """Admit an operator by a token with a scope."""

    async def admit(request: Request) -> Caller:
        caller = await gate_of(request).operator(request)
        if not caller.may(scope):
            raise PeerFault(
                Cause.FORBIDDEN,
                f"token {caller.name} has the scopes {', '.join(sorted(caller.scopes)) or 'none'}: this needs '{scope}'",
            )
        await check_federation(request, caller)
        return caller

    return admit


async def check_federation(request: Request, operator: Caller) -> None:
    """Refuse a token that is limited to another federation than the path's. Raises PeerFault: forbidden, not-found."""
    if not operator.federation:
        return
    path = _path(request)
    named = path["federation"] if "federation" in path else (await _roster(request)).federation.hex()
    if named != operator.federation:
        raise PeerFault(
            Cause.FORBIDDEN, f"token {operator.name} works for federation {operator.federation} only"
        )


def operators(scope: Scope) -> Guard:
    """Guard a route for operators with a scope."""
    return Guard(_operator(scope), (_TOKEN,), (Cause.UNAUTHORISED, Cause.FORBIDDEN))


def _also_operators(signed: Admission, scope: Scope, *, public_heads: bool = False) -> Admission:
    """Admit by signature if the request has one, else by token. Public heads need neither."""
    operator = _operator(scope)

    async def admit(request: Request) -> Caller:
        if SIGNATURE_INPUT in request.headers:
            return await signed(request)
        if public_heads and "authorization" not in request.headers and await _is_public(request):
            return STRANGER
        return await operator(request)

    return admit


_BOTH, _FOUND = (_TOKEN, _SIGNATURE), (*_SIGNED, Cause.NOT_FOUND)
EVERYONE = Guard(_unauthenticated, public=True)
MACHINES = Guard(_unauthenticated, public=True, limited=False)
"""Health probes. A refusal would look like a dead process."""
WAITING = Guard(_signed_or_not, (_SIGNATURE,), public=True)
MEMBER = Guard(_member, (_SIGNATURE,), _FOUND)
AUDIT, ROUNDS, ADMIN = operators(Scope.AUDIT), operators(Scope.ROUNDS), operators(Scope.ADMIN)
READERS = Guard(
    _also_operators(_reader, Scope.SUMS),
    _BOTH,
    (Cause.UNAUTHORISED, *_FOUND, Cause.REQUEST_REPLAYED),
    single_use=True,
)
"""The audit log names who downloaded a sum: whoever repeats a reader's request must not look like the reader."""
HEADS = Guard(_also_operators(_signed, Scope.SUMS, public_heads=True), _BOTH, (Cause.UNAUTHORISED, *_FOUND))
PUBLISHING, CLOSING = (
    Guard(_also_operators(_admin, scope), _BOTH, (Cause.UNAUTHORISED, *_SIGNED))
    for scope in (Scope.FEDERATIONS, Scope.ROUNDS)
)
"""The admin, or an operator that passes on a document that the admin signed."""


class GuardedRoute(APIRoute):
    """A route that asks its guard before it reads the body."""

    guard: ClassVar[Guard]

    @classmethod
    def by(cls, guard: Guard) -> type[Self]:
        """The class of routes that a guard admits to."""
        return type(cls.__name__, (cls,), {"guard": guard})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner, guard = self.answering(super().get_route_handler()), self.guard

        async def handle(request: Request) -> Response:
            request.state.caller = caller = await _admitted(request, guard)
            if request.method not in WITH_BODY:
                return await inner(request)
            # A change is in the audit log before its outcome is sent.
            request.state.made = list[str]()
            try:
                # The room is freed once the request is answered, even if the client never reads the answer.
                with ExitStack() as place:
                    whole = await request.app.state.room.enter(_length(request), place)
                    if caller.role in {Role.MEMBER, Role.ADMIN}:
                        request.state.digest = await check_digest(request)
                    else:
                        # Tells a body that never arrives from one that can't be parsed.
                        await whole_body(request)
                    whole()
                    response = await inner(request)
                    request._body = b""  # noqa: SLF001 - Starlette keeps it until the answer is taken
            except BaseException as error:
                await record(request, _outcome(error))
                raise
            finally:
                coordinator_of(request).changes += 1
            await record(request)
            return response

        return handle

    def answering(
        self, inner: Callable[[Request], Coroutine[Any, Any, Response]]
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler of admitted requests; subclasses add caching."""
        return inner


def _length(request: Request) -> int:
    """Bytes of the body; 0 without a Content-Length, which signed requests must have (`check_digest`)."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


async def _admitted(request: Request, guard: Guard) -> Caller:
    """Admit a caller within its limits. A refused request is charged to its address."""
    limits: Limits = request.app.state.limits
    try:
        caller = await guard.admit(request)
    except PeerFault:
        limits.charge(STRANGER, request)
        raise
    if not guard.limited:
        bill(lambda _: None)
        return caller
    try:
        _count(request, caller)
    except TooMany:
        if caller is STRANGER or not guard.public:
            raise
        caller = STRANGER  # a signature never closes a public route
        _count(request, caller)
    if caller.role is Role.MEMBER:
        signature: RequestSignature = request.state.signature
        coordinator_of(request).last_heard.note_request(caller.federation, caller.name, signature.created_s)
        if guard.single_use:
            await gate_of(request).take_nonce(request, caller)
    return caller


def _count(request: Request, caller: Caller) -> None:
    """Charge a request to its caller and count it while it is answered. Raises PeerFault(too-many-requests)."""
    limits: Limits = request.app.state.limits
    limits.charge(caller, request)
    bill(limits.account(caller, request))
    request.scope[ENDING].enter_context(limits.under_way(caller, request, _length(request)))


async def record(request: Request, outcome: str = DONE) -> None:
    """Write an authenticated caller's action to the audit log."""
    audit: Audit = request.app.state.audit
    caller: Caller = request.state.caller  # a page may have authenticated it since
    if caller.role is Role.ANONYMOUS:
        return
    named = (
        {"federation": caller.federation, **request.path_params} if caller.federation else request.path_params
    )
    on = " ".join(
        [
            *(f"{name}={value[:_NAMED_MAX]}" for name, value in named.items()),
            *getattr(request.state, "made", ()),
        ]
    )
    now_s = coordinator_of(request).now()
    action = f"{request.method} {request.scope['route'].path}"
    await audit.record(Deed(now_s, str(caller), action, on, outcome))


def _outcome(error: BaseException) -> str:
    if isinstance(error, PeerFault):
        return error.cause.value
    if isinstance(error, RequestValidationError | HTTPException):
        return Cause.MALFORMED_REQUEST.value
    return Cause.UNAVAILABLE.value


def gate_of(request: Request) -> Gate:
    gate: Gate = request.app.state.gate
    return gate


def coordinator_of(request: Request) -> Coordinator:
    coordinator: Coordinator = request.app.state.coordinator
    return coordinator


async def _roster(request: Request) -> Roster:
    """Find the roster of the path's round or cohort, or the federation's newest one. Raises PeerFault(not-found)."""
    here, path = coordinator_of(request), _path(request)
    if "round_id" in path:
        found: Roster = (await here.catalogue.round(path["round_id"])).attempt.roster
        return found
    if "cohort" in path:
        return (await here.catalogue.cohort(path["cohort"])).roster
    if "combination" in path:
        return await here.federations.roster((await _combined(request)).federation)
    return await here.federations.roster(path["federation"])


async def _combined(request: Request) -> CombinedRecord:
    return await in_blob_thread(stored_record, _path(request)["combination"], coordinator_of(request).blobs)


async def _is_public(request: Request) -> bool:
    """Whether the head of the path's round or combination is public. Raises PeerFault(not-found)."""
    here, path = coordinator_of(request), _path(request)
    if "round_id" in path:
        content = (await here.catalogue.round(path["round_id"])).attempt.content
    else:
        record = await _combined(request)
        content = read_content((await here.federations.study(record.federation, record.study)).content)
    return content.after.readers == "anyone"


async def _federation(request: Request) -> str:
    """Find the federation of the path or of its round. Raises PeerFault: unauthorised, not-found."""
    named = _path(request).get("federation")
    if named is None:
        return (await _roster(request)).federation.hex()
    await coordinator_of(request).federations.check_known(named)
    return named


def _path(request: Request) -> dict[str, str]:
    """Check the names in the path. Raises PeerFault(malformed-request)."""
    for name, value in request.path_params.items():
        if name in _NAMES and not re.fullmatch(_NAMES[name], value):
            raise PeerFault(Cause.MALFORMED_REQUEST, f"path.{name}: must match {_NAMES[name]}")
    return request.path_params
