"""A process that can be killed, stopped, disconnected and restarted."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from assurance.outages.cable import Cable
from veilsum.cli.demo.coordinator import child_environment

LONGEST_S = {"kill": 12.0, "stop": 30.0, "cut": 25.0, "silence": 25.0}
"""Longest duration of a fault: until the process is restarted, continues, or reaches the coordinator again."""


@dataclass(eq=False)
class FaultyProcess:
    """A process of a coordinator, an operator or a member.

    Args:
        name: used in reports.
        folder: its working directory, with its `log`.
        words: arguments of Python.
        environment: variables in addition to this process's own.
        cable: its connection to the coordinator; None for the coordinator.

    Attributes:
        gone: whether it is not started or was killed.
        lock: allows one fault at a time.
    """

    name: str
    folder: Path
    words: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    cable: Cable | None = None
    gone: bool = True
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, *self.words],
                env=child_environment(**self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        self.gone = False

    @property
    def code(self) -> int | None:
        """Exit status if it ended by itself; otherwise None."""
        return None if self.gone else self._popen.poll()

    def over(self) -> bool:
        """Return whether it ended by itself."""
        return self.code is not None

    @property
    def said(self) -> str:
        """Its exit status and the end of its log."""
        return f"{self.name}: {self.code}\n{(self.folder / 'log').read_text(errors='replace')[-4000:]}"

    def kill(self) -> None:
        if not self.gone and self._popen.poll() is None:
            self.gone = True
            os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()

    async def suffer(self, kind: str, seconds: float) -> None:
        """Apply a fault, and undo it after some time. Does nothing if the process is killed or has ended."""
        async with self.lock:
            if self.gone or self.code is not None:
                return
            if kind == "kill":
                self.kill()
            elif kind == "stop":
                os.killpg(self._popen.pid, signal.SIGSTOP)
            elif self.cable is not None:
                self.cable.pulled, self.cable.silent = kind == "cut", kind == "silence"
                if kind == "cut":
                    self.cable.cut()
            await asyncio.sleep(seconds)
            if kind == "kill":
                self.start()
            elif kind == "stop":
                os.killpg(self._popen.pid, signal.SIGCONT)
            elif self.cable is not None:
                self.cable.pulled = self.cable.silent = False

    async def suffer_something(self, chance: Random) -> str:
        """Apply a random fault; return its kind."""
        kind = chance.choice([*LONGEST_S] if self.cable else ["kill", "stop"])
        await self.suffer(kind, chance.uniform(0.0, LONGEST_S[kind]))
        return kind
