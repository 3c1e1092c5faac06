"""Slow and dead clients of a real server: each is disconnected in time, and meanwhile delays no other client."""

import asyncio
import gc
import hashlib
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit
from weakref import WeakSet

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.access import connections
from service.access.bodies import Pace
from service.access.connections import Connection
from service.access.pool import Pool
from service.routes import rounds
from tests.support.calls import record_calls
from tests.support.clients import KEYS
from tests.support.party import Party
from tests.support.serving import TOKEN, Server, running, served, wait_until
from veilsum.protocol.causes import Cause
from veilsum.protocol.request_signature import Target, sign_request

PATH = "/healthz"
HEAD = f"GET {PATH} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
LATE_S = 0.5


class Hasty(Connection):
    """A connection with short timeouts, and small buffers so that it notices at once when an answer isn't read."""

    REQUEST_S = LATE_S
    TAKE_S = LATE_S

    def connection_made(self, transport: Any) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        super().connection_made(transport)


@asynccontextmanager
async def hasty(folder: Path, bytes_per_s: float = 8192.0) -> AsyncIterator[tuple[Server, str]]:
    """Run a coordinator behind a real server; yield it and its address."""
    async with running(folder) as server, served(server, http=Hasty) as url:
        server.app.state.pace = Pace(LATE_S, bytes_per_s)
        yield server, url


