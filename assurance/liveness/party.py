"""A process that can be killed, stopped, cut off, and started again."""

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
from veilsum.demo.coordinator import child_environment

LONGEST_S = {"kill": 12.0, "stop": 30.0, "cut": 25.0, "silence": 25.0}
"""How long a fault lasts at most: until a process is started again, goes on, or reaches the coordinator again."""


@dataclass(eq=False)
class Party:
    """A coordinator, an operator or a member.

    Args:
        name: what reports call it.
        folder: its working directory, with its `log`.
        words: arguments of Python.
        environment: beside this process's own.
        cable: its way to the coordinator; None for the coordinator.

    Attributes:
        gone: not started, or killed.
        lock: one fault at a time.
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
        """How it ended by itself; None where it has not."""
        return None if self.gone else self._popen.poll()

    def over(self) -> bool:
        """Whether it ended by itself."""
        return self.code is not None

    @property
    def said(self) -> str:
        """How it ended, and the end of its log."""
        return f"{self.name}: {self.code}\n{(self.folder / 'log').read_text(errors='replace')[-4000:]}"

    def kill(self) -> None:
        if not self.gone and self._popen.poll() is None:
            self.gone = True
            os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()

    async def suffer(self, kind: str, seconds: float) -> None:
        """Do it, and undo it after so long; nothing where the process is gone, or has ended by itself."""
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
        """One fault; its kind."""
        kind = chance.choice([*LONGEST_S] if self.cable else ["kill", "stop"])
        await self.suffer(kind, chance.uniform(0.0, LONGEST_S[kind]))
        return kind
