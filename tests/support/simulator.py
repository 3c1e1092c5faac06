"""A whole federation in memory: real keys, real masks, no network, any failure replayed from a seed.

with Federation(members=10, drop={3: After.UPLOAD}) as federation:
outcome = federation.run_round(vectors)
"""

import hashlib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from tests.support.storage import Generated, Memory, Storage, Unwritten
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import (
    Certified,
    Collecting,
    CoordinatorPhase,
    Ended,
    Enrolling,
    Erasing,
    Recovered,
    Voided,
    disclose,
)
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Closed, Enrolled, History, MemberPhase, Opened, Ready, load_phase
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.member.history import Counted
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    Certificate,
    Deliveries,
    Entry,
    Erasure,
    ErasureRequest,
    Evictions,
    Freeze,
    KeyCard,
    Link,
    Lost,
    Message,
    Opening,
    Roster,
    Shown,
    Study,
    Survivor,
    SurvivorSet,
    Terms,
    Upload,
    VoidRequest,
    parse,
)
from veilsum.protocol.messages.opening import LOST_REASON, MAX_ATTEMPTS
from veilsum.protocol.opening_rules import earlier_context, link_of
from veilsum.protocol.study import (
    DAY_S,
    INDICATOR_STEP,
    SUM_STEP,
    Content,
    Question,
    as_tuples,
    read_content,
    withheld_classes,
)
from veilsum.protocol.transcript import Transcript

Vector = npt.NDArray[np.int64]
P = TypeVar("P", bound=CoordinatorPhase)
T = TypeVar("T")
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


def of(form: type[T], value: object) -> T:
    """The value, which must be of this form."""
    assert isinstance(value, form), value
    return value


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


def total_of(phase: Recovered, spool: Mapping[tuple[str, int], bytes]) -> Vector:
    """The sum, out of packed chunks by member and index."""
    unmasking, chunks = phase.unmasking(), range(phase.attempt.chunks)
    return np.concatenate([unmasking.chunk(i, ((m, spool[m, i]) for m in phase.summed)) for i in chunks])


def simulated_question(
    members: int, *, colluders: int | None = None, margin: int | None = None
) -> dict[str, Any]:
    """A question for a federation of so many members: short vectors, all members welcome, long windows.

    Args:
        members: N.
        colluders: a; None for a quarter.
        margin: r, where rare classes are withheld; None where all are published.
    """
    a = members // 4 if colluders is None else colluders
    return {
        "extractor": hashlib.sha256(b"a simulated extractor").hexdigest(),
        "dim": 10,
        "classes": ["a", "b", "c", "d"],
        "statistics": [{"kind": "ffc", "bias": False}],
        "ring_bits": 32,
        "records": {"least": 50, "most": 500, "least_per_class": 5, "rows_per_id": 1},
        "thin_classes": margin is None,
        "members_min": min(members, a + 3 + (margin or 0)),
        "members_max": members,
        "a": a,
        "h_min": 3,
        "loss": 100,
        "withhold": None if margin is None else {"margin": margin},
        "noise": None,
        "windows": {"enrol": 3600, "upload": 3600, "answer": 300},
    }


def simulated_roster(
    admin: SigningKey, coordinator: bytes, members: Mapping[str, bytes], /, **changes: Any
) -> Roster:
    """A federation's first roster: members by their public keys; other fields as given."""
    values = {
        "number": 1,
        "name": "simulated",
        "federation": admin.public,
        "coordinator": coordinator,
        "study_key": admin.public,
        "members": tuple(Entry(member, key) for member, key in members.items()),
        "decryptors": (),
        "readers": (),
        "revoked": (),
    }
    return Roster.make(admin, **{**values, **changes})


