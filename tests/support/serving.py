"""The real app on a folder: for asynchronous tests (`running`), as two replicas (`two`), as `uvicorn service.app:app` (`Process`), or as one
`Stage` that the flows of many federations share; each with its clock and an operator's client."""

import asyncio
import hashlib
import itertools
import math
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar
from unittest.mock import patch

import httpx
import uvicorn
import uvloop
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic import SecretStr
from sqlalchemy import Connection, Executable

from service.access.accepting import PooledServer
from service.access.pool import Pool
from service.app import create_app
from service.coordination import jobs, solving
from service.coordination.coordinator import Coordinator
from service.coordination.rounds import LiveRound
from service.http.callers import Allowance, Limits
from service.settings import Settings
from service.storage import clock as service_clock
from service.storage import dialects
from service.storage.database import Database
from service.storage.dialects import PRAGMAS
from service.storage.tables import metadata
from service.telemetry import logs
from service.telemetry.metrics import REGISTRY
from tests.support.clients import Everybody, Signing, client_of
from tests.support.servers import Servers
from veilsum.protocol.audit import AuditPage
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Opening, parse_message
from veilsum.protocol.rest import OCTETS_TYPE

T = TypeVar("T")
TOKEN = "the operator's own token"

ROUTES: list[Any] = []
"""Routes shared by all apps: they hold no state, and building them takes longer than starting an app."""
SERVERS: Servers | None = None
"""Stores of the coordinators; None for SQLite and files in their folder. Set by the fixture `stores`."""


DIARIES = {"audit", "audit_head", "last_heard", "leases", "nonces"}
"""Tables that record who asked, rather than any content."""
UNLIMITED = Allowance(1e9, 10**9, 10**6, share=1e6)


