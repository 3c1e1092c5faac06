"""A whole federation in memory: real keys, real masks, no network, any failure replayed from a seed.

with Federation(members=10, drop={3: After.UPLOAD}) as federation:
outcome = federation.run_round(vectors)
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Self

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from protocol.attempt import Attempt
from protocol.coordinator import Collecting, CoordinatorPhase, Ended, Enrolling, Recovered, Windows
from protocol.coordinator.ended import Certified
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.member import Closed, Enrolled, MemberPhase, Opened, load_phase
from protocol.member.attempting import Attempting
from protocol.messages import (
    Certificate,
    Deliveries,
    Entry,
    Freeze,
    KeyCard,
    Link,
    Message,
    Opening,
    Roster,
    Terms,
    Upload,
    VoidRequest,
    cohort_id,
    parse,
)
from protocol.messages.opening import MAX_ATTEMPTS
from protocol.unmasking import Unmasking

Vector = npt.NDArray[np.int64]
Tamper = Callable[[str, Message], Message | None]
"""Sees each message with its sender (a member, or "coordinator>member") and may change or swallow it."""


class After(IntEnum):
    """The last thing a member does before it vanishes for the rest of the round."""

    CARD = 0
    OPENING = 1
    ANNOUNCEMENT = 2
    UPLOAD = 3
    RECEIPT = 4
    VOTE = 5
    REVEAL = 6


_ANSWERS: dict[type[Message], After] = {
    Opening: After.OPENING,
    Deliveries: After.RECEIPT,
    Freeze: After.VOTE,
    VoidRequest: After.VOTE,
    Certificate: After.REVEAL,
}
"""What a member does with each question; one that has vanished does not hear it."""


class SeededRandom:
    """Reproducible bytes for simulations: AES-256-CTR from a seed. Never use it for a real member."""

    def __init__(self, seed: int) -> None:
        key = seed.to_bytes(32, "little")
        self._stream = Cipher(AES256(key), CTR(bytes(16))).encryptor()

    def __call__(self, count: int) -> bytes:
        """The next `count` bytes."""
        return self._stream.update(bytes(count))


@dataclass(frozen=True)
class Outcome:
    """How a simulated round ended.

    Attributes:
        phase: the coordinator's last phase.
        survivors: ids in the certified set; empty without one.
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


def untampered(_sender: str, message: Message) -> Message:
    """Let every message pass as it is."""
    return message


