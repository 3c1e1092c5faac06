"""Clients that try again until they are served, and what must come out in spite of everything."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httpx
import numpy as np
from safetensors.numpy import load

from tests.support.clients import Everybody
from tests.support.party import Party
from tests.support.serving import TOKEN, Process

TRIES = 300


class Patient(httpx.AsyncBaseTransport):
    """Sends each request, signed anew, until it is answered by something else than 503.

    Attributes:
        refused: how often requests were refused, by cause; "" where no answer came.
        acknowledged: chunks by member that were answered with success.
        longest_s: that a request waited for its answer, with all its tries.
    """

    def __init__(self) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self.refused: Counter[str] = Counter()
        self.longest_s = 0.0
        self.acknowledged: dict[str, set[int]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body, begun = await request.aread(), time.monotonic()
        for _ in range(TRIES):
            again = httpx.Request(request.method, request.url, headers=request.headers, content=body)
            again = next(Everybody(time.time, TOKEN).auth_flow(again))
            again.extensions = request.extensions
            try:
                answer = await self._inner.handle_async_request(again)
                await answer.aread()
            except httpx.TransportError:
                self.refused[""] += 1
            else:
                if answer.status_code != 503:
                    self.longest_s = max(self.longest_s, time.monotonic() - begun)
                    self._note(request, answer)
                    return answer
                assert "retry-after" in answer.headers
                self.refused[answer.json()["cause"]] += 1
            await asyncio.sleep(0.1)
        raise AssertionError(f"{request.method} {request.url.path} is never answered")

    def _note(self, request: httpx.Request, answer: httpx.Response) -> None:
        parts = request.url.path.split("/")
        if request.method == "PUT" and "chunks" in parts and answer.status_code == 200:
            self.acknowledged.setdefault(parts[-3], set()).add(int(parts[-1]))

    async def aclose(self) -> None:
        await self._inner.aclose()


def patient(process: Process) -> Patient:
    """Let everybody who talks to the process be patient."""
    transport = Patient()
    process.client = httpx.AsyncClient(
        transport=transport, base_url=f"http://127.0.0.1:{process.port}", timeout=30
    )
    return transport


Strike = Callable[[int], Awaitable["asyncio.Task[None] | None"]]
"""Does harm after so many acknowledged requests, or not; gives what mends it again, under way."""


async def endure(process: Process, strike: Strike, within_s: float) -> dict[str, Any]:
    """Four members' round with a process that is struck again and again: nothing acknowledged is lost, the sum is exact; its figures."""
    party, server, begun = (
        Party(tuple(f"m-{index}" for index in range(4))),
        cast("Any", process),
        time.monotonic(),
    )
    transport, mending, acknowledged = patient(process), list[asyncio.Task[None]](), 0

    async def on_ack(label: str) -> None:
        nonlocal acknowledged
        acknowledged += 1
        if label.startswith("chunk"):
            await check_kept(transport, server, round_id)
        if (task := await strike(acknowledged)) is not None:
            mending.append(task)

    try:
        await process.start()
        transport.refused.clear()  # nobody answers before the start
        transport.longest_s = 0.0
        await party.begin(server)
        round_id = await party.open_round(server)
        party.on_ack = on_ack
        await party.play(server, round_id, within_s=within_s)
        await asyncio.gather(*mending)
        await check_sum(party, server, round_id)
    finally:
        await process.close()
    assert len(mending) > 5
    assert set(transport.refused) == {"unavailable"}
    return {
        "outages": len(mending),
        "acknowledged": acknowledged,
        "refused_as_unavailable": transport.refused.total(),
        "longest_wait_s": round(transport.longest_s, 2),
        "seconds": round(time.monotonic() - begun, 1),
    }


async def check_sum(party: Party, server: Any, round_id: str) -> None:
    """The published sum is the plain one of whoever is certified."""
    view = await server.view(round_id)
    assert view["state"] == "done", view
    sums = await server.client.get(f"/v1/rounds/{round_id}/result/sums")
    vectors = party.vectors[view["context"]]
    plain = np.sum([vectors[member] for member in view["survivors"]], axis=0)
    np.testing.assert_array_equal(load(sums.content)["sum"], plain)


async def check_kept(transport: Patient, server: Any, round_id: str) -> None:
    """No acknowledged chunk is missing, as long as the coordinator takes chunks."""
    if (await server.view(round_id))["state"] != "collecting":
        return
    for member, chunks in transport.acknowledged.items():
        shown = await server.client.get(f"/v1/rounds/{round_id}/uploads/{member}")
        assert not chunks & set(shown.json()["missing"]), f"of {member} acknowledged chunks are gone"