async def opened(url: str, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection of a client that reads little at a time. What it sends first has arrived when the server accepts it."""
    parts, taking = urlsplit(url), socket.socket()
    taking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    taking.connect((parts.hostname, parts.port))
    taking.sendall(sent)
    taking.setblocking(False)
    return await asyncio.open_connection(sock=taking)


async def ends(reader: asyncio.StreamReader) -> bytes:
    """Return what the server sends until it disconnects."""
    with suppress(ConnectionResetError):
        async with asyncio.timeout(120):
            return await reader.read()
    return b""


async def drip(writer: asyncio.StreamWriter, text: bytes) -> None:
    """Send one byte at a time."""
    for index in range(len(text)):
        if writer.is_closing():
            return
        writer.write(text[index : index + 1])
        await asyncio.sleep(LATE_S / 6)


async def alongside(slow: Awaitable[None], reader: asyncio.StreamReader) -> bytes:
    task = asyncio.ensure_future(slow)
    try:
        return await ends(reader)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("at_once", "dripped"),
    [
        pytest.param(b"", b"", id="nothing"),
        pytest.param(HEAD[:20], b"", id="half a head"),
        pytest.param(b"", HEAD, id="a head byte by byte"),
        pytest.param(HEAD, HEAD, id="the second one never"),
    ],
)
async def test_a_head_that_does_not_come_is_not_waited_for(
    tmp_path: Path, at_once: bytes, dripped: bytes
) -> None:
    async with hasty(tmp_path) as (_, url):

        async def slow() -> bytes:
            reader, writer = await opened(url, at_once)
            if at_once == HEAD:
                assert b" 200 " in await reader.readuntil(b"}")
            said = await alongside(drip(writer, dripped), reader)
            writer.close()
            return said

        waiting = asyncio.gather(*(slow() for _ in range(5)))
        reader, writer = await opened(url, HEAD)
        assert b" 200 " in await reader.readline()
        assert set(await waiting) == {b""}
        writer.close()


async def head_of(party: Party, server: Server, url: str, body: bytes, size: int) -> bytes:
    """Return a signed announcement's head."""
    round_id = await party.open_round(server)
    path, host = f"/v1/rounds/{round_id}/uploads/m-0", urlsplit(url).netloc
    signed = sign_request(
        KEYS["m-0"],
        "m-0",
        Target("PUT", host, path, ""),
        body,
        created_s=server.clock(),
        nonce=hashlib.sha256(round_id.encode()).digest()[:16],
    )
    lines = [
        f"PUT {path} HTTP/1.1",
        f"Host: {host}",
        f"Content-Length: {size}",
        *(f"{name}: {value}" for name, value in signed.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


SIZES = pytest.mark.parametrize("size", [1200, 3 << 17], ids=["of one read", "of many"])


@SIZES
@pytest.mark.parametrize("how", ["stops", "one byte at a time", "half, and the connection ends"])
@pytest.mark.usefixtures("logged")
async def test_a_body_that_does_not_come_ends_its_request(
    tmp_path: Path, party: Party, capsys: pytest.CaptureFixture[str], how: str, size: int
) -> None:
    async with hasty(tmp_path, bytes_per_s=1e6) as (server, url):
        await party.begin(server)
        body = b"x" * size
        head = await head_of(party, server, url, body, len(body))
        reader, writer = await opened(url)
        writer.write(head)
        if how == "one byte at a time":
            said = await alongside(drip(writer, body), reader)
        else:
            writer.write(body[: size // 2])
            if how != "stops":
                writer.write_eof()
            said = await ends(reader)
        writer.close()
        log = ""
        async with asyncio.timeout(120):
            while '"status": 408' not in log or server.app.state.limits._under_way:
                await asyncio.sleep(0.01)
                log += capsys.readouterr().out
        assert '"cause": "body-incomplete"' in log
        assert "request failed" not in log
        if said or how == "stops":  # a client that continues to send may miss the answer
            assert said.startswith(b"HTTP/1.1 408 ")
            assert b'"cause":"body-incomplete"' in said


@SIZES
async def test_a_body_at_the_least_rate_is_taken_however_long_it_takes(
    tmp_path: Path, party: Party, size: int
) -> None:
    async with hasty(tmp_path, bytes_per_s=size / 12) as (server, url):
        await party.begin(server)
        body = b"x" * size
        head = await head_of(party, server, url, body, len(body))
        reader, writer = await opened(url)
        writer.write(head)
        for index in range(12):
            writer.write(body[size // 12 * index :][: size // 12])
            await asyncio.sleep(LATE_S / 5)  # more than twice the grace in all
        said = await ends(reader)
        writer.close()
        assert said.startswith(b"HTTP/1.1 400 ")  # whole, as it was signed, and no message
        assert not re.search(rb"body-incomplete|digest-mismatch", said)


class Measured(Connection):
    """A connection that records the sizes of the buffers that it is read into."""

    buffers: ClassVar[list[int]] = []

    def get_buffer(self, _hint: int) -> memoryview:
        found = super().get_buffer(_hint)
        self.buffers.append(len(found))
        return found


async def test_bodies_of_many_reads_are_told_apart_from_what_is_asked_around_them(
    tmp_path: Path, party: Party
) -> None:
    body = os.urandom(3 << 17)
    Measured.buffers.clear()
    async with running(tmp_path) as server, served(server, http=Measured) as url:
        await party.begin(server)
        head = await head_of(party, server, url, body, len(body))
        round_id = head.split(b"/")[3]
        slow = HEAD.replace(PATH.encode(), b"/v1/rounds/%s?after=99&wait_s=0.3" % round_id)
        unread = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(body)) + body
        reader, writer = await opened(url)
        writer.write(
            slow + unread + head + body + slow + unread + HEAD.replace(b"x\r", b"x\r\nConnection: close\r")
        )
        said = await ends(reader)
        writer.close()
    assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200", b"200", b"400", b"200", b"200", b"200"]
    assert Cause.DIGEST_MISMATCH.value.encode() not in said  # it arrived as it was signed, and is no message
    assert max(Measured.buffers) > Measured.READ_BYTES  # it was read into its place


@pytest.mark.parametrize("size", [5, 3 << 17], ids=["of one read", "of many"])
async def test_a_body_behind_a_request_that_waits_arrives_as_it_was_sent(
    tmp_path: Path, party: Party, size: int
) -> None:
    body = os.urandom(size)
    Measured.buffers.clear()
    async with running(tmp_path) as server, served(server, http=Measured) as url:
        await party.begin(server)
        head = (await head_of(party, server, url, body, size)).replace(b"Host", b"Connection: close\r\nHost")
        reader, writer = await opened(url)
        writer.write(HEAD.replace(PATH.encode(), b"/v1/rounds/%s?after=99&wait_s=0.5" % head.split(b"/")[3]))
        await asyncio.sleep(0.2)
        assert set(Measured.buffers) == {Measured.READ_BYTES}  # none is made for a body that is not there
        writer.write(head + body)
        said = await ends(reader)
        writer.close()
    assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200", b"400"]
    assert Cause.DIGEST_MISMATCH.value.encode() not in said


LONG = HEAD.replace(PATH.encode(), b"/openapi.json") * 5


class Patient(Hasty):
    """A connection that waits for requests, but not for a client to take an answer."""

    REQUEST_S = 120.0


async def test_an_answer_that_nobody_takes_is_dropped_and_one_taken_late_is_not(tmp_path: Path) -> None:
    pool = Pool(100)
    async with running(tmp_path) as server, served(server, pool, http=Patient) as url:
        reader, writer = await opened(url)
        _, deaf = await opened(url)
        deaf.write(LONG)
        writer.write(LONG)
        await asyncio.sleep(LATE_S / 2)
        for _ in range(5):
            head = await reader.readuntil(b"\r\n\r\n")
            [length] = re.findall(rb"content-length: (\d+)", head)
            await reader.readexactly(int(length))
        await wait_until(lambda: len(pool.open) <= 1)
        await asyncio.sleep(LATE_S)
        writer.write(HEAD)
        assert b" 200 " in await reader.readline()
        for each in (writer, deaf):
            each.close()


class Seen(Connection):
    """A connection that records its sockets."""

    opened: ClassVar[list[socket.socket]] = []

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.opened.append(transport.get_extra_info("socket"))


async def test_no_part_of_an_answer_waits_until_the_one_before_is_acknowledged(tmp_path: Path) -> None:
    async with running(tmp_path) as server, served(server, http=Seen) as url:
        reader, writer = await opened(url, HEAD)
        assert b" 200 " in await reader.readline()
        assert Seen.opened[-1].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        writer.close()


POST = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n"
CHUNKED = (POST + "Transfer-Encoding: chunked\r\n\r\n").encode()


ENDLESS = {
    "target": (b"GET /", b"a"),
    "header": (b"GET / HTTP/1.1\r\nx: ", b"a"),
    "headers": (b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
    "extension": (CHUNKED + b"5;", b"a"),
    "trailer": (CHUNKED + b"0\r\nx: ", b"a"),
    "trailers": (CHUNKED + b"0\r\n", b"x: y\r\n"),
}


async def test_what_is_no_body_has_a_bound(tmp_path: Path) -> None:
    async with running(tmp_path) as server, served(server, http=Connection) as url:
        for what, (begun, more) in ENDLESS.items():
            reader, writer = await opened(url, begun)
            piece, sent = more * (1 << 12), 0
            with suppress(ConnectionError):
                while sent < 1 << 23 and not reader.at_eof():
                    writer.write(piece)
                    sent += len(piece)
                    await asyncio.wait_for(writer.drain(), 120)
                    await asyncio.sleep(0)
                await ends(reader)
            writer.close()
            assert sent < 1 << 23, what


async def test_requests_that_nobody_waits_for_are_few(tmp_path: Path) -> None:
    async with running(tmp_path) as server, served(server, http=Connection) as url:
        reader, writer = await opened(url)
        writer.write(HEAD * (2 + Connection.PIPELINED))
        assert await ends(reader) == b""
        writer.close()
        async with httpx.AsyncClient(base_url=url) as other:
            assert (await other.get(PATH)).status_code == 200


async def test_a_connection_keeps_nothing_of_the_requests_that_it_has_answered(tmp_path: Path) -> None:
    answered = WeakSet[RequestResponseCycle]()

    class Noting(Connection):
        def on_response_complete(self) -> None:
            answered.add(self.cycle)
            super().on_response_complete()

    async with running(tmp_path) as server, served(server, http=Noting) as url:
        reader, writer = await opened(url)
        for _ in range(5):
            writer.write(HEAD)
            assert b" 200 " in await reader.readuntil(b"}")
        gc.collect()
        assert len(answered) == 1  # the newest
        writer.close()


async def test_a_body_whose_length_can_be_read_in_two_ways_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as server, served(server, http=Connection) as url:
        for lines in (
            "Content-Length: 3\r\nContent-Length: 4",
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            *("Transfer-Encoding: chunked, identity", "Transfer-Encoding: xchunked"),
            *("Content-Length: +3", "Content-Length: 3 3", "Content-Length : 3"),
            *("X: y\r\n Content-Length: 3", "X\x00: y"),
        ):
            reader, writer = await opened(url, f"{POST}{lines}\r\n\r\n0\r\n\r\n".encode() + HEAD)
            said = await ends(reader)
            writer.close()
            assert said.startswith(b"HTTP/1.1 400 "), lines
            assert said.count(b"HTTP/1.1 ") == 1, lines


async def stream_of(party: Party, server: Server) -> bytes:
    """Open a round; return a request for its events."""
    return HEAD.replace(PATH.encode(), f"/v1/rounds/{await party.begun(server)}/events".encode())


async def test_a_stream_ends_with_its_connection_whatever_was_asked_behind_it(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read from a connection while requests wait, so its end is only noticed by a write."""
    monkeypatch.setattr(rounds, "KEEPALIVE_S", 0.05)
    async with running(tmp_path) as server, served(server, http=Connection) as url:
        reader, writer = await opened(url, await stream_of(party, server))
        await reader.readuntil(b"event: round")
        streams = server.app.state.limits._streams
        assert streams
        writer.write(HEAD)
        await writer.drain()
        writer.transport.abort()
        await wait_until(lambda: not streams)


async def test_a_stream_keeps_nothing_of_what_came_with_its_request(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = record_calls(monkeypatch, connections, "_Body", len)
    async with running(tmp_path) as server, served(server, http=Connection) as url:
        stream = (await stream_of(party, server)).replace(b"x\r", b"x\r\nContent-Length: 1000000\r")
        reader, writer = await opened(url, stream)
        writer.write(bytes(500_000))
        await reader.readuntil(b"event: round")
        await wait_until(lambda: not writer.transport.get_write_buffer_size())
        writer.close()
    assert not kept


async def test_a_body_behind_a_stream_waits_with_its_sender(tmp_path: Path, party: Party) -> None:
    size = 16 << 20
    async with running(tmp_path) as server, served(server, http=Connection) as url:
        stream = await stream_of(party, server)
        reader, writer = await opened(url)
        writer.write(stream + b"PUT /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
        writer.write(bytes(size))
        await reader.readuntil(b"event: round")
        await asyncio.sleep(LATE_S)
        assert writer.transport.get_write_buffer_size() > size // 2
        writer.transport.abort()


async def test_a_trailer_is_no_header(tmp_path: Path) -> None:
    """A proxy that checks headers and forwards trailers would let it pass."""
    async with running(tmp_path) as server, served(server, http=Connection) as url:
        request = CHUNKED.replace(f"POST {PATH}".encode(), b"GET /v1/tokens")
        answers = []
        for before, after in (
            ("", ""),
            ("", f"Authorization: Bearer {TOKEN}\r\n"),
            (f"Authorization: Bearer {TOKEN}\r\n", ""),
        ):
            reader, writer = await opened(url)
            writer.write(request[:-2] + f"{before}\r\n0\r\n{after}\r\n".encode())
            answers.append(int((await reader.readline()).split()[1]))
            writer.close()
        assert answers == [401, 401, 200]


class Socket(asyncio.Protocol):
    """The protocol to which uvicorn would hand over an upgraded connection."""

    def __init__(self, **_: Any) -> None:
        raise AssertionError


ASK = f"GET {PATH} HTTP/1.".encode()
WRITTEN = {
    "127 lines": (HEAD[:-2] + b"a:\r\n" * 127 + b"\r\n", 200),
    "128 lines": (HEAD[:-2] + b"a:\r\n" * 128 + b"\r\n", 400),
    "a target of 8 KiB": (HEAD.replace(PATH.encode(), f"{PATH}?".ljust(1 << 13, "&").encode()), 200),
    "a longer target": (HEAD.replace(PATH.encode(), f"{PATH}?".ljust((1 << 13) + 1, "&").encode()), 400),
    "no host": (ASK + b"1\r\n\r\n", 400),
    "two hosts": (ASK + b"1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    "a host twice": (ASK + b"1\r\nHost: x\r\nHost: x\r\n\r\n", 400),
    "no host in 1.0": (ASK + b"0\r\n\r\n", 200),
    "two hosts in 1.0": (ASK + b"0\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    "64 KiB and no end": (HEAD[:-2].ljust((1 << 16) + 1, b"a"), 400),
    "another protocol": (HEAD[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 200),
}


async def test_a_head_has_its_bounds_one_host_and_no_way_out(tmp_path: Path) -> None:
    async with running(tmp_path) as server, served(server, http=Connection, ws=Socket) as url:
        for name, (written, status) in WRITTEN.items():
            reader, writer = await opened(url)
            writer.write(written)
            answer = await asyncio.wait_for(reader.readline(), 120)
            assert int(answer.split()[1]) == status, name
            writer.close()


class Full:
    """A limiter that never has room for a body."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def enter_room(self, size: int, ending: ExitStack) -> Callable[[], None]:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_body_that_waits_for_room_waits_with_its_sender(tmp_path: Path, party: Party) -> None:
    """It doesn't wait in the kernel, which would buffer whole bodies of hundreds of senders and then drop packets."""
    taken, most = 0, 8 << 20
    async with running(tmp_path) as server, served(server, http=Connection) as url:
        await party.begin(server)
        parts, sender = urlsplit(url), socket.socket()
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        sender.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sender, (parts.hostname, parts.port))
        head = await head_of(party, server, url, bytes(most), most)
        # Lets the kernel see a reader so quick that it would buffer more for it.
        await loop.sock_sendall(
            sender, b"PUT /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % most
        )
        await loop.sock_sendall(sender, bytes(most))
        assert b" 413 " in await loop.sock_recv(sender, 4096)
        server.app.state.room = full = Full()
        before = HEAD.replace(PATH.encode(), b"/v1/rounds/%s?after=99&wait_s=0.3" % head.split(b"/")[3])
        await loop.sock_sendall(sender, before + head)
        await full.asked.wait()
        with suppress(TimeoutError):
            while taken < most:
                async with asyncio.timeout(LATE_S):
                    await loop.sock_sendall(sender, bytes(1 << 14))
                    taken += 1 << 14
            raise AssertionError("the whole body was taken")
        sender.close()
    assert taken < 1 << 20