class Ticking:
    """A clock that a test moves."""

    def __init__(self, now_s: float = 100.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class Clock(service_clock.Clock):
    """The service's clock plus `ahead_s`. A sleep returns at once and adds to `ahead_s`."""

    def __init__(self, machine: Callable[[], float] = time.time) -> None:
        super().__init__(machine)
        self.ahead_s, self.pauses = 0.0, list[float]()

    def __call__(self) -> float:
        return super().__call__() + self.ahead_s

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.ahead_s += seconds


class Still(Clock):
    """A clock that stands still until a test or a pausing flow moves it."""

    def __call__(self) -> float:
        return 1_000_000.0 + self.ahead_s


@dataclass
class Server:
    """A running app and an operator's client to it."""

    folder: Path
    app: Any
    client: httpx.AsyncClient
    clock: Clock

    @property
    def coordinator(self) -> Coordinator:
        found: Coordinator = self.app.state.coordinator
        return found

    def anonymous(self) -> httpx.AsyncClient:
        """Return a client without token and key."""
        return client_of(self.app, {})

    def signing(self, who: str = "", key: SigningKey | None = None) -> httpx.AsyncClient:
        """Return a client that signs as `who`; without a name, as the sender that each request names."""
        return client_of(self.app, {}, Signing(self.clock, who, key))

    async def audited(self, **params: int) -> AuditPage:
        answer = await self.client.get("/v1/audit", params=params)
        assert answer.status_code == 200, answer.text
        return AuditPage.model_validate(answer.json())

    async def view(self, round_id: str) -> dict[str, Any]:
        answer = await self.client.get(f"/v1/rounds/{round_id}")
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view

    async def cohort(self, cohort: str) -> dict[str, Any]:
        view: dict[str, Any] = (await self.client.get(f"/v1/cohorts/{cohort}")).json()
        return view

    async def cancel(self, round_id: str, reason: str = "a test") -> httpx.Response:
        return await self.client.post(f"/v1/rounds/{round_id}/cancel", json={"reason": reason})

    def live(self, round_id: str) -> LiveRound:
        """Return the coordinator's object of a round that has not ended."""
        found = self.coordinator.catalogue.rounds[round_id]
        assert isinstance(found, LiveRound)
        return found

    async def until(self, round_id: str, *states: str, within_s: float = 60.0) -> dict[str, Any]:
        """Long-poll until the round has one of these states or has ended."""
        end, after = time.monotonic() + within_s, -1
        while time.monotonic() < end:
            answer = await self.client.get(
                f"/v1/rounds/{round_id}", params={"after": after, "wait_s": min(5.0, within_s)}
            )
            view: dict[str, Any] = answer.json()
            if view["ended"] or view["state"] in {"lost", *states}:
                return view
            after = view["version"]
        raise AssertionError(f"still {view['state']}")

    async def opening(self, round_id: str, member: str) -> Opening:
        """What a member is asked while uploads come in."""
        return Opening.from_bytes((await self.client.get(f"/v1/rounds/{round_id}/requests/{member}")).content)

    async def pass_time(self, view: Mapping[str, Any]) -> None:
        """Move the clock to the phase's deadline, and wait for the change that follows."""
        if view["deadline_s"] is not None:
            self.clock.ahead_s += max(0.0, view["deadline_s"] - self.clock())
            self.coordinator.scheduler.wake_up()
        await self.client.get(f"/v1/rounds/{view['round']}", params={"after": view["version"], "wait_s": 5.0})

    async def tidy(self, round_id: str) -> None:
        """Wait until the coordinator has cleaned up after an ended round."""
        rounds, left = self.coordinator.catalogue.rounds, self.coordinator.jobs.garbage.rounds
        await wait_until(lambda: round_id not in left and rounds[round_id].end is not None)


def read_metric(name: str, **labels: str) -> float:
    """Return a metric of this process; 0 if it has no such sample."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def wait_until(holds: Callable[[], object], within_s: float = 120.0) -> None:
    """Poll a condition until it holds."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)


def few(address: int = 20_000, caller: int = 2000, *, at_once: int = 1024) -> Limits:
    """Allow this many requests for each address and caller, and hardly any after them."""
    return Limits(Allowance(0.01, caller, 64), Allowance(0.01, address, at_once, at_once))


@cache
def usual_settings() -> Settings:
    """Return the settings that most coordinators have: to read the environment takes as long as all else of a start."""
    return Settings(operator_token=SecretStr(TOKEN), resume_grace_s=0.0)


async def settings_of(folder: Path, **settings: Any) -> Settings:
    """Return the settings of a coordinator on this folder, with its database and bucket if it has them."""
    own = await SERVERS.settings(folder) if SERVERS is not None else {}
    if own or settings:
        return Settings(
            **{"data_dir": folder, "operator_token": TOKEN, "resume_grace_s": 0.0, **own, **settings}
        )
    return usual_settings().model_copy(update={"data_dir": folder})


@asynccontextmanager
async def running(
    folder: Path, clock: Clock | None = None, *, limits: Limits | None = None, **settings: Any
) -> AsyncIterator[Server]:
    clock = clock or Clock()
    app = create_app(await settings_of(folder, **settings), clock)
    ROUTES.extend(app.router.routes if not ROUTES else ())
    app.router.routes[:] = ROUTES
    # Before it solves, a coordinator looks for garbage among all that its process holds: here that is the whole suite.
    with patch.object(solving, "give_back", lambda: None):
        async with app.router.lifespan_context(app), client_of(app, {}, Everybody(clock, TOKEN)) as client:
            app.state.limits = limits or app.state.limits
            yield Server(folder, app, client, clock)


async def carry_out(database: Database, *statements: Executable) -> None:
    """Change the database without the coordinator's knowledge."""

    def work(connection: Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    await database.write(work)


@asynccontextmanager
async def served(server: Server, pool: Pool | None = None, **config: Any) -> AsyncIterator[str]:
    """Serve the app over HTTP, with connections of a pool if given, and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = uvicorn.Config(
            server.app, lifespan="off", log_config=None, timeout_graceful_shutdown=1, **config
        )
        shown = uvicorn.Server(made) if pool is None else PooledServer(made, pool)
        shown.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(shown.serve([listener]))
        try:
            scheme = "https" if "ssl_certfile" in config else "http"
            yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            shown.should_exit = True
            try:
                server.coordinator.stop_waiting()
            finally:
                await task  # a server that is left listening would keep the event loop from closing


def again(server: Server, into: Path, clock: Clock | None = None) -> AbstractAsyncContextManager[Server]:
    """Start another process on a copy of this one's folder, with the same database and bucket if it has them."""
    return running(server.folder, clock, data_dir=snapshot(server.folder, into))


def snapshot(folder: Path, into: Path) -> Path:
    """Copy the folder, as a crash at this moment would leave it."""
    return Path(shutil.copytree(folder, into))


class Process:
    """A coordinator's process, which members can use like a Server.

    Args:
        folder: its data folder.
        environment: settings and other environment variables.
        under: a command to run it under, such as strace.
    """

    clock = staticmethod(time.time)

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, under: Sequence[str] = ()
    ) -> None:
        self.folder, self.environment, self.under = folder, dict(environment or {}), tuple(under)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}",
            auth=Everybody(time.time, TOKEN),
            timeout=120,
            trust_env=False,
        )
        self.log = (folder.parent / "log").open("ab")

    async def start(self) -> None:
        environment = {
            **os.environ,
            "VEILSUM_DATA_DIR": str(self.folder),
            "VEILSUM_OPERATOR_TOKEN": TOKEN,
            "OMP_NUM_THREADS": "1",
            **self.environment,
        }
        self.process = subprocess.Popen(  # noqa: ASYNC220 - it is not waited for
            [*self.under, sys.executable, "-m", "uvicorn", "service.app:app", "--port", str(self.port)],
            env=environment,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,  # so that a wrapping command ends with the process
        )
        for _ in range(2400):
            try:
                if (await self.client.get("/healthz")).status_code == 200:
                    return
            except httpx.TransportError:
                assert self.process.poll() is None, (self.folder.parent / "log").read_text()
                await asyncio.sleep(0.05)
        raise AssertionError("it does not start")

    async def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        await asyncio.to_thread(self.process.wait)

    async def close(self) -> None:
        await self.client.aclose()
        if self.process.poll() is None:
            await self.kill()
        self.log.close()

    async def pass_time(self, view: Mapping[str, Any]) -> None:
        """Wait for the phase's deadline and for the change that follows."""
        await asyncio.sleep(max(0.0, (view["deadline_s"] or 0.0) - time.time()))
        await self.client.get(f"/v1/rounds/{view['round']}", params={"after": view["version"], "wait_s": 5.0})

    async def view(self, round_id: str) -> dict[str, Any]:
        view: dict[str, Any] = (await self.client.get(f"/v1/rounds/{round_id}")).json()
        return view


