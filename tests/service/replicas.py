"""Two coordinators over one database and one bucket, and clients that talk to both in turn."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.service.serving import TOKEN, Clock, Server, running
from tests.service.signing import Everybody


class Turns(httpx.AsyncBaseTransport):
    """Every request goes to the next replica."""

    def __init__(self, replicas: tuple[Server, ...]) -> None:
        self._next = itertools.cycle(replicas)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await next(self._next).client._transport.handle_async_request(request)


@asynccontextmanager
async def two(
    folder: Path, clock: Clock | None = None, others: Clock | None = None
) -> AsyncIterator[tuple[Server, Server, Server]]:
    """Each of them, and both in turn; the fixture `servers` has to be there.

    Args:
        folder: of the first.
        clock: of the first, and of clients.
        others: of the other replica; the same by default.
    """
    clock, key = clock or Clock(), "5e" * 32
    async with (
        running(folder, clock, coordinator_key=key) as one,
        running(folder, others or clock, coordinator_key=key, data_dir=folder.with_name("other")) as other,
    ):
        auth = Everybody(clock, TOKEN)
        async with httpx.AsyncClient(
            transport=Turns((one, other)), base_url="http://coordinator", auth=auth
        ) as client:
            yield one, other, Server(folder, one.app, client, clock)
