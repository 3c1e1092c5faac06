"""A coordinator on a folder, its clock, and an operator's client to it."""

import asyncio
import shutil
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from service import clock as service_clock
from service.access.callers import Limits
from service.app import create_app
from service.coordinator import Coordinator
from service.settings import Settings
from tests.service.declared import client_of
from tests.service.servers import Servers
from tests.service.signing import Everybody, Signing
from veilsum.protocol import rest
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Opening

TOKEN = "the operator's own token"
OCTETS = {"content-type": rest.OCTETS}

SERVERS: Servers | None = None
"""Where coordinators keep what they are told; None for SQLite and files in their folder. Set by the fixture `stores`."""


class Clock(service_clock.Clock):
    """The database's time, or what a test makes of it."""

    ahead_s = 0.0

    def __call__(self) -> float:
        return super().__call__() + self.ahead_s


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
        """Somebody with neither token nor key."""
        return client_of(self.app, {})

    def signing(self, who: str = "", key: SigningKey | None = None) -> httpx.AsyncClient:
        """A client that signs as this one; without a name, as whoever the request is from."""
        return client_of(self.app, {}, Signing(self.clock, who, key))

    async def view(self, round_id: str) -> dict[str, Any]:
        answer = await self.client.get(f"/v1/rounds/{round_id}")
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view

    async def until(self, round_id: str, *states: str, within_s: float = 60.0) -> dict[str, Any]:
        """Wait by long-polls until the round has one of these states, or has ended."""
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
        """Nobody has anything to say: let the phase's deadline come, and wait for what it changes."""
        if view["deadline_s"] is not None:
            self.clock.ahead_s += max(0.0, view["deadline_s"] - self.clock())
            self.coordinator.scheduler.wake()
        await self.client.get(f"/v1/rounds/{view['round']}", params={"after": view["version"], "wait_s": 5.0})

    async def tidy(self, round_id: str) -> None:
        """Wait until nothing of an ended round is left."""
        while self.coordinator.rounds[round_id].due_s is not None:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(
    folder: Path, clock: Clock | None = None, *, limits: Limits | None = None, **settings: Any
) -> AsyncIterator[Server]:
    own = await SERVERS.settings(folder) if SERVERS is not None else {}
    values = {"data_dir": folder, "operator_token": TOKEN, "resume_grace_s": 0.0, **own, **settings}
    clock = clock or Clock()
    app = create_app(Settings(**values), clock)
    async with (
        app.router.lifespan_context(app),
        client_of(app, {}, Everybody(clock, TOKEN)) as client,
    ):
        app.state.limits = limits or app.state.limits
        yield Server(folder, app, client, clock)


@asynccontextmanager
async def served(server: Server, **config: Any) -> AsyncIterator[str]:
    """The app over HTTP; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        shown = uvicorn.Server(
            uvicorn.Config(server.app, lifespan="off", log_config=None, timeout_graceful_shutdown=1, **config)
        )
        shown.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(shown.serve([listener]))
        try:
            scheme = "https" if "ssl_certfile" in config else "http"
            yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.coordinator.stop_waiting()
            shown.should_exit = True
            await task


def snapshot(folder: Path, into: Path) -> Path:
    """The folder as a crash at this moment would leave it."""
    return Path(shutil.copytree(folder, into))
