"""Fifty polling members next to one abusive address: how much longer their polls take while it requests the most expensive pages, or holds connections.

A coordinator in its own process has a federation of 50 members with a round. Each member polls once a second, with a signature and
without waiting. Then another address requests public pages and documents on many connections, as fast as it gets answers. After that a third
one begins 205 requests a second that it never sends to their end, while each poll comes on a connection of its own. The median poll may
take 1.5 times as long, from the first moment, and every poll must be answered.

    .venv/bin/python -m benchmarks.abuse --output runs/abuse.json
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.founding import question_of
from benchmarks.reports import write_findings
from benchmarks.secure_sum import ROOT
from benchmarks.serving import TOKEN, Served, coordinator
from tests.support.clients import Everybody
from tests.support.party import Party
from tests.support.serving import Clock, Server

MEMBERS, EVERY_S = 50, 1.0
CONNECTIONS, ABUSER = 64, "127.0.0.2"
HOLDER, HELD_MAX, HELD_PER_S = "127.0.0.3", 4600, 205
QUIET_S, ABUSED_S = 15.0, 30.0
LONGER_MAX = 1.5


@dataclass(frozen=True)
class Polls:
    """Durations of polls.

    Attributes:
        seconds: of each poll.
        busy: share of one processor that the coordinator used meanwhile.
    """

    seconds: list[float]
    busy: float

    @property
    def facts(self) -> dict[str, Any]:
        ordered = sorted(self.seconds)
        return {
            "polls": len(ordered),
            "median_ms": round(1000 * statistics.median(ordered), 2),
            "p95_ms": round(1000 * ordered[int(0.95 * len(ordered))], 2),
            "worst_ms": round(1000 * ordered[-1], 2),
            "coordinator_processor": round(self.busy, 3),
        }


async def poll(client: httpx.AsyncClient, path: str, place: float, until_s: float) -> list[float]:
    """Poll for one member, at its own offset within each second."""
    taken = []
    await asyncio.sleep(place)
    while time.monotonic() < until_s:
        begun_s = time.perf_counter()
        answer = await client.get(path)
        taken.append(time.perf_counter() - begun_s)
        assert answer.status_code == 200, answer.text
        await asyncio.sleep(max(0.0, EVERY_S - taken[-1]))
    return taken


async def polled(client: httpx.AsyncClient, served: Served, paths: list[str], for_s: float) -> Polls:
    begun_s, cpu_s = time.monotonic(), served.cpu_s
    places = (EVERY_S * place / len(paths) for place in range(len(paths)))
    members = (poll(client, path, place, begun_s + for_s) for path, place in zip(paths, places, strict=True))
    taken = [each for member in await asyncio.gather(*members) for each in member]
    return Polls(taken, (served.cpu_s - cpu_s) / (time.monotonic() - begun_s))


def abuse(url: str, paths: list[str], for_s: float, told: Any) -> None:
    """Request all pages in turn on all connections, and report the number of answers by status."""
    told.put(asyncio.run(_abuse(url, paths, for_s)))


async def _abuse(url: str, paths: list[str], for_s: float) -> dict[int, int]:
    """Request over raw sockets: httpx would be slower than the coordinator."""
    statuses, until_s, parts = Counter[int](), time.monotonic() + for_s, urlsplit(url)

    async def ask(first: int) -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, local_addr=(ABUSER, 0))
        at = first
        while time.monotonic() < until_s:
            # No two URLs are equal, so no cached answer helps.
            target = f"{paths[at % len(paths)]}?page={1 + at // len(paths)}"
            writer.write(f"GET {target} HTTP/1.1\r\nhost: {parts.netloc}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            [length] = [line for line in head.lower().splitlines() if line.startswith(b"content-length:")]
            await reader.readexactly(int(length.split(b":")[1]))
            statuses[int(head.split()[1])] += 1
            at += CONNECTIONS
        writer.close()

    await asyncio.gather(*map(ask, range(CONNECTIONS)))
    return dict(statuses)


def hold(url: str, for_s: float, told: Any) -> None:
    """Hold connections that have sent half a head, and report how many were opened, and at most held."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * HELD_MAX), hard))
    told.put(asyncio.run(_hold(url, for_s)))


class _Held(asyncio.Protocol):
    """A connection that sends half a head."""

    def __init__(self, held: set["_Held"]) -> None:
        self._held = held

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"GET /healthz HTTP/1.1\r\nHos")
        self._held.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._held.discard(self)


