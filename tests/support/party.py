"""A federation of raw protocol phases that may stop after any request."""

import asyncio
import copy
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from tests.support.clients import KEYS
from tests.support.forging import redeal
from tests.support.serving import Server
from tests.support.simulator import (
    After,
    SeededRandom,
    simulated_content,
    simulated_question,
    simulated_roster,
    untampered,
)
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.protocol import rest
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import (
    Closed,
    Enrolled,
    EnrolmentPhase,
    History,
    MemberPhase,
    Opened,
    Paired,
    Ready,
)
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    Ciphertexts,
    Disclosure,
    Erasure,
    ErasureRequest,
    Evictions,
    Lost,
    Manifest,
    Message,
    Opening,
    Pairing,
    Roster,
    Study,
    parse_message,
)
from veilsum.protocol.record import ResultRecord, verify_record
from veilsum.protocol.rest import OCTETS_TYPE, STATE_HEADER
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.shamir import share_secrets
from veilsum.protocol.study import DAY_S, Content
from veilsum.protocol.tags import PROTOCOL_VERSION
from veilsum.study.result_files import read_material
from veilsum.study.vectors import compute_vector

FOUR = tuple(f"m-{index}" for index in range(4))
SIX = tuple(f"m-{index}" for index in range(6))
HOLD = ((0, 1, 2, 3), (0, 1, 2), (0, 1, 3), (0, 1), (0, 1), (0, 1, 2))
"""The classes that each of six members holds: 6, 6, 3 and 2 members hold the first four classes, and none holds a fifth."""
COUNTS = [6, 6, 3, 2, 0]
WITHHOLDING: dict[str, Any] = {
    "withhold": {"margin": 1},
    "records": {"least": 50, "most": 500, "least_per_class": 10, "rows_per_id": 1},
}
Acknowledged = Callable[[str], Awaitable[None]]
Vector = npt.NDArray[np.int64]


async def _nothing(_label: str) -> None:
    pass


def clock_s() -> float:
    return time.time()


