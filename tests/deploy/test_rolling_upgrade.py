"""Replicas of the last release and of this one behind one address: a round that began at the old ones ends at the new ones.

The last release is the newest tag in git. Before the first tag, it is the oldest commit with today's tables, requests and studies.
"""

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest

from tests.support.cli import CLASSES, DIM, EXTRACTOR, PERIOD, TOKEN, records
from tests.support.servers import CREDENTIALS, Servers, bucket_served, lacking

ROOT = Path(__file__).parents[2]
PACKAGES = ("client_sdk", "service", "training", "veilsum")
MEMBERS = ("old-a", "old-b", "new-a", "new-b")


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False).stdout


@pytest.fixture
def last(tmp_path: Path) -> Path:
    """Return the last release's packages."""
    tag = git("describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^")
    changed = ("service/storage/migrations", "client_sdk/api.py", "veilsum/protocol/study.py")
    commit = tag or git("log", "-1", "--format=%H", "--", *changed)
    archive = git("archive", commit.decode().strip(), *PACKAGES) if commit else b""
    if not archive:
        lacking("git has no state before this one")
    folder = tmp_path / "last"
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
    return folder


class Door:
    """One address for several replicas; each connection goes to the next one that answers."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.served = Counter[int]()
        self.address, self._turn = "", count()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Door"]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports, turn = list(self.ports), next(self._turn)
        for port in ports[turn % len(ports) :] + ports[: turn % len(ports)]:
            with suppress(OSError):
                inward, outward = await asyncio.open_connection("127.0.0.1", port)
                self.served[port] += 1
                await asyncio.gather(_pass_on(reader, outward), _pass_on(inward, writer))
                return
        writer.close()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.close()


class Release:
    """`veilsum` of one release, run in processes.

    Args:
        code: folder of its packages.
        folder: working directory.
    """

    def __init__(self, code: Path, folder: Path, environment: dict[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VEILSUM_")}
        self.folder, self._environment = folder, {**kept, **environment, "PYTHONPATH": str(code)}
        self._running: list[asyncio.subprocess.Process] = []

    async def start(self, *words: object) -> asyncio.subprocess.Process:
        program = (sys.executable, "-P", "-m", "veilsum", *map(str, words), "--json")
        pipe = asyncio.subprocess.PIPE
        self._running.append(
            await asyncio.create_subprocess_exec(
                *program, cwd=self.folder, env=self._environment, stdout=pipe, stderr=pipe
            )
        )
        return self._running[-1]

    async def stop(self) -> None:
        """Stop all processes."""
        for process in self._running:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    async def ended(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        out, err = await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode == 0, err.decode() + out.decode()
        values: dict[str, Any] = json.loads(out)
        return values

    async def __call__(self, *words: object) -> dict[str, Any]:
        return await self.ended(await self.start(*words))

    async def replica(self) -> tuple[asyncio.subprocess.Process, int]:
        """Start a coordinator; return its port once it answers."""
        process = await self.start("serve", "--port", 0)
        assert process.stdout is not None
        text = (await asyncio.wait_for(process.stdout.readuntil(b"}\n"), 60)).decode()
        return process, int(re.findall(r":(\d+)", json.loads(text)["url"])[-1])


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with bucket_served() as endpoint:
        yield endpoint


@pytest.mark.slow
async def test_a_round_goes_on_while_replicas_are_replaced(last: Path, bucket: str, tmp_path: Path) -> None:
    stores = Servers(bucket)
    try:
        shared = await stores.settings(tmp_path)
    except (OSError, asyncpg.PostgresError) as error:
        lacking(f"no PostgreSQL: {error}")
    environment = {f"VEILSUM_{name.upper()}": value for name, value in shared.items()}
    environment |= {"VEILSUM_COORDINATOR_KEY": "5a" * 32, "VEILSUM_OPERATOR_TOKEN": TOKEN}
    async with Door().open() as door:
        environment["VEILSUM_URL"] = door.address
        old, new = Release(last, tmp_path, environment), Release(ROOT, tmp_path, environment)
        before, first = await old.replica()
        door.ports = [first]
        try:
            admin = (await old("admin", "new", "admin"))["federation"]
            roster: list[object] = []
            for index, name in enumerate(MEMBERS):
                made = await (old if name.startswith("old") else new)("member", "new", name, "--member", name)
                roster += ["--member", f"{name}={made['public_key']}"]
                features, labels = records(np.random.default_rng(index), 40)
                np.savez(tmp_path / f"{name}.npz", features=features, labels=labels)
            await old("admin", "roster", "r.json", "--folder", "admin", *roster)
            words = f"--extractor {EXTRACTOR} --dim {DIM} --members {len(MEMBERS)}".split()
            words += [word for index in range(CLASSES) for word in ("--class", f"class-{index}")]
            words += ["--why-not-listable", "random features"]
            await old("admin", "study", "new", "s.toml", *words)
            draft = (tmp_path / "s.toml").read_text().replace("[question.withhold]", "#")
            draft = draft.replace("margin = ", "# margin = ").replace(
                '# why_not_withheld = ""', 'why_not_withheld = "test data"'
            )
            (tmp_path / "s.toml").write_text(draft)
            approval = (await old("admin", "study", "sign", "s.toml", "--folder", "admin"))["approval"]
            await old("admin", "publish", "r.bin", "s.bin")
            cohort = (await old("operator", "cohort", "open", "s.bin", "--period", PERIOD))["cohort"]

            _, second = await new.replica()
            door.ports.append(second)
            door.served.clear()

            async def join(name: str) -> asyncio.subprocess.Process:
                words = f"member join {name} {name}.npz --admin-key {admin} --approve {approval} --once"
                return await (old if name.startswith("old") else new).start(*words.split())

            joining = {name: await join(name) for name in MEMBERS}
            await new("operator", "cohort", "watch", cohort)
            joining["new-b"].kill()  # without it the round can't end
            await joining["new-b"].communicate()
            opened = (await old("operator", "round", "open", cohort))["round"]
            while len((await new("operator", "round", "status", opened))["uploaded"]) < 3:
                pass
            del door.ports[0]
            before.send_signal(signal.SIGTERM)
            await asyncio.wait_for(before.communicate(), 30)
            assert set(door.served) == {first, second}
            door.served.clear()
            joining["new-b"] = await join("new-b")
            saved = dict[str, str]()
            for name, process in joining.items():
                outcome = await new.ended(process)
                saved[name] = outcome["saved"]
                assert (outcome["record"]["round"], outcome["counted"]) == (opened, True)
                assert [each["member"] for each in outcome["record"]["survivors"]] == sorted(MEMBERS)
            assert set(door.served) == {second}
            for name in ("old-a", "new-a"):
                for release in (old, new):
                    checked = await release("verify", saved[name], "--admin-key", admin)
                    assert checked["verified_against"] == "the pinned admin key"
        finally:
            await old.stop()
            await new.stop()
            await stores.drop()
