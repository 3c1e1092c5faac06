"""Coordinators that are restarted whenever they are killed."""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assurance.kill.coordinator import Fate
from tests.support.replicas import Replica


@dataclass(frozen=True)
class Doom:
    """The end planned for a process: death at a point, or a kill from outside after some time."""

    fate: Fate = field(default_factory=Fate)
    after_s: float | None = None


@dataclass
class Trail:
    """The log of the points that processes pass, read as it grows.

    Attributes:
        passed: the number of processes that passed each label.
        last: the label that a process passed last, and when in monotonic time, by process id.
    """

    log: Path
    passed: Counter[str]
    last: dict[int, tuple[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._read_to, self._seen = 0, set[tuple[str, str]]()

    def read(self) -> None:
        """Read what was written since the last call."""
        if not self.log.exists():
            return
        with self.log.open(encoding="ascii") as log:
            log.seek(self._read_to)
            lines = log.read().splitlines()
            self._read_to = log.tell()
        for at_s, process, label in (line.split(" ", 2) for line in lines):
            self.passed[label] += (process, label) not in self._seen
            self._seen.add((process, label))
            self.last[int(process)] = label, float(at_s)


@dataclass
class Fleet:
    """Replicas, each restarted by a supervisor as soon as it is dead.

    Attributes:
        dooms: the planned end of each process, at its start.
        killed: number of deaths by label, and of kills at `RANDOM` times.
        passed: the number of processes that passed each label, as of the last death.
        faults: processes that ended by themselves.
        deaths_s: monotonic times of the kills.
    """

    replicas: list[Replica]
    dooms: Callable[[], Doom]
    killed: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    deaths_s: list[float] = field(default_factory=list)

    RANDOM = "any time"

    def __post_init__(self) -> None:
        self._trail = Trail(self.replicas[0].log, self.passed)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Run all replicas during the block, and kill them at its end."""
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
                self._trail.read()
                label, at_s = self._trail.last.get(replica.process.pid, ("its start", time.monotonic()))
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
    """Return whether the process ended within this time."""
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


@dataclass
class Fates:
    """Plan dooms from a seed: at points first, then at any time.

    Attributes:
        killed: number of deaths so far by label, counted by the fleet.
        passed: number of processes that passed each label so far, counted by the fleet.
        games: number of games begun so far, counted by the campaign.
        times: deaths wanted at each label. At a label without deaths, each process may die.
        among_s: range of times after its start at which a process is killed from outside; None for never.
        recovered: how often a request was answered after a kill. If none was since the last kill, as on a busy machine, the next
            process lives longer.
    """

    times: int = 0
    among_s: tuple[float, float] | None = None
    seed: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    games: int = 0
    recovered: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        self._random, self._stretch, self._before = random.Random(self.seed), 1.0, 0

    def __call__(self) -> Doom:
        if self.times:
            due = sorted(label for label, count in self.killed.items() if count < self.times)
            # About one death a game at each label: a process that dies at each point of its start would never reach a round.
            chosen = {label for label in due if self._random.random() * self.passed[label] < self.games}
            return Doom(Fate(frozenset(self.killed) - chosen, self._random.getrandbits(64)))
        if self.among_s is None:
            return Doom()
        before, self._before = self._before, self.recovered()
        self._stretch = max(1.0, self._stretch * (0.9 if self._before > before else 1.1))
        return Doom(after_s=self._random.uniform(*self.among_s) * self._stretch)