@dataclass
class Party:
    """The admin and the members. Their phases are immutable values, so a copy of the party is an independent history."""

    ids: tuple[str, ...]
    dim: int = 4
    classes: int = 3
    seed: int = 0
    decryptors: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    question: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the study's question that differ from the simulator's."""
    after: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    hold: tuple[tuple[int, ...], ...] = ()
    """The classes that each member holds; empty if each member holds all."""
    phases: dict[str, MemberPhase] = field(default_factory=dict)
    chunks: dict[str, list[bytes]] = field(default_factory=dict)
    spoil: dict[str, Callable[[Vector], Vector]] = field(default_factory=dict)
    """By member: changes its vector before masking."""
    drop: dict[str, After] = field(default_factory=dict)
    tamper: Callable[[str, Message], Message] = untampered
    """Changes a member's answers."""
    deal: dict[str, Callable[[str, bytes], bytes]] = field(default_factory=dict)
    """By false dealer: changes a decryptor's shares."""
    on_ack: Acknowledged = _nothing
    cohort: str = ""
    counter: int = 0
    """The current cohort's counter."""
    name: str = "tests"
    """The federation's name."""
    periods: str = "period-{}"
    """Format of a period's name, with its number."""
    period: str = field(init=False)
    repeats: bytes = NO_CONTEXT
    admin_seed: bytes = b"a" * 32
    number: int = 0
    """Number of periods so far."""
    roster: Roster = field(init=False)
    study: Study = field(init=False)
    content: Content = field(init=False)

    def __post_init__(self) -> None:
        self.period = self.periods.format(0)
        self.admin = SigningKey(self.admin_seed)
        self.keys = {m: SigningKey(hashlib.sha256(m.encode()).digest()) for m in self.ids}
        KEYS.update(self.keys)
        self.random = SeededRandom(self.seed)
        self.vectors = dict[str, dict[str, Vector]]()

    def copy(self) -> "Party":
        other = copy.copy(self)
        for each in ("phases", "chunks", "drop", "spoil", "deal", "vectors", "keys"):
            setattr(other, each, dict(getattr(self, each)))
        other.on_ack = _nothing
        return other

    @property
    def federation(self) -> str:
        return self.admin.public.hex()

    @property
    def where(self) -> str:
        return f"/v1/federations/{self.federation}"

    def make_roster(self, coordinator: bytes, number: int = 1, **changes: Any) -> Roster:
        keys = {member: self.keys[member].public for member in self.ids}
        values = {
            "number": number,
            "name": self.name,
            "decryptors": self.decryptors,
            "readers": self.readers,
            **changes,
        }
        return simulated_roster(self.admin, coordinator, keys, **values)

    def make_content(self, now_s: float, **notes: Any) -> Content:
        """Make the study's content: rings of 48 bits and all classes published, unless the party overrides it."""
        question = {
            **simulated_question(len(self.ids)),
            "dim": self.dim,
            "classes": [f"class-{label}" for label in range(self.classes)],
            "ring_bits": 48,
            "windows": {"enrol": 3600, "upload": 600, "answer": 120},
            **self.question,
        }
        notes = {"name": "study", **self.notes, **notes}
        return simulated_content(question, int(now_s) + 80 * DAY_S, notes, self.after)

    def make_study(self, now_s: float, **notes: Any) -> Study:
        content = self.make_content(now_s, **notes).to_bytes()
        return Study.make_signed(self.admin, federation=self.admin.public, content=content)

    def false_dealer(self, member: str, threshold: int = 4) -> None:
        """Have a member deal shares of other secrets than it commits to."""
        others = share_secrets([b"\x01" * 32] * len(self.ids), threshold, len(self.ids), SeededRandom(7))
        places = {each: place for place, each in enumerate(self.ids)}
        self.deal[member] = lambda decryptor, _shares: others[places[decryptor]].tobytes()

    # The operator's part

    async def found(self, server: Server) -> None:
        """Create the federation and publish its study."""
        answer = (await server.client.get(rest.COORDINATOR_PATH)).json()
        assert answer["protocol_version"] == PROTOCOL_VERSION
        self.roster = self.make_roster(bytes.fromhex(answer["public_key"]))
        await self.publish_roster(server, self.roster)
        await self.on_ack("roster")
        await self.publish_study(server)
        await self.on_ack("study")

    async def publish_roster(self, server: Server, roster: Roster) -> None:
        put = await server.client.put(f"{self.where}/roster", content=roster.to_bytes())
        assert put.status_code in {200, 201}, put.text

    async def publish_study(self, server: Server, **notes: Any) -> None:
        """Publish the study with the party's current fields, and use it from now on."""
        study = self.make_study(getattr(server, "clock", clock_s)(), **notes)
        put = await self.try_study(server, study)
        assert put.status_code in {200, 201}, put.text
        self.study, self.content = study, Content.from_bytes(study.content)

    async def try_study(self, server: Server, study: Study) -> httpx.Response:
        return await server.client.put(f"{self.where}/studies/{study.hash.hex()}", content=study.to_bytes())

    async def try_cohort(self, server: Server, **request: Any) -> httpx.Response:
        values = {"study": self.study.hash.hex(), "period": self.period}
        return await server.client.post(f"{self.where}/cohorts", json={**values, **request})

    async def open_cohort(self, server: Server, **request: Any) -> str:
        answer = await self.try_cohort(server, **request)
        assert answer.status_code == 201, answer.text
        self.cohort, self.period = answer.json()["cohort"], answer.json()["period"]
        self.repeats = bytes.fromhex(answer.json()["repeats"] or NO_CONTEXT.hex())
        self.counter = int(answer.json()["counter"])
        await self.on_ack("cohort")
        return self.cohort

    async def next_period(self, server: Server) -> None:
        """Open a cohort of the next period, and enrol the members."""
        self.number += 1
        await self.open_cohort(server, period=self.periods.format(self.number))
        await self.enrol(server)

    async def open_round(self, server: Server, **request: Any) -> str:
        """Open the run's next step, or the first step of the next period; return the round's id."""
        if (await server.client.get(f"/v1/cohorts/{self.cohort}")).json()["step"] is None:
            await self.next_period(server)
        answer = await self.try_round(server, **request)
        assert answer.status_code == 201, answer.text
        await self.on_ack("round")
        return str(answer.json()["round"])

    async def try_round(self, server: Server, **request: Any) -> httpx.Response:
        return await server.client.post(f"/v1/cohorts/{self.cohort}/rounds", json=request)

    # The members' part

    def _serial(self) -> int:
        """A number above those of earlier cohorts. Federations of these tests share members' keys, and not their numbers."""
        drawn = hashlib.sha256(self.admin.public).digest()
        return (int.from_bytes(drawn[:5], "big") << 20) + self.counter + 1

    def card_of(self, member: str, now_s: float | None = None) -> Message:
        phase, (card,) = Enrolled.begin_enrolment(
            member,
            self.roster,
            self.study,
            self.keys[member],
            counter=self.counter,
            period=self.period,
            serial=self._serial(),
            now_s=time.time() if now_s is None else now_s,
            repeats=self.repeats,
            history=getattr(self.phases.get(member), "history", History()),
            random_bytes=self.random,
        )
        self.phases[member] = phase
        return card

    async def enrol(self, server: Server, members: tuple[str, ...] | None = None) -> None:
        """Send the missing cards, and accept the manifest."""
        for member in members or self.ids:
            if self._cohort_of(member) == self.cohort:
                continue
            answer = await server.client.put(
                f"/v1/cohorts/{self.cohort}/cards/{member}",
                content=self.card_of(member, self.now(server)).to_bytes(),
            )
            assert answer.status_code == 200, answer.text
            await self.on_ack(f"card of {member}")
        if members is None:
            await self.take_manifest(server)

    def _cohort_of(self, member: str) -> str:
        match self.phases.get(member):
            case EnrolmentPhase() as phase:
                return phase.card.cohort.hex()
            case Ready() as phase:
                return phase.manifest.cohort.hex()
            case Attempting() | Closed() as phase:
                return phase.opening.cohort.hex()
        return ""

    async def take_manifest(self, server: Server) -> None:
        """Pair under the newest manifest, and take the others' ciphertexts."""
        for member in self.ids:
            if isinstance(self.phases.get(member), Enrolled | Paired):
                await self.pair(server, member)
        for member in self.ids:
            if isinstance(paired := self.phases.get(member), Paired):
                await self.take_ciphertexts(server, member, paired)

    async def pair(self, server: Server, member: str) -> httpx.Response | None:
        """Check the cards of the newest manifest and send the pairing; None if it leaves the member out, or the cohort has failed."""
        answer = await server.client.get(f"/v1/cohorts/{self.cohort}/manifest/{member}")
        if answer.headers["content-type"] != OCTETS_TYPE:
            return None
        sent = await self.send_pairing(server, member, await self.make_pairing(server, member, answer))
        assert sent.status_code == 200, sent.text
        await self.on_ack(f"pairing of {member}")
        return sent

    async def make_pairing(
        self, server: Server, member: str, answer: httpx.Response | None = None
    ) -> Pairing:
        """Check the cards of the newest manifest, and send nothing yet."""
        where = f"/v1/cohorts/{self.cohort}/manifest/{member}"
        cards = Cards.from_bytes((answer or await server.client.get(where)).content)
        key, now_s = self.keys[member], self.now(server)
        self.phases[member], [pairing] = self.phases[member].receive(cards, key, now_s)
        assert isinstance(pairing, Pairing)
        return pairing

    async def send_pairing(
        self, server: Server, member: str, pairing: Message, wait_s: float = 0.0
    ) -> httpx.Response:
        return await server.client.put(
            f"/v1/cohorts/{self.cohort}/pairings/{member}",
            content=pairing.to_bytes(),
            params={"wait_s": wait_s},
        )

    async def take_ciphertexts(self, server: Server, member: str, paired: Paired) -> None:
        """Take the others' ciphertexts, once all have paired."""
        answer = await self.ciphertexts_of(server, member, paired.manifest)
        if answer.headers["content-type"] == OCTETS_TYPE:
            shown = Ciphertexts.from_bytes(answer.content)
            self.phases[member], _ = paired.receive(shown, self.keys[member], self.now(server))

    async def ciphertexts_of(
        self, server: Server, member: str, manifest: Manifest, wait_s: float = 0.0
    ) -> httpx.Response:
        """Ask what `send_pairing` is answered, for a member that has paired under the manifest."""
        where, params = f"/v1/cohorts/{self.cohort}/pairings/{member}", {"manifest": manifest.hash.hex()}
        return await server.client.get(where, params={**params, "wait_s": str(wait_s)})

    async def send_cards(self, server: Server, members: tuple[str, ...] | None = None) -> None:
        """Found the federation, open a cohort and send the members' cards. Nobody pairs."""
        await self.found(server)
        await self.open_cohort(server)
        await self.enrol(server, members or self.ids)

    async def begin(self, server: Server, **cohort: Any) -> None:
        """Found the federation, open a cohort and enrol the members."""
        await self.found(server)
        await self.open_cohort(server, **cohort)
        await self.enrol(server)

    async def begun(self, server: Server, **request: Any) -> str:
        """As `begin`, then open the first round and return its id."""
        await self.begin(server)
        return await self.open_round(server, **request)

    async def done(self, server: Server, **request: Any) -> str:
        """Open a round, play it to its result, and return its id."""
        round_id = await self.open_round(server, **request)
        assert (await self.play(server, round_id))["state"] == "done"
        return round_id

    def records(self, member: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return a member's 40 rows, the same in every period, and so even that no feature is sparse in any class."""
        place = self.ids.index(member)
        rng = np.random.default_rng(place + 1)
        features = rng.choice([-1.0, 1.0], (40, self.dim)) * rng.uniform(0.7, 1.3, (40, self.dim))
        if not self.hold:
            return features, rng.integers(0, self.classes, 40)
        held = self.hold[place]
        labels = rng.choice(held, 40)
        for at, label in enumerate(held):
            labels[10 * at : 10 * at + 10] = label  # just enough for a held class
        return features, labels

    def vector(self, member: str, spec: RoundSpec, material: Mapping[str, Any]) -> Vector:
        features, labels = self.records(member)
        return compute_vector(spec, features, labels, material, self.random)

    def statistics(self, members: list[str], withheld: tuple[int, ...] = ()) -> FFCStatistics:
        """Pool members' statistics without masks, for the study's first statistic."""
        constant = self.content.question.constant
        found = FFCStatistics(self.dim, self.classes, constant=constant, normalise=True)
        for member in members:
            features, labels = self.records(member)
            kept = ~np.isin(labels, withheld)
            found.update(features[kept], labels[kept])
        return found

    def gone(self, member: str, after: After) -> bool:
        return self.drop.get(member, After.REVEAL) < after

    async def play(self, server: Server, round_id: str, *, within_s: float = 60.0) -> dict[str, Any]:
        """Serve every member in turn until the round ends or waits for the admin, then tell all members of its end."""
        assert self.drop.keys() <= {*self.ids}
        end = time.monotonic() + within_s
        view = await server.view(round_id)
        while not view["ended"]:
            # A recovered round computes, and asks nobody.
            asked = () if view["state"] == "recovered" else view["members"]
            if not any([await self.serve(server, round_id, member) for member in asked]):
                if view["state"] == "erasing":
                    return view
                assert time.monotonic() < end, view
                await server.pass_time(await server.view(round_id))
            view = await server.view(round_id)
        for member in view["members"]:
            await self.serve(server, round_id, member)
        return view

    async def lose(self, server: Server, round_id: str) -> dict[str, Any]:
        """Have the admin close an erasing round, and tell all members."""
        context = bytes.fromhex((await server.view(round_id))["context"])
        signed = Lost.make_signed(self.admin, context=context)
        closed = await server.client.post(f"/v1/rounds/{round_id}/lost", content=signed.to_bytes())
        assert closed.status_code == 200, closed.text
        await self.on_ack("the admin's Lost")
        end = time.monotonic() + 60.0
        # Another replica learns of it a moment later.
        while (view := await self.play(server, round_id))["state"] == "erasing" and time.monotonic() < end:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.05)
        return view

    async def play_until(self, server: Server, round_id: str, state: str) -> None:
        """Serve members one by one until the round is in this state."""
        while True:
            moved = False
            for member in self.ids:
                if (served := await self.serve(server, round_id, member, until=state)) is None:
                    return
                moved = served or moved
            if not moved:
                await server.pass_time(await server.view(round_id))

    async def serve(self, server: Server, round_id: str, member: str, until: str = "") -> bool | None:
        """Let one member answer its request; return whether that changed anything, or None if the round is in the state `until`."""
        answer = await server.client.get(f"/v1/rounds/{round_id}/requests/{member}")
        assert answer.status_code in {200, 204}, answer.text
        if answer.headers[STATE_HEADER] == until:
            return None
        if answer.status_code == 204:
            return False
        message = parse_message(answer.content)
        if isinstance(message, Opening):
            return await self._upload(server, round_id, member, message)
        ends = ("Certificate", "Evictions", "Erasure", "ErasureRequest", "Lost")
        needed = dict.fromkeys(ends, After.REVEAL) | {"Deliveries": After.RECEIPT}
        if self.gone(member, needed.get(type(message).__name__, After.VOTE)):
            return False
        before = self.phases[member]
        if isinstance(before, Ready) and not isinstance(message, ErasureRequest | Erasure | Lost):
            return False
        if isinstance(before, Closed) and before.opening.cohort.hex() != self.cohort:
            return False
        key, now_s = self.keys[member], self.now(server)
        if isinstance(before, Ready) and not before.history.unsettled:
            if not isinstance(message, ErasureRequest):
                return False
            shown = await server.client.get(f"/v1/rounds/{round_id}/opening")
            opening = Opening.from_bytes(shown.content)
            self.phases[member], replies = before.erase_unopened(opening, message, key, now_s)
        else:
            self.phases[member], replies = before.receive(message, key, now_s)
        for reply in replies:
            sent = await server.client.post(
                f"/v1/rounds/{round_id}/answers", content=self.tamper(member, reply).to_bytes()
            )
            assert sent.is_success, sent.text
            await self.on_ack(f"{type(reply).__name__} of {member}")
        return bool(replies) or self.phases[member] is not before

    def now(self, server: Any) -> float:
        """Return the time of the server's clock, if it has its own."""
        return float(getattr(server, "clock", clock_s)())

    def seal(
        self, member: str, opening: Opening, material: bytes | None = None, now_s: float | None = None
    ) -> None:
        """Accept the opening, and mask the vector."""
        if not isinstance(self.phases[member], Attempting):
            now_s = time.time() if now_s is None else now_s
            self.phases[member], _ = self.phases[member].receive(opening, self.keys[member], now_s)
        opened = self.phases[member]
        if isinstance(opened, Opened):
            attempt = opened.attempt
            own = self.vector(member, attempt.spec, read_material(attempt.spec, material))
            if member in self.spoil:
                own = self.spoil[member](own)
            self.vectors.setdefault(attempt.context.hex(), {})[member] = own
            sealing, step = opened.begin_sealing(self.random), attempt.spec.chunk_elements
            self.chunks[member] = [
                bytes(sealing.mask_next_chunk(own[i * step : (i + 1) * step]))
                for i in range(attempt.chunk_count)
            ]
            upload, shares = sealing.finish(self.keys[member])
            self.phases[member], _ = opened.store_upload(upload, shares)
            if member in self.deal:
                redeal(self, upload, self.deal[member])

    async def seal_all(self, server: Server, round_id: str, members: tuple[str, ...] | None = None) -> None:
        """Have members accept the opening and mask their vectors, and send nothing yet."""
        for member in members or self.ids:
            if not isinstance(self.phases[member], Attempting):
                self.seal(member, await server.opening(round_id, member), now_s=self.now(server))

    async def announce(self, server: Server, round_id: str, member: str) -> httpx.Response:
        """Send a member's announcement, without chunks."""
        await self.seal_all(server, round_id, (member,))
        where = f"/v1/rounds/{round_id}/uploads/{member}"
        return await server.client.put(where, content=self.upload_of(member))

    def upload_of(self, member: str) -> bytes:
        phase = self.phases[member]
        assert isinstance(phase, Attempting)
        return phase.uploads[0].to_bytes()

    async def _upload(self, server: Server, round_id: str, member: str, opening: Opening) -> bool:
        if self.gone(member, After.ANNOUNCEMENT):
            return False
        material = None
        if opening.terms.material != NO_CONTEXT:
            fetched = await server.signing(member, self.keys[member]).get(f"/v1/rounds/{round_id}/material")
            material = fetched.content
            assert hashlib.sha256(material).digest() == opening.terms.material
        fresh = not isinstance(self.phases[member], Attempting)
        self.seal(member, opening, material, self.now(server))
        where, known = f"/v1/rounds/{round_id}/uploads/{member}", None
        if not fresh:
            known = await server.client.get(where)
            if known.status_code == 200 and self.gone(member, After.UPLOAD):
                return False
        if known is None or known.status_code != 200:
            known = await server.client.put(where, content=self.upload_of(member))
            assert known.status_code == 200, known.text
            await self.on_ack(f"announcement of {member}")
        if self.gone(member, After.UPLOAD):
            return True
        for index in known.json()["missing"]:
            data = self.chunks[member][index]
            sent = await server.client.put(f"{where}/chunks/{index}", content=data)
            assert sent.is_success, sent.text
            await self.on_ack(f"chunk {index} of {member}")
        return True

    # A count's counts

    async def shown(
        self, server: Server, round_id: str, member: str, by: str | None = None
    ) -> httpx.Response:
        """Fetch the disclosure for `member`, signed by `by` if given."""
        client = server.signing(by or member, self.keys[by or member])
        return await client.get(f"/v1/rounds/{round_id}/disclosure/{member}")

    async def recount(self, server: Server, round_id: str) -> None:
        """Let every member that knows of the round's end recount it."""
        evictions = await server.client.get(f"/v1/rounds/{round_id}/result/evictions")
        proofs = Evictions.from_bytes(evictions.content)
        for member in self.ids:
            phase = self.phases.get(member)
            if not isinstance(phase, Closed):
                continue
            answer = await self.shown(server, round_id, member)
            assert answer.status_code == 200, answer.text
            for message in ((proofs,) if proofs.proofs else ()) + (Disclosure.from_bytes(answer.content),):
                phase, _ = phase.receive(message, self.keys[member], time.time())
            self.phases[member] = phase

    async def count(self, server: Server, step: str = "count") -> str:
        """Play a whole round of a step that is disclosed, with every member's recount."""
        round_id = await self.open_round(server)
        view = await self.play(server, round_id)
        assert (view["state"], view["spec"]["step"]) == ("done", step), view
        await self.recount(server, round_id)
        return round_id

    def counts(self, member: str) -> list[int] | None:
        phase = self.phases[member]
        assert isinstance(phase, Closed)
        return list(phase.history.counted[0].sums) if phase.history.counted else None

    # Expected results

    async def check_result(self, server: Server, round_id: str) -> dict[str, Any]:
        """Check that the published sum equals the plain one, that an ffc study's weights are the solver's, and that both are signed."""
        got = await server.client.get(f"/v1/rounds/{round_id}/result")
        assert got.status_code == 200, got.text
        record = ResultRecord.model_validate(got.json())
        verify_record(record, self.roster.coordinator)
        survivors = [s.member for s in record.survivors if s.member not in record.evicted]
        sums = (await server.client.get(f"/v1/rounds/{round_id}/result/sums")).content
        assert hashlib.sha256(sums).hexdigest() == record.sums
        vectors = self.vectors[record.context]
        np.testing.assert_array_equal(load(sums)["sum"], np.sum([vectors[m] for m in survivors], axis=0))
        head = (await server.client.get(f"/v1/rounds/{round_id}/result/weights")).content
        assert hashlib.sha256(head).hexdigest() == record.head
        if record.noise is None and self.content.question.statistics[0].kind == "ffc":
            self._check_weights(record, survivors, load(head))
        view: dict[str, Any] = json.loads(got.content)
        return view

    def _check_weights(self, record: ResultRecord, survivors: list[str], tensors: Mapping[str, Any]) -> None:
        """Check that W* equals the plain solution within the stated bound."""
        plain = self.statistics(survivors, record.withheld)
        assert record.rows == plain.records
        expected = solve_ffc(plain, record.solution.ridge)
        error, largest = np.abs(tensors["weights"] - expected.weights).max(), np.abs(expected.weights).max()
        assert record.error_bound is not None
        assert error <= record.error_bound
        if self.content.question.ring_bits == 48:
            assert error < 1e-6 * largest
        assert ("bias" in tensors) == plain.constant

    def heard(self) -> set[str]:
        """Return the members that know how their last attempt ended."""
        return {member for member, phase in self.phases.items() if isinstance(phase, Closed)}
