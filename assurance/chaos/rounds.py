"""Rounds of real members through the proxy. The sum is compared with the plain sum.

a round ──▶ enrol and pair, perhaps with a member killed and restarted ──▶ contribute, with a member killed and restarted or gone for good ──▶ the coordinator's sum
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import load

from assurance.chaos.proxy import Proxy
from benchmarks.founding import found
from client_sdk import AsyncMember, Identity, Records, Result
from client_sdk.errors import NoResult, PeerFault
from client_sdk.operator import Operator
from client_sdk.transport import AsyncDriver
from tests.support.serving import TOKEN
from tests.support.simulator import simulated_question
from veilsum.study.vectors import compute_vector

DIM, CLASSES, ROWS = 4, 3, 50
PAUSE_S = 0.1
"""Longest pause before a member retries. With the default, rounds would take minutes."""
WITHIN_S = 300.0
SHORT = {"enrol": 3600, "upload": 10, "answer": 30}
"""Windows for a round with a member that stays away. The operator extends a phase that also waits for others."""
LOOK_S, EXTEND_S = 1.0, 10.0


@dataclass(frozen=True)
class Played:
    """How a round went.

    Attributes:
        summed: members in the sum.
        halted: the member that was killed and restarted while it enrolled; "" for none.
        restarted: the member that was killed and restarted; "" for none.
        gone: the member that vanished for good; "" for none.
    """

    summed: tuple[str, ...]
    halted: str
    restarted: str
    gone: str


def records_of(index: int) -> Records:
    """Make a member's records."""
    rng = np.random.default_rng(index)
    return Records(rng.normal(size=(ROWS, DIM)), rng.integers(CLASSES, size=ROWS))


class Federation:
    """Members on disk, which go through the proxy, and an operator that asks the coordinator directly.

    Args:
        url: the coordinator's address.
        proxy: the proxy for members.
        folder: for members' identities.
        seed: decides which member is killed, and when.
        members: number of members.
    """

    def __init__(self, url: str, proxy: Proxy, folder: Path, seed: int, members: int) -> None:
        self.proxy, self.folder, self.chance = proxy, folder, Random(seed)
        self.ids = tuple(f"m-{index}" for index in range(members))
        self.operator = Operator(url, TOKEN)

    async def round(self) -> Played:
        """Play a round, within `WITHIN_S`.

        Raises:
            AssertionError: if the sum isn't the plain one, members disagree, or a member that stayed is missing from the sum.
            TimeoutError: if the round doesn't end.
        """
        async with asyncio.timeout(WITHIN_S):
            gone = self.chance.choice(self.ids) if self.chance.random() < 0.25 else ""
            restarted = self.chance.choice(self.ids) if self.chance.random() < 0.5 else ""
            cohort = await asyncio.to_thread(self._cohort, {"windows": SHORT} if gone else {})
            halted = self.chance.choice(self.ids) if self.chance.random() < 0.4 else ""
            await asyncio.gather(*(self._join(member, cohort, halted) for member in self.ids))
            opened = await asyncio.to_thread(self.operator.open_round, cohort)
            restarted = "" if restarted == gone else restarted
            extending = asyncio.create_task(self._extend(opened.round, gone))
            try:
                results = await asyncio.gather(
                    *(
                        self._killed(member, opened.round, again=member == restarted)
                        if member in {gone, restarted}
                        else self._contribute(member, opened.round)
                        for member in self.ids
                    )
                )
            finally:
                extending.cancel()
            return await asyncio.to_thread(self._check, opened.round, results, halted, restarted, gone)

    def _cohort(self, changes: dict[str, Any]) -> str:
        question = {
            **simulated_question(len(self.ids)),
            "dim": DIM,
            "classes": [f"class-{label}" for label in range(CLASSES)],
            "records": {"least": ROWS, "most": ROWS, "least_per_class": 1, "rows_per_id": 1},
            **changes,
        }
        made = found(self.operator, self.folder, self.ids, question)
        self.policy = made.policy
        return made.open_cohort(self.operator)

    def _member(self, member: str) -> AsyncMember:
        url = self.proxy.url
        driver = AsyncDriver(url, sleep=lambda seconds: asyncio.sleep(min(seconds, PAUSE_S)))
        identity = Identity.load(self.folder / member)
        return AsyncMember(url, identity, self.policy, lanes=2, driver=driver)

    async def _enrol(self, member: str, cohort: str) -> None:
        async with self._member(member) as live:
            await live.enrol(cohort, records_of(self.ids.index(member)))

    async def _join(self, member: str, cohort: str, halted: str) -> None:
        """Enrol a member and have it pair; kill it at any await, and start it again, if it is to be halted."""
        if member == halted:
            running = asyncio.create_task(self._enrol(member, cohort))
            await asyncio.wait([running], timeout=self.chance.uniform(0.0, 2.0))
            running.cancel()
            await asyncio.wait([running])
        await self._enrol(member, cohort)

    async def _extend(self, round_id: str, gone: str) -> None:
        """Extend phases until the round's end, so that a busy machine drops no present member."""
        while not (view := await asyncio.to_thread(self.operator.round, round_id)).ended:
            near = view.deadline_s is not None and view.deadline_s < time.time() + EXTEND_S / 2
            if near and set(view.waiting_for) - {gone}:
                with suppress(PeerFault):  # the phase has ended meanwhile
                    await asyncio.to_thread(self.operator.extend, round_id, time.time() + EXTEND_S)
            await asyncio.sleep(LOOK_S)

    async def _contribute(self, member: str, round_id: str) -> Result | None:
        async with self._member(member) as live:
            try:
                return await live.contribute(round_id)
            except NoResult as end:
                if end.state != "missed":
                    raise
                return None

    async def _killed(self, member: str, round_id: str, *, again: bool) -> Result | None:
        """Kill a member's contribution by cancelling it at any await. The next one has only the folder to continue from."""
        running = asyncio.create_task(self._contribute(member, round_id))
        await asyncio.wait([running], timeout=self.chance.uniform(0.0, 2.0))
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            return running.result()
        return await self._contribute(member, round_id) if again else None

    def _check(
        self, round_id: str, results: list[Result | None], halted: str, restarted: str, gone: str
    ) -> Played:
        view = self.operator.round(round_id)
        assert view.state == "done", (view.state, view.fault)
        known = [result for result in results if result is not None]
        [summed] = {result.summed for result in known}
        own = [records_of(self.ids.index(member)) for member in summed]
        spec = known[0].spec
        plain = np.sum([compute_vector(spec, each.features, each.labels) for each in own], axis=0)
        np.testing.assert_array_equal(load(self.operator.sums(round_id))["sum"], plain)
        assert {*summed, gone} >= set(self.ids), f"of {self.ids} only {summed} are in the sum"
        return Played(summed, halted, restarted, gone)

    def close(self) -> None:
        self.operator.close()
