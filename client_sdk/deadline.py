"""One deadline for a whole request on blocking sockets. httpcore's timeouts begin anew with each read, so a byte a second would hold a caller for ever."""

import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpcore

WRITE_BYTES = 1 << 14
"""Bytes that are written under one timeout."""


@dataclass
class Deadline:
    """The time by which a request has to end.

    Attributes:
        limit_s: how many seconds it may take.
        begun_s: when it began, by the monotonic clock.
    """

    limit_s: float
    begun_s: float = field(default_factory=time.monotonic)

    @property
    def spent_s(self) -> float:
        """Seconds since the request began."""
        return time.monotonic() - self.begun_s

    def shorten_timeout(self, timeout_s: float | None) -> float:
        """Return the timeout, or the time that is left if that is less. Raises TimeoutError if none is left."""
        left_s = self.limit_s - self.spent_s
        if left_s <= 0:
            raise TimeoutError
        return left_s if timeout_s is None else min(left_s, timeout_s)


_DEADLINE: ContextVar[Deadline] = ContextVar("deadline")
"""Of the request that this thread sends."""


@contextmanager
def keep_deadline(limit_s: float) -> Iterator[Deadline]:
    """Give a deadline to everything that a `DeadlineBackend` does for this thread meanwhile."""
    deadline = Deadline(limit_s)
    before = _DEADLINE.set(deadline)
    try:
        yield deadline
    finally:
        _DEADLINE.reset(before)


class DeadlineBackend(httpcore.SyncBackend):
    """httpcore's blocking sockets, within the deadline of the request that they are used for."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address that answers. However many addresses a name has, they share the deadline."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        failed: Exception = httpcore.ConnectError(f"{host} has no address")
        for *_, address in found:
            left_s = _DEADLINE.get().shorten_timeout(timeout)
            try:
                return _DeadlineStream(
                    super().connect_tcp(str(address[0]), port, left_s, local_address, socket_options)
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _DEADLINE.get().shorten_timeout(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_BYTES):
            piece = buffer[start : start + WRITE_BYTES]
            self._stream.write(piece, _DEADLINE.get().shorten_timeout(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left_s = _DEADLINE.get().shorten_timeout(timeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, left_s))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
