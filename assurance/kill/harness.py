"""Coordinators that are started again whenever they are killed."""

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
"""At which part of the labels a process may die, while all are due."""


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
    found = points_of(replica.log, replica.process.pid)
    return (found[-1][1], found[-1][0]) if found else ("its start", time.monotonic())


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
