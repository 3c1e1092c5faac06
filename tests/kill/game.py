"""One federation of four, from its roster to a head, through whatever happens to the coordinator's processes."""

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from protocol import rest
from tests.kill.harness import Fleet, Members
from tests.service.driver import Party
from tests.service.serving import Clock, Server

WITHIN_S = 300.0
"""A game's longest time, kills and all."""


@dataclass
class Game:
    """Plays it to its end.

    Attributes:
        number: another federation each time; the same records.
        lost: acknowledged chunks that were gone after a kill.
    """

    number: int
    fleet: Fleet
    members: Members
    client: httpx.AsyncClient
    lost: set[str] = field(default_factory=set)

    async def play(self) -> tuple[bytes, bytes]:
        """The files of the head and the sum.

        Raises:
            AssertionError: it does not come to an end, or not to a sum of everybody.
        """
        party = Party(
            tuple(f"m-{index}" for index in range(4)),
            dim=3,
            classes=2,
            seed=self.number,
            admin_seed=hashlib.sha256(f"game {self.number}".encode()).digest(),
        )
        server = Server(Path(), None, self.client, Clock())
        await self._found(party)
        await party.open_cohort(server)
        await party.enrol(server)
        round_id = await self._opened(party, server)
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
        results = [
            await self.client.get(f"/v1/rounds/{round_id}/result/{name}") for name in ("weights", "sums")
        ]
        assert all(result.status_code == 200 for result in results)
        return results[0].content, results[1].content

    async def _look(self, server: Server, round_id: str) -> None:
        """Whether what was acknowledged is still there; nobody is asked once the sum is known."""
        gone = await self.members.lost(self.client, round_id)
        if gone and (await server.view(round_id))["state"] == "collecting":
            self.lost.update(gone)

    async def _found(self, party: Party) -> None:
        answer = (await self.client.get(rest.COORDINATOR)).json()
        party.roster = party.make_roster(bytes.fromhex(answer["public_key"]))
        put = await self.client.put(
            f"/v1/federations/{party.federation}/roster",
            content=party.roster.to_bytes(),
            headers={"content-type": rest.OCTETS},
        )
        assert put.status_code in {200, 201}, put.text

    async def _opened(self, party: Party, server: Server) -> str:
        answer = await party.try_round(server, chunk_elements=8)
        if answer.status_code == 409:  # opened before, and the answer got lost
            found = (await self.client.get(f"/v1/federations/{party.federation}")).json()["rounds"]
            return str(found[-1])
        assert answer.status_code == 201, answer.text
        return str(answer.json()["round"])


@dataclass(frozen=True)
class Head:
    """What must come out, whoever dies; short, for a report."""

    weights: str
    sums: str

    @classmethod
    def of(cls, files: tuple[bytes, bytes]) -> "Head":
        return cls(*(hashlib.sha256(each).hexdigest() for each in files))
