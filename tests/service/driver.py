"""A federation of raw protocol phases that may stop after any request."""

import asyncio
import copy
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from calibration import FFCStatistics, SumsLattice, solve_ffc
from protocol import published, rest
from protocol.boxes import seal, unseal
from protocol.codec import SecretBytes
from protocol.identity import SigningKey
from protocol.member import Closed, Enrolled, History, MemberPhase, Opened, Ready, Uploaded
from protocol.member.attempting import Attempting
from protocol.merkle import Tree
from protocol.messages import (
    Cards,
    Entry,
    Erasure,
    ErasureRequest,
    LedgerException,
    Lost,
    Message,
    Opening,
    Roster,
    Terms,
    UploadHeader,
    parse,
)
from protocol.record import verify_record
from protocol.sealing import commit_row, commitment_tree
from protocol.simulator import After, SeededRandom, untampered
from protocol.tags import PROTOCOL_VERSION
from tests.service.serving import OCTETS, Server
from tests.service.signing import KEYS

SIX = tuple(f"m-{index}" for index in range(6))
Acknowledged = Callable[[str], Awaitable[None]]


async def _nothing(_label: str) -> None:
    pass


@dataclass
class Party:
    """The admin and the members. Their phases are values, so that a copy of the party is another history."""

    ids: tuple[str, ...]
    dim: int = 4
    classes: int = 3
    seed: int = 0
    decryptors: tuple[str, ...] = ()
    extractor: bytes = b"e" * 32
    phases: dict[str, MemberPhase] = field(default_factory=dict)
    chunks: dict[str, list[bytes]] = field(default_factory=dict)
    spoil: dict[str, Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]] = field(default_factory=dict)
    """What a member does to its vector before it masks it."""
    drop: dict[str, After] = field(default_factory=dict)
    tamper: Callable[[str, Message], Message] = untampered
    """Changes what a member answers."""
    deal: dict[str, Callable[[str, bytes], bytes]] = field(default_factory=dict)
    """What a false dealer makes of a decryptor's shares."""
    on_ack: Acknowledged = _nothing
    cohort: str = ""
    admin_seed: bytes = b"a" * 32
    lineages: dict[str, bytes] = field(default_factory=dict)
    """lin_u by member; eight zero bytes otherwise."""
    roster: Roster = field(init=False)

    def __post_init__(self) -> None:
        self.admin = SigningKey(self.admin_seed)
        self.keys = {m: SigningKey(hashlib.sha256(m.encode()).digest()) for m in self.ids}
        KEYS.update(self.keys)
        self.random = SeededRandom(self.seed)

    def copy(self) -> "Party":
        other = copy.copy(self)
        other.phases, other.chunks, other.drop = dict(self.phases), dict(self.chunks), dict(self.drop)
        other.on_ack = _nothing
        return other

    @property
    def federation(self) -> str:
        return self.admin.public.hex()

    def make_roster(self, coordinator: bytes, version: int = 1, **changes: Any) -> Roster:
        values: dict[str, Any] = {
            "version_number": version,
            "federation": self.admin.public,
            "coordinator": coordinator,
            "members": tuple(Entry(member, self.keys[member].public) for member in self.ids),
            "decryptors": self.decryptors,
            "extractors": (self.extractor,),
            "readers": (),
            "withhold": 0,
        }
        return Roster.make(self.admin, **{**values, **changes})

    def exception(self, sequence: int, members: tuple[str, ...], **changes: Any) -> LedgerException:
        """The admin's leave to expose these members' groups in one round."""
        values: dict[str, Any] = {
            "federation": self.admin.public,
            "cohort": bytes.fromhex(self.cohort),
            "sequence": sequence,
            "members": members,
            "reason": "a test",
        }
        return LedgerException.make(self.admin, **{**values, **changes})

    # The operator's part

    async def found(self, server: Server) -> None:
        """Create the federation."""
        answer = (await server.client.get(rest.COORDINATOR)).json()
        assert answer["protocol_version"] == PROTOCOL_VERSION
        self.roster = self.make_roster(bytes.fromhex(answer["public_key"]))
        put = await server.client.put(
            f"/v1/federations/{self.federation}/roster", content=self.roster.to_bytes(), headers=OCTETS
        )
        assert put.status_code in {200, 201}, put.text
        await self.on_ack("roster")

    async def open_cohort(self, server: Server, **request: Any) -> str:
        answer = await server.client.post(
            f"/v1/federations/{self.federation}/cohorts", json={"records_cap": 1000, **request}
        )
        assert answer.status_code == 201, answer.text
        self.cohort = answer.json()["cohort"]
        await self.on_ack("cohort")
        return self.cohort

    async def open_round(self, server: Server, **request: Any) -> str:
        answer = await self.try_round(server, **request)
        assert answer.status_code == 201, answer.text
        await self.on_ack("round")
        return str(answer.json()["round"])

    async def try_round(self, server: Server, **request: Any) -> httpx.Response:
        values = {
            "dim": self.dim,
            "classes": self.classes,
            "extractor": self.extractor.hex(),
            "chunk_elements": 8,
        }
        return await server.client.post(f"/v1/cohorts/{self.cohort}/rounds", json={**values, **request})

    # The members' part

    def card_of(self, member: str, expires_in_s: float = 10**7) -> Message:
        phase, (card,) = Enrolled.start(
            member,
            self.roster,
            bytes.fromhex(self.cohort),
            self.keys[member],
            expires_s=int(time.time() + expires_in_s),
            history=getattr(self.phases.get(member), "history", History()),
            random_bytes=self.random,
        )
        self.phases[member] = phase
        return card

    async def enrol(self, server: Server, members: tuple[str, ...] | None = None) -> None:
        """Send the cards that are still to come, and take the manifest."""
        for member in members or self.ids:
            if self._cohort_of(member) == self.cohort:
                continue
            answer = await server.client.put(
                f"/v1/cohorts/{self.cohort}/cards/{member}",
                content=self.card_of(member).to_bytes(),
                headers=OCTETS,
            )
            assert answer.status_code == 200, answer.text
            await self.on_ack(f"card of {member}")
        if members is None:
            await self.take_manifest(server)

    def _cohort_of(self, member: str) -> str:
        match self.phases.get(member):
            case Enrolled() as phase:
                return phase.card.cohort.hex()
            case Ready() as phase:
                return phase.manifest.cohort.hex()
            case Attempting() | Closed() as phase:
                return phase.opening.cohort.hex()
        return ""

    async def take_manifest(self, server: Server) -> None:
        for member in self.ids:
            if isinstance(self.phases.get(member), Enrolled):
                answer = await server.client.get(f"/v1/cohorts/{self.cohort}/manifest/{member}")
                if answer.status_code == 422:
                    continue  # formed without it
                cards = Cards.from_bytes(answer.content)
                self.phases[member], _ = self.phases[member].receive(cards, self.keys[member], time.time())

    async def begin(self, server: Server, **cohort: Any) -> None:
        """Federation, cohort and cards."""
        await self.found(server)
        await self.open_cohort(server, **cohort)
        await self.enrol(server)

    def statistics(self, member: str, terms: Terms) -> FFCStatistics:
        rng = np.random.default_rng(self.ids.index(member) + 1)
        bias = terms.statistic == "ffc-bias"
        statistics = FFCStatistics(self.dim, self.classes, bias=bias, normalise=True)
        statistics.update(rng.normal(size=(40, self.dim)), rng.integers(0, self.classes, 40))
        return statistics

    def vector(self, member: str, terms: Terms) -> npt.NDArray[np.int64]:
        return self.statistics(member, terms).vector(SumsLattice(terms.lattice_bits))

    def gone(self, member: str, after: After) -> bool:
        return self.drop.get(member, After.REVEAL) < after

    async def play(self, server: Server, round_id: str, *, within_s: float = 60.0) -> dict[str, Any]:
        """Serve every member in turn until the round ends or waits for the admin, and let everybody hear of its end."""
        end = time.monotonic() + within_s
        view = await server.view(round_id)
        while not view["ended"]:
            moved = [await self.serve(server, round_id, member) for member in view["members"]]
            if not any(moved):
                if view["state"] == "erasing":
                    return view
                assert time.monotonic() < end, view
                await server.pass_time(await server.view(round_id))
            view = await server.view(round_id)
        for member in view["members"]:
            await self.serve(server, round_id, member)
        return view

    async def lose(self, server: Server, round_id: str) -> dict[str, Any]:
        """The admin closes an erasing round, and everybody hears of it."""
        context = bytes.fromhex((await server.view(round_id))["context"])
        signed = Lost.make(self.admin, context=context)
        closed = await server.client.post(
            f"/v1/rounds/{round_id}/lost", content=signed.to_bytes(), headers=OCTETS
        )
        assert closed.status_code == 200, closed.text
        await self.on_ack("the admin's Lost")
        end = time.monotonic() + 60.0
        # Another replica hears of it a moment later.
        while (view := await self.play(server, round_id))["state"] == "erasing" and time.monotonic() < end:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.05)
        return view

    async def play_until(self, server: Server, round_id: str, state: str) -> None:
        """Serve members one by one until the round is in this state."""
        moved = True
        while True:
            if not moved:
                await server.pass_time(await server.view(round_id))
            moved = False
            for member in self.ids:
                if (await server.view(round_id))["state"] == state:
                    return
                moved = await self.serve(server, round_id, member) or moved

    async def serve(self, server: Server, round_id: str, member: str) -> bool:
        """Let one member answer what it is asked; whether anything came of it."""
        answer = await server.client.get(f"/v1/rounds/{round_id}/requests/{member}")
        assert answer.status_code in {200, 204}, answer.text
        if answer.status_code == 204:
            return False
        message = parse(answer.content)
        if isinstance(message, Opening):
            return await self._upload(server, round_id, member, message)
        ends = ("Certificate", "Evictions", "Erasure", "ErasureRequest", "Lost")
        needed = dict.fromkeys(ends, After.REVEAL) | {"Deliveries": After.RECEIPT}
        if self.gone(member, needed.get(type(message).__name__, After.VOTE)):
            return False
        before = self.phases[member]
        if isinstance(before, Ready) and not isinstance(message, ErasureRequest | Erasure | Lost):
            return False
        if isinstance(before, Ready) and not before.history.unsettled:
            if not isinstance(message, ErasureRequest):
                return False
            shown = await server.client.get(f"/v1/rounds/{round_id}/opening")
            before, _ = before.receive(Opening.from_bytes(shown.content), self.keys[member], server.clock())
        if isinstance(before, Closed) and before.opening.cohort.hex() != self.cohort:
            return False
        self.phases[member], replies = before.receive(message, self.keys[member], server.clock())
        for reply in replies:
            sent = await server.client.post(
                f"/v1/rounds/{round_id}/answers",
                content=self.tamper(member, reply).to_bytes(),
                headers=OCTETS,
            )
            assert sent.status_code == 200, sent.text
            await self.on_ack(f"{type(reply).__name__} of {member}")
        return bool(replies) or self.phases[member] is not before

    def seal(self, member: str, opening: Opening) -> None:
        """Take the opening, and mask."""
        if not isinstance(self.phases[member], Attempting):
            self.phases[member], _ = self.phases[member].receive(opening, self.keys[member], time.time())
        opened = self.phases[member]
        if isinstance(opened, Opened):
            terms = opening.terms
            vector = self.vector(member, terms)
            if member in self.spoil:
                vector = self.spoil[member](vector)
            sealing, step = opened.seal(self.random), terms.chunk_elements
            self.chunks[member] = [
                bytes(sealing.chunk(vector[i * step : (i + 1) * step])) for i in range(opened.attempt.chunks)
            ]
            upload, own = sealing.finish(
                self.keys[member],
                lineage=self.lineages.get(member, bytes(8)),
                records_tag=bytes(8),
                records=40,
            )

            self.phases[member], _ = opened.uploaded(upload, own)
            if member in self.deal:
                self._redeal(member, self.deal[member])

    def _redeal(self, member: str, edit: Callable[[str, bytes], bytes]) -> None:
        """A false dealer: `edit(decryptor, shares)` says what each is dealt, with commitments to that."""
        phase = self.phases[member]
        assert isinstance(phase, Uploaded)
        attempt, upload = phase.attempt, phase.uploads[0]
        pairs = {pair.peer: pair for pair in phase.ready.boxes}
        rows, boxes, own = [], [], bytes(phase.own_shares)
        for decryptor, box in zip(attempt.decryptors, upload.boxes, strict=True):
            if decryptor == member:
                shares = own = edit(decryptor, own)
                boxes.append(b"")
            else:
                key = pairs[decryptor].box_key(member, decryptor, attempt.context, upload.header.salt)
                shares = edit(decryptor, unseal(key, box, attempt.context, member))
                boxes.append(seal(key, shares, attempt.context))
            rows.append(commit_row(attempt.context, member, decryptor, shares))
        values = {name: getattr(upload.header, name) for name in vars(upload.header) if name != "signature"}
        values["commitment_root"] = commitment_tree(upload.secret_commitments, tuple(rows)).root
        values["box_root"] = Tree.of(boxes).root
        header = UploadHeader.make(self.keys[member], **values)
        dealt = replace(upload, header=header, share_rows=tuple(rows), boxes=tuple(boxes))
        self.phases[member] = replace(phase, uploads=(dealt,), own_shares=SecretBytes(own))

    def upload_of(self, member: str) -> bytes:
        phase = self.phases[member]
        assert isinstance(phase, Attempting)
        return phase.uploads[0].to_bytes()

    async def _upload(self, server: Server, round_id: str, member: str, opening: Opening) -> bool:
        if self.gone(member, After.ANNOUNCEMENT):
            return False
        self.seal(member, opening)
        where = f"/v1/rounds/{round_id}/uploads/{member}"
        known = await server.client.get(where)
        if known.status_code == 200 and self.gone(member, After.UPLOAD):
            return False
        if known.status_code != 200:
            known = await server.client.put(where, content=self.upload_of(member), headers=OCTETS)
            assert known.status_code == 200, known.text
            await self.on_ack(f"announcement of {member}")
        if self.gone(member, After.UPLOAD):
            return True
        for index in known.json()["missing"]:
            data = self.chunks[member][index]
            sent = await server.client.put(f"{where}/chunks/{index}", content=data, headers=OCTETS)
            assert sent.status_code == 200, sent.text
            await self.on_ack(f"chunk {index} of {member}")
        return True

    # What must come out

    async def check_result(self, server: Server, round_id: str) -> dict[str, Any]:
        """The published sum is the plain one, the weights are the solver's; both are signed."""
        got = await server.client.get(f"/v1/rounds/{round_id}/result")
        assert got.status_code == 200, got.text
        record = published.ResultRecord.model_validate(got.json())
        verify_record(record, self.roster.coordinator)
        terms = server.coordinator.rounds[round_id].attempt.opening.terms
        survivors = [s.member for s in record.survivors if s.member not in record.evicted]
        sums = (await server.client.get(f"/v1/rounds/{round_id}/result/sums")).content
        assert hashlib.sha256(sums).hexdigest() == record.sums_sha256
        plain = np.sum([self.vector(member, terms) for member in survivors], axis=0)
        np.testing.assert_array_equal(load(sums)["sum"], plain)
        weights = (await server.client.get(f"/v1/rounds/{round_id}/result/weights")).content
        assert hashlib.sha256(weights).hexdigest() == record.weights_sha256
        pooled = self.statistics(survivors[0], terms)
        for member in survivors[1:]:
            pooled.merge(self.statistics(member, terms))
        assert record.records == pooled.records
        expected, tensors = solve_ffc(pooled, record.solution.ridge), load(weights)
        error = np.abs(tensors["weights"] - expected.weights).max() / np.abs(expected.weights).max()
        assert error < 1e-6
        assert ("bias" in tensors) == (terms.statistic == "ffc-bias")
        view: dict[str, Any] = json.loads(got.content)
        return view

    def heard(self) -> set[str]:
        """Members who hold the end of their last attempt."""
        return {member for member, phase in self.phases.items() if isinstance(phase, Closed)}
