"""Every answer of the app held against what its route declares."""

import functools
from collections.abc import Mapping
from typing import Any

import httpx

from service.app import create_app
from service.settings import Settings
from veilsum.protocol import rest

OBSERVED: set[tuple[str, str, int, str]] = set()
"""Every problem that the suite has seen: method, route, status, cause."""


@functools.cache
def declared_paths() -> dict[str, Any]:
    """Every app's API document is the same, and takes a while."""
    paths: dict[str, Any] = create_app(Settings()).openapi()["paths"]
    return paths


class Checking:
    """The app, with every answer held against what its route declares."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.declared = declared_paths()

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
            assert kind == rest.PROBLEM, f"{scope['method']} {scope['path']}: {status} {kind}"
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
