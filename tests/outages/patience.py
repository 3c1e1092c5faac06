"""A client that tries again until it is served, and the sum that must come out in spite of everything."""

import asyncio
import time
from collections import Counter
from typing import Any

import httpx
import numpy as np
from safetensors.numpy import load

from protocol.messages import Opening
from tests.service.driver import Party
from tests.service.process import Process
from tests.service.serving import TOKEN
from tests.service.signing import Everybody

TRIES = 300


class Patient(httpx.AsyncBaseTransport):
    """Sends each request, signed anew, until it is answered by something else than 503.

    Attributes:
        refused: how often requests were refused, by cause; "" where no answer came.
        acknowledged: chunks by member that were answered with success.
    """

    def __init__(self) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self.refused: Counter[str] = Counter()
        self.acknowledged: dict[str, set[int]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
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


async def check_sum(party: Party, server: Any, round_id: str) -> None:
    """The published sum is the plain one of whoever is certified."""
    view = await server.view(round_id)
    assert view["state"] == "done", view
    opening = await server.client.get(f"/v1/rounds/{round_id}/opening")
    terms = Opening.from_bytes(opening.content).terms
    sums = await server.client.get(f"/v1/rounds/{round_id}/result/sums")
    plain = np.sum([party.vector(member, terms) for member in view["survivors"]], axis=0)
    np.testing.assert_array_equal(load(sums.content)["sum"], plain)


async def check_kept(transport: Patient, server: Any, round_id: str) -> None:
    """No acknowledged chunk is missing, as long as the coordinator takes chunks."""
    if (await server.view(round_id))["state"] != "collecting":
        return
    for member, chunks in transport.acknowledged.items():
        shown = await server.client.get(f"/v1/rounds/{round_id}/uploads/{member}")
        assert not chunks & set(shown.json()["missing"]), f"of {member} acknowledged chunks are gone"
