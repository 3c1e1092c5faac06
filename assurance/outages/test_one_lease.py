"""Two replicas after one lease: what they race for is done once, and who stood still while it ran out changes nothing afterwards."""

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import numpy as np
import numpy.typing as npt
import pytest

from assurance.outages import stopping
from assurance.outages.patience import check_sum
from service.settings import Settings
from service.storage.blobs import Blobs
from service.storage.stores import blobs_of
from tests.support.clients import Everybody
from tests.support.party import Party
from tests.support.servers import CREDENTIALS, Servers
from tests.support.serving import TOKEN, Clock
from tests.support.simulator import After
from veilsum.protocol import rest, round_spec

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["assurance.outages.stopping"])
START_S = 120.0
TABLES = ("events", "sums", "rounds", "links")
NOTES = (
    'CREATE TABLE deeds (number bigserial, "of" text, op text, old jsonb, new jsonb)',
    """CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       INSERT INTO deeds ("of", op, old, new) VALUES (TG_TABLE_NAME, TG_OP, to_jsonb(OLD), to_jsonb(NEW));
       RETURN NULL; END $$""",
    *(
        f"CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION note()"
        for table in TABLES
    ),
)
"""The database itself keeps what is ever written, whoever writes it."""


class OneHot(Party):
    """Member `i` holds forty times the `i`-th unit vector: who is counted twice, or not at all, is seen in the sum."""

    def records(self, member: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        place = self.ids.index(member)
        features = np.tile(np.eye(self.dim)[place], (40, 1))
        return features, np.full(40, place % self.classes)


@dataclass
class Replicas(httpx.AsyncBaseTransport):
    """Real processes on the same stores. Each request goes to the next that runs, until one answers it.

    Attributes:
        clock: the one that all go by.
    """

    folder: Path
    values: dict[str, Any]
    stop: str
    clock: Clock
    ports: dict[int, int] = field(default_factory=dict)
    _turn: int = 0
    _inner: httpx.AsyncHTTPTransport = field(default_factory=httpx.AsyncHTTPTransport)

    @asynccontextmanager
    async def started(self, count: int) -> AsyncIterator["Replicas"]:
        begun = []
        try:
            for number in range(count):
                with socket.create_server(("127.0.0.1", 0)) as free:
                    port = free.getsockname()[1]
                values = {**self.values, "data_dir": self.folder / str(number)}
                arguments = (values, CREDENTIALS, port, self.folder, self.stop)
                process = CONTEXT.Process(target=stopping.serve, args=arguments, daemon=True)
                process.start()
                begun.append(process)
                assert process.pid is not None
                await self._up(process, port)
                self.ports[process.pid] = port
            yield self
        finally:
            for process in begun:
                process.kill()
                await asyncio.to_thread(process.join)

    async def _up(self, process: Any, port: int) -> None:
        async with asyncio.timeout(START_S), httpx.AsyncClient() as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    await client.get(f"http://127.0.0.1:{port}{rest.HEALTH}")
                    return
                assert process.is_alive(), "it does not start"
                await asyncio.sleep(0.05)

    @property
    def stopped(self) -> int:
        """The id of the process that stands still; 0 where none does."""
        return next((pid for pid in self.ports if is_stopped(pid)), 0)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(200):
            self._turn += 1
            standing = self.stopped
            running = [port for pid, port in self.ports.items() if pid != standing]
            answer = await self.ask(request, running[self._turn % len(running)])
            if answer is not None and answer.status_code != 503:
                return answer
            await asyncio.sleep(0.05)
        raise AssertionError(f"{request.method} {request.url.path} is never answered")

    async def ask(self, request: httpx.Request, port: int) -> httpx.Response | None:
        """One process's answer, to the request signed anew; None where none comes."""
        body = await request.aread()
        url = request.url.copy_with(host="127.0.0.1", port=port)
        headers = {**request.headers, "host": f"127.0.0.1:{port}"}
        sent = httpx.Request(request.method, url, headers=headers, content=body)
        sent = next(Everybody(self.clock, TOKEN).auth_flow(sent))
        sent.extensions = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), 10.0)}
        try:
            answer = await self._inner.handle_async_request(sent)
            await answer.aread()
        except httpx.TransportError:  # it may have been stopped just now
            return None
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass
class Door:
    """What the driver needs of a server; time passes for every replica."""

    replicas: Replicas
    client: httpx.AsyncClient

    async def view(self, round_id: str) -> dict[str, Any]:
        answer = await self.client.get(f"/v1/rounds/{round_id}")
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view

    async def pass_time(self, view: dict[str, Any]) -> None:
        clock = self.replicas.clock
        if view["deadline_s"] is not None:
            clock.ahead_s += max(0.0, view["deadline_s"] - clock())
            written = self.replicas.folder / "ahead_s.new"
            written.write_text(repr(clock.ahead_s))
            written.rename(self.replicas.folder / "ahead_s")
        await self.client.get(f"/v1/rounds/{view['round']}", params={"after": view["version"], "wait_s": 2.0})


