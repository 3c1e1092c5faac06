"""Coordinators as real processes, started again whenever they are killed, and members who send until they are answered."""

import asyncio
import itertools
import multiprocessing
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from assurance.kill import coordinator
from assurance.kill.coordinator import Fate
from tests.support.clients import Everybody, Signing
from tests.support.serving import TOKEN, Clock
from veilsum.protocol import rest

CONTEXT = multiprocessing.get_context("forkserver")
# Not the coordinator alone: each process runs the main module anew, and is to find there what that imports.
CONTEXT.set_forkserver_preload(["assurance.kill.campaign"])
START_S = 60.0
FEW = 0.12
"""At which part of the labels a process may die, while all are due."""
WHO = "x-who"
"""Names whose signature a request gets, where its path does not say."""
ANSWERED_S = 180.0
"""Longest time in which a request is sent again and again."""


def warm_up() -> None:
    """Let what processes are forked from come up, so that the first takes no longer than others."""
    first = CONTEXT.Process(target=int)
    first.start()
    first.join()


@dataclass
class Replica:
    """A coordinator's process.

    Attributes:
        values: its settings.
        log: gets a line for each durable point that it passes.
    """

    values: dict[str, Any]
    environment: dict[str, str]
    log: Path
    port: int = 0
    process: Any = None

    def begin(self, fate: Fate = Fate()) -> None:  # noqa: B008 - a value
        """Start the process, where the last one listened."""
        if not self.port:
            self.port = _free_port()
        arguments = (self.values, self.environment, self.port, self.log, fate)
        self.process = CONTEXT.Process(target=coordinator.serve, args=arguments, daemon=True)
        self.process.start()

    async def start(self) -> None:
        """Come up, or die on the way there."""
        self.begin()
        end = time.monotonic() + START_S
        async with httpx.AsyncClient() as client:
            while self.process.is_alive() and time.monotonic() < end:
                try:
                    await client.get(f"http://127.0.0.1:{self.port}{rest.HEALTH}", timeout=5.0)
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
                else:
                    return

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()


def _free_port() -> int:
    """One that no client is given: while nobody listens, a connection from a port to itself would keep it for ever."""
    for port in random.sample(range(20_000, 32_000), 1000):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@dataclass(frozen=True)
class Doom:
    """What befalls one process: it dies at a point, or is killed from outside after a while."""

    fate: Fate = field(default_factory=Fate)
    after_s: float | None = None


@dataclass
class Fleet:
    """Replicas, each of which a supervisor starts again as soon as it is dead.

    Attributes:
        dooms: what is to befall each process when it starts.
        killed: how often one died at a point, by its label, and how often at `RANDOM` times.
        faults: a process that ended by itself.
        deaths_s: when each was killed, by the monotonic clock.
    """

    replicas: list[Replica]
    dooms: Callable[[], Doom]
    killed: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    deaths_s: list[float] = field(default_factory=list)

    RANDOM = "any time"

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Running for as long as the block lasts; all are killed at its end."""
        keeping = [asyncio.create_task(self._keep(replica)) for replica in self.replicas]
        try:
            yield
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            for replica in self.replicas:
                replica.kill()

    async def _keep(self, replica: Replica) -> None:
        while True:
            doom = self.dooms()
            replica.begin(doom.fate)
            if not await _exited(replica.process, doom.after_s):
                replica.process.kill()
                await _exited(replica.process, None)
                label, at_s = self.RANDOM, time.monotonic()
            else:
                label, at_s = _last_point(replica)
            replica.process.join()
            if replica.process.exitcode != -signal.SIGKILL:
                self.faults.append(
                    f"a process ended by itself, with {replica.process.exitcode}, after {label}"
                )
                await asyncio.sleep(1.0)
                continue
            self.killed[label] += 1
            self.deaths_s.append(at_s)


async def _exited(process: Any, within_s: float | None) -> bool:
    """Whether it ended in this time."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(process.sentinel, ended.set)
    try:
        async with asyncio.timeout(within_s):
            await ended.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(process.sentinel)
    return True