def simulated_content(
    question: Mapping[str, Any],
    expires_s: int,
    notes: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> Content:
    """A whole study around a question."""
    ccvr = any(statistic["kind"] == "ccvr" for statistic in question["statistics"])
    content = {
        "format": "veilsum-study/1",
        "notes": {"name": "simulated", "version": 1, "purpose": "", "display": [], "expires": expires_s}
        | dict(notes or {}),
        "question": question,
        "after": {
            "ridge": "gcv",
            "publish": [],
            "readers": "members",
            "ccvr": {"samples_per_class": 100, "power": 0.5} if ccvr else None,
        }
        | dict(after or {}),
    }
    return Content.model_validate(as_tuples(content))


def untampered(_sender: str, message: Message) -> Message:
    """Let every message pass as it is."""
    return message


class Chain:
    """What an honest coordinator remembers of the attempts that have ended, and how it opens the next.

    Attributes:
        links: all attempts.
        sets: certified survivors by context.
        summed: terms of certified attempts by context.
        counted: what indicators counted, by context.
    """

    def __init__(self) -> None:
        self.links: tuple[Link, ...] = ()
        self.sets: dict[bytes, tuple[Survivor, ...]] = {}
        self.summed: dict[bytes, Terms] = {}
        self.counted: dict[bytes, Counted] = {}

    def ended(self, phase: Ended, total: Vector | None) -> tuple[int, int]:
        """Note an attempt with its sum; the place that the cohort's next attempt has."""
        attempt, (sequence, number) = phase.attempt, phase.attempt.opening.place
        self.links = (*self.links, phase.link)
        if isinstance(phase, Certified):
            self.sets[attempt.context], self.summed[attempt.context] = (
                phase.certificate.survivors,
                attempt.terms,
            )
        if isinstance(phase, Recovered) and attempt.spec.indicator and total is not None:
            staying = tuple(each for each in phase.certificate.survivors if each.member in phase.summed)
            holders = tuple(int(count) for count in total)
            self.counted[attempt.context] = Counted(attempt.context, holders, staying, phase.evicted)
        retry = isinstance(phase, Voided) and number + 1 < MAX_ATTEMPTS
        return (sequence, number + 1) if retry else (sequence + 1, 0)

    def step_after(self, question: Question, period: str, repeats: bytes) -> str | None:
        """The step of a run that is opened next; None once the run is over."""
        run = (question.digest, period)
        spent = [
            link
            for link in self.links
            if (link.question, link.period) == run and link.repeats == repeats and link.spends
        ]
        if any(link.reason == LOST_REASON for link in spent):
            return None
        steps = {link.step for link in spent}
        return next((step for step in self.steps(question, repeats) if step not in steps), None)

    def steps(self, question: Question, repeats: bytes) -> tuple[str, ...]:
        """All steps of a run."""
        repeated = link_of(self.links, repeats)
        return question.steps if repeated is None else (repeated.step,)

    def terms_of(
        self, question: Question, period: str, repeats: bytes, now_s: float, step: str | None, material: bytes
    ) -> Terms:
        """The terms of a step, by default of the next one; `material` is what it takes, if it takes any."""
        step = step or self.step_after(question, period, repeats) or self.steps(question, repeats)[-1]
        material = material if question.takes_material(step) else NO_CONTEXT
        made = Terms(step, NO_CONTEXT, (), (), material, int(now_s) + DAY_S)
        if (repeated := self.summed.get(repeats)) is not None:
            return replace(repeated, step=step, material=material, latest_end_s=made.latest_end_s)
        for link in self.links:
            counted = self.counted.get(link.context)
            if counted and step == SUM_STEP and (link.question, link.period) == (question.digest, period):
                withheld = withheld_classes(question, counted.holders)
                made = replace(made, indicator=link.context, withheld=withheld, evicted=counted.evicted)
        return made

    def rests_on(self, attempt: Attempt) -> tuple[SurvivorSet, ...]:
        """The set that the attempt's survivors are held against."""
        found = self.sets.get(earlier_context(attempt))
        return () if found is None else (SurvivorSet(found),)


@dataclass
class Federation(Chain):
    """An admin, a coordinator and members in one process.

    Attributes:
        members: how many.
        drop: by member's index, the last thing it does before it vanishes; it hears nothing more after that. The
            mapping may change between rounds.
        seed: fixes every random byte.
        tamper: sees every message on its way.
        restart: store and reload a member's phase before each message it receives.
        colluders: the study's `a`; None for a quarter of the members.
        decryptors: indices of nominated decryptors; with none, the rules say who.
        margin: r, where the study withholds rare classes; None where it publishes all.
        question: further fields of the study's question, which replace those of `simulated_question`.
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
    margin: int | None = None
    question: Mapping[str, Any] = field(default_factory=dict)
    storage: Storage | None = None
    now_s: float = 1_000_000.0

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed)
        self.admin, self.coordinator = SigningKey(self.random(32)), SigningKey(self.random(32))
        width = len(str(self.members - 1))
        self.ids = tuple(f"member-{index:0{width}}" for index in range(self.members))
        self.keys = {member: SigningKey(self.random(32)) for member in self.ids}
        self.roster = simulated_roster(
            self.admin,
            self.coordinator.public,
            {member: key.public for member, key in self.keys.items()},
            decryptors=tuple(self.ids[index] for index in self.decryptors),
        )
        super().__init__()
        self.spool: MutableMapping[tuple[str, int], bytes] = {}
        self._stores: Storage = self.storage or Memory()
        self.phases = self._stores.phases()
        self.ending: Message | None = None
        self.faults: list[tuple[str, PeerFault]] = []
        self.counter = -1
        self.use(self.study_of())
        self.enrol("period-0")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.phases.clear()

    def study_of(self, **changes: Any) -> Study:
        """A study whose question has these fields beside the federation's own."""
        own = simulated_question(self.members, colluders=self.colluders, margin=self.margin)
        content = simulated_content({**own, **self.question, **changes}, int(self.now_s) + 80 * DAY_S)
        return Study.make(self.admin, federation=self.admin.public, content=content.to_bytes())

    def use(self, study: Study) -> None:
        """Take this study for the cohorts that are formed from now on."""
        self.study, self.content = study, read_content(study.content)

    def enrol(self, period: str, repeats: bytes = NO_CONTEXT) -> None:
        """Form a cohort: members send their cards and take the others'; what they know of earlier attempts they keep.

        Args:
            period: which records its run sums.
            repeats: context of a certified attempt that the run repeats.
        """
        self.counter += 1
        enrolling = Enrolling(
            self.roster, self.study, self.counter, period, repeats, self.sets.get(repeats, ())
        )
        for member in enrolling.invited:
            phase, cards = Enrolled.start(
                member,
                self.roster,
                self.study,
                self.keys[member],
                counter=self.counter,
                period=period,
                repeats=repeats,
                history=getattr(self.phases.get(member), "history", History()),
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

    @overload
    def ask(self, member: str, message: Message) -> tuple[MemberPhase, tuple[Message, ...]]: ...

    @overload
    def ask(self, member: str, message: Message, form: type[T]) -> tuple[T, tuple[Message, ...]]: ...

    def ask(self, member: str, message: Message, form: type[Any] = MemberPhase) -> Any:
        """What a member makes of a message, and in which phase it then is; the federation stays as it was."""
        phase, replies = self.phases[member].receive(message, self.keys[member], self.now_s)
        return of(form, phase), replies

    def answered(self, member: str, message: Message, form: type[T]) -> T:
        """The one answer of a member to a message; the federation stays as it was."""
        _, (reply,) = self.ask(member, message)
        return of(form, reply)

    def next_step(self) -> str | None:
        """The step of the cohort's run that is opened next; None once the run is over."""
        return self.step_after(self.content.question, self.manifest.period, self.manifest.repeats)

    def terms(self, step: str | None = None, **changes: Any) -> Terms:
        """The terms of a step, by default of the next one."""
        shown = self.manifest
        material = bytes([1] * 32)
        made = self.terms_of(self.content.question, shown.period, shown.repeats, self.now_s, step, material)
        return replace(made, **changes)

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

    def vectors(self, step: str | None = None) -> dict[str, Vector]:
        """Small random vectors for a step, one a member; zeros and ones for an indicator."""
        step = step or self.next_step() or self.content.question.steps[0]
        elements = self.content.question.elements_of(step)
        low, high = (0, 2) if step == INDICATOR_STEP else (-1000, 1000)
        rng = np.random.default_rng(self.seed)
        return {member: rng.integers(low, high, elements) for member in self.ids}

    def run_round(self, vectors: Vectors | None = None, terms: Terms | None = None) -> Outcome:
        """Run an attempt to its end; a phase in which no member has anything more to say ends by its deadline."""
        self.begin(vectors, terms)
        self.run_until()
        return self.finish()

    def begin(self, vectors: Vectors | None = None, terms: Terms | None = None) -> None:
        """Open the next attempt, in a cohort of a new period once a run is over; members first hear how the last one ended."""
        if terms is None and self.next_step() is None:
            self._tell_ending()
            self.enrol(f"period-{self.counter + 1}")
        self._tell_ending()
        terms = terms or self.terms()
        if vectors is None:
            vectors = self.vectors(terms.step)
        if not isinstance(vectors, Mapping):
            vectors = Generated(self.ids, vectors)
        attempt = Attempt(self.roster, self.study, self.manifest, self.opening(terms))
        self.vectors_now, self.spool, self.faults = vectors, self._stores.chunks(), []
        earlier, shelf = self.rests_on(attempt), self._stores.shelf()
        self.phase: CoordinatorPhase = Collecting.begin(attempt, self.now_s, earlier, shelf)
        self.transcript = Unwritten(()) if self.storage else Transcript.begin(attempt, self.cards)

    def _tell_ending(self) -> None:
        """Show how the last attempt ended to members that missed it."""
        if (ending := self.ending) is None:
            return
        for member in self.phases:
            held = self.phases[member]
            open_ = isinstance(held, Attempting) or (isinstance(held, Ready) and held.history.unsettled)
            if open_ and not self._gone(member, After.OPENING):
                self._tell(member, ending)

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

    def reach(self, stage: type[P]) -> P:
        """Begin an attempt, and drive it until the coordinator is in this phase."""
        self.begin()
        phase = self.run_until(stage)
        assert isinstance(phase, stage)
        return phase

    def finish(self) -> Outcome:
        """Tell all members how the attempt ended, and add up; the admin closes it if too few report."""
        if isinstance(self.phase, Erasing):
            self.phase = self._lose(self.phase)
        for member in self.phase.attempt.members:
            self._serve(self.phase, member)
        return self._outcome(self.phase)

    def disclose(self) -> None:
        """Let every member that has heard the end of the last attempt, an indicator, recount it."""
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
        self.ending = phase.closing
        total = total_of(phase, self.spool) if isinstance(phase, Recovered) else None
        self.place = self.ended(phase, total)
        survivors = phase.certificate.survivors if isinstance(phase, Recovered) else ()
        return Outcome(phase, tuple(each.member for each in survivors), total, tuple(self.faults))

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
                *(attempt.context for attempt in history.unsettled),
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
        step = opened.attempt.spec.chunk_elements
        for index in range(opened.attempt.chunks):
            packed = sealing.chunk(vector[index * step : (index + 1) * step])
            self.spool[member, index] = bytes(packed)
        upload, own = sealing.finish(self.keys[member])
        try:
            self.phases[member], announcements = opened.uploaded(upload, own)
        except PeerFault as fault:
            self.faults.append((member, fault))
            return ()
        return announcements

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
