"""A federation with four mask helpers, of raw protocol phases, over the running app."""

import hashlib
import itertools
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from calibration import FFCStatistics, lattice_from, solve_ffc
from protocol import published, rest
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.client import Client, Spoken
from protocol.helpers.helper import Enrolled, HelperPhase, Standing, Summing, load_helper
from protocol.helpers.messages import (
    HelperCard,
    HelperLost,
    HelperOpening,
    HelperReceipt,
    HelperSums,
    parse,
)
from protocol.identity import SigningKey
from protocol.messages import Entry, Message, Roster, Terms
from protocol.record import verify_record
from protocol.simulator import SeededRandom
from service.helping.kept import Kept
from tests.service.serving import OCTETS, Server
from tests.service.signing import KEYS

Tamper = Callable[[str, Message], Message]
DIM, CLASSES = 3, 2
_SEEDS = itertools.count(1000)
"""A copy of a party draws other secrets than the one it was made from."""


async def _nothing(_label: str) -> None:
    pass


@dataclass
class HelperParty:
    """The admin, the clients and the helpers. Phases are values: a copy of the party is another history."""

    clients: int = 30
    helpers: tuple[str, ...] = ("h-0", "h-1", "h-2", "h-3")
    down: Collection[str] = ()
    """Clients who say nothing, helpers who answer nothing any more."""
    tamper: Tamper = lambda _sender, message: message
    on_ack: Callable[[str], Any] = _nothing
    phases: dict[str, HelperPhase] = field(default_factory=dict)
    spoken: dict[str, Spoken] = field(default_factory=dict)
    chunks: dict[str, list[bytes]] = field(default_factory=dict)
    extractor: bytes = b"e" * 32
    admin_seed: bytes = b"a" * 32

    def __post_init__(self) -> None:
        self.admin = SigningKey(self.admin_seed)
        self.ids = tuple(f"c-{index:02}" for index in range(self.clients))
        self.keys = {m: SigningKey(hashlib.sha256(m.encode()).digest()) for m in (*self.ids, *self.helpers)}
        KEYS.update(self.keys)
        self.random = SeededRandom(5)

    def copy(self) -> "HelperParty":
        other = replace(self, on_ack=_nothing)
        other.phases, other.spoken, other.chunks = dict(self.phases), dict(self.spoken), dict(self.chunks)
        other.roster, other.random = self.roster, SeededRandom(next(_SEEDS))
        return other

    @property
    def federation(self) -> str:
        return self.admin.public.hex()

    def make_roster(self, coordinator: bytes, version: int = 1, **changes: Any) -> Roster:
        values: dict[str, Any] = {
            "version_number": version,
            "federation": self.admin.public,
            "coordinator": coordinator,
            "members": tuple(Entry(member, self.keys[member].public) for member in sorted(self.keys)),
            "decryptors": (),
            "helpers": self.helpers,
            "extractors": (self.extractor,),
            "readers": (),
            "withhold": 0,
        }
        return Roster.make(self.admin, **{**values, **changes})

    # The operator's part

    async def found(self, server: Server, version: int = 1, **changes: Any) -> None:
        coordinator = bytes.fromhex((await server.client.get(rest.COORDINATOR)).json()["public_key"])
        self.roster = self.make_roster(coordinator, version, **changes)
        KEYS.update({entry.member: self.keys[entry.member] for entry in self.roster.members})
        path = f"/v1/federations/{self.federation}/roster"
        put = await server.client.put(path, content=self.roster.to_bytes(), headers=OCTETS)
        assert put.status_code in {200, 201}, put.text
        for helper in self.roster.helpers:
            self.phases.setdefault(helper, Standing.start(helper, self.admin.public, self.roster))

    @property
    def desk(self) -> str:
        return f"/v1/federations/{self.federation}/helpers"

    def request(self, **changes: Any) -> dict[str, Any]:
        """A round, as the operator asks for it."""
        return {
            "mode": "helpers",
            "dim": DIM,
            "classes": CLASSES,
            "extractor": self.extractor.hex(),
            "chunk_elements": 8,
            "records_cap": 100,
            **changes,
        }

    async def try_round(self, server: Server, **request: Any) -> Any:
        return await server.client.post(f"{self.desk}/rounds", json=self.request(**request))

    async def open_round(self, server: Server, **request: Any) -> str:
        answer = await self.try_round(server, **request)
        assert answer.status_code == 201, answer.text
        await self.on_ack("round")
        return str(answer.json()["round"])

    async def begin(self, server: Server, **request: Any) -> str:
        """Federation, cards and opening."""
        await self.found(server)
        await self.enrol(server)
        return await self.open_round(server, **request)

    # The helpers' part

    async def enrol(self, server: Server) -> None:
        """Every helper that is up hears of ends that it missed, and sends the next card."""
        for helper in self.helpers:
            if helper not in self.down:
                await self.catch_up(server, helper)
                phase = self.phases[helper]
                if isinstance(phase, Standing):
                    phase, _ = phase.enrol(
                        self.keys[helper], expires_s=int(time.time()) + 10**6, random_bytes=self.random
                    )
                    self.phases[helper] = phase
                assert isinstance(phase, Enrolled)
                put = await self.send_card(server, phase.card)
                assert put.status_code == 200, put.text
                await self.on_ack(f"card of {helper}")

    async def send_card(self, server: Server, card: HelperCard) -> Any:
        path = f"{self.desk}/{card.member}/card"
        return await server.client.put(path, content=card.to_bytes(), headers=OCTETS)

    async def catch_up(self, server: Server, helper: str) -> None:
        while True:
            phase = self.phases[helper]
            standing: Any = getattr(phase, "standing", phase)
            answer = await server.client.get(f"{self.desk}/closings/{len(standing.history)}")
            if answer.status_code == 404:
                return
            self.phases[helper], _ = phase.receive(parse(answer.content), self.keys[helper], time.time())

    async def serve(self, server: Server, round_id: str, helper: str) -> bool:
        """Let one helper answer what it is asked; whether anything came of it."""
        if helper in self.down:
            return False
        answer = await server.client.get(f"/v1/rounds/{round_id}/requests/{helper}")
        if answer.status_code == 204:
            return False
        message, before = parse(answer.content), self.phases[helper]
        phase = load_helper(before.to_bytes())
        if isinstance(phase, Enrolled) and not isinstance(message, HelperOpening):
            opening = (await server.client.get(f"/v1/rounds/{round_id}/opening")).content
            phase, _ = phase.receive(parse(opening), self.keys[helper], time.time())
        if not isinstance(phase, Summing):
            phase, replies = phase.receive(message, self.keys[helper], time.time())
            self.phases[helper] = phase
            for reply in replies:
                await self._answer(server, round_id, helper, reply)
        if isinstance(phase, Summing):
            phase = await self._sums(server, round_id, helper, phase)
        self.phases[helper] = phase
        return phase != before

    async def _answer(self, server: Server, round_id: str, helper: str, reply: Message) -> None:
        sent = self.tamper(helper, reply)
        if isinstance(sent, HelperSums):
            return
        posted = await server.client.post(
            f"/v1/rounds/{round_id}/answers", content=sent.to_bytes(), headers=OCTETS
        )
        assert posted.status_code == 200, posted.text
        await self.on_ack(f"{type(reply).__name__} of {helper}")

    async def _sums(self, server: Server, round_id: str, helper: str, phase: Summing) -> HelperPhase:
        adding = phase.adding()
        seeds = phase.attempt.seeds_of(helper)
        chunks = {(seeds.index(c.seed), c.index): bytes(c.packed) for c in adding.chunks()}
        sums = self.tamper(helper, adding.finish(self.keys[helper]))
        assert isinstance(sums, HelperSums)
        where, count = f"/v1/rounds/{round_id}/uploads/{helper}", phase.attempt.chunks
        put = await server.client.put(where, content=sums.to_bytes(), headers=OCTETS)
        assert put.status_code == 200, put.text
        await self.on_ack(f"sums of {helper}")
        for flat in put.json()["missing"]:
            data = chunks[divmod(flat, count)]
            if hashlib.sha256(data).digest() != sums.digests[flat // count][flat % count]:
                data = bytes(len(data))  # what a false helper signed
            sent = await server.client.put(f"{where}/chunks/{flat}", content=data, headers=OCTETS)
            if (await server.view(round_id))["state"] != "summing":
                break
            assert sent.status_code == 200, sent.text
            await self.on_ack(f"sum chunk of {helper}")
        following, _ = phase.summed(adding.finish(self.keys[helper]))
        return following

    # The clients' part

    def vector(self, client: str, terms: Terms) -> npt.NDArray[np.int64]:
        return self.statistics(client).vector(lattice_from(terms.lattice, terms.lattice_bits))

    def statistics(self, client: str) -> FFCStatistics:
        rng = np.random.default_rng(self.ids.index(client) + 1)
        statistics = FFCStatistics(DIM, CLASSES, bias=False, normalise=True)
        statistics.update(rng.normal(size=(20, DIM)), rng.integers(0, CLASSES, 20))
        return statistics

    def seal(self, client: str, attempt: HelperAttempt) -> Spoken:
        known = self.spoken.get(client)
        state = known.client if known else Client.start(client, self.admin.public, self.roster)
        if known is None or known.upload.header.context != attempt.context:
            sealing, terms = state.seal(attempt, time.time(), self.random), attempt.opening.terms
            vector, step = self.vector(client, terms), terms.chunk_elements
            self.chunks[client] = [
                bytes(sealing.chunk(vector[i * step : (i + 1) * step])) for i in range(attempt.chunks)
            ]
            lineage = hashlib.sha256(client.encode()).digest()[:8]
            upload = sealing.finish(self.keys[client], lineage=lineage, records_tag=bytes(8), records=20)
            self.spoken[client] = state.spoken(attempt, upload)
        return self.spoken[client]

    async def speak(self, server: Server, round_id: str, client: str) -> None:
        """Take the opening, seal, announce and send every chunk."""
        opening = await server.client.get(f"/v1/rounds/{round_id}/opening")
        attempt = HelperAttempt(self.roster, HelperOpening.from_bytes(opening.content))
        upload = self.seal(client, attempt).upload
        where = f"/v1/rounds/{round_id}/uploads/{client}"
        put = await server.client.put(where, content=upload.to_bytes(), headers=OCTETS)
        assert put.status_code == 200, put.text
        await self.on_ack(f"announcement of {client}")
        for index in put.json()["missing"]:
            data = self.chunks[client][index]
            sent = await server.client.put(f"{where}/chunks/{index}", content=data, headers=OCTETS)
            assert sent.status_code == 200, sent.text
            await self.on_ack(f"chunk {index} of {client}")

    # A whole round

    async def collect(self, server: Server, round_id: str) -> None:
        """Every helper takes the opening, every client speaks; then the window is over."""
        for helper in self.helpers:
            await self.serve(server, round_id, helper)
        for client in self.ids:
            view = await server.view(round_id)
            if client not in self.down and client not in view["uploaded"] and view["state"] == "collecting":
                await self.speak(server, round_id, client)
        view = await server.view(round_id)
        if view["state"] == "collecting":
            await server.pass_time(view)

    async def play(self, server: Server, round_id: str, *until: str) -> dict[str, Any]:
        """Go on from wherever it stands, to one of these states or the end, or to where it waits for good."""
        if (await server.view(round_id))["state"] == "collecting":
            await self.collect(server, round_id)
        while True:
            moved = False
            for helper in self.helpers:
                view = await server.view(round_id)
                if view["ended"] or view["state"] in {*until, "recovered"}:
                    return await server.until(round_id, *until)
                moved = await self.serve(server, round_id, helper) or moved
            if not moved:
                view = await server.view(round_id)
                if view["ended"]:
                    return view
                if view["deadline_s"] is None:
                    return view
                await server.pass_time(view)

    async def hear(self, server: Server, round_id: str) -> None:
        """Every helper that is up takes how the round has ended."""
        for helper in self.helpers:
            if helper not in self.down:
                await self.serve(server, round_id, helper)

    async def lost(self, server: Server, round_id: str) -> Any:
        """The admin signs over what the coordinator says may have been signed."""
        unsigned = HelperLost.from_bytes((await server.client.get(f"/v1/rounds/{round_id}/reports")).content)
        signed = HelperLost.make(
            self.admin,
            context=unsigned.context,
            family=unsigned.family,
            floor=unsigned.floor,
            sets=unsigned.sets,
        )
        return await server.client.post(
            f"/v1/rounds/{round_id}/lost", content=signed.to_bytes(), headers=OCTETS
        )

    async def check_result(self, server: Server, round_id: str) -> published.ResultRecord:
        """The published sum is the plain one, and the weights are the solver's; the record is signed."""
        got = await server.client.get(f"/v1/rounds/{round_id}/result")
        assert got.status_code == 200, got.text
        record = published.ResultRecord.model_validate(got.json())
        verify_record(record, self.roster.coordinator)
        assert record.mode == "helpers"
        opening = await server.client.get(f"/v1/rounds/{round_id}/opening")
        terms = HelperOpening.from_bytes(opening.content).terms
        survivors = [s.member for s in record.survivors]
        sums = (await server.client.get(f"/v1/rounds/{round_id}/result/sums")).content
        plain = np.sum([self.vector(client, terms) for client in survivors], axis=0)
        np.testing.assert_array_equal(load(sums)["sum"], plain)
        weights = load((await server.client.get(f"/v1/rounds/{round_id}/result/weights")).content)
        pooled = self.statistics(survivors[0])
        for client in survivors[1:]:
            pooled.merge(self.statistics(client))
        np.testing.assert_allclose(
            weights["weights"], solve_ffc(pooled, record.solution.ridge).weights, rtol=0, atol=1e-6
        )
        assert record.records == pooled.records
        return record


def phase_of(server: Server, round_id: str) -> Any:
    """The coordinator's phase inside what it keeps."""
    kept = server.coordinator.rounds[round_id].phase
    assert isinstance(kept, Kept)
    return kept.phase


def complaining(about: Collection[str], key: SigningKey) -> Callable[[HelperReceipt], HelperReceipt]:
    """A false helper's receipt: it says that these clients' boxes failed."""

    def lie(receipt: HelperReceipt) -> HelperReceipt:
        return HelperReceipt.make(
            key,
            context=receipt.context,
            member=receipt.member,
            dealers=tuple(client for client in receipt.dealers if client not in about),
            complaints=tuple(sorted({*receipt.complaints, *about})),
        )

    return lie
