"""Sockets within one deadline for a whole request."""

import socket
from typing import Any

import httpcore
import pytest

from client_sdk.deadline import WRITE_BYTES, DeadlineBackend, keep_deadline


def test_a_name_without_an_address_is_a_failed_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **_options: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with keep_deadline(5.0), pytest.raises(httpcore.ConnectError, match="not known"):
        DeadlineBackend().connect_tcp("sum.example.org", 443)


def test_a_long_body_arrives_as_it_was_written() -> None:
    body, received = bytes(range(256)) * (3 * WRITE_BYTES // 256) + b"end", bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server, keep_deadline(5.0):
        stream = DeadlineBackend().connect_tcp(*server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            stream.write(body)
            stream.close()
            while piece := accepted.recv(1 << 16):
                received += piece
    assert received == body


def test_a_deadline_ends_with_its_block() -> None:
    backend = DeadlineBackend()
    with socket.create_server(("127.0.0.1", 0)) as server, keep_deadline(5.0):
        with keep_deadline(0.0), pytest.raises(TimeoutError):
            backend.connect_tcp(*server.getsockname())
        backend.connect_tcp(*server.getsockname()).close()
