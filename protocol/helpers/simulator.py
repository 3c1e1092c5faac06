"""A federation with mask helpers in memory: real keys, real masks, no network, any failure replayed from a seed.

Clients' vectors are made when they are needed, and what they upload goes to a spool that may lie on a disk: memory
does not grow with the vectors.
"""

import hashlib
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from random import Random

import numpy as np
import numpy.typing as npt

from protocol.errors import PeerFault
from protocol.helpers.client import Client, Spoken
from protocol.helpers.coordinator import (
    Collecting,
    CoordinatorPhase,
    Ended,
    Enrolling,
    HelperWindows,
    Recovered,
)
from protocol.helpers.helper import Enrolled, HelperPhase, Standing, Summing, load_helper
from protocol.helpers.messages import (
    HELPERS,
    HelperCard,
    HelperCertificate,
    HelperDeliveries,
    HelperFreeze,
    HelperLost,
    HelperOpening,
    HelperUpload,
    HelperVoidRequest,
    parse,
)
from protocol.helpers.messages import Ended as EndedAttempt
from protocol.helpers.unmasking import HelperUnmasking
from protocol.identity import SigningKey
from protocol.messages.base import Message
from protocol.messages.opening import NO_INDICATOR, Terms
from protocol.messages.roster import Entry, Roster

Vector = npt.NDArray[np.int64]
Tamper = Callable[[str, Message], Message | None]
"""Sees each message with its sender (a client or helper, or "coordinator>helper") and may change or swallow it."""


class ClientStop(IntEnum):
    """How far a client gets before it vanishes."""

    OPENING = 0
    ANNOUNCEMENT = 1


class HelperStop(IntEnum):
    """The last thing a helper does before it vanishes for the rest of the attempt."""

    NOTHING = 0
    CARD = 1
    OPENING = 2
    RECEIPT = 3
    VOTE = 4
    SUMS = 5


_ANSWERS: dict[type[Message], HelperStop] = {
    HelperOpening: HelperStop.OPENING,
    HelperDeliveries: HelperStop.RECEIPT,
    HelperFreeze: HelperStop.VOTE,
    HelperVoidRequest: HelperStop.VOTE,
    HelperCertificate: HelperStop.SUMS,
    HelperLost: HelperStop.SUMS,
}
"""What a helper does with each question; one that has vanished does not hear it."""


@dataclass(frozen=True)
class HelperOutcome:
    """How a simulated attempt ended.

    Attributes:
        phase: the coordinator's last phase.
        survivors: ids in the certified set; empty without a sum.
        total: the sum over the survivors, or None.
        faults: what was refused on the way, with who refused it.
    """

    phase: CoordinatorPhase
    survivors: tuple[str, ...]
    total: Vector | None
    faults: tuple[tuple[str, PeerFault], ...]

    @property
    def fault(self) -> PeerFault | None:
        """Why there is no sum, or None."""
        return getattr(self.phase, "fault", None)


def standing_of(phase: HelperPhase) -> Standing:
    """What a helper knows of earlier attempts, whatever it is doing."""
    standing = getattr(phase, "standing", phase)
    assert isinstance(standing, Standing)
    return standing