@dataclass
class Federation:
    """An admin, a coordinator and members in one process.

    Attributes:
        members: how many.
        drop: by member's index, the last thing it does before it vanishes; it hears nothing more after that. The
            mapping may change between rounds.
        seed: fixes every random byte.
        tamper: sees every message on its way.
        restart: store and reload a member's phase before each message it receives.
        colluders: `a`; None for a quarter of the roster.
        decryptors: indices of nominated decryptors; none means everyone.
        cap: most records of a member.
        now_s: the simulated clock, Unix time in seconds.
    """

    members: int
    drop: Mapping[int, After] = field(default_factory=dict)
    seed: int = 0
    tamper: Tamper = untampered
    restart: bool = False
    colluders: int | None = None
    decryptors: Sequence[int] = ()
    cap: int = 1_000_000
    now_s: float = 1_000_000.0

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed)
        self.admin, self.coordinator = SigningKey(self.random(32)), SigningKey(self.random(32))
        width = len(str(self.members - 1))
        self.ids = tuple(f"member-{index:0{width}}" for index in range(self.members))
        self.keys = {member: SigningKey(self.random(32)) for member in self.ids}
        self.extractor = hashlib.sha256(b"a simulated extractor").digest()
        self.roster = Roster.make(
            self.admin,
            version_number=1,
            federation=self.admin.public,
            coordinator=self.coordinator.public,
            members=tuple(Entry(member, key.public) for member, key in self.keys.items()),
            decryptors=tuple(self.ids[index] for index in self.decryptors),
            extractors=(self.extractor,),
            readers=(),
        )
        self.links: tuple[Link, ...] = ()
        self.enrol(counter=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.phases.clear()

    def enrol(self, counter: int) -> None:
        """Form a cohort: every member sends its card and takes the manifest."""
        cohort = cohort_id(self.roster.hash, counter)
        enrolling = Enrolling(self.roster, counter, self.cap, self.colluders)
        self.phases: dict[str, MemberPhase] = {}
        for member, key in self.keys.items():
            phase, cards = Enrolled.start(
                member, self.roster, cohort, key, expires_s=int(self.now_s) + 10**7, random_bytes=self.random
            )
            self.phases[member] = phase
            for card in cards:
                sent = self.tamper(member, card)
                if isinstance(sent, KeyCard):
                    enrolling = enrolling.receive(sent, self.now_s)
        self.manifest = enrolling.manifest()
        self.place = (0, 0)
        self.certificate: Certificate | None = None
        self.faults: list[tuple[str, PeerFault]] = []
        for member in self.manifest.members:
            shown = self.tamper(f"coordinator>{member}", self.manifest)
            if shown is not None:
                self._tell(member, shown)

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
            "records_max": self.cap * len(self.manifest.cards),
            "extractor": self.extractor,
            "ridges": (),
            "noise": b"",
            "latest_end_s": int(self.now_s) + 86_400,
        }
        return Terms(**{**values, **changes})  # type: ignore[arg-type]  # the names are Terms' own

    def opening(self, terms: Terms) -> Opening:
        """Sign the next opening."""
        sequence, attempt = self.place
        return Opening.make(
            self.coordinator,
            cohort=self.manifest.cohort,
            sequence=sequence,
            attempt=attempt,
            links=self.links,
            terms=terms,
        )

    def vectors(self, elements: int) -> dict[str, Vector]:
        """Small random vectors, one a member."""
        rng = np.random.default_rng(self.seed)
        return {member: rng.integers(-1000, 1000, elements) for member in self.ids}

    def run_round(self, vectors: Mapping[str, Vector] | None = None, terms: Terms | None = None) -> Outcome:
        """Run an attempt to its end; a phase in which nobody has anything more to say ends by its deadline."""
        self.begin(vectors, terms)
        self.run_until(Ended)
        return self.finish()

    def begin(self, vectors: Mapping[str, Vector] | None = None, terms: Terms | None = None) -> None:
        """Open the next attempt; members who missed the certificate of the last one fetch it first."""
        for member, phase in self.phases.items():
            if isinstance(phase, Attempting) and self.certificate and not self._gone(member, After.OPENING):
                self._tell(member, self.certificate)
        if vectors is None:
            vectors = self.vectors(terms.elements if terms else 100)
        terms = terms or self.terms(len(next(iter(vectors.values()))))
        attempt = Attempt(self.roster, self.manifest, self.opening(terms))
        self.vectors_now, self.spool, self.faults = vectors, dict[tuple[str, int], bytes](), []
        self.phase: CoordinatorPhase = Collecting.begin(attempt, Windows(), self.now_s)

    def run_until(self, *forms: type[CoordinatorPhase]) -> CoordinatorPhase:
        """Drive the attempt until the coordinator is in one of these phases, or has ended."""
        while not isinstance(self.phase, (*forms, Ended)):
            before = self.phase
            for member in self.phase.attempt.members:
                if not isinstance(self.phase, forms):
                    self.phase = self._serve(self.phase, member)
            if self.phase is before and self.phase.deadline_s is not None:
                self.now_s = self.phase.deadline_s
                self.phase = self.phase.expire(self.now_s)
        return self.phase

    def finish(self) -> Outcome:
        """Tell everybody how the attempt ended, and add up."""
        for member in self.phase.attempt.members:
            self._serve(self.phase, member)
        return self._outcome(self.phase)

    def _outcome(self, phase: CoordinatorPhase) -> Outcome:
        survivors: tuple[str, ...] = ()
        total = None
        sequence, number = self.place
        self.place = (sequence + 1, 0)
        self.certificate = phase.certificate if isinstance(phase, Certified) else None
        if isinstance(phase, Certified):
            survivors = tuple(survivor.member for survivor in phase.certificate.survivors)
            self.links = (*self.links, phase.attempt.link(phase.certificate.hash))
            if phase.certificate.void and number + 1 < MAX_ATTEMPTS:
                self.place = (sequence, number + 1)
        if isinstance(phase, Recovered):
            unmasking = Unmasking(phase)
            total = np.concatenate(
                [
                    unmasking.chunk(index, ((member, self.spool[member, index]) for member in survivors))
                    for index in range(phase.attempt.chunks)
                ]
            )
        return Outcome(phase, survivors, total, tuple(self.faults))

    def _gone(self, member: str, after: After) -> bool:
        return self.drop.get(self.ids.index(member), After.REVEAL) < after

    def _serve(self, phase: CoordinatorPhase, member: str) -> CoordinatorPhase:
        """Let one member take what the coordinator asks of it, and the coordinator its answers."""
        request = phase.request_for(member)
        if request is None or self._gone(member, _ANSWERS[type(request)]):
            return phase
        shown = self.tamper(f"coordinator>{member}", request)
        if not isinstance(shown, Opening) and not self._has_opened(member, phase.attempt):
            self._tell(member, phase.attempt.opening)  # it comes late, and may still help to end the attempt
        replies = self._tell(member, shown) if shown is not None else ()
        opened = self.phases[member]
        if isinstance(opened, Opened) and isinstance(shown, Opening):
            replies = self._upload(member, opened)
        for reply in replies:
            phase = self._answer(phase, member, reply)
        return phase

    def _has_opened(self, member: str, attempt: Attempt) -> bool:
        held = self.phases[member]
        return isinstance(held, Attempting | Closed) and held.opening == attempt.opening

    def _tell(self, member: str, message: Message) -> tuple[Message, ...]:
        if self.restart:
            self.phases[member] = load_phase(self.phases[member].to_bytes())
        try:
            self.phases[member], replies = self.phases[member].receive(
                parse(message.to_bytes()), self.keys[member], self.now_s
            )
        except PeerFault as fault:
            self.faults.append((member, fault))
            return ()
        return replies

    def _upload(self, member: str, opened: Opened) -> tuple[Message, ...]:
        if self._gone(member, After.ANNOUNCEMENT):
            return ()
        sealing, vector = opened.seal(self.random), self.vectors_now[member]
        records = min(len(vector), self.cap)
        step = opened.opening.terms.chunk_elements
        for index in range(opened.attempt.chunks):
            packed = sealing.chunk(vector[index * step : (index + 1) * step])
            self.spool[member, index] = bytes(packed)
        upload, own = sealing.finish(
            self.keys[member], lineage=bytes(8), records_tag=bytes(8), records=records
        )
        self.phases[member], announcements = opened.uploaded(upload, own)
        return announcements

    def _answer(self, phase: CoordinatorPhase, member: str, reply: Message) -> CoordinatorPhase:
        sent = self.tamper(member, reply)
        if sent is None:
            return phase
        try:
            phase = phase.receive(parse(sent.to_bytes()), self.now_s)
            if isinstance(sent, Upload) and not self._gone(member, After.UPLOAD):
                for index in range(phase.attempt.chunks):
                    phase = self._store(phase, member, index)
        except PeerFault as fault:
            self.faults.append(("coordinator", fault))
        return phase

    def _store(self, phase: CoordinatorPhase, member: str, index: int) -> CoordinatorPhase:
        assert isinstance(phase, Collecting)
        packed = self.spool[member, index]
        phase.check_chunk(member, index, hashlib.sha256(packed).digest(), len(packed))
        return phase.chunk_stored(member, index, self.now_s)
