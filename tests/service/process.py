"""The real process: `uvicorn service.app:app` on a folder of its own."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.service.serving import TOKEN
from tests.service.signing import Everybody


class Process:
    """A coordinator's process; looks like the driver's Server to members.

    Args:
        folder: its data folder.
        environment: settings, and whatever else it is to find there.
        under: the command that it runs under, such as strace's.
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
            start_new_session=True,  # so that what it runs under, and runs, ends with it
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

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def close(self) -> None:
        await self.client.aclose()
        if self.process.poll() is None:
            await self.kill()
        self.log.close()

    async def pass_time(self, view: Mapping[str, Any]) -> None:
        """Nobody has anything to say: wait for the phase's deadline, and for what it changes."""
        await asyncio.sleep(max(0.0, (view["deadline_s"] or 0.0) - time.time()))
        await self.client.get(f"/v1/rounds/{view['round']}", params={"after": view["version"], "wait_s": 5.0})

    async def view(self, round_id: str) -> dict[str, Any]:
        view: dict[str, Any] = (await self.client.get(f"/v1/rounds/{round_id}")).json()
        return view
