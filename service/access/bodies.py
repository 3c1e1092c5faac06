"""Request bodies: admission by available memory, and a minimum transfer rate."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress

from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from service.http.callers import TooMany
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault

_ROOM_RETRY_S = 5
"""Seconds until the next attempt after finding no room."""
ARRIVED_KEY = "veilsum.arrived"
"""Key in a request's scope: returns the bytes of its body that have arrived. Absent where the server hands over each part at once."""
ENDING_KEY = "veilsum.ending"
"""Key in a request's scope: an ExitStack that is closed once the request is answered, streams included."""


async def whole_body(request: Request) -> bytes:
    """Read a body, and keep it where Starlette looks for it. Starlette itself would join it with an empty last part, and so copy it."""
    body = request._body = b"".join([part async for part in request.stream() if part])  # noqa: SLF001
    return body


class Pace:
    """The minimum transfer rate of a body.

    Args:
        grace_s: seconds for the first byte, and slack for the rest.
        bytes_per_s: minimum average rate.
    """

    def __init__(self, grace_s: float = 20.0, bytes_per_s: float = 8192.0) -> None:
        self._grace_s, self._bytes_per_s = grace_s, bytes_per_s

    def limit_pace(self, scope: Scope, receive: Receive) -> Receive:
        """Wrap one request's `receive`: it raises PeerFault(body-incomplete) when the body is late or its connection ends."""
        begun_s: float | None = None
        size, whole = 0, False
        arrived: Callable[[], int] = scope.get(ARRIVED_KEY, lambda: size)

        async def receive_paced() -> Message:
            nonlocal begun_s, size, whole
            if whole:  # now this waits for the caller to go
                return await receive()
            now_s = asyncio.get_running_loop().time
            if begun_s is None:  # the body is not read before the caller is known
                begun_s = now_s()
            while True:
                due_s = begun_s + self._grace_s + arrived() / self._bytes_per_s
                if due_s <= now_s():
                    raise _incomplete_fault(
                        f"{arrived()} bytes arrived in time; at least {self._bytes_per_s:g} a second are needed"
                    )
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due_s):
                        message = await receive()
                    break
            if message["type"] == "http.disconnect":
                raise _incomplete_fault(f"the connection ended after {arrived()} bytes")
            size += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            return message

        return receive_paced


class Room:
    """The memory for bodies. A body without room is not read yet, first come, first served: it waits with its sender.

    So many uploads at once neither fill the memory nor delay small calls. A body that is announced and does not come takes a part of the
    room for a moment only; all that it needs it takes, whatever is free, once it is whole.

    Args:
        size: bytes.
        wait_s: longest time that a body waits for room.
    """

    SMALL = 1 << 16
    """Bodies up to this size need no room: the server has read them already."""
    MOMENT_S, PARTS = 0.1, 8

    def __init__(self, size: int, wait_s: float = 20.0) -> None:
        self._size, self._wait_s = size, wait_s
        self._taken, self._given_back = 0, asyncio.Event()
        self._turn = asyncio.Lock()  # asyncio's locks are fair

    async def enter_room(self, size: int, ending: ExitStack) -> Callable[[], None]:
        """Wait for room for a body of `size` bytes, and keep it until `ending` closes; TooMany if none comes in time.

        Returns:
            What to call once the body is whole.
        """
        if size <= self.SMALL:
            return lambda: None
        expected = min(size, self._size // self.PARTS)
        try:
            async with asyncio.timeout(self._wait_s), self._turn:
                while self._taken + expected > self._size:
                    self._given_back.clear()
                    await self._given_back.wait()
        except TimeoutError:
            raise TooMany("too many uploads at once: no memory is left for this one", _ROOM_RETRY_S) from None
        place = ending.enter_context(ExitStack())
        self._take_bytes(expected, place)
        moment = asyncio.get_running_loop().call_later(self.MOMENT_S, place.close)
        ending.callback(moment.cancel)

        def whole() -> None:
            moment.cancel()
            place.close()
            self._take_bytes(size, place)

        return whole

    def _take_bytes(self, size: int, place: ExitStack) -> None:
        self._taken += size
        place.callback(self._give_back, size)

    def _give_back(self, size: int) -> None:
        self._taken -= size
        self._given_back.set()


def _incomplete_fault(detail: str) -> PeerFault:
    return PeerFault(Cause.BODY_INCOMPLETE, detail)
