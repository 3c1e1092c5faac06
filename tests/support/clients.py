"""Clients that sign their requests, and check each problem response against what its route declares."""

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import httpx

from service.app import create_app
from service.settings import Settings
from veilsum.protocol import rest
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import parse_message
from veilsum.protocol.request_signature import Target, sign_request

KEYS: dict[str, SigningKey] = {}
"""The parties' signing keys, by member."""
_SENDER = re.compile(
    r"/(?:cards|pairings|requests|uploads|disclosure|manifest|sites)/([a-z0-9-]{1,64})(?![a-z0-9-])"
)


class Signing(httpx.Auth):
    """Sign each request as `who`, or as the sender that the request names."""

    requires_request_body = True

    def __init__(self, clock: Callable[[], float], who: str = "", key: SigningKey | None = None) -> None:
        self.clock, self.who, self.key = clock, who, key

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]  # nothing is sent into it
        who = self.who or sender_of(request)
        key = self.key or KEYS.get(who)
        if key is not None and "signature" not in request.headers:
            request.headers.update(signed(request, who, key, self.clock()))
        yield request


class Everybody(Signing):
    """Sign as the member that each request names, and send the operator's token."""

    def __init__(self, clock: Callable[[], float], token: str) -> None:
        super().__init__(clock)
        self.token = token

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]  # as above
        request.headers.setdefault("authorization", f"Bearer {self.token}")
        yield from super().auth_flow(request)


def signed(request: httpx.Request, who: str, key: SigningKey, now_s: float) -> dict[str, str]:
    """Return the headers that sign a request."""
    path, _, query = request.url.raw_path.decode().partition("?")
    target = Target(request.method, request.headers["host"], path, query)
    return sign_request(key, who, target, request.content, created_s=now_s, nonce=os.urandom(16))


def sender_of(request: httpx.Request) -> str:
    """Return the request's sender, from its path or from the answer in its body."""
    if request.url.path.endswith("/answers"):
        with suppress(PeerFault):
            return str(getattr(parse_message(request.content), "member", "m-0"))
        return "m-0"
    found = _SENDER.search(request.url.path)
    return found[1] if found else ""


OBSERVED: set[tuple[str, str, int, str]] = set()
"""Every problem seen in this process: method, route, status, cause."""


@functools.cache
def api_document() -> dict[str, Any]:
    """Return the API document. It is the same for every app, and slow to build."""
    return create_app(Settings()).openapi()


class Checking:
    """Wrap the app, and check that each problem is one that its route declares."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.declared = api_document()["paths"]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status, kind, body = 0, "", b""

        async def sent(message: Any) -> None:
            nonlocal status, kind, body
            if message["type"] == "http.response.start":
                status = message["status"]
                kind = dict(message["headers"]).get(b"content-type", b"").decode()
            elif message["type"] == "http.response.body":
                body += message.get("body", b"")
            await send(message)

        await self.app(scope, receive, sent)
        route = getattr(scope.get("route"), "path", "")
        if status >= 400:
            assert kind == rest.PROBLEM_TYPE, f"{scope['method']} {scope['path']}: {status} {kind}"
            problem = rest.Problem.model_validate_json(body)
            assert problem.status == status
            assert problem.type == rest.PROBLEM_BASE + problem.cause
            if scope["method"].lower() in self.declared.get(route, ()):
                responses = self.declared[route][scope["method"].lower()]["responses"]
                assert str(status) in responses, f"{scope['method']} {route} does not declare {status}"
                causes = responses[str(status)]["description"].split(", ")
                assert problem.cause in causes, f"{scope['method']} {route} does not declare {problem.cause}"
                OBSERVED.add((scope["method"], route, status, problem.cause))


def client_of(app: Any, headers: Mapping[str, str], auth: httpx.Auth | None = None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(Checking(app))
    return httpx.AsyncClient(transport=transport, base_url="http://coordinator", headers=headers, auth=auth)
