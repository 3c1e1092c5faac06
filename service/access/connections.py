"""uvicorn's HTTP protocol with limits on idle, slow and greedy connections.

`veilsum serve` uses it; where no proxy is in front, so should `uvicorn service.app:app --http service.access.connections:Connection`.
"""

import asyncio
import socket
from collections import deque
from io import SEEK_CUR, BytesIO
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.access.bodies import ARRIVED_KEY
from service.access.pool import PLACE_KEY, PROBE_PATHS, Place
from veilsum.protocol.packing import Buffer
from veilsum.protocol.request_signature import METHODS_WITH_BODY

Timer = asyncio.TimerHandle | None


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
        READ_BYTES: most that is read at once of a head, and so of a longer body before the application asks for it. The rest is then read
            into a buffer of its own, and handed over whole.
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
    _length = 0
    """Bytes of the body that is parsed now, if one read doesn't hold it."""
    _body: "_Body | None" = None
    """That body's buffer, once the application has asked for it."""

    def __init__(self, *given: Any, place: Place | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self._place = place

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._asked = deque[RequestResponseCycle]()
        self.ws_protocol_class = None  # it would be another protocol, without these limits
        # asyncio does this for the sockets that it opens itself, but not for one that was made without naming TCP.
        connection: socket.socket = transport.get_extra_info("socket")
        if connection.family in {socket.AF_INET, socket.AF_INET6}:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.UNREAD_BYTES)
        transport.set_protocol(_Reader(self))
        if self._place is not None:
            self._place.end = transport.abort
        self._await_request()

    def get_buffer(self, _hint: int) -> memoryview:
        """Return where to read to."""
        # uvicorn reads on after an earlier request of the pipeline too, and after an early answer throws the rest away: neither needs a buffer.
        if self._length and not self.pipeline and not self.cycle.response_complete:
            if self._body is None:
                self._body = _Body(bytes(self._length))
                self._body.write(self.cycle.body)
                self.cycle.body = self._body  # type: ignore[assignment]  # uvicorn only takes its bytes
            self._read = self._body.getbuffer()[len(self._body) :]
        else:
            self._read = memoryview(bytearray(self.READ_BYTES))
        return self._read

    def buffer_updated(self, size: int) -> None:
        data, self._read = self._read[:size], memoryview(b"")
        self.data_received(data)

    def data_received(self, data: Buffer) -> None:
        self._unparsed += len(data)
        super().data_received(data)  # type: ignore[arg-type]  # the parser takes any buffer
        if self._unparsed > self.HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"A request's head is limited to {self.HEAD_BYTES} bytes.")
        self._await_request()

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
        length = int(dict(self.headers).get(b"content-length", 0))
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):  # RFC 9112, 3.2
            raise ValueError(f"{hosts} Host headers")
        if len(self.pipeline) >= self.PIPELINED:
            self.transport.abort()
        else:
            if self._place is not None:
                self._place.note_head()
                if self._place.for_probes:  # uvicorn answers 503 beyond its own limit
                    is_probe = self.url.partition(b"?")[0] in PROBE_PATHS
                    self.limit_concurrency = None if is_probe else 0
            super().on_headers_complete()
            self._asked.append(self.cycle)
            if self._place is not None:
                self.scope[PLACE_KEY] = self._place  # type: ignore[literal-required]  # a key of our own
            # A GET's body is never used, but a stream that waits for its caller to leave would read all of it.
            if length > self.READ_BYTES and self.scope["method"] in METHODS_WITH_BODY:
                self._length = length
                self.scope[ARRIVED_KEY] = self._arrived_bytes  # type: ignore[literal-required]  # a key of our own
                self.flow.pause_reading()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        if self._body is not None:
            self._body.seek(len(body), SEEK_CUR)
        elif self._length and not self.cycle.response_complete:
            self.cycle.body += body
            self.flow.pause_reading()
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        self._length, self._body = 0, None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._asked.popleft()
        super().on_response_complete()
        if self.cycle.response_complete:
            self._body, self.cycle.body = None, bytearray()
        elif self._length and not self.transport.is_closing():  # uvicorn reads on
            self.flow.pause_reading()
        self._await_request()

    def _arrived_bytes(self) -> int:
        return len(self.cycle.body)

    def _await_request(self) -> None:
        """Start the clock of the next request, or stop it while one is answered."""
        # There is no cycle before the first request.
        answered = getattr(self.cycle, "response_complete", True)
        if not answered and not self.transport.is_closing():
            self._late = _cancel_timer(self._late)
        elif self._late is None:
            self._late = self.loop.call_later(self.REQUEST_S, self.transport.abort)
            if self._place is not None:
                self._place.await_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.TAKE_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck = _cancel_timer(self._stuck)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._place is not None:
            self._place.release()
        for cycle in self._asked:  # uvicorn tells only the last one
            cycle.disconnected = True
            cycle.message_event.set()
        self._late, self._stuck = _cancel_timer(self._late), _cancel_timer(self._stuck)


class _Body(BytesIO):
    """A body of known length that is read into its place; as long as what has arrived of it."""

    __len__ = BytesIO.tell

    def __bytes__(self) -> bytes:
        return self.getvalue()  # the buffer itself, as nothing reads into it any more


class _Reader(asyncio.BufferedProtocol):
    """Lets a transport read into a connection's buffers. uvicorn's protocol is of asyncio's other kind, which is handed copies."""

    def __init__(self, connection: Connection) -> None:
        for name in (
            "get_buffer",
            "buffer_updated",
            "eof_received",
            "pause_writing",
            "resume_writing",
            "connection_lost",
        ):
            setattr(self, name, getattr(connection, name))


def _cancel_timer(timer: Timer) -> Timer:
    if timer is not None:
        timer.cancel()
    return None
