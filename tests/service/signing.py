"""Clients that sign their requests: each as whoever the request is from, or as one and the same."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx

from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import parse
from veilsum.protocol.request_signature import Target, sign_request

KEYS: dict[str, SigningKey] = {}
"""Everybody's, as the parties made them."""
_SENDER = re.compile(r"/(?:cards|requests|uploads|disclosure|manifest)/([a-z0-9-]{1,64})(?![a-z0-9-])")


class Signing(httpx.Auth):
    """Signs each request as whoever it is from, or as one and the same."""

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
    """An operator's token, and each member's signature."""

    def __init__(self, clock: Callable[[], float], token: str) -> None:
        super().__init__(clock)
        self.token = token

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]  # as above
        request.headers.setdefault("authorization", f"Bearer {self.token}")
        yield from super().auth_flow(request)


def signed(request: httpx.Request, who: str, key: SigningKey, now_s: float) -> dict[str, str]:
    """The headers that sign a request as it stands."""
    path, _, query = request.url.raw_path.decode().partition("?")
    target = Target(request.method, request.headers["host"], path, query)
    return sign_request(key, who, target, request.content, created_s=now_s, nonce=os.urandom(16))


def sender_of(request: httpx.Request) -> str:
    """Whose request it is, by its path or the answer in it."""
    if request.url.path.endswith("/answers"):
        with suppress(PeerFault):
            return str(getattr(parse(request.content), "member", "m-0"))
        return "m-0"
    found = _SENDER.search(request.url.path)
    return found[1] if found else ""
