"""A body comes at a least rate, or its request ends; whatever a request holds is given back when it ends."""

import asyncio
from contextlib import ExitStack

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.request_signature import WITH_BODY

ENDING = "veilsum.ending"
"""In a request's scope: what is closed once it is answered, streams and all."""


class Bodies:
    """ASGI middleware; the times stand in the app's `state.pace`, set at start."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] in WITH_BODY:
            receive = scope["app"].state.pace.kept(receive)
        with ExitStack() as scope[ENDING]:
            await self.app(scope, receive, send)


class Pace:
    """How fast a body must come.

    Args:
        grace_s: for its first byte, and in all beside what follows from the rate.
        bytes_per_s: least rate on average.
    """

    def __init__(self, grace_s: float, bytes_per_s: float) -> None:
        self._grace_s, self._bytes_per_s = grace_s, bytes_per_s

    def kept(self, receive: Receive) -> Receive:
        """`receive` for one request; it raises PeerFault(body-incomplete) once the body is late, or never to come."""
        due_s: float | None = None
        size, whole = 0, False

        async def received() -> Message:
            nonlocal due_s, size, whole
            if whole:  # from here on it waits for the caller to go
                return await receive()
            if due_s is None:  # nobody waits for a body before the caller is known
                due_s = asyncio.get_running_loop().time() + self._grace_s
            try:
                async with asyncio.timeout_at(due_s):
                    message = await receive()
            except TimeoutError:
                raise _incomplete(
                    f"{size} bytes came in time; the least is {self._bytes_per_s:g} a second"
                ) from None
            if message["type"] == "http.disconnect":
                raise _incomplete(f"the connection ended after {size} bytes")
            more = len(message.get("body", b""))
            size, due_s = size + more, due_s + more / self._bytes_per_s
            whole = not message.get("more_body", False)
            return message

        return received


def _incomplete(detail: str) -> PeerFault:
    return PeerFault(Cause.BODY_INCOMPLETE, detail)