class Turns(httpx.AsyncBaseTransport):
    """Send each request to the next replica."""

    def __init__(self, replicas: tuple[Server, ...]) -> None:
        self._next = itertools.cycle(replicas)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await next(self._next).client._transport.handle_async_request(request)


@asynccontextmanager
async def two(
    folder: Path, clock: Clock | None = None, others: Clock | None = None
) -> AsyncIterator[tuple[Server, Server, Server]]:
    """Run two replicas; yield each, and one that alternates between them. Needs the fixture `servers`.

    Args:
        folder: of the first replica.
        clock: of the first replica and of clients.
        others: clock of the second replica; `clock` by default.
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


# One app that flows without an event loop share


@dataclass(frozen=True)
class Stage:
    """The real app for many federations, also served over HTTP by `coordinator`."""

    server: Server
    portal: BlockingPortal
    url: str = "http://127.0.0.1:8000"
    turn: AbstractContextManager[object] = field(default_factory=nullcontext)
    """Held while a request is answered."""

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
        with self.stage.turn:
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


class InlineExecutor(ThreadPoolExecutor):
    """Run each work at once, where it is submitted."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done = Future[Any]()
        try:
            done.set_result(work(*given, **named))
        except BaseException as error:  # noqa: BLE001 - for the caller
            done.set_exception(error)
        return done


class InlineLoop(uvloop.Loop):
    """An event loop that runs at once what others give to threads."""

    async def run_in_executor(self, _executor: Any, work: Callable[..., T], *given: Any) -> T:  # type: ignore[override]
        return work(*given)


@contextmanager
def coordinator(folder: Path, max_wait_s: float = 2.0) -> Iterator[Stage]:
    with (
        staged(folder, max_wait_s) as made,
        made.portal.wrap_async_context_manager(served(made.server)) as url,
    ):
        yield replace(made, url=url)


@contextmanager
def staged(
    folder: Path, max_wait_s: float, clock: Clock | None = None, loop: type[uvloop.Loop] = uvloop.Loop
) -> Iterator[Stage]:
    """Run the app without serving it over HTTP."""
    logs.configure_logs(quiet=True)
    app = running(folder, clock, max_wait_s=max_wait_s, limits=Limits(UNLIMITED, UNLIMITED))
    with (
        start_blocking_portal(backend_options={"loop_factory": loop}) as portal,
        portal.wrap_async_context_manager(app) as server,
    ):
        yield Stage(server, portal)


@contextmanager
def standing(folder: Path) -> Iterator[Stage]:
    """Run a coordinator for stepwise flows: its clock stands still, it holds no long poll, and writes don't wait for the disk.

    It answers one request at a time, with all its work on the event loop: a thread for each piece of it takes longer than most of them.
    It is not served over HTTP.
    It never compares all blobs with their digests, which takes real time, though the clock is put ahead by days.
    """
    with ExitStack() as ending:
        # What is patched applies to the connections that it opens at its start.
        with (
            patch.dict(PRAGMAS, synchronous="OFF"),
            patch.object(dialects, "ThreadPoolExecutor", InlineExecutor),
            patch.object(jobs, "SCRUB_DELAY_S", math.inf),
        ):
            made = ending.enter_context(staged(folder, 0.0, Still(), InlineLoop))
        yield replace(made, turn=threading.Lock())
