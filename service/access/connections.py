"""Connections that cost nothing: a server's protocol that ends those on which no request comes, and no answer is taken, and sends at once.

`veilsum serve` has it; `uvicorn service.app:app --http service.access.connections:Connection` where no proxy is in front.
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
    """uvicorn's own, with limits that it lacks, and without Nagle's delay of 40 ms on a socket that somebody else has bound.

    Attributes:
        REQUEST_S: seconds for a request's head, from the connection's begin or the answer before it, for what is left of a
            body that was answered early, and for the client to take the last of what it is sent.
        TAKE_S: seconds for a client to take what fills the buffers.
        HEAD_BYTES: of a head, of a chunk's extensions or of trailers, beyond one read of the socket.
        TARGET_BYTES: of a request's target: a thousand short parameters take a millisecond to read.
        HEADERS: of a head: each takes 120 bytes beside its own, and the shortest has four.
        PIPELINED: requests that may wait for the answer to an earlier one of the same connection.
        READ_BYTES: read at a time by asyncio's own loop, and so what of a body waits in memory for each connection that nobody
            reads from yet; uvloop reads 250 KB.
    """

    REQUEST_S: ClassVar[float] = 20.0
    TAKE_S: ClassVar[float] = 30.0
    HEAD_BYTES: ClassVar[int] = 1 << 16
    TARGET_BYTES: ClassVar[int] = 1 << 13
    HEADERS: ClassVar[int] = 128
    PIPELINED: ClassVar[int] = 16
    READ_BYTES: ClassVar[int] = 1 << 16
    _late: Timer = None
    _stuck: Timer = None
    _untold = 0
    """Bytes since the parser last told of a whole head, of a body's bytes or of a request's end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for a request, unless there are as many connections as there may be."""
        super().connection_made(transport)
        self._asked = deque[RequestResponseCycle]()
        self.ws_protocol_class = None  # it would be another protocol, without these limits
        # asyncio does it for the sockets that it opens itself: one that was made without naming TCP it does not know as such.
        connection: socket.socket = transport.get_extra_info("socket")
        if connection.family in {socket.AF_INET, socket.AF_INET6}:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(AttributeError):  # asyncio's own transports have it, others may not
            transport.max_size = self.READ_BYTES  # type: ignore[attr-defined]
        # uvicorn itself sends away whoever asks next, be it somebody who was there before.
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self.connections.discard(self)
            transport.write(_FULL)
            transport.close()
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait on, or no more: bytes alone are no request."""
        self._untold += len(data)
        super().data_received(data)
        if self._untold > self.HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"A request's head may be {self.HEAD_BYTES} bytes.")
        self._wait()

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        super().on_url(url)
        if len(self.url) > self.TARGET_BYTES:
            raise ValueError(f"more than {self.TARGET_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of a head; trailers say nothing (RFC 9110, 6.5.1)."""
        if self.scope.get("method"):  # since the head's end
            return
        if len(self.headers) >= self.HEADERS:
            raise ValueError(f"more than {self.HEADERS} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer, or to wait for the answer before; whoever lets very many wait is let go."""
        self._untold = 0
        if len(self.pipeline) >= self.PIPELINED:
            self.transport.abort()
        else:
            super().on_headers_complete()
            self._asked.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        """Take what came."""
        self._untold = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The next head begins."""
        self._untold = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next one."""
        self._asked.popleft()
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        answered = getattr(self.cycle, "response_complete", True)  # it is None before the first request
        if not answered and not self.transport.is_closing():
            self._late = _ended(self._late)
        elif self._late is None:
            self._late = self.loop.call_later(self.REQUEST_S, self.transport.abort)

    def pause_writing(self) -> None:
        """The client does not take what it asked for."""
        super().pause_writing()
        self._stuck = self.loop.call_later(self.TAKE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It does."""
        super().resume_writing()
        self._stuck = _ended(self._stuck)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more, nor answered."""
        super().connection_lost(exc)
        for cycle in self._asked:  # uvicorn tells the last one alone
            cycle.disconnected = True
            cycle.message_event.set()
        self._late, self._stuck = _ended(self._late), _ended(self._stuck)


def _ended(timer: Timer) -> Timer:
    if timer is not None:
        timer.cancel()
    return None
