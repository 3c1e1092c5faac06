"""A proxy between members and a coordinator that loses, repeats, delays, slows and cuts messages, driven by a seed.

It speaks just enough HTTP/1.1 to know where a request ends. A request's fault follows from the seed, its request line and how often that
line has come, so the same seed does the same to the same requests, independent of everything else.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from random import Random

STARVED_BYTES = 3
"""Bytes that are sent one by one before the rest."""
HELD_BEHIND, HELD_S = 3, 0.5
"""A held request waits until this many others have passed it, or for this long."""
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_ENDED = (ConnectionError, asyncio.IncompleteReadError)


class Fault(StrEnum):
    """A fault that may happen to a request."""

    LOST_REQUEST = "lost request"
    LOST_ANSWER = "lost answer"
    REPEATED = "sent twice, the second answer delivered"
    STALE = "sent again long after it was answered"
    HELD = "held until others have passed it"
    STARVED_REQUEST = "request at one byte a second"
    STARVED_ANSWER = "answer at one byte a second"
    CUT_REQUEST = "cut within the request"
    CUT_ANSWER = "cut within the answer"
    GATEWAY = "502 for a request that was served"
    HUNG_UP = "connection closed after the answer"


class Proxy:
    """Listen on a separate port, for one coordinator.

    Args:
        port: the coordinator's port on this machine.
        seed: of the faults.
        rate: the share of requests with a fault.
        second_s: time between two bytes of a starved message.

    Attributes:
        done: how often each fault happened.
        passed: number of requests.
    """

    def __init__(self, port: int, seed: int, rate: float, second_s: float = 1.0) -> None:
        self._port, self._seed, self._rate, self._second_s = port, seed, rate, second_s
        self._seen: Counter[bytes] = Counter()
        self._tasks: set[asyncio.Task[object]] = set()
        self.done: Counter[Fault] = Counter()
        self.passed = 0
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 16)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._keep(task)
        with suppress(*_ENDED, asyncio.CancelledError):  # cancelled by `running` at its end
            while await self._exchange(reader, writer):
                pass
        writer.close()

    def _keep(self, task: asyncio.Task[object]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Handle one request and its fault; return whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
        line = head.partition(b"\r\n")[0]
        self._seen[line] += 1
        self.passed += 1
        chance = Random(f"{self._seed} {line!r} {self._seen[line]}")
        fault = chance.choice(tuple(Fault)) if chance.random() < self._rate else None
        if fault is not None:
            self.done[fault] += 1
        request = head.replace(b"\r\n", b"\r\nconnection: close\r\n", 1), body
        answer = await self._answered(fault, request, chance)
        if answer is None:
            if chance.random() < 0.5:
                writer.transport.abort()  # a reset, not a regular end
            return False
        return await self._deliver(fault, answer, writer, chance)

    async def _answered(
        self, fault: Fault | None, request: tuple[bytes, bytes], chance: Random
    ) -> bytes | None:
        """Return the coordinator's answer, to one copy or the other; None if no answer is to come back."""
        match fault:
            case Fault.LOST_REQUEST:
                return None
            case Fault.LOST_ANSWER:
                await self._ask(request)
                return None
            case Fault.CUT_REQUEST:
                await self._ask(request, cut=chance.randrange(1, sum(map(len, request))))
                return None
            case Fault.STARVED_REQUEST:
                return await self._ask(request, starved=True)
            case Fault.REPEATED:
                _, second = await asyncio.gather(self._ask(request), self._ask(request))
                return second
            case Fault.STALE:
                self._keep(asyncio.create_task(self._later(request, chance.uniform(0.2, 3.0))))
            case Fault.HELD:
                await self._behind_others()
            case Fault.GATEWAY:
                await self._ask(request)
                return b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n"
        return await self._ask(request)

    async def _behind_others(self) -> None:
        until = self.passed + HELD_BEHIND
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_S):
                while self.passed < until:  # noqa: ASYNC110 - no event to await
                    await asyncio.sleep(0.01)

    async def _later(self, request: tuple[bytes, bytes], after_s: float) -> None:
        await asyncio.sleep(after_s)
        with suppress(*_ENDED):
            await self._ask(request)

    async def _ask(
        self, request: tuple[bytes, bytes], *, cut: int | None = None, starved: bool = False
    ) -> bytes:
        """Send a request, or the beginning of one, on a new connection, and return the coordinator's answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            head, body = request
            data = (head + body)[:cut]
            if starved:
                # If there is a body, starve only the body: the coordinator has read the head by then, and waits for the announced rest.
                start = len(head) if body else 0
                writer.write(data[:start])
                await self._starve(writer, data[start : start + STARVED_BYTES])
                data = data[start + STARVED_BYTES :]
            writer.write(data)
            await writer.drain()
            return b"" if cut is not None else await reader.read(-1)
        finally:
            writer.transport.abort()

    async def _deliver(
        self, fault: Fault | None, answer: bytes, writer: asyncio.StreamWriter, chance: Random
    ) -> bool:
        """Pass on an answer or part of it; return whether the connection stays open."""
        # The coordinator was asked to close its connection; the member's stays open.
        answer = re.sub(rb"(?i)\r\nconnection: close", b"", answer, count=1)
        match fault:
            case Fault.CUT_ANSWER:
                writer.write(answer[: chance.randrange(max(1, len(answer)))])
                await writer.drain()
                writer.close()
                return False
            case Fault.STARVED_ANSWER:
                await self._starve(writer, answer[:STARVED_BYTES])
                answer = answer[STARVED_BYTES:]
        writer.write(answer)
        await writer.drain()
        return fault is not Fault.HUNG_UP

    async def _starve(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        for byte in data:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(self._second_s)
