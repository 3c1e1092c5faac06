"""A member's process that dies by SIGKILL just before or just after a request of its own leaves."""

import asyncio
import multiprocessing
import os
import re
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from client_sdk import AsyncMember, Identity, Policy, Records
from client_sdk.effects import Request, Response, Unreached
from client_sdk.transport import AsyncDriver

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["assurance.kill.members"])
SENT = {
    "card": re.compile(r"/v1/cohorts/\w+/cards/"),
    "announcement": re.compile(r"/v1/rounds/\w+/uploads/[^/]+$"),
    "chunk": re.compile(r"/v1/rounds/\w+/uploads/[^/]+/chunks/"),
    "answer": re.compile(r"/v1/rounds/\w+/answers$"),
}
"""What a member sends, by the path."""


@dataclass(frozen=True)
class Death:
    """When a member dies.

    Attributes:
        before: before the request leaves, or once it is answered.
        sent: a key of `SENT`; "" for never.
    """

    sent: str = ""
    before: bool = True


class Mortal(AsyncDriver):
    """A way to the coordinator on which a member dies."""

    def __init__(self, url: str, death: Death) -> None:
        super().__init__(url)
        self._death = death

    async def _send(self, request: Request) -> Response | Unreached:
        dies = (
            request.method != "GET"
            and self._death.sent != ""
            and SENT[self._death.sent].match(request.path) is not None
        )
        if dies and self._death.before:
            os.kill(os.getpid(), signal.SIGKILL)
        # It dies once this is answered, and not after a long poll.
        answer = await super()._send(replace(request, params={}) if dies else request)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


def records_of(seed: int, rows: int = 60) -> Records:
    """Rows of four features and three classes."""
    rng = np.random.default_rng(seed)
    return Records(rng.normal(size=(rows, 4)), rng.integers(3, size=rows))


def take_part(url: str, folder: Path, policy: Policy, cohort: str, round_id: str, death: Death) -> None:
    """Enrol, or contribute where a round is given, and die on the way."""

    async def part() -> None:
        identity = Identity.load(folder)
        async with AsyncMember(url, identity, policy, driver=Mortal(url, death)) as member:
            if round_id:
                await member.contribute(round_id)
            else:
                await member.enrol(cohort, records_of(0))

    asyncio.run(part())


async def killed(url: str, folder: Path, policy: Policy, cohort: str, round_id: str, death: Death) -> bool:
    """Whether a process that takes part was killed."""
    arguments = (url, folder, policy, cohort, round_id, death)
    process = CONTEXT.Process(target=take_part, args=arguments, daemon=True)
    process.start()
    await asyncio.to_thread(process.join, 120.0)
    return process.exitcode == -signal.SIGKILL
