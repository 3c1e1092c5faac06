"""A party under an admin who withholds rare classes: it says which classes it holds, counts them, and leaves the rare ones out."""

import time
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from calibration import FFCStatistics
from protocol.member import Closed
from protocol.messages import Disclosure, Evictions, Family, Roster, Terms
from tests.service.driver import Party
from tests.service.serving import Server

HOLD = ((0, 1, 2, 3), (0, 1, 2), (0, 1, 3), (0, 1), (0, 1), (0, 1, 2))
"""The classes that each of six members holds: 6, 6, 3 and 2 members hold them, and nobody the fifth."""
COUNTS = [6, 6, 3, 2, 0]


class Counting(Party):
    """Six members (a = 1, g = 4, so m = 5 with a margin of 1) with classes of their own."""

    def make_roster(self, coordinator: bytes, version: int = 1, **changes: Any) -> Roster:
        return super().make_roster(coordinator, version, **{"withhold": 1, **changes})

    async def open_indicator(self, server: Server, **request: Any) -> str:
        answer = await self.try_indicator(server, **request)
        assert answer.status_code == 201, answer.text
        await self.on_ack("round")
        return str(answer.json()["round"])

    async def try_indicator(self, server: Server, **request: Any) -> httpx.Response:
        return await self.try_round(server, **{"statistic": "indicator", "dim": None, **request})

    def statistics(self, member: str, terms: Terms) -> FFCStatistics:
        place = self.ids.index(member)
        rng = np.random.default_rng(place + 1)
        features = rng.normal(size=(40, self.dim))
        labels = rng.choice(HOLD[place], 40)
        labels[: len(HOLD[place])] = HOLD[place]
        statistics = FFCStatistics(
            self.dim,
            self.classes,
            bias=terms.statistic == "ffc-bias",
            normalise=True,
            withheld=terms.withheld,
        )
        statistics.update(features, labels)
        return statistics

    def vector(self, member: str, terms: Terms) -> npt.NDArray[np.int64]:
        if terms.family == Family.INDICATOR:
            return self.statistics(member, terms).indicator().vector()
        return super().vector(member, terms)

    async def shown(
        self, server: Server, round_id: str, member: str, by: str | None = None
    ) -> httpx.Response:
        """The disclosure, as `member` asks for it; signed by somebody else where `by` says so."""
        client = server.signing(by or member, self.keys[by or member])
        return await client.get(f"/v1/rounds/{round_id}/disclosure/{member}")

    async def recount(self, server: Server, round_id: str) -> None:
        """Every member that heard of the end counts for itself."""
        evictions = await server.client.get(f"/v1/rounds/{round_id}/result/evictions")
        proofs = Evictions.from_bytes(evictions.content)
        for member in self.ids:
            phase = self.phases[member]
            if not isinstance(phase, Closed):
                continue
            answer = await self.shown(server, round_id, member)
            assert answer.status_code == 200, answer.text
            for message in ((proofs,) if proofs.proofs else ()) + (Disclosure.from_bytes(answer.content),):
                phase, _ = phase.receive(message, self.keys[member], time.time())
            self.phases[member] = phase

    async def count(self, server: Server, **request: Any) -> str:
        """A whole indicator round, counted by everybody."""
        round_id = await self.open_indicator(server, **request)
        view = await self.play(server, round_id)
        assert view["state"] == "done", view
        await self.recount(server, round_id)
        return round_id

    def counts(self, member: str) -> list[int] | None:
        phase = self.phases[member]
        assert isinstance(phase, Closed)
        return list(phase.history.counted[0].holders) if phase.history.counted else None

    def copy(self) -> "Counting":
        other = super().copy()
        assert isinstance(other, Counting)
        return other
