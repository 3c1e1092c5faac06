"""The real app in this process, shared by many federations; a transport to it without sockets; and what was sent over it."""

import asyncio
import hashlib
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from service.coordination import jobs
from service.http.callers import Allowance, Limits
from service.storage.dialects import PRAGMAS
from service.storage.tables import metadata
from service.telemetry import logs
from tests.support.serving import Clock, Server, running, served
from veilsum.protocol.messages import parse_message
from veilsum.protocol.rest import OCTETS_TYPE

DIARIES = {"audit", "audit_head", "last_heard", "leases", "nonces"}
"""Tables that record who asked, rather than any content."""
UNLIMITED = Allowance(1e9, 10**9, 10**6, share=1e6)


class Still(Clock):
    """A clock that stands still until a test or a pausing flow moves it."""

    def __call__(self) -> float:
        return 1_000_000.0 + self.ahead_s


@dataclass(frozen=True)
class Stage:
    """The real app, also served over HTTP, for many federations."""

    server: Server
    portal: BlockingPortal
    url: str

    def pass_time(self, until_s: float) -> None:
        """Move the clock of the coordinator and all members to `until_s`."""
        self.server.clock.ahead_s += max(0.0, until_s - self.server.clock())
        self.portal.call(self.server.coordinator.scheduler.wake_up)
        self.portal.call(self.rest)

    async def rest(self) -> None:
        """Wait until all background work has finished."""
        scheduler, looks = self.server.coordinator.scheduler, self.server.coordinator.runs._looks
        while scheduler._wakeup.is_set() or scheduler._running or looks:
            await asyncio.gather(asyncio.sleep(0), *scheduler._running.values(), *looks)

    def stored(self) -> dict[str, bytes]:
        """Return the digest of every row and blob, by its table or folder and its key."""
        folder, found = self.server.folder, dict[str, bytes]()
        with closing(sqlite3.connect(f"file:{folder}/coordinator.sqlite3?mode=ro", uri=True)) as database:
            for table in metadata.sorted_tables:
                if table.name not in DIARIES:
                    keys = [table.columns.keys().index(column.name) for column in table.primary_key]
                    for row in database.execute(f'SELECT * FROM "{table.name}"'):
                        name = "/".join([table.name, *(str(row[key]) for key in keys)])
                        found[name] = hashlib.sha256(repr(row).encode()).digest()
        for path in (folder / "blobs").rglob("*"):
            if path.is_file():
                found[str(path.relative_to(folder / "blobs"))] = hashlib.sha256(path.read_bytes()).digest()
        return found


class Line(httpx.BaseTransport):
    """Transport to the app in this process. It returns an answer after all work that the request started has finished."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.app = stage, httpx.ASGITransport(stage.server.app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self.stage.portal.call(self._answer, request)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self.app.handle_async_request(request)
        content = await answer.aread()
        await self.stage.rest()
        return httpx.Response(answer.status_code, headers=answer.headers, content=content)


@dataclass(frozen=True)
class Sent:
    """A sent request: its message's kind, its body and length, and the lengths of its headers."""

    method: str
    path: str
    kind: str
    length: int
    headers: tuple[tuple[str, int], ...]
    body: bytes = field(repr=False)

    @classmethod
    def of(cls, request: httpx.Request) -> Self:
        body, path = request.read(), request.url.path
        headers = tuple(sorted((name, len(value)) for name, value in request.headers.items()))
        raw = {"chunks": "Chunk", "probe": "Probe"}
        kind = next((raw[part] for part in path.split("/") if part in raw), None)
        kind = kind_of(request.headers, body) if kind is None else kind
        return cls(request.method, path, kind, len(body), headers, body)


def kind_of(headers: Mapping[str, str], body: bytes) -> str:
    """Return a message's type name; empty for other contents."""
    return type(parse_message(body)).__name__ if body and headers.get("content-type") == OCTETS_TYPE else ""


@contextmanager
def coordinator(folder: Path, max_wait_s: float = 2.0, clock: Clock | None = None) -> Iterator[Stage]:
    logs.configure_logs(quiet=True)
    app = running(folder, clock, max_wait_s=max_wait_s, limits=Limits(UNLIMITED, UNLIMITED))
    with (
        start_blocking_portal(backend_options={"use_uvloop": True}) as portal,
        portal.wrap_async_context_manager(app) as server,
        portal.wrap_async_context_manager(served(server)) as url,
    ):
        yield Stage(server, portal, url)


@contextmanager
def standing(folder: Path) -> Iterator[Stage]:
    """Run a coordinator for stepwise flows: its clock stands still, it holds no long poll, and writes don't wait for the disk.

    It never compares all blobs with their digests, which takes real time, though the clock is put ahead by days.
    """
    with ExitStack() as ending:
        with pytest.MonkeyPatch.context() as patched:  # applies to the connections that it opens at its start
            patched.setitem(PRAGMAS, "synchronous", "OFF")
            patched.setattr(jobs, "SCRUB_DELAY_S", math.inf)
            made = ending.enter_context(coordinator(folder, 0.0, Still()))
        yield made
