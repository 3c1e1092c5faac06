"""Members of the SDK against the app: what a round asks, they make of their own records."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from safetensors.numpy import load

from calibration import lattice_from
from calibration.collected import Collected
from calibration.layout import Layout
from calibration.privacy import NoiseTerms
from calibration.questions import Answer, Summed, question
from client_sdk import AsyncMember, Identity, Policy, Records, Result
from client_sdk.transport import AsyncDriver
from protocol import rest
from protocol.identity import SigningKey
from protocol.messages import Entry, Roster
from tests.service.declared import Checking
from tests.service.serving import OCTETS, Server

DIM, CLASSES = 6, 3
EXTRACTOR = b"e" * 32


def records_of(member: int, *, held_out: bool = False) -> Records:
    """60 records whose class shows in one of their features; others where they are kept back."""
    rng = np.random.default_rng([member, held_out])
    features, labels = np.abs(rng.normal(size=(60, DIM))), rng.integers(0, CLASSES, 60)
    features[np.arange(60), labels] += 2
    return Records(features, labels, normalise=True)


@dataclass
class Consortium:
    """Four members with folders of their own, and an operator."""

    folder: Path
    server: Server
    policy: dict[str, Any] = field(default_factory=dict)
    withhold: int = 0
    readers: tuple[str, ...] = ()
    records: Callable[..., Records] = records_of
    records_cap: int = 100
    cohort: str = ""

    async def begin(self) -> "Consortium":
        self.admin = SigningKey(b"a" * 32)
        self.ids = tuple(f"m-{index}" for index in range(4))
        entries = tuple(Entry(m, Identity.create(self.folder / m, m).public) for m in self.ids)
        key = bytes.fromhex((await self.server.client.get(rest.COORDINATOR)).json()["public_key"])
        where = f"/v1/federations/{self.admin.public.hex()}"
        self.roster = Roster.make(
            self.admin,
            version_number=1,
            federation=self.admin.public,
            coordinator=key,
            members=entries,
            decryptors=(),
            extractors=(EXTRACTOR,),
            readers=self.readers,
            withhold=self.withhold,
        )
        await self.publish(self.roster)
        opened = await self.server.client.post(f"{where}/cohorts", json={"records_cap": self.records_cap})
        self.cohort = opened.json()["cohort"]
        await asyncio.gather(*(self.enrol(m) for m in self.ids))
        return self

    async def publish(self, roster: Roster) -> None:
        where = f"/v1/federations/{self.admin.public.hex()}/roster"
        put = await self.server.client.put(where, content=roster.to_bytes(), headers=OCTETS)
        assert put.status_code == 201, put.text

    def member(self, member: str) -> AsyncMember:
        driver = AsyncDriver("http://coordinator", transport=httpx.ASGITransport(Checking(self.server.app)))
        policy = Policy(**{"admin_key": self.admin.public, **self.policy})
        return AsyncMember(
            "http://coordinator", Identity.load(self.folder / member), None, policy, driver=driver
        )

    async def enrol(self, member: str) -> None:
        async with self.member(member) as each:
            await each.enrol(self.cohort)

    async def try_round(self, **request: Any) -> httpx.Response:
        values = {"dim": DIM, "classes": CLASSES, "extractor": EXTRACTOR.hex(), "chunk_elements": 64}
        if request.get("noise"):  # so few records that nobody would expect a head
            request["noise"] = {"insist": True, **request["noise"]}
        return await self.server.client.post(f"/v1/cohorts/{self.cohort}/rounds", json={**values, **request})

    async def open_round(self, **request: Any) -> str:
        answer = await self.try_round(**request)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["round"])

    async def contribute(self, round_id: str, *, held_out: bool = False) -> list[Result]:
        """Everybody takes part; the verified results."""
        lineage = "kept back" if held_out else "main"

        async def part(index: int, member: str) -> Result:
            async with self.member(member) as each:
                own = self.records(index, held_out=held_out)
                return await each.contribute(round_id, own, lineage=lineage)

        return await asyncio.gather(*(part(index, m) for index, m in enumerate(self.ids)))

    def kept(self, result: Result, folder: Path) -> Result:
        """The same as it comes back from a folder, verified."""
        result.save(folder)
        loaded = Result.load(folder)
        loaded.verify(self.admin.public)
        return loaded

    async def sums(self, round_id: str) -> Any:
        return load((await self.server.client.get(f"/v1/rounds/{round_id}/result/sums")).content)["sum"]

    def collected(self, result: Result, records: Records) -> Collected:
        """What a member makes of its records for a round that rests on nothing."""
        attempt = result.evidence.attempt
        terms = attempt.opening.terms
        asked = question(terms.statistic, Layout.from_bytes(terms.layout), attempt.context)
        noise = NoiseTerms.from_bytes(terms.noise) if terms.noise else None
        own = Collected(asked, lattice_from(terms.lattice, terms.lattice_bits), normalise=True, noise=noise)
        own.update(records.features, records.labels)
        return own

    def plainly(self, result: Result, *, held_out: bool = False) -> tuple[Any, Answer]:
        """The same without masks: what the members' vectors add up to, and what follows from it."""
        attempt = result.evidence.attempt
        terms = attempt.opening.terms
        material = load(result.material) if result.material is not None else {}
        asked = question(terms.statistic, Layout.from_bytes(terms.layout), attempt.context, material)
        lattice, total = lattice_from(terms.lattice, terms.lattice_bits), np.zeros(terms.elements, np.int64)
        for index in range(len(self.ids)):
            own = Collected(asked, lattice, normalise=True)
            records = records_of(index, held_out=held_out)
            own.update(records.features, records.labels)
            total += own.vector(lattice)
        summed = Summed(lattice, len(self.ids), terms.ridges, promised=terms.ring_bits >= 48)
        gathering = asked.gathering(lattice)
        gathering.take(0, total)
        return total, asked.answer(asked.gathered(gathering, replace(summed)), summed)