def is_stopped(pid: int) -> bool:
    """Whether the kernel says that it stands still."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def query(url: str, statement: str, *more: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(statement)
        for each in more:
            await connection.execute(each)
    finally:
        await connection.close()
    return list(found)


async def written(url: str) -> list[tuple[str, str, Any, Any]]:
    """All that was ever written to the tables of rounds, in order."""
    rows = await query(url, 'SELECT "of", op, old, new FROM deeds ORDER BY number')
    return [
        (row["of"], row["op"], *(json.loads(row[side]) if row[side] else None for side in ("old", "new")))
        for row in rows
    ]


def check_once(deeds: list[tuple[str, str, Any, Any]], round_id: str, survivors: list[str]) -> None:
    """Every piece of work was done exactly once."""
    events = [new for of, op, _, new in deeds if (of, op) == ("events", "INSERT")]
    assert [event["number"] for event in events] == list(range(len(events)))
    assert max(Counter((event["kind"], event["body"]) for event in events).values()) == 1
    assert [event["kind"] for event in events].count("expire") == 1  # one member stays away
    parts: dict[int, list[Any]] = {}
    for of, op, _, new in deeds:
        if of == "sums" and op != "DELETE":
            parts.setdefault(new["part"], []).append((new["done"], json.loads(new["members"])))
    assert sorted(parts) == list(range(max(parts) + 1))
    assert len(parts) > 2
    # But for ranges that are leased to the process that stands still until the uploads are all in.
    assert any(len(kept) > 1 for kept in parts.values()), "uploads were added before the freeze"
    for kept in parts.values():
        *masked, (done, members) = kept
        assert done
        assert sorted(members) == sorted(survivors)
        assert not any(unmasked for unmasked, _ in masked)
        for (_, before), (_, after) in itertools.pairwise(masked):
            assert set(before) < set(after)
            assert len(set(after)) == len(after)
    ended = [(old["final"], new["id"]) for of, op, old, new in deeds if (of, op) == ("rounds", "UPDATE")]
    assert ended == [(None, round_id)]
    assert [op for of, op, _, _ in deeds if of == "links"] == ["INSERT"]


async def cleared(blobs: Blobs) -> None:
    """Wait until nothing lies there that is not to stay."""
    async with asyncio.timeout(40):
        while any(blobs.names(folder) for folder in ("uploads", "sums")):  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.1)


def results(blobs: Blobs, round_id: str) -> dict[str, bytes]:
    return {name: blobs.get(f"results/{round_id}/{name}") for name in blobs.names(f"results/{round_id}")}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "stop", ["", "keep masked", "put sums", "append expire", "keep sum", "put transcripts", "put results"]
)
async def test_two_after_one_lease(
    stop: str,
    tmp_path: Path,
    servers: Servers,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No process stands still, or one does at the first such point, and comes back once the other has ended the round."""
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", stopping.CHUNK_ELEMENTS)
    stores = await servers.settings(tmp_path)
    url, clock = stores["database_url"], Clock()
    values = {"operator_token": TOKEN, "resume_grace_s": 0.0, "coordinator_key": "5e" * 32, **stores}
    members = tuple(f"m-{index}" for index in range(5))
    party = OneHot(members, dim=5, classes=2, decryptors=members[:4])
    party.drop = {"m-4": After.OPENING}
    async with Replicas(tmp_path, values, stop, clock).started(2) as replicas:
        await query(url, "SELECT 1", *NOTES)
        async with httpx.AsyncClient(transport=replicas, base_url="http://coordinator") as client:
            server: Any = Door(replicas, client)
            await party.begin(server)
            round_id = await party.open_round(server)
            view = await party.play(server, round_id, within_s=600)
            assert view["state"] == "done", view
            assert view["survivors"] == list(party.ids[:4])
            stopped, blobs = replicas.stopped, blobs_of(Settings(**values, data_dir=tmp_path))
            assert bool(stopped) == bool(stop)
            deeds, kept = await written(url), results(blobs, round_id)
            check_once(deeds, round_id, view["survivors"])
            record_property("figures", {"writes": dict(Counter(f"{op} {of}" for of, op, *_ in deeds))})
            if stop:
                log = tmp_path / f"points-{stopped}"
                passed = len(log.read_text())
                os.kill(stopped, signal.SIGCONT)
                end = time.monotonic() + 60
                while f"after {stop}\n" not in log.read_text()[passed:]:
                    assert time.monotonic() < end, "it does not go on"
                    await asyncio.sleep(0.05)
                request = client.build_request("GET", f"/v1/rounds/{round_id}")
                late = await replicas.ask(request, replicas.ports[stopped])
                assert late is not None
                assert late.json() == view
            await cleared(blobs)
            assert (await written(url), results(blobs, round_id)) == (deeds, kept)
            await check_sum(party, server, round_id)
            log_of_deeds = await query(url, "SELECT action FROM audit WHERE action = 'round ended'")
            assert len(log_of_deeds) == 1