async def _hold(url: str, for_s: float) -> dict[str, int]:
    parts, held, opened, most = httpx.URL(url), set[_Held](), 0, 0
    assert parts.port is not None
    loop, begun_s = asyncio.get_running_loop(), time.monotonic()
    while (past_s := time.monotonic() - begun_s) < for_s:
        while opened < past_s * HELD_PER_S and len(held) < HELD_MAX:
            with contextlib.suppress(OSError):
                await loop.create_connection(
                    lambda: _Held(held), parts.host, parts.port, local_addr=(HOLDER, 0)
                )
            opened += 1
        most = max(most, len(held))
        await asyncio.sleep(0.01)
    return {"opened": opened, "held": most}


async def cost_of(client: httpx.AsyncClient, served: Served, path: str, times: int = 20) -> float:
    """Return the coordinator's processor seconds for one answer."""
    await client.get(path)
    cpu_s = served.cpu_s
    for _ in range(times):
        await client.get(path)
    return (served.cpu_s - cpu_s) / times


async def measured(served: Served, folder: Path, quiet_s: float, abused_s: float) -> dict[str, Any]:
    ids = tuple(f"m-{index:03}" for index in range(MEMBERS))
    party = Party(ids, dim=16, classes=4, question=question_of(MEMBERS, 16, 4))
    signing = Everybody(Clock(), TOKEN)
    async with httpx.AsyncClient(base_url=served.url, timeout=60.0, auth=signing) as client:
        round_id = await party.begun(Server(folder, None, client, Clock()))
        public = [
            "/",
            "/federations",
            f"/federations/{party.federation}",
            f"/cohorts/{party.cohort}",
            f"/rounds/{round_id}",
            "/problems",
            "/health",
            "/openapi.json",
            f"/v1/federations/{party.federation}",
            f"/v1/federations/{party.federation}/roster",
            f"/v1/cohorts/{party.cohort}",
            f"/v1/cohorts/{party.cohort}/manifest",
            f"/v1/rounds/{round_id}",
            "/no-such-page",
        ]
        async with httpx.AsyncClient(base_url=served.url, timeout=60.0) as nobody:
            costs = {path: round(1000 * await cost_of(nobody, served, path), 2) for path in public}
        paths = [f"/v1/rounds/{round_id}/requests/{member}" for member in ids]
        await polled(client, served, paths, 2.0)
        quiet = await polled(client, served, paths, quiet_s)
        context = multiprocessing.get_context("spawn")
        told = context.Queue()
        abuser = context.Process(target=abuse, args=(served.url, public, abused_s, told), daemon=True)
        abuser.start()
        abused = await polled(client, served, paths, abused_s)
        statuses = await asyncio.to_thread(told.get, True, 120.0)
        abuser.join()
    new = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=served.url, timeout=60.0, auth=signing, limits=new) as client:
        fresh = await polled(client, served, paths, quiet_s)
        holder = context.Process(target=hold, args=(served.url, abused_s, told), daemon=True)
        holder.start()
        held = await polled(client, served, paths, abused_s)
        holding = await asyncio.to_thread(told.get, True, 120.0)
        holder.join()
    longer = abused.facts["median_ms"] / quiet.facts["median_ms"]
    longer_held = held.facts["median_ms"] / fresh.facts["median_ms"]
    return {
        "quiet": quiet.facts,
        "abused": abused.facts,
        "fresh": fresh.facts,
        "held": held.facts,
        "median_ratio": round(longer, 2),
        "median_ratio_held": round(longer_held, 2),
        "within": max(longer, longer_held) <= LONGER_MAX,
        "held_connections": holding,
        "abuser_answers": {str(status): count for status, count in sorted(statuses.items())},
        "cost_ms": costs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/abuse.json")
    parser.add_argument("--quiet-s", type=float, default=QUIET_S)
    parser.add_argument("--abused-s", type=float, default=ABUSED_S)
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    with tempfile.TemporaryDirectory(prefix="veilsum-abuse-") as folder, coordinator(Path(folder)) as served:
        found = asyncio.run(measured(served, Path(folder), given.quiet_s, given.abused_s))
    table = Table("polls beside", "polls", "median ms", "95 % ms", "worst ms", "processor")
    for name in ("quiet", "abused", "fresh", "held"):
        table.add_row(name, *(str(value) for value in found[name].values()))
    console.print(table)
    console.print(f"median × {found['median_ratio']}; the abuser was answered {found['abuser_answers']}")
    console.print(
        f"median × {found['median_ratio_held']} beside held connections: {found['held_connections']}"
    )
    written = {"python": platform.python_version(), "machine": platform.machine(), "load": os.getloadavg()}
    write_findings(written | found, given.output)
    if not found["within"]:
        longer = max(found["median_ratio"], found["median_ratio_held"])
        sys.exit(f"abuse: the median poll takes {longer} times as long")


if __name__ == "__main__":
    main()