def _last_point(replica: Replica) -> tuple[str, float]:
    """Where a process died, and when."""
    own = f" {replica.process.pid} "
    with replica.log.open() as file:
        file.seek(max(0, file.seek(0, 2) - 65536))
        lines = [line.rstrip("\n") for line in file if own in line]
    if not lines:
        return "its start", time.monotonic()
    at_s, _, label = lines[-1].split(" ", 2)
    return label, float(at_s)


@dataclass
class Members(httpx.AsyncBaseTransport):
    """Sends each request until it is answered, to the replicas in turn.

    Attributes:
        acknowledged: chunks by round and member that were answered with success.
        answers: how many requests were.
        on_answer: told when one was.
    """

    replicas: list[Replica]
    acknowledged: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    answers: int = 0
    on_answer: Callable[[float], None] = lambda _: None
    _turn: Any = field(default_factory=itertools.count)
    _inner: httpx.AsyncHTTPTransport = field(default_factory=httpx.AsyncHTTPTransport)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        end = time.monotonic() + ANSWERED_S
        while time.monotonic() < end:
            replica = self.replicas[next(self._turn) % len(self.replicas)]
            if not replica.is_alive:
                await asyncio.sleep(0.005)
                continue
            url = request.url.copy_with(host="127.0.0.1", port=replica.port)
            headers = {**request.headers, "host": f"127.0.0.1:{replica.port}"}
            again = httpx.Request(request.method, url, headers=headers, content=body)
            again.extensions = dict(request.extensions)
            # Every time anew: a signature counts once.
            who = again.headers.pop(WHO, "")
            auth = Signing(Clock(), who) if who else Everybody(Clock(), TOKEN)
            again = next(auth.auth_flow(again))
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

    def _note(self, request: httpx.Request, answer: httpx.Response) -> None:
        if answer.status_code >= 400:
            return
        self.answers += 1
        self.on_answer(time.monotonic())
        parts = request.url.path.split("/")
        if request.method == "PUT" and "chunks" in parts:
            self.acknowledged.setdefault((parts[3], parts[-3]), set()).add(int(parts[-1]))

    async def lost(self, client: httpx.AsyncClient, round_id: str) -> list[str]:
        """Acknowledged chunks that the coordinator now says are missing."""
        lost = []
        for (round_, member), chunks in tuple(self.acknowledged.items()):
            if round_ != round_id:
                continue
            answer = await client.get(f"/v1/rounds/{round_id}/uploads/{member}")
            missing = set(answer.json()["missing"]) if answer.status_code == 200 else set(chunks)
            lost += [f"{member}/{index}" for index in sorted(missing & chunks)]
        return lost


@dataclass
class Fates:
    """Dooms by a seed: points first, then any time.

    Attributes:
        killed: how often one died already, by label; the fleet counts.
        times: how often to die at each label; at one where nobody has died yet, always.
        among_s: between which times after its start a process is killed from outside; None for never.
        recovered: how often somebody was answered after a kill. Where nobody was since the last one, as on a busy machine, the next
            process lives longer.
    """

    times: int = 0
    among_s: tuple[float, float] | None = None
    seed: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    recovered: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        self._random, self._stretch, self._before = random.Random(self.seed), 1.0, 0

    def __call__(self) -> Doom:
        if self.times:
            due = sorted(label for label, count in self.killed.items() if count < self.times)
            # A few at first: who died at each point of its start would never come to a round.
            chance = max(FEW, 1 - len(due) / max(1, len(self.killed)))
            chosen = {label for label in due if self._random.random() < chance}
            return Doom(Fate(frozenset(self.killed) - chosen, self._random.getrandbits(64)))
        if self.among_s is None:
            return Doom()
        before, self._before = self._before, self.recovered()
        self._stretch = max(1.0, self._stretch * (0.9 if self._before > before else 1.1))
        return Doom(after_s=self._random.uniform(*self.among_s) * self._stretch)
