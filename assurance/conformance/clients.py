"""The client under test: a command, or somebody who starts it by hand."""

import asyncio
import json
import os
import shlex
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Start:
    """What a client is started with.

    Attributes:
        folder: its own, which keeps its key and state.
        data: its data; a .json file, with a .npz file of the same beside it.
        url: of the coordinator.
        approvals: digests of the studies that its owner approves, in hexadecimal.
    """

    folder: Path
    data: Path
    url: str
    approvals: tuple[str, ...]


class Client(Protocol):
    """A client that can be started again on the same folder."""

    async def create(self, folder: Path, member: str, admin: str) -> bytes:
        """Make a fresh folder with a key; return its public half."""

    async def start(self, start: Start) -> None:
        """Have the client take part in one run."""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended by itself."""

    async def stop(self) -> None:
        """End it, as a power cut would."""

    @property
    def output(self) -> str:
        """The end of what it has printed."""


OUTPUT_CHARACTERS = 2000


def expand(template: str, start: Start) -> list[str]:
    """Fill in a command; the words before and at {approve} are repeated for each approval."""
    values = {
        "folder": str(start.folder),
        "data": str(start.data),
        "npz": str(start.data.with_suffix(".npz")),
        "url": start.url,
    }
    words: list[str] = []
    for word in shlex.split(template):
        if "{approve}" in word:
            option = words.pop() if word == "{approve}" else None
            for digest in start.approvals:
                words += [*([option] if option else []), word.format(approve=digest, **values)]
        else:
            words.append(word.format(**values))
    return words


@dataclass
class Command:
    """A client as two commands: one makes a folder and prints its public key as JSON, one takes part in a run."""

    new: str
    join: str
    process: asyncio.subprocess.Process | None = None
    log: Path | None = None
    environment: dict[str, str] = field(
        default_factory=lambda: {k: v for k, v in os.environ.items() if not k.startswith("VEILSUM_")}
    )

    async def create(self, folder: Path, member: str, admin: str) -> bytes:
        words = [word.format(folder=folder, member=member, admin=admin) for word in shlex.split(self.new)]
        made = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, env=self.environment
        )
        printed, _ = await made.communicate()
        if made.returncode:
            raise RuntimeError(f"{shlex.join(words)} ended with exit code {made.returncode}")
        return bytes.fromhex(json.loads(printed)["public_key"])

    async def start(self, start: Start) -> None:
        self.log = start.folder.with_suffix(".log")
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *expand(self.join, start),
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def stop(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()

    @property
    def output(self) -> str:
        return "" if self.log is None else self.log.read_text(errors="replace")[-OUTPUT_CHARACTERS:]


@dataclass
class ByHand:
    """A client that a person starts, in a fresh folder with the same key for each part."""

    key: bytes
    url: str = ""
    output: str = ""
    is_running: bool = True

    async def create(self, folder: Path, member: str, admin: str) -> bytes:
        self._say(
            f"\nStop the client. Give {member} a fresh folder with the same key; the admin's key is {admin}."
        )
        return self.key

    async def start(self, start: Start) -> None:
        if start.url != self.url:  # once for each part
            self.url, approvals = start.url, ", ".join(start.approvals)
            self._say(f"Start it at {start.url} with the data {start.data} and the approvals {approvals}.")

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    async def stop(self) -> None:
        pass