@dataclass
class HelperFederation:
    """An admin, a coordinator, four helpers and clients in one process.

    Attributes:
        clients: how many.
        drop: by client's index, how far it gets.
        helper_drop: by helper's index, the last thing it does. Both mappings may change between attempts.
        seed: fixes every random byte.
        tamper: sees every message on its way.
        restart: store and reload a helper's phase before each message it receives.
        colluders: `a`; None for a quarter of the clients.
        spool: keeps packed chunks, by owner (a client, or "helper/seed") and index.
        now_s: the simulated clock, Unix time in seconds.
    """

    clients: int
    drop: Mapping[int, ClientStop] = field(default_factory=dict)
    helper_drop: Mapping[int, HelperStop] = field(default_factory=dict)
    seed: int = 0
    tamper: Tamper = lambda _sender, message: message
    restart: bool = False
    colluders: int | None = None
    spool: MutableMapping[tuple[str, int], bytes] = field(default_factory=dict)
    now_s: float = 1_000_000.0

    def __post_init__(self) -> None:
        self.random = Random(self.seed).randbytes  # noqa: S311 - reproducible on purpose; never a real party's
        self.admin, self.coordinator = SigningKey(self.random(32)), SigningKey(self.random(32))
        self.ids = tuple(f"client-{index:0{len(str(self.clients - 1))}}" for index in range(self.clients))
        self.helpers = tuple(f"helper-{place}" for place in range(HELPERS))
        self.keys = {member: SigningKey(self.random(32)) for member in (*self.ids, *self.helpers)}
        self.extractor = hashlib.sha256(b"a simulated extractor").digest()
        self.roster = self.sign_roster(1)
        self.history: tuple[EndedAttempt, ...] = ()
        self.closings: tuple[HelperCertificate | HelperLost, ...] = ()
        self.phases: dict[str, HelperPhase] = {
            helper: Standing.start(helper, self.admin.public, self.roster) for helper in self.helpers
        }
        # The roster is verified once: ten thousand clients would each read the same bytes.
        self.newcomer = Client.start(self.ids[0], self.admin.public, self.roster)
        self.states: dict[str, Client | Spoken] = {}
        self.faults: list[tuple[str, PeerFault]] = []

    def sign_roster(self, version: int, **changes: object) -> Roster:
        """The admin's roster, with some fields changed."""
        values = {
            "federation": self.admin.public,
            "coordinator": self.coordinator.public,
            "members": tuple(Entry(member, key.public) for member, key in self.keys.items()),
            "decryptors": (),
            "helpers": self.helpers,
            "extractors": (self.extractor,),
            "readers": (),
            "withhold": 0,
        }
        return Roster.make(self.admin, version_number=version, **{**values, **changes})

    def terms(self, elements: int, **changes: int | str | bytes) -> Terms:
        """Terms for vectors of so many elements."""
        values = {
            "statistic": "test",
            "layout": b"",
            "elements": elements,
            "ring_bits": 32,
            "lattice": "sums",
            "lattice_bits": 0,
            "chunk_elements": 64,
            "records_max": 1000 * self.clients,
            "extractor": self.extractor,
            "ridges": (),
            "noise": b"",
            "indicator": NO_INDICATOR,
            "margin": 0,
            "withheld": (),
            "evicted": (),
            "latest_end_s": int(self.now_s) + 10**6,
        }
        return Terms(**{**values, **changes})  # type: ignore[arg-type]  # the names are Terms' own

    def vector(self, index: int, elements: int) -> Vector:
        """A small random vector of one client, the same whenever it is asked for."""
        return np.random.default_rng((self.seed, index)).integers(-1000, 1000, elements)

    def lineage(self, index: int) -> bytes:
        """The name of a client's data set, 8 bytes."""
        return hashlib.sha256(self.ids[index].encode()).digest()[:8]

    def run(self, terms: Terms) -> HelperOutcome:
        """Run an attempt to its end; a phase in which nobody has anything more to say ends by its deadline."""
        self.begin(terms)
        self.collect()
        self.run_until(Ended)
        return self.finish()

    def begin(self, terms: Terms) -> None:
        """Let helpers that were away catch up, gather the cards, and open the attempt."""
        self.faults = []
        enrolling = Enrolling.after(self.roster, self.history, 1000, self.colluders)
        for helper in self.helpers:
            if self._gone(helper, HelperStop.CARD):
                continue
            for closing in self.closings[len(standing_of(self.phases[helper]).history) :]:
                self._tell(helper, closing)
                self._add_up(helper)  # too late for anybody, but the seeds go
            phase = self.phases[helper]
            if isinstance(phase, Standing):
                phase, _ = phase.enrol(
                    self.keys[helper], expires_s=int(self.now_s) + 10**6, random_bytes=self.random
                )
                self.phases[helper] = phase
            for card in phase.outbox():
                sent = self.tamper(helper, card)
                if isinstance(sent, HelperCard):
                    enrolling = enrolling.receive(sent, self.now_s)
        self.attempt = enrolling.attempt(terms, self.coordinator, self.now_s)
        self.phase: CoordinatorPhase = Collecting.begin(
            self.attempt, HelperWindows(), self.now_s, self.history
        )
        for helper in self.helpers:
            self._serve(helper)

    def collect(self) -> None:
        """Let every client speak, then close the attempt to uploads."""
        collecting = self.phase
        assert isinstance(collecting, Collecting)
        whole = []
        for index, client in enumerate(self.ids):
            stop = self.drop.get(index)
            if stop == ClientStop.OPENING:
                continue
            try:
                sent = self.tamper(client, self._speak(index))
                if not isinstance(sent, HelperUpload):
                    continue
                admitted = HelperUpload.from_bytes(sent.to_bytes())
                collecting.check_upload(admitted)
                if stop is None:
                    for chunk in range(self.attempt.chunks):
                        packed = self.spool[client, chunk]
                        collecting.check_chunk(admitted, chunk, hashlib.sha256(packed).digest(), packed)
                    whole.append(admitted)
            except PeerFault as fault:
                self.faults.append(("coordinator", fault))
        self.phase = collecting.close(whole, self.now_s)

    def _speak(self, index: int) -> HelperUpload:
        client, step = self.ids[index], self.attempt.opening.terms.chunk_elements
        state = self.states.get(client, replace(self.newcomer, member=client))
        state = state.client if isinstance(state, Spoken) else state
        sealing = state.seal(self.attempt, self.now_s, self.random)
        vector = self.vector(index, self.attempt.opening.terms.elements)
        for chunk in range(self.attempt.chunks):
            packed = sealing.chunk(vector[chunk * step : (chunk + 1) * step])
            self.spool[client, chunk] = bytes(packed)
        upload = sealing.finish(
            self.keys[client], lineage=self.lineage(index), records_tag=bytes(8), records=1
        )
        self.states[client] = state.spoken(self.attempt, upload)
        return upload

    def run_until(self, *forms: type[CoordinatorPhase]) -> CoordinatorPhase:
        """Drive the attempt until the coordinator is in one of these phases, has ended, or waits for good."""
        while not isinstance(self.phase, (*forms, Ended)):
            before = self.phase
            for helper in self.helpers:
                if not isinstance(self.phase, forms):
                    self._serve(helper)
            if self.phase is before:
                if self.phase.deadline_s is None:
                    break
                self.now_s = self.phase.deadline_s
                self.phase = self.phase.expire(self.now_s)
        return self.phase

    def finish(self) -> HelperOutcome:
        """Tell every helper how the attempt ended, and add up."""
        phase = self.phase
        if isinstance(phase, Ended):
            for helper in self.helpers:
                self._serve(helper)
            self.closings = (*self.closings, phase.closing)
            self.history = (*self.history, phase.closing.ended)
        if not isinstance(phase, Recovered):
            return HelperOutcome(phase, (), None, tuple(self.faults))
        unmasking = HelperUnmasking(phase)
        total = [
            unmasking.chunk(
                index,
                ((client, self.spool[client, index]) for client in unmasking.survivors),
                [
                    self.spool[f"{source.holders[0]}/{seed}", index]
                    for seed, source in enumerate(phase.sources)
                ],
            )
            for index in range(self.attempt.chunks)
        ]
        return HelperOutcome(phase, unmasking.survivors, np.concatenate(total), tuple(self.faults))

    def _gone(self, helper: str, step: HelperStop) -> bool:
        return self.helper_drop.get(self.helpers.index(helper), HelperStop.SUMS) < step

    def _serve(self, helper: str) -> None:
        """Let one helper take what the coordinator asks of it, and the coordinator its answers."""
        request = self.phase.request_for(helper)
        if request is None or self._gone(helper, _ANSWERS[type(request)]):
            return
        shown = self.tamper(f"coordinator>{helper}", request)
        if shown is None:
            return
        if isinstance(self.phases[helper], Enrolled) and not isinstance(shown, HelperOpening):
            self._tell(helper, self.attempt.opening)  # it comes late, and may still help to end the attempt
        for reply in (*self._tell(helper, shown), *self._add_up(helper)):
            self._answer(helper, reply)

    def _tell(self, helper: str, message: Message) -> tuple[Message, ...]:
        if self.restart:
            self.phases[helper] = load_helper(self.phases[helper].to_bytes())
        try:
            self.phases[helper], replies = self.phases[helper].receive(
                parse(message.to_bytes()), self.keys[helper], self.now_s
            )
        except PeerFault as fault:
            self.faults.append((helper, fault))
            return ()
        return replies

    def _add_up(self, helper: str) -> tuple[Message, ...]:
        summing = self.phases[helper]
        if not isinstance(summing, Summing):
            return ()
        adding = summing.adding()
        for chunk in adding.chunks():
            self.spool[f"{helper}/{chunk.seed}", chunk.index] = bytes(chunk.packed)
        self.phases[helper], replies = summing.summed(adding.finish(self.keys[helper]))
        return replies

    def _answer(self, helper: str, reply: Message) -> None:
        sent = self.tamper(helper, reply)
        if sent is None:
            return
        try:
            self.phase = self.phase.receive(parse(sent.to_bytes()), self.now_s)
        except PeerFault as fault:
            self.faults.append(("coordinator", fault))
