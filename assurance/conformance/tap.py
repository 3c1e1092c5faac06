"""What passes between the client and the coordinator: an ASGI application that records it, and may put another answer in its place."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs

from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Enrolment, Message, Upload, parse_message
from veilsum.protocol.rest import OCTETS_TYPE

_ROUND = re.compile(r"/v1/rounds/([0-9a-f]{16})")
_CONTEXT = re.compile(r"/v1/contexts/([0-9a-f]{16})")
_MEMBER = re.compile(
    r"/(?:cards|manifest|pairings|requests|uploads|disclosure)/([a-z0-9-]+)(?:/chunks/\d+)?$"
)
_CHUNK = re.compile(r"/chunks/\d+$")


def read_message(data: bytes) -> Message | None:
    """Parse a message; None if the bytes are none."""
    try:
        return parse_message(data)
    except PeerFault:
        return None


def sender_of(message: Message) -> str:
    """Return the member that a message bears."""
    match message:
        case Enrolment():
            return message.card.member
        case Upload():
            return message.header.member
    return str(getattr(message, "member", ""))


@dataclass(frozen=True)
class Said:
    """A message that was sent: its round, None while the cohort forms; from whom, and to whom."""

    round: str | None
    source: str
    to: str
    message: Message
    data: bytes


@dataclass(frozen=True)
class Seen:
    """A request and its answer, as far as they hold messages."""

    said: tuple[Said, ...]

    @classmethod
    def of(cls, method: str, path: str, body: bytes, answer: bytes) -> Self:
        found = _ROUND.search(path) or _CONTEXT.search(path)
        round_, asks, said = found and found[1], _MEMBER.search(path), []
        if method != "GET" and not _CHUNK.search(path) and (sent := read_message(body)) is not None:
            said.append(Said(round_, sender_of(sent), "coordinator", sent, body))
        to = asks[1] if asks else said[0].source if said else "anyone"
        if (shown := read_message(answer)) is not None:
            said.append(Said(round_, "coordinator", to, shown, answer))
        return cls(tuple(said))


@dataclass
class Asked:
    """A request of the client."""

    method: str
    path: str
    query: dict[str, list[str]]
    body: bytes
    lane: object
    """Which start of the client sent it."""

    @property
    def round(self) -> str | None:
        """The round that the path names."""
        found = _ROUND.search(self.path) or _CONTEXT.search(self.path)
        return found[1] if found else None

    @property
    def sends(self) -> Message | None:
        """The message that it carries."""
        return None if self.method == "GET" or _CHUNK.search(self.path) else read_message(self.body)

    @property
    def waits(self) -> bool:
        """Whether the client has nothing better to do than to wait for the answer."""
        return float(self.query.get("wait_s", ["0"])[0]) > 0


@dataclass
class Answer:
    """An answer to the client."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    is_false: bool = False
    """Whether the client is judged by what it does next."""
    shown: Callable[[], None] | None = None
    """Called once it was sent."""

    @classmethod
    def octets(cls, body: bytes, like: "Answer", *, is_false: bool = False) -> Self:
        """Answer by a message, with the other headers of an honest answer."""
        kept = {name: value for name, value in like.headers.items() if name.startswith(b"veilsum-")}
        return cls(200, {**kept, b"content-type": OCTETS_TYPE.encode()}, body, is_false)

    @classmethod
    def json(cls, value: Any, *, is_false: bool = False) -> Self:
        return cls(200, {b"content-type": b"application/json"}, json.dumps(value).encode(), is_false)

    @property
    def message(self) -> Message | None:
        """The message that it holds."""
        octets = self.headers.get(b"content-type", b"").startswith(OCTETS_TYPE.encode())
        return read_message(self.body) if self.status == 200 and octets else None


async def _pass(_asked: Asked) -> Answer | None:
    return None


async def _keep(_asked: Asked, answer: Answer) -> Answer:
    return answer


@dataclass
class Tap:
    """The client's way to the coordinator.

    Attributes:
        before: may answer a request in the coordinator's place.
        after: may change the coordinator's answer.
        lane: which start of the client is running; answers to an earlier one are dropped.
        messages: all that was sent, also by the kit's members.
    """

    app: Any = None
    before: Callable[[Asked], Awaitable[Answer | None]] = _pass
    after: Callable[[Asked, Answer], Awaitable[Answer]] = _keep
    lane: object = None
    messages: list[Said] = field(default_factory=list)
    url: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def state(self) -> Any:
        """The application's state."""
        return self.app.state

    def note(self, seen: Seen) -> None:
        self.messages.extend(seen.said)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        query = parse_qs(scope["query_string"].decode())
        asked = Asked(scope["method"], scope["path"], query, body, self.lane)
        answer = await self.before(asked)
        if answer is None:
            answer = await self._forward(scope, receive, body)
            self.note(Seen.of(asked.method, asked.path, body, answer.body))
            answer = await self.after(asked, answer)
        headers = [(name, value) for name, value in answer.headers.items() if name != b"content-length"]
        if answer.status != 204:
            headers.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        if answer.shown:
            answer.shown()

    async def _forward(self, scope: Any, receive: Any, body: bytes) -> Answer:
        given, answer = False, Answer(500, {}, b"")

        async def again() -> Any:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status, answer.headers = message["status"], dict(message["headers"])
            elif message["type"] == "http.response.body":
                answer.body += message.get("body", b"")

        await self.app(scope, again, keep)
        return answer
