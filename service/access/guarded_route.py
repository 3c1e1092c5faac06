"""A route behind a guard: admit the caller, charge the request, read the body, answer, record."""

from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, ClassVar, Self

from fastapi import Request, Response
from fastapi.routing import APIRoute

from service.access.bodies import whole_body
from service.access.charging import body_length, charge_request
from service.access.gate import check_digest
from service.access.guards import Guard, coordinator_of
from service.access.recording import outcome_of, record_action, record_sign_of_life
from service.http.callers import ANONYMOUS_CALLER, Role
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.request_signature import METHODS_WITH_BODY

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GuardedRoute(APIRoute):
    """A route that asks its guard before it reads the body."""

    guard: ClassVar[Guard]

    @classmethod
    def behind_guard(cls, guard: Guard) -> type[Self]:
        """The class of routes that a guard admits to."""
        return type(cls.__name__, (cls,), {"guard": guard})

    def get_route_handler(self) -> Handler:
        answer, guard = self.wrap_handler(super().get_route_handler()), self.guard

        async def handle(request: Request) -> Response:
            try:
                admitted = await guard.admit(request)
            except PeerFault:
                request.app.state.limits.charge_request(ANONYMOUS_CALLER, request)
                raise
            request.state.caller = await charge_request(request, guard, admitted)
            record_sign_of_life(request, request.state.caller)
            if request.method not in METHODS_WITH_BODY:
                return await answer(request)
            # A change is in the audit log before its outcome is sent.
            request.state.made = list[str]()
            try:
                response = await _answer_body(request, answer)
            except BaseException as error:
                await record_action(request, outcome_of(error))
                raise
            finally:
                coordinator_of(request).changes += 1
            await record_action(request)
            return response

        return handle

    def wrap_handler(self, handler: Handler) -> Handler:
        """Wrap the handler of admitted requests; subclasses add caching."""
        return handler


async def _answer_body(request: Request, answer: Handler) -> Response:
    # The room is freed once the request is answered, even if the client never reads the answer.
    with ExitStack() as place:
        whole = await request.app.state.room.enter_room(body_length(request), place)
        if request.state.caller.role in {Role.MEMBER, Role.ADMIN}:
            request.state.digest = await check_digest(request)
        else:
            # Tells a body that never arrives from one that can't be parsed.
            await whole_body(request)
        whole()
        response = await answer(request)
        request._body = b""  # noqa: SLF001 - Starlette keeps it until the answer is taken
        return response
