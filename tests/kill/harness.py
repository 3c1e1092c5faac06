"""One round with real processes, one of which is killed at a point; then another goes on."""

import asyncio
import multiprocessing
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from protocol import rest
from service.settings import Settings
from service.storage.stores import blobs_of
from tests.kill import coordinator
from tests.service.driver import Party
from tests.service.serving import TOKEN, Clock, Server
from tests.service.signing import Everybody

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.kill.coordinator"])
START_S = 60.0
CLEAR_S = 40.0
"""A dead process's lease has to run out before."""


@dataclass
class Replica:
    """A coordinator's process.

    Attributes:
        values: its settings.
        die_at: the point at which it dies; None for none.
    """

    values: dict[str, Any]
    environment: dict[str, str]
    log: Path
    die_at: int | None = None
    port: int = 0
    process: Any = None

    async def start(self) -> None:
        """Come up, or die on the way there."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        arguments = (self.values, self.environment, self.port, self.log, self.die_at)
        self.process = CONTEXT.Process(target=coordinator.serve, args=arguments, daemon=True)
        self.process.start()
        end = time.monotonic() + START_S
        async with httpx.AsyncClient() as client:
            while self.process.is_alive() and time.monotonic() < end:
                try:
                    await client.get(f"http://127.0.0.1:{self.port}{rest.HEALTH}", timeout=5.0)
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
                else:
                    return

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()


@dataclass
class Members(httpx.AsyncBaseTransport):
    """Sends each request until it is answered: to the replicas in turn, starting a new one where none is left.

    Attributes:
        acknowledged: chunks by member that were answered with success.
        deaths: how often no replica was left.
    """

    replicas: list[Replica]
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    deaths: int = 0
    _turn: int = 0
    _inner: httpx.AsyncHTTPTransport = field(default_factory=httpx.AsyncHTTPTransport)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        for _ in range(200):
            replica = await self._next()
            url = request.url.copy_with(host="127.0.0.1", port=replica.port)
            headers = {**request.headers, "host": f"127.0.0.1:{replica.port}"}
            again = httpx.Request(request.method, url, headers=headers, content=body)
            # Every time anew: a signature counts once.
            again = next(Everybody(Clock(), TOKEN).auth_flow(again))
            try:
                answer = await self._inner.handle_async_request(again)
                await answer.aread()
            except httpx.TransportError:
                await asyncio.sleep(0.02)
                continue
            if answer.status_code == 503:
                await asyncio.sleep(0.1)
                continue
            self._note(request, answer)
            return answer
        raise AssertionError(f"{request.method} {request.url.path} is never answered")

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _next(self) -> Replica:
        for _ in self.replicas:
            self._turn += 1
            replica = self.replicas[self._turn % len(self.replicas)]
            if replica.process is not None and replica.process.is_alive():
                return replica
        self.deaths += 1
        replica.die_at = None
        await replica.start()
        return replica

    def _note(self, request: httpx.Request, answer: httpx.Response) -> None:
        parts = request.url.path.split("/")
        if request.method == "PUT" and "chunks" in parts and answer.status_code == 200:
            self.acknowledged.setdefault(parts[-3], set()).add(int(parts[-1]))

    async def lost(self, client: httpx.AsyncClient, round_id: str) -> list[str]:
        """Acknowledged chunks that the coordinator now says are missing."""
        lost = []
        for member, chunks in self.acknowledged.items():
            answer = await client.get(f"/v1/rounds/{round_id}/uploads/{member}")
            missing = set(answer.json()["missing"]) if answer.status_code == 200 else set(chunks)
            lost += [f"{member}/{index}" for index in sorted(missing & chunks)]
        return lost


@dataclass(frozen=True)
class Outcome:
    """What came of a round.

    Attributes:
        weights: the head's file.
        lost: acknowledged chunks that were gone.
        left: what still lay in storage of the round a while after its end.
        died: whether the first replica was killed at its point.
    """

    weights: bytes
    sums: bytes
    lost: tuple[str, ...]
    left: tuple[str, ...]
    died: bool


async def play(replicas: list[Replica]) -> Outcome:
    """A federation of four, from nothing to a result, through whatever happens to the replicas."""
    party = Party(tuple(f"m-{index}" for index in range(4)), dim=3, classes=2)
    for replica in replicas:
        await replica.start()
    members = Members(replicas)
    lost: set[str] = set()
    async with httpx.AsyncClient(transport=members, base_url="http://coordinator", timeout=60.0) as client:
        server = Server(Path(), None, client, Clock())
        await _found(party, server)
        await party.open_cohort(server)
        await party.enrol(server)
        round_id = await _opened(party, server)

        async def on_ack(label: str) -> None:
            del label
            view = await server.view(round_id)
            if view["state"] == "collecting":
                lost.update(await members.lost(client, round_id))

        party.on_ack = on_ack
        deadline = time.monotonic() + 120.0
        while not (view := await server.view(round_id))["ended"]:
            for member in party.ids:
                await party.serve(server, round_id, member)
            assert time.monotonic() < deadline, view["state"]
        assert view["state"] == "done", view
        assert set(view["survivors"]) == set(party.ids)
        weights = (await client.get(f"/v1/rounds/{round_id}/result/weights")).content
        sums = (await client.get(f"/v1/rounds/{round_id}/result/sums")).content
        left = await _left(client, replicas[0])
    died = bool(members.deaths) or replicas[0].process.exitcode == -signal.SIGKILL
    return Outcome(weights, sums, tuple(sorted(lost)), left, died)


async def _left(client: httpx.AsyncClient, replica: Replica) -> tuple[str, ...]:
    blobs = blobs_of(Settings(**replica.values))
    end = time.monotonic() + CLEAR_S
    while True:
        await client.get(rest.HEALTH)  # starts another process where none is left
        found = [f"{folder}/{name}" for folder in ("uploads", "sums") for name in blobs.names(folder)]
        if not found or time.monotonic() > end:
            return tuple(found)
        await asyncio.sleep(0.2)


async def _found(party: Party, server: Server) -> None:
    answer = (await server.client.get(rest.COORDINATOR)).json()
    party.roster = party.make_roster(bytes.fromhex(answer["public_key"]))
    put = await server.client.put(
        f"/v1/federations/{party.federation}/roster",
        content=party.roster.to_bytes(),
        headers={"content-type": rest.OCTETS},
    )
    assert put.status_code in {200, 201}, put.text


async def _opened(party: Party, server: Server) -> str:
    answer = await party.try_round(server, chunk_elements=8)
    if answer.status_code == 409:  # opened before, and the answer got lost
        found = (await server.client.get(f"/v1/federations/{party.federation}")).json()["rounds"]
        return str(found[-1])
    assert answer.status_code == 201, answer.text
    return str(answer.json()["round"])
