"""A game: one federation of four members, from its roster to a head, whatever happens to the coordinator's processes."""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from assurance.kill.harness import Fleet
from assurance.kill.pairing import Pairs
from tests.support.party import Party
from tests.support.replicas import WHO, Patient
from tests.support.serving import Clock, Server
from veilsum.protocol.identity import SigningKey

WITHIN_S = 300.0
"""Time limit of a game, kills included."""


class Unhurried(Server):
    """A server of coordinators whose clock isn't controlled, and whose objects are in other processes."""

    async def pass_time(self, view: Mapping[str, Any]) -> None:
        waiting = {"after": view["version"], "wait_s": 1.0}
        await self.client.get(f"/v1/rounds/{view['round']}", params=waiting)

    def signing(self, who: str = "", key: SigningKey | None = None) -> httpx.AsyncClient:
        del key  # each request is signed when it is sent
        transport = self.client._transport
        return httpx.AsyncClient(transport=transport, base_url=self.client.base_url, headers={WHO: who})


@dataclass
class Game:
    """Play a federation to its end.

    Attributes:
        number: names the federation; the records are always the same.
        lost: acknowledged chunks that were missing after a kill.
        ends: endings of rounds with flipped bits in storage.
    """

    number: int
    fleet: Fleet
    members: Patient
    client: httpx.AsyncClient
    lost: set[str] = field(default_factory=set)
    ends: Counter[str] = field(default_factory=Counter)

    async def play(self) -> tuple[bytes, ...]:
        """Return the files that must be the same in every game.

        Raises:
            AssertionError: if the game doesn't end, or its sum lacks a member.
        """
        party = Pairs(
            tuple(f"m-{index}" for index in range(4)),
            dim=3,
            classes=2,
            seed=self.number,
            admin_seed=self.admin_seed,
        )
        server = Unhurried(Path(), None, self.client, Clock())
        await party.begin(server)
        return await self._summed(party, server, await self.opened(party, server))

    async def _summed(self, party: Party, server: Server, round_id: str) -> tuple[bytes, ...]:
        deaths = len(self.fleet.deaths_s)
        end = time.monotonic() + WITHIN_S
        view = await server.view(round_id)
        while not view["ended"]:
            assert time.monotonic() < end, view
            moved = await asyncio.gather(*(party.serve(server, round_id, member) for member in party.ids))
            if deaths < len(self.fleet.deaths_s):
                deaths = len(self.fleet.deaths_s)
                await self._look(server, round_id)
            wait = {} if any(moved) else {"after": view["version"], "wait_s": 1.0}
            view = (await self.client.get(f"/v1/rounds/{round_id}", params=wait)).json()
        assert view["state"] == "done", view
        assert set(view["survivors"]) == set(party.ids), view
        return await self.files(round_id)

    async def files(self, round_id: str) -> tuple[bytes, ...]:
        """Return the head and the sum of a finished round."""
        results = [
            await self.client.get(f"/v1/rounds/{round_id}/result/{name}") for name in ("weights", "sums")
        ]
        assert all(result.status_code == 200 for result in results), [each.text for each in results]
        return tuple(result.content for result in results)

    async def _look(self, server: Server, round_id: str) -> None:
        """Check that acknowledged chunks are still there; they aren't needed once the sum is known."""
        gone = await self.members.lost(self.client, round_id)
        if gone and (await server.view(round_id))["state"] == "collecting":
            self.lost.update(gone)

    @property
    def admin_seed(self) -> bytes:
        return hashlib.sha256(f"game {self.number}".encode()).digest()

    async def opened(self, party: Party, server: Server, **request: Any) -> str:
        """Return the id of a round that was opened now, or before a kill."""
        answer = await party.try_round(server, **request)
        if answer.status_code == 409:  # it was opened before, and the answer was lost
            found = (await self.client.get(f"/v1/federations/{party.federation}")).json()["rounds"]
            return str(found[-1])
        assert answer.status_code == 201, answer.text
        return str(answer.json()["round"])
