"""Coordinators in processes of their own, the points that they pass, and clients that retry until they get an answer."""

import asyncio
import inspect
import itertools
import multiprocessing
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.clients import Everybody, Signing
from tests.support.serving import TOKEN
from veilsum.protocol import rest

CONTEXT = multiprocessing.get_context("forkserver")
START_S = 120.0
WHO = "x-who"
"""Header that names the signer of a request whose path names none."""
ANSWERED_S = 180.0
"""Longest time in which a request is retried."""


class Points:
    """Log the labelled points that a process passes.

    Args:
        log: gets a line for each point: monotonic seconds, process, label. Several processes may share it.
        at: called with each label; may stop or end the process.
    """

    def __init__(self, log: Path, at: Callable[[str], None]) -> None:
        self._log, self._at = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), at

    def passed(self, label: str) -> None:
        os.write(self._log, f"{time.monotonic():.6f} {os.getpid()} {label}\n".encode())
        self._at(label)

    @contextmanager
    def around(self, labels: Iterable[str]) -> Iterator[None]:
        """Pass a point before and one after a block, for each label."""
        for label in labels:
            self.passed(f"before {label}")
        try:
            yield
        finally:
            for label in labels:
                self.passed(f"after {label}")

    def watch(self, form: type[Any], name: str, labels_of: Callable[..., Sequence[str]]) -> None:
        """Pass points around each call of a method, whether plain or async."""
        true: Callable[..., Any] = getattr(form, name)

        async def awaited(*values: Any, **named: Any) -> Any:
            with self.around(labels_of(*values)):
                return await true(*values, **named)

        def call(*values: Any, **named: Any) -> Any:
            with self.around(labels_of(*values)):
                return true(*values, **named)

        setattr(form, name, awaited if inspect.iscoroutinefunction(true) else call)


def points_of(log: Path, pid: int) -> list[tuple[float, str]]:
    """Return the points that a process has passed, with their times."""
    lines = (line.split(" ", 2) for line in log.read_text("ascii").splitlines())
    return [(float(at_s), label) for at_s, process, label in lines if process == str(pid)]


@dataclass
class Replica:
    """A coordinator in a process of its own.

    Attributes:
        serve: runs the process. It gets the settings, environment, port and log, and the arguments of `begin`.
        values: the settings.
        log: gets a line for each point that the process passes.
    """

    serve: Callable[..., None]
    values: dict[str, Any]
    environment: dict[str, str]
    log: Path
    port: int = 0
    process: Any = None

    def begin(self, *fate: Any) -> None:
        """Start the process on the port of the previous one."""
        self.port = self.port or _free_port()
        arguments = (self.values, self.environment, self.port, self.log, *fate)
        self.process = CONTEXT.Process(target=self.serve, args=arguments, daemon=True)
        self.process.start()

    async def up(self) -> None:
        """Wait until the process answers."""
        async with asyncio.timeout(START_S), httpx.AsyncClient() as client:
            while True:
                with suppress(httpx.TransportError):
                    await client.get(f"http://127.0.0.1:{self.port}{rest.HEALTH_PATH}")
                    return
                assert self.process.is_alive(), "it does not start"
                await asyncio.sleep(0.05)

    @property
    def runs(self) -> bool:
        """Whether the process is alive and not stopped."""
        if self.process is None or not self.process.is_alive():
            return False
        with suppress(FileNotFoundError, ProcessLookupError):  # it is ending just now
            state = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
            return state not in {"T", "Z"}
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()


def warm_up() -> None:
    """Start the fork server, so that the first process starts as fast as others."""
    first = CONTEXT.Process(target=int)
    first.start()
    first.join()


def _free_port() -> int:
    """Return a port outside the ephemeral range, so that no client's connection can occupy it."""
    for port in random.sample(range(20_000, 32_000), 1000):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@dataclass
class Patient(httpx.AsyncBaseTransport):
    """Send each request, signed anew, to the coordinators in turn, until one gives another answer than 503.

    Attributes:
        ports: of the running coordinators.
        clock: dates the signatures.
        on_answer: called with the monotonic time of each successful answer.
        acknowledged: chunks whose upload was acknowledged, by round and member.
        answers: number of successful answers.
        refused: how often requests were refused as unavailable, by cause; "" if no answer came.
        longest_s: the longest time from a request to its answer, retries included.
    """

    ports: Callable[[], Sequence[int]]
    clock: Callable[[], float] = time.time
    on_answer: Callable[[float], None] = lambda _: None
    acknowledged: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    answers: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    _turn: Any = field(default_factory=itertools.count)
    _inner: httpx.AsyncHTTPTransport = field(default_factory=httpx.AsyncHTTPTransport)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        begun = time.monotonic()
        while time.monotonic() < begun + ANSWERED_S:
            if not (ports := self.ports()):
                await asyncio.sleep(0.005)
                continue
            answer = await self.ask(request, ports[next(self._turn) % len(ports)])
            if answer is None:
                self.refused[""] += 1
                await asyncio.sleep(0.02)
            elif answer.status_code == 503:
                assert "retry-after" in answer.headers
                self.refused[answer.json()["cause"]] += 1
                await asyncio.sleep(0.1)
            else:
                self.longest_s = max(self.longest_s, time.monotonic() - begun)
                self._note(request, answer)
                return answer
        raise AssertionError(f"{request.method} {request.url.path} is never answered")

    async def ask(self, request: httpx.Request, port: int) -> httpx.Response | None:
        """Return one process's answer; None if none comes."""
        body, url = await request.aread(), request.url.copy_with(host="127.0.0.1", port=port)
        headers = {**request.headers, "host": f"127.0.0.1:{port}"}
        who = headers.pop(WHO, "")
        again = httpx.Request(request.method, url, headers=headers, content=body)
        again.extensions = dict(request.extensions)
        # Sign each try anew: a signature is accepted once.
        auth = Signing(self.clock, who) if who else Everybody(self.clock, TOKEN)
        again = next(auth.auth_flow(again))
        try:
            answer = await self._inner.handle_async_request(again)
            await answer.aread()
        except httpx.TransportError:
            return None
        return answer

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
        """Return the acknowledged chunks that the coordinator now reports as missing."""
        lost = []
        for (round_, member), chunks in tuple(self.acknowledged.items()):
            if round_ != round_id:
                continue
            answer = await client.get(f"/v1/rounds/{round_id}/uploads/{member}")
            missing = set(answer.json()["missing"]) if answer.status_code == 200 else set(chunks)
            lost += [f"{member}/{index}" for index in sorted(missing & chunks)]
        return lost
