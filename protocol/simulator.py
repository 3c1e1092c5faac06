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
from protocol.coordinator import (
    Collecting,
    CoordinatorPhase,
    Ended,
    Enrolling,
    Erasing,
    Recovered,
    Voided,
    Windows,
    disclose,
)
from protocol.coordinator.enrolling import LOSS_DEFAULT
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.member import Closed, Enrolled, History, Opened, Ready, load_phase
from protocol.member.attempting import Attempting
from protocol.messages import (
    NO_INDICATOR,
    Cards,
    Certificate,
    Deliveries,
    Entry,
    Erasure,
    ErasureRequest,
    Evictions,
    Freeze,
    KeyCard,
    LedgerException,
    Link,
    Lost,
    Message,
    Opening,
    Past,
    Roster,
    Shown,
    Terms,
    Upload,
    VoidRequest,
    cohort_id,
    parse,
)
from protocol.messages.opening import MAX_ATTEMPTS
from protocol.storage import Generated, Memory, Storage, Unwritten
from protocol.transcript import Transcript

Vector = npt.NDArray[np.int64]
Vectors = Mapping[str, Vector] | Callable[[str], Vector]
"""By member; a callable makes each when it is masked, and none is kept."""
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
    ErasureRequest: After.REVEAL,
    Erasure: After.REVEAL,
    Certificate: After.REVEAL,
    Evictions: After.REVEAL,
    Lost: After.REVEAL,
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
        decryptors: indices of nominated decryptors; with none, the rules say who.
        withhold: whether the admin demands that rare classes are withheld.
        cap: most records of a member.
        lineage: lin_u of every upload; None for a new one every round.
        loss: members in a thousand that the cohort is sized to lose.
        storage: where phases, chunks and announcements are kept; None for memory. With one there is no transcript, and
            what all members are shown alike reaches them as one object: cohorts of thousands would encode and hold it
            as many times.
        now_s: the simulated clock, Unix time in seconds.
    """

    members: int
    drop: Mapping[int, After] = field(default_factory=dict)
    seed: int = 0
    tamper: Tamper = untampered
    restart: bool = False
    colluders: int | None = None
    decryptors: Sequence[int] = ()
    withhold: bool = False
    cap: int = 1_000_000
    lineage: bytes | None = None
    loss: int = LOSS_DEFAULT
    storage: Storage | None = None
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
            withhold=int(self.withhold),
        )
        self.links: tuple[Link, ...] = ()
        self.history: tuple[Past, ...] = ()
        self._stores: Storage = self.storage or Memory()
        self.phases = self._stores.phases()
        self.ending: Message | None = None
        self.faults: list[tuple[str, PeerFault]] = []
        self.enrol(counter=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.phases.clear()

    def enrol(self, counter: int) -> None:
        """Form a cohort: every member sends its card and takes the others'; what it knows of earlier rounds it keeps."""
        cohort = cohort_id(self.roster.hash, counter)
        enrolling = Enrolling(self.roster, counter, self.cap, self.colluders, loss=self.loss)
        known = {member: getattr(phase, "history", History()) for member, phase in self.phases.items()}
        for member, key in self.keys.items():
            phase, cards = Enrolled.start(
                member,
                self.roster,
                cohort,
                key,
                expires_s=int(self.now_s) + 10**7,
                history=known.get(member, History()),
                random_bytes=self.random,
            )
            self.phases[member] = phase
            for card in cards:
                sent = self.tamper(member, card)
                if isinstance(sent, KeyCard):
                    enrolling = enrolling.receive(sent, self.now_s)
        self.manifest = enrolling.manifest()
        kept = () if self.storage else self.manifest.members
        self.cards = Cards(self.manifest, tuple(Shown(enrolling.cards[member], ()) for member in kept))
        self.place, self.faults = (0, 0), []
        for member in self.manifest.members:
            shown = self.tamper(f"coordinator>{member}", enrolling.cards_for(self.manifest, member))
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
            "records_max": self.cap * len(self.manifest.members),
            "extractor": self.extractor,
            "ridges": (),
            "noise": b"",
            "indicator": NO_INDICATOR,
            "margin": 0,
            "withheld": (),
            "evicted": (),
            "latest_end_s": int(self.now_s) + 86_400,
        }
        return Terms(**{**values, **changes})  # type: ignore[arg-type]  # the names are Terms' own

    def opening(self, terms: Terms, exceptions: tuple[LedgerException, ...] = ()) -> Opening:
        """Sign the next opening."""
        sequence, attempt = self.place
        return Opening.make(
            self.coordinator,
            cohort=self.manifest.cohort,
            sequence=sequence,
            attempt=attempt,
            links=self.links,
            terms=terms,
            exceptions=exceptions,
        )

    def excepting(self, members: tuple[str, ...], reason: str = "a test") -> LedgerException:
        """The admin's exception for the next sequence."""
        return LedgerException.make(
            self.admin,
            federation=self.roster.federation,
            cohort=self.manifest.cohort,
            sequence=self.place[0],
            members=members,
            reason=reason,
        )

    def vectors(self, elements: int) -> dict[str, Vector]:
        """Small random vectors, one a member."""
        rng = np.random.default_rng(self.seed)
        return {member: rng.integers(-1000, 1000, elements) for member in self.ids}

    def run_round(
        self,
        vectors: Vectors | None = None,
        terms: Terms | None = None,
        exceptions: tuple[LedgerException, ...] = (),
    ) -> Outcome:
        """Run an attempt to its end; a phase in which nobody has anything more to say ends by its deadline."""
        self.begin(vectors, terms, exceptions)
        self.run_until()
        return self.finish()

    def begin(
        self,
        vectors: Vectors | None = None,
        terms: Terms | None = None,
        exceptions: tuple[LedgerException, ...] = (),
    ) -> None:
        """Open the next attempt; members who missed how the last one ended fetch that first."""
        if (ending := self.ending) is not None:
            for member in self.phases:
                held = self.phases[member]
                open_ = isinstance(held, Attempting) or (isinstance(held, Ready) and held.history.unsettled)
                if open_ and not self._gone(member, After.OPENING):
                    self._tell(member, ending)
        if vectors is None:
            vectors = self.vectors(terms.elements if terms else 100)
        if not isinstance(vectors, Mapping):
            vectors = Generated(self.ids, vectors)
        terms = terms or self.terms(len(next(iter(vectors.values()))))
        attempt = Attempt(self.roster, self.manifest, self.opening(terms, exceptions))
        self.vectors_now, self.spool, self.faults = vectors, self._stores.chunks(), []
        shelf = self._stores.shelf()
        self.phase: CoordinatorPhase = Collecting.begin(attempt, Windows(), self.now_s, self.history, shelf)
        self.transcript = Unwritten(()) if self.storage else Transcript.begin(attempt, self.cards)

    def run_until(self, *forms: type[CoordinatorPhase]) -> CoordinatorPhase:
        """Drive the attempt until the coordinator is in one of these phases, has ended, or waits for those who are gone."""
        while not isinstance(self.phase, (*forms, Ended)):
            before = self.phase
            for member in self.phase.attempt.members:
                if not isinstance(self.phase, forms):
                    self.phase = self._serve(self.phase, member)
            if self.phase is not before:
                continue
            if self.phase.deadline_s is None:
                break
            self.now_s = self.phase.deadline_s
            self.phase = self._moved(self.phase.expire(self.now_s))
        return self.phase

    def finish(self) -> Outcome:
        """Tell everybody how the attempt ended, and add up; the admin closes what too few report on."""
        if isinstance(self.phase, Erasing):
            self.phase = self._lose(self.phase)
        for member in self.phase.attempt.members:
            self._serve(self.phase, member)
        return self._outcome(self.phase)

    def disclose(self) -> None:
        """Let every member that has heard the end of the last round, an indicator round, recount it."""
        recovered = self.phase
        assert isinstance(recovered, Recovered)
        shown = disclose(recovered, lambda member, index: self.spool[member, index])
        for member in recovered.attempt.members:
            for message in filter(None, (recovered.evictions, shown)):
                sent = self.tamper(f"coordinator>{member}", message)
                if sent is not None and not self._gone(member, After.REVEAL):
                    self._tell(member, sent)

    def _lose(self, phase: Erasing) -> CoordinatorPhase:
        lost = Lost.make(self.admin, context=phase.attempt.context)
        after = phase.receive(parse(lost.to_bytes()), self.now_s)
        self.transcript = self.transcript.received(lost, phase, after)
        return after

    def _outcome(self, phase: CoordinatorPhase) -> Outcome:
        assert isinstance(phase, Ended)
        self.transcript = self.transcript.signed(self.coordinator, phase.attempt.context)
        sequence, number = self.place
        self.place = (sequence + 1, 0)
        self.ending = phase.closing
        self.links, self.history = (*self.links, phase.link), (*self.history, phase.past)
        if isinstance(phase, Voided) and number + 1 < MAX_ATTEMPTS:
            self.place = (sequence, number + 1)
        if not isinstance(phase, Recovered):
            return Outcome(phase, (), None, tuple(self.faults))
        unmasking = phase.unmasking()
        total = np.concatenate(
            [
                unmasking.chunk(index, ((member, self.spool[member, index]) for member in phase.summed))
                for index in range(phase.attempt.chunks)
            ]
        )
        survivors = tuple(survivor.member for survivor in phase.certificate.survivors)
        return Outcome(phase, survivors, total, tuple(self.faults))

    def _gone(self, member: str, after: After) -> bool:
        return self.drop.get(int(member.removeprefix("member-")), After.REVEAL) < after

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
        if isinstance(opened, Opened) and opened.opening == shown:
            replies = self._upload(member, opened)
        for reply in replies:
            phase = self._answer(phase, member, reply)
        return phase

    def _has_opened(self, member: str, attempt: Attempt) -> bool:
        held = self.phases[member]
        if isinstance(held, Ready):
            history = held.history
            known = {
                *(each.context for each in history.unsettled),
                *(each.context for each in history.settled),
            }
            return attempt.context in known
        return isinstance(held, Attempting | Closed) and held.opening == attempt.opening

    def _tell(self, member: str, message: Message) -> tuple[Message, ...]:
        if self.restart:
            self.phases[member] = load_phase(self.phases[member].to_bytes())
        try:
            self.phases[member], replies = self.phases[member].receive(
                self._carried(message), self.keys[member], self.now_s
            )
        except PeerFault as fault:
            self.faults.append((member, fault))
            return ()
        return replies

    def _carried(self, message: Message) -> Message:
        """The message as a member reads it."""
        alike = self.storage is not None and isinstance(message, Cards | Opening | Certificate)
        return message if alike else parse(message.to_bytes())

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
            self.keys[member], lineage=self._lineage(), records_tag=bytes(8), records=records
        )
        try:
            self.phases[member], announcements = opened.uploaded(upload, own)
        except PeerFault as fault:
            self.faults.append((member, fault))
            return ()
        return announcements

    def _lineage(self) -> bytes:
        """Every round is over new records, unless `lineage` says that all are over the same."""
        if self.lineage is not None:
            return self.lineage
        return hashlib.sha256(self.manifest.cohort + self.place[0].to_bytes(8, "little")).digest()[:8]

    def _answer(self, phase: CoordinatorPhase, member: str, reply: Message) -> CoordinatorPhase:
        sent = self.tamper(member, reply)
        if sent is None:
            return phase
        try:
            before, phase = phase, phase.receive(parse(sent.to_bytes()), self.now_s)
            self.transcript = self.transcript.received(sent, before, phase)
            if isinstance(sent, Upload) and not self._gone(member, After.UPLOAD):
                for index in range(phase.attempt.chunks):
                    phase = self._store(phase, member, index)
        except PeerFault as fault:
            self.transcript = self.transcript.refused(sent, fault)
            self.faults.append(("coordinator", fault))
        return phase

    def _moved(self, phase: CoordinatorPhase) -> CoordinatorPhase:
        self.transcript = self.transcript.moved(self.phase, phase)
        return phase

    def _store(self, phase: CoordinatorPhase, member: str, index: int) -> CoordinatorPhase:
        assert isinstance(phase, Collecting)
        packed = self.spool[member, index]
        phase.check_chunk(member, index, hashlib.sha256(packed).digest(), packed)
        after = phase.chunk_stored(member, index, self.now_s)
        self.transcript = self.transcript.moved(phase, after)
        return after
