"""Answers over real sockets that no honest coordinator sends: none holds a member beyond its deadline, or takes much of its memory."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client_sdk import transport
from client_sdk.api import CoordinatorApi
from client_sdk.effects import Flow
from client_sdk.environment import Environment
from client_sdk.errors import ClientError, PeerFault
from client_sdk.progress import Reporter
from client_sdk.retry import RetryingClient
from client_sdk.transport import BlockingDriver
from tests.support.raw_http import Script, answering, drip
from veilsum.protocol.rest import MAX_ANSWER_BYTES, MAX_LISTING_BYTES, MAX_MESSAGE_BYTES

MEMORY_MIB = 200
IDLE_S = 0.3
"""Of each of the two timeouts, in place of 10 and 30 s; the slowest line that is waited for is faster in proportion."""
SLACK_S = 12.0
"""For what comes at full speed on a busy machine, and is read or refused by its size. A member that is held is held for hours."""
MIB = 1 << 20
OK, PROBLEM = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 409 Conflict\r\ncontent-type: application/problem+json\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
NAME = "ab" * 32

Ask = Callable[[CoordinatorApi], Flow[Any]]


def flood(start: bytes, piece: bytes) -> Script:
    """Send a piece as fast as it is taken."""

    def script(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(1 << 16)
        connection.sendall(start)
        while not over.is_set():
            connection.sendall(piece)

    return script


def once(answer: bytes) -> Script:
    """Send an answer, and keep the connection open."""
    return drip(answer, b"", 0.05)


def whole(body: bytes, start: bytes = OK) -> Script:
    return once(start + b"content-length: %d\r\n\r\n" % len(body) + body)


def hang_up(connection: socket.socket, _over: threading.Event) -> None:
    connection.recv(1 << 16)


def reset(connection: socket.socket, _over: threading.Event) -> None:
    connection.recv(1 << 16)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def refusal(**changes: Any) -> Script:
    document = {"type": "t", "title": "t", "status": 409, "detail": "d", "cause": "conflict", **changes}
    return whole(json.dumps(document).encode(), PROBLEM)


def studies(api: CoordinatorApi) -> Flow[Any]:
    return api.fetch_studies(NAME)


HTTP: dict[str, Script] = {
    "silence": once(b""),
    "no answer": hang_up,
    "a reset": reset,
    "a status line, byte by byte": drip(b"HTTP/1.1 2", b"0"),
    "a header, byte by byte": drip(OK + b"x: ", b"x"),
    "headers, one by one": drip(OK, b"x: y\r\n"),
    "a header without end": flood(OK + b"x: ", b"x" * MIB),
    "headers without end": flood(OK, b"x: y\r\n" * 10_000),
    "no HTTP": flood(b"", b"\0" * MIB),
    "another version": once(b"HTTP/9.9 200 OK\r\n\r\n"),
    "HTTP/2": once(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "early hints, one by one": drip(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "early hints without end": flood(b"", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 1000),
    "continue without end": flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "another protocol": flood(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", b"x" * MIB),
    "a chunk's size, digit by digit": drip(OK + CHUNKED, b"0"),
    "a chunk of 2^64 bytes": flood(OK + CHUNKED + b"FFFFFFFFFFFFFFFF\r\n", b"x" * MIB),
    "a negative chunk": once(OK + CHUNKED + b"-1\r\n"),
    "a chunk's extension without end": flood(OK + CHUNKED + b"1;", b"x" * MIB),
    "chunks of a byte": flood(OK + CHUNKED, b"1\r\nx\r\n" * 10_000),
    "a trailer, byte by byte": drip(OK + CHUNKED + b"0\r\nx: ", b"x"),
    "a trailer without end": flood(OK + CHUNKED + b"0\r\nx: ", b"x" * MIB),
    "less than was announced": once(OK + b"content-length: 10\r\n\r\nx"),
    "a length of 10^30": flood(OK + b"content-length: 1" + b"0" * 30 + b"\r\n\r\n", b"x" * MIB),
    "two lengths": once(OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\nxx"),
    "a body, byte by byte": drip(OK + b"content-length: 1000000\r\n\r\n", b"x"),
    "a body at 1.1 kB/s": drip(OK + b"content-length: 1000000\r\n\r\n", b"x" * 11),
    "a body without end": flood(OK + b"\r\n", b"x" * MIB),
    "a compressed body": flood(OK + b"content-encoding: gzip\r\n\r\n", b"\x1f\x8b"),
    "a redirect to itself": once(b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n"),
    "a redirect to a file": once(
        b"HTTP/1.1 301 Moved\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n"
    ),
    "a pause of 30,000 years": once(
        b"HTTP/1.1 503 Busy\r\nretry-after: 999999999999\r\ncontent-length: 0\r\n\r\n"
    ),
    "cookies": whole(b"", OK + b"set-cookie: a=b; Path=/\r\n" * 2000),
    "a login page": whole(b"<html>" * 100_000, OK + b"content-type: text/html\r\n"),
    "a refusal of 30 MB": flood(PROBLEM + b"content-length: 30000000\r\n\r\n", b"x" * MIB),
    "a refusal without end": flood(PROBLEM + b"\r\n", b"x" * MIB),
    "a refusal with many parties": refusal(parties=[0] * 300_000),
    "a refusal with many keys": refusal(**{f"{number:x}": 0 for number in range(90_000)}),
    "a long refusal": refusal(detail="x" * 1_000_000),
    "a refusal for an unknown cause": refusal(cause="x" * 1_000_000),
}

BODIES: dict[str, tuple[Ask, Callable[[], bytes]]] = {
    "a list of zeros": (studies, lambda: b"[" + b"0," * 2_000_000 + b"0]"),
    "a list of zeros, within the limit": (studies, lambda: b"[" + b"0," * 130_000 + b"0]"),
    "a list of objects": (studies, lambda: b"[" + b"{}," * 130_000 + b"{}]"),
    "a list of lists": (studies, lambda: b"[" + b"[0]," * 130_000 + b"[]]"),
    "lists in lists": (studies, lambda: b"[" * (MAX_ANSWER_BYTES - 1)),
    "objects in objects": (studies, lambda: b'{"":' * 200_000),
    "a number of a million digits": (studies, lambda: b"[" + b"9" * 1_000_000 + b"]"),
    "an escaped string": (studies, lambda: b'["' + b"\\u0000" * 170_000 + b'"]'),
    "commas in a string": (studies, lambda: b'["' + b"," * 1_000_000 + b'"]'),
    "no UTF-8": (studies, lambda: b'["' + b"\xff" * 1_000_000 + b'"]'),
    "many runs": (
        lambda api: api.fetch_runs(NAME),
        lambda: b'{"revision":1,"runs":[' + b"{}," * 130_000 + b"{}]}",
    ),
    "a round with many keys": (
        lambda api: api.fetch_round("0" * 16),
        lambda: b"{" + b",".join(b'"%x":0' % number for number in range(130_000)) + b"}",
    ),
    "a round with many phases": (
        lambda api: api.fetch_round("0" * 16),
        lambda: b'{"phase_seconds":{' + b",".join(b'"%x":""' % number for number in range(130_000)) + b"}}",
    ),
    "a record with many keys": (
        lambda api: api.fetch_record("0" * 16),
        lambda: b"{" + b",".join(b'"%x":0' % number for number in range(130_000)) + b"}",
    ),
    "an invitation of blanks": (lambda api: api.fetch_invitation(NAME), lambda: b" " * MAX_LISTING_BYTES),
    "a roster of zeros": (lambda api: api.fetch_roster(NAME), lambda: bytes(MAX_MESSAGE_BYTES)),
    "a roster of 2^32 members": (lambda api: api.fetch_roster(NAME), lambda: b"\x01\x04" + b"\xff" * MIB),
    "an opening of ones": (lambda api: api.fetch_opening("0" * 16), lambda: b"\x01" * MAX_MESSAGE_BYTES),
    "a request of zeros": (lambda api: api.fetch_request("0" * 16, "ann"), lambda: bytes(MAX_MESSAGE_BYTES)),
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CONNECT_TIMEOUT_S", IDLE_S)
    monkeypatch.setattr(transport, "READ_TIMEOUT_S", IDLE_S)
    monkeypatch.setattr(transport, "BYTES_PER_S_MIN", 4 * MIB)


def resident_mib(field: str) -> float:
    """Return the memory of this process that the kernel gives in a field of its status."""
    [line] = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(field)]
    return int(line.split()[1]) / 1024


@pytest.fixture(params=[*HTTP, *BODIES])
def answer(request: pytest.FixtureRequest) -> tuple[Ask, Script]:
    if request.param in HTTP:
        return studies, HTTP[request.param]
    ask, body = BODIES[request.param]
    return ask, whole(body())


@pytest.fixture
def growth_mib(answer: tuple[Ask, Script]) -> Callable[[], float]:
    """Return by how much this process has grown at most since the answer was made."""
    Path("/proc/self/clear_refs").write_text("5")  # its peak is its present size
    before = resident_mib("VmRSS")
    return lambda: resident_mib("VmHWM") - before


def test_no_answer_holds_a_member_or_fills_its_memory(
    answer: tuple[Ask, Script], growth_mib: Callable[[], float]
) -> None:
    ask, script = answer
    api = CoordinatorApi(RetryingClient(0.0, Environment(), Reporter(None)))
    with answering(script) as url:
        driver = BlockingDriver(url)
        begun_s = time.monotonic()
        with pytest.raises((ClientError, PeerFault)) as ended:
            driver.run(ask(api))
        spent_s = time.monotonic() - begun_s
        driver.close()
    assert spent_s < 2 * IDLE_S + SLACK_S
    assert growth_mib() < MEMORY_MIB
    assert str(ended.value)
