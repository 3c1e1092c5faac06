"""uvicorn's HTTP protocol with limits on idle, slow and greedy connections.

`veilsum serve` uses it; where no proxy is in front, so should `uvicorn service.app:app --http service.access.connections:Connection`.
"""

import asyncio
import socket
from collections import deque
from contextlib import suppress
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

Timer = asyncio.TimerHandle | None
_FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits, and without Nagle's delay of 40 ms on an inherited socket.

    Attributes:
        REQUEST_S: seconds for a request's head, from the connection's begin or the last answer; for the rest of a body that was answered
            early; and for the client to take the last of its answer.
        TAKE_S: seconds for a client to take what fills the buffers.
        HEAD_BYTES: most bytes of a head, of a chunk's extensions or of trailers, beyond one read of the socket.
        TARGET_BYTES: most bytes of a request's target: a thousand short parameters take a millisecond to read.
        HEADERS: most headers: each takes 120 bytes beside its own, and the shortest has four.
        PIPELINED: most requests of a connection that wait for the answer to an earlier one.
        UNREAD_BYTES: most that the kernel buffers of a body that is not read yet (Linux takes twice that). Left alone it buffers whole
            chunks; hundreds that wait then use up its memory for connections, it drops what comes, and senders stall for half a minute.
        READ_BYTES: read at a time by asyncio's own loop, and so buffered of a body that is not read yet; uvloop reads 250 KB.
    """

    REQUEST_S: ClassVar[float] = 20.0
    TAKE_S: ClassVar[float] = 30.0
    HEAD_BYTES: ClassVar[int] = 1 << 16
    TARGET_BYTES: ClassVar[int] = 1 << 13
    HEADERS: ClassVar[int] = 128
    PIPELINED: ClassVar[int] = 16
    UNREAD_BYTES: ClassVar[int] = 1 << 18
    READ_BYTES: ClassVar[int] = 1 << 16
    _late: Timer = None
    _stuck: Timer = None
    _unparsed = 0
    """Bytes since the parser last made progress: a complete head, part of a body, or the end of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._asked = deque[RequestResponseCycle]()
        self.ws_protocol_class = None  # it would be another protocol, without these limits
        # asyncio does this for the sockets that it opens itself, but not for one that was made without naming TCP.
        connection: socket.socket = transport.get_extra_info("socket")
        if connection.family in {socket.AF_INET, socket.AF_INET6}:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.UNREAD_BYTES)
        with suppress(AttributeError):  # uvloop's transports have no such attribute
            transport.max_size = self.READ_BYTES  # type: ignore[attr-defined]
        # uvicorn itself would refuse the next request, which may come on an older connection.
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self.connections.discard(self)
            transport.write(_FULL)
            transport.close()
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > self.HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"A request's head may be {self.HEAD_BYTES} bytes.")
        self._wait()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.TARGET_BYTES:
            raise ValueError(f"more than {self.TARGET_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.scope.get("method"):  # since the head's end: trailers are ignored (RFC 9110, 6.5.1)
            return
        if len(self.headers) >= self.HEADERS:
            raise ValueError(f"more than {self.HEADERS} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):  # RFC 9112, 3.2
            raise ValueError(f"{hosts} Host headers")
        if len(self.pipeline) >= self.PIPELINED:
            self.transport.abort()
        else:
            super().on_headers_complete()
            self._asked.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._asked.popleft()
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        """Start the clock of the next request, or stop it while one is answered."""
        answered = getattr(
            self.cycle, "response_complete", True
        )  # there is no cycle before the first request
        if not answered and not self.transport.is_closing():
            self._late = _ended(self._late)
        elif self._late is None:
            self._late = self.loop.call_later(self.REQUEST_S, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.TAKE_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck = _ended(self._stuck)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for cycle in self._asked:  # uvicorn tells only the last one
            cycle.disconnected = True
            cycle.message_event.set()
        self._late, self._stuck = _ended(self._late), _ended(self._stuck)


def _ended(timer: Timer) -> Timer:
    if timer is not None:
        timer.cancel()
    return None
