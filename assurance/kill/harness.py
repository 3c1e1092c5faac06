"""Coordinators that are restarted whenever they are killed."""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from assurance.kill.coordinator import Fate
from tests.support.replicas import Replica, points_of

FEW = 0.12
"""The share of labels at which a process may die, while all are due."""


@dataclass(frozen=True)
class Doom:
    """The end planned for a process: death at a point, or a kill from outside after some time."""

    fate: Fate = field(default_factory=Fate)
    after_s: float | None = None


@dataclass
class Fleet:
    """Replicas, each restarted by a supervisor as soon as it is dead.

    Attributes:
        dooms: the planned end of each process, at its start.
        killed: number of deaths by label, and of kills at `RANDOM` times.
        faults: processes that ended by themselves.
        deaths_s: monotonic times of the kills.
    """

    replicas: list[Replica]
    dooms: Callable[[], Doom]
    killed: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    deaths_s: list[float] = field(default_factory=list)

    RANDOM = "any time"

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


def _last_point(replica: Replica) -> tuple[str, float]:
    """Return where a process died, and when."""
    found = points_of(replica.log, replica.process.pid)
    return (found[-1][1], found[-1][0]) if found else ("its start", time.monotonic())


@dataclass
class Fates:
    """Plan dooms from a seed: at points first, then at any time.

    Attributes:
        killed: number of deaths so far by label, counted by the fleet.
        times: deaths wanted at each label. At a label without deaths, the process always dies.
        among_s: range of times after its start at which a process is killed from outside; None for never.
        recovered: how often a request was answered after a kill. If none was since the last kill, as on a busy machine, the next
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
            # Few labels at first: a process that dies at each point of its start would never reach a round.
            chance = max(FEW, 1 - len(due) / max(1, len(self.killed)))
            chosen = {label for label in due if self._random.random() < chance}
            return Doom(Fate(frozenset(self.killed) - chosen, self._random.getrandbits(64)))
        if self.among_s is None:
            return Doom()
        before, self._before = self._before, self.recovered()
        self._stretch = max(1.0, self._stretch * (0.9 if self._before > before else 1.1))
        return Doom(after_s=self._random.uniform(*self.among_s) * self._stretch)
