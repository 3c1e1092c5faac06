"""A whole federation in memory: real keys, real masks, no network, and any failure reproducible from a seed.

with Federation(members=10, drop={3: After.UPLOAD}) as federation:
outcome = federation.run_round(vectors)
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from tests.support.chain import Chain
from tests.support.storage import Generated, Memory, Storage, Unwritten
from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.coordinator import (
    Collecting,
    CoordinatorPhase,
    Ended,
    Enrolling,
    Erasing,
    PairingWindow,
    Recovered,
    disclose_vectors,
)
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import Encapsulate, encapsulate
from veilsum.protocol.member import Closed, Enrolled, History, MemberPhase, Opened, Ready, Step, load_phase
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.member.enrolled import Pairable
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    Certificate,
    Ciphertexts,
    Deliveries,
    Enrolment,
    Entry,
    Erasure,
    ErasureRequest,
    Evictions,
    Freeze,
    Lost,
    Message,
    Opening,
    Pairing,
    Roster,
    Study,
    Terms,
    Upload,
    VoidRequest,
    parse_message,
)
from veilsum.protocol.pairing import split_pairing
from veilsum.protocol.study import COUNT_STEP, DAY_S, ROWS_STEP, Content, as_tuples, read_content
from veilsum.protocol.transcript import Accusation, Transcript

Vector = npt.NDArray[np.int64]
P = TypeVar("P", bound=CoordinatorPhase)
T = TypeVar("T")
Vectors = Mapping[str, Vector] | Callable[[str], Vector]
"""Vectors by member. A callable makes each vector at masking, and none is stored."""
Tamper = Callable[[str, Message], Message | None]
"""Gets each message with its sender (a member, or "coordinator>member"); may change it, or swallow it by returning None."""


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
"""What a member does in answer to each message. A member that has vanished doesn't get the message."""


def of(form: type[T], value: object) -> T:
    """Return the value after asserting its type."""
    assert isinstance(value, form), value
    return value


class SeededRandom:
    """Reproducible bytes for simulations: AES-256-CTR from a seed. Never use it for a real member."""

    def __init__(self, seed: int) -> None:
        key = seed.to_bytes(32, "little")
        self._stream = Cipher(AES256(key), CTR(bytes(16))).encryptor()

    def __call__(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        return self._stream.update(bytes(count))


@dataclass(frozen=True)
class Outcome:
    """How a simulated round ended.

    Attributes:
        phase: the coordinator's last phase.
        survivors: ids in the certified set; empty without one.
        total: the sum over the survivors, or None.
        faults: what was refused on the way, and by whom.
    """

    phase: CoordinatorPhase
    survivors: tuple[str, ...]
    total: Vector | None
    faults: tuple[tuple[str, PeerFault], ...]

    @property
    def fault(self) -> PeerFault | None:
        """Why there is no sum; None if there is one."""
        return getattr(self.phase, "fault", None)


def total_of(phase: Recovered, spool: Mapping[tuple[str, int], bytes]) -> Vector:
    """Add up packed chunks, given by member and index."""
    unmasking, chunks = phase.prepare_unmasking(), range(phase.attempt.chunk_count)
    return np.concatenate(
        [unmasking.sum_chunk(i, ((m, spool[m, i]) for m in phase.summed_members)) for i in chunks]
    )


def simulated_question(
    members: int, *, colluders: int | None = None, margin: int | None = None
) -> dict[str, Any]:
    """Make a question for this many members: short vectors, all members welcome, long windows.

    Args:
        members: N.
        colluders: a; None for a quarter.
        margin: r, if rare classes are withheld; None to publish all classes.
    """
    a = members // 4 if colluders is None else colluders
    return {
        "extractor": hashlib.sha256(b"a simulated extractor").hexdigest(),
        "dim": 10,
        "classes": ["a", "b", "c", "d"],
        "columns": [],
        "constant": False,
        "listable": False,
        "statistics": [{"kind": "ffc"}],
        "ring_bits": 32,
        "records": {"least": 50, "most": 500, "least_per_class": 5, "rows_per_id": 1},
        "members_min": min(members, a + 3 + (margin or 0)),
        "members_max": members,
        "a": a,
        "h_min": 3,
        "loss": 100,
        "withhold": None if margin is None else {"margin": margin},
        "noise": None,
        "judge": None,
        "windows": {"enrol": 3600, "upload": 3600, "answer": 300},
    }


def simulated_roster(
    admin: SigningKey, coordinator: bytes, members: Mapping[str, bytes], /, **changes: Any
) -> Roster:
    """Make a federation's first roster from members' public keys and other fields."""
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
    return Roster.make_signed(admin, **{**values, **changes})


def simulated_reasons(question: Mapping[str, Any]) -> dict[str, str]:
    """Make the notes' sentences for what a question allows."""
    all_classes = question["noise"] is None and question["withhold"] is None
    return {
        "why_not_listable": "" if question["listable"] else "simulated features",
        "why_not_withheld": "simulated classes" if all_classes else "",
    }


def simulated_content(
    question: Mapping[str, Any],
    expires_s: int,
    notes: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    rehearsal: Mapping[str, Any] | None = None,
) -> Content:
    """Make a study's whole content around a question."""
    ccvr = any(statistic["kind"] == "ccvr" for statistic in question["statistics"])
    content = {
        "format": "veilsum-study/2",
        "notes": {"name": "simulated", "version": 1, "purpose": "", "display": [], "expires": expires_s}
        | simulated_reasons(question)
        | dict(notes or {}),
        "question": question,
        "after": {
            "ridge": "gcv",
            "publish": [],
            "readers": "members",
            "ccvr": {"samples_per_class": 100, "power": 0.5} if ccvr else None,
        }
        | dict(after or {}),
        "rehearsal": rehearsal,
    }
    return Content.model_validate(as_tuples(content))


def untampered(_sender: str, message: Message) -> Message:
    """Let every message pass unchanged."""
    return message


@dataclass
class Federation(Chain):
    """An admin, a coordinator and members in one process.

    Attributes:
        members: how many.
        drop: by member's index, the last thing that the member does before it vanishes for the rest of the round. The
            mapping may change between rounds.
        seed: fixes every random byte, but for what members encapsulate.
        tamper: sees every message on its way.
        restart: store and reload a member's phase before each message it receives.
        colluders: the study's `a`; None for a quarter of the members.
        decryptors: indices of nominated decryptors; empty for the protocol's choice.
        margin: r, if the study withholds rare classes; None if it publishes all.
        question: fields that replace those of `simulated_question`.
        storage: stores of phases, chunks and announcements; None for memory. With a storage there is no transcript, and
            messages that are the same for all members are passed as one object: encoding and holding thousands of copies
            would cost too much.
        now_s: the simulated clock, Unix time in seconds.
        encapsulate: source of the secrets that members encapsulate. `cryptography` draws them without a seed, so two runs send the
            same bytes only with one that remembers them.
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
    encapsulate: Encapsulate = encapsulate

    def __post_init__(self) -> None:
        self.random: Callable[[int], bytes] = SeededRandom(self.seed)
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
        self.ending: Closing | None = None
        self.faults: list[tuple[str, PeerFault]] = []
        self.counter, self.serial = -1, 0
        self.use(self.study_of())
        self.enrol("period-0")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.phases.clear()

    def study_of(self, **changes: Any) -> Study:
        """Make a study with these fields in its question, on top of the federation's own."""
        own = simulated_question(self.members, colluders=self.colluders, margin=self.margin)
        content = simulated_content({**own, **self.question, **changes}, int(self.now_s) + 80 * DAY_S)
        return Study.make_signed(self.admin, federation=self.admin.public, content=content.to_bytes())

    def use(self, study: Study) -> None:
        """Use this study for the cohorts that are formed from now on."""
        self.study, self.content = study, read_content(study.content)

    def enrol(self, period: str, repeats: bytes = NO_CONTEXT) -> None:
        """Form a cohort: members exchange their cards and pair. They remember earlier attempts.

        Args:
            period: the period whose records the run sums.
            repeats: context of a certified attempt that the run repeats.
        """
        self.pair(self.collect_cards(period, repeats))

    def collect_cards(self, period: str, repeats: bytes = NO_CONTEXT) -> Enrolling:
        """Let the members send their cards for the next cohort, and show them nothing."""
        self.counter += 1
        enrolling = Enrolling(
            self.roster, self.study, self.counter, period, repeats, self.sets.get(repeats, ())
        )
        self.serial += 1
        for member in enrolling.invited_members:
            phase, cards = Enrolled.begin_enrolment(
                member,
                self.roster,
                self.study,
                self.keys[member],
                counter=self.counter,
                period=period,
                serial=self.serial,
                now_s=self.now_s,
                repeats=repeats,
                history=getattr(self.phases.get(member), "history", History()),
                random_bytes=self.random,
            )
            self.phases[member] = phase
            for card in cards:
                sent = self.tamper(member, card)
                if isinstance(sent, Enrolment):
                    enrolling = enrolling.receive(sent, self.now_s)
        self.place, self.faults = (0, 0), []
        return enrolling

    def pair(self, enrolling: Enrolling) -> None:
        """Let the members pair, without those that don't. Raises PeerFault(cohort-too-small) if too few do."""
        window = PairingWindow.begin(enrolling)
        while not (window := self._pair_all(window)).is_complete:
            self.now_s += self.content.question.windows.answer
            window = window.leave_out_missing()
        self.cards = Cards(self.manifest, ()) if self.storage else window.enrolling.all_cards(self.manifest)

    def _pair_all(self, window: PairingWindow) -> PairingWindow:
        """Let the members of a manifest pair, and show them each other's ciphertexts once all have."""
        self.manifest, mailbox = window.manifest, self._stores.mailbox()
        manifest = self.manifest

        def welcomed(member: str) -> tuple[Message, ...]:
            return self._show(member, window.enrolling.cards_for(manifest, member))

        def paired(member: str) -> tuple[Message, ...]:
            return self._show(member, Ciphertexts(manifest.hash, mailbox.take(member)))

        for member, replies in self._each(welcomed, manifest.members):
            for reply in replies:
                if isinstance(sent := self.tamper(member, reply), Pairing):
                    try:
                        window = window.receive(sent)
                    except PeerFault as fault:
                        self.faults.append((member, fault))
                        continue
                    for recipient, shown in split_pairing(manifest, sent):
                        mailbox.put(recipient, shown)
        if window.is_complete:
            for _ in self._each(paired, manifest.members):
                pass
        return window

    def _show(self, member: str, message: Message) -> tuple[Message, ...]:
        shown = self.tamper(f"coordinator>{member}", message)
        return () if shown is None else self.tell_member(member, shown)

    @overload
    def ask(self, member: str, message: Message) -> tuple[MemberPhase, tuple[Message, ...]]: ...

    @overload
    def ask(self, member: str, message: Message, form: type[T]) -> tuple[T, tuple[Message, ...]]: ...

    def ask(self, member: str, message: Message, form: type[Any] = MemberPhase) -> Any:
        """Return a member's next phase and its replies to a message, without changing the federation."""
        phase, replies = self._step(member, message)
        return of(form, phase), replies

    def _step(self, member: str, message: Message) -> Step:
        phase, key = self.phases[member], self.keys[member]
        if isinstance(phase, Pairable) and isinstance(message, Cards):
            return phase.pair(message, key, self.now_s, self.encapsulate)
        return phase.receive(message, key, self.now_s)

    def answered(self, member: str, message: Message, form: type[T]) -> T:
        """Return a member's only reply to a message, without changing the federation."""
        _, (reply,) = self.ask(member, message)
        return of(form, reply)

    def after(self, *messages: Message) -> CoordinatorPhase:
        """Return the coordinator's phase once it has these messages, without changing the federation."""
        phase = self.phase
        for message in messages:
            phase = phase.receive(message, self.now_s)
        return phase

    def next_step(self) -> str | None:
        """Return the step of the cohort's run to open next; None once the run is over."""
        return self.step_after(self.content.question, self.manifest.period, self.manifest.repeats)

    def terms(self, step: str | None = None, **changes: Any) -> Terms:
        """Make a step's terms, by default the next step's."""
        shown = self.manifest
        material = bytes([1] * 32)
        made = self.terms_of(self.content.question, shown.period, shown.repeats, self.now_s, step, material)
        return replace(made, **changes)

    def opening(self, terms: Terms) -> Opening:
        """Sign the next opening."""
        sequence, attempt = self.place
        return Opening.make_signed(
            self.coordinator,
            cohort=self.manifest.cohort,
            sequence=sequence,
            attempt=attempt,
            links=self.links,
            terms=terms,
        )

    def vectors(self, step: str | None = None) -> dict[str, Vector]:
        """Make small random vectors for a step, one for each member; zeros and ones for a count, ones for rows."""
        step = step or self.next_step() or self.content.question.steps_in(self.manifest.period)[0]
        elements = self.content.question.elements_of(step)
        low, high = {COUNT_STEP: (0, 2), ROWS_STEP: (1, 2)}.get(step, (-1000, 1000))
        rng = np.random.default_rng(self.seed)
        return {member: rng.integers(low, high, elements) for member in self.ids}

    def run_round(self, vectors: Vectors | None = None, terms: Terms | None = None) -> Outcome:
        """Run an attempt to its end. A phase in which no member has more to say ends by its deadline."""
        self.begin(vectors, terms)
        self.run_until()
        return self.finish()

    def begin(self, vectors: Vectors | None = None, terms: Terms | None = None) -> None:
        """Open the next attempt, in a new period's cohort once the run is over. Members first learn how the last attempt ended."""
        if terms is None and self.next_step() is None:
            self.tell_ending()
            self.enrol(f"period-{self.counter + 1}")
        self.tell_ending()
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

    def tell_ending(self) -> None:
        """Show members that missed it how the last attempt ended."""
        if (ending := self.ending) is None:
            return
        for member in self.phases:
            held = self.phases[member]
            awaited = [held.attempt] if isinstance(held, Attempting) else []
            if isinstance(held, Attempting | Ready):
                awaited += held.history.unsettled
            here = any(attempt.context == ending.context for attempt in awaited)
            if here and not self._gone(member, After.OPENING):
                self.tell_member(member, ending)

    def run_until(self, *forms: type[CoordinatorPhase]) -> CoordinatorPhase:
        """Drive the attempt until the coordinator is in one of these phases, has ended, or waits for vanished members."""
        while not isinstance(self.phase, (*forms, Ended)):
            before = self.phase
            members = self.phase.attempt.members
            for member, replies in self._each(lambda member: self._replies(self.phase, member), members):
                self.phase = self._receive(self.phase, member, replies)
                if isinstance(self.phase, forms):
                    break
            if self.phase is not before:
                continue
            if self.phase.deadline_s is None:
                break
            self.now_s = self.phase.deadline_s
            self.phase = self.note_change(self.phase.pass_deadline(self.now_s))
        return self.phase

    def reach(self, stage: type[P]) -> P:
        """Begin an attempt, and drive it until the coordinator is in this phase."""
        self.begin()
        phase = self.run_until(stage)
        assert isinstance(phase, stage)
        return phase

    def finish(self) -> Outcome:
        """Tell all members how the attempt ended, and add up. The admin closes it if too few members report."""
        if isinstance(self.phase, Erasing):
            self.phase = self._lose(self.phase)
        ended = self.phase
        for member, replies in self._each(lambda member: self._replies(ended, member), ended.attempt.members):
            self._receive(ended, member, replies)
        return self._outcome(ended)

    def disclose(self) -> None:
        """Let every member that knows the end of the last attempt, a count, recount it."""
        recovered = self.phase
        assert isinstance(recovered, Recovered)
        shown = disclose_vectors(recovered, lambda member, index: self.spool[member, index])
        for member in recovered.attempt.members:
            for message in filter(None, (recovered.evictions, shown)):
                sent = self.tamper(f"coordinator>{member}", message)
                if sent is not None and not self._gone(member, After.REVEAL):
                    self.tell_member(member, sent)

    def _lose(self, phase: Erasing) -> CoordinatorPhase:
        lost = Lost.make_signed(self.admin, context=phase.attempt.context)
        after = phase.receive(parse_message(lost.to_bytes()), self.now_s)
        self.transcript = self.transcript.note_accepted(lost, phase, after)
        return after

    def _outcome(self, phase: CoordinatorPhase) -> Outcome:
        assert isinstance(phase, Ended)
        self.transcript = self.transcript.sign(self.coordinator, phase.attempt.context)
        self.ending = phase.closing
        total = self._total(phase) if isinstance(phase, Recovered) else None
        self.place = self.ended(phase, total)
        survivors = phase.certificate.survivors if isinstance(phase, Recovered) else ()
        return Outcome(phase, tuple(each.member for each in survivors), total, tuple(self.faults))

    def _total(self, phase: Recovered) -> Vector:
        return total_of(phase, self.spool)

    def _gone(self, member: str, after: After) -> bool:
        return self.drop.get(int(member.removeprefix("member-")), After.REVEAL) < after

    def _each(
        self, says: Callable[[str], tuple[Message, ...]], members: tuple[str, ...]
    ) -> Iterator[tuple[str, tuple[Message, ...]]]:
        """Yield each member's messages, made one member at a time. A subclass may make them elsewhere."""
        return zip(members, map(says, members), strict=True)

    def serve_member(self, phase: CoordinatorPhase, member: str) -> CoordinatorPhase:
        """Give a member the coordinator's request, and the coordinator the member's answers."""
        return self._receive(phase, member, self._replies(phase, member))

    def _replies(self, phase: CoordinatorPhase, member: str) -> tuple[Message, ...]:
        """Give a member the coordinator's request, and return the member's messages."""
        request = phase.request_for(member)
        if request is None or self._gone(member, _ANSWERS[type(request)]):
            return ()
        shown = self.tamper(f"coordinator>{member}", request)
        if isinstance(shown, Opening) or self._has_opened(member, phase.attempt):
            replies = self.tell_member(member, shown) if shown is not None else ()
        else:
            replies = self._tell_late(member, phase.attempt.opening, shown)
        opened = self.phases[member]
        if isinstance(opened, Opened) and opened.opening == shown:
            replies = self._upload(member, opened)
        return replies

    def _receive(
        self, phase: CoordinatorPhase, member: str, replies: tuple[Message, ...]
    ) -> CoordinatorPhase:
        for reply in replies:
            phase = self.take_reply(phase, member, reply)
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

    def tell_member(self, member: str, message: Message) -> tuple[Message, ...]:
        """Show a member a message, and return its answers; keep its refusal in `faults`."""
        if self.restart:
            self.phases[member] = load_phase(self.phases[member].to_bytes())
        try:
            self.phases[member], replies = self._step(member, self._carried(message))
        except PeerFault as fault:
            self.faults.append((member, fault))
            return ()
        return replies

    def _tell_late(self, member: str, opening: Opening, message: Message | None) -> tuple[Message, ...]:
        """Give a member that never opened the attempt the opening and a request: it may still help to end the attempt."""
        phase = self.phases[member].erase_expired(
            self.now_s
        )  # as every driver does once a latest end has passed
        if isinstance(message, ErasureRequest) and isinstance(phase, Ready | Closed):
            return self._erase_unopened(member, opening, message)
        self.tell_member(member, opening)
        return self.tell_member(member, message) if message is not None else ()

    def _erase_unopened(self, member: str, opening: Opening, request: ErasureRequest) -> tuple[Message, ...]:
        phase = self.phases[member].erase_expired(self.now_s)
        ready = phase if isinstance(phase, Ready) else of(Closed, phase).ready
        try:
            self.phases[member], replies = ready.erase_unopened(
                opening, request, self.keys[member], self.now_s
            )
        except PeerFault as fault:
            self.faults.append((member, fault))
            return ()
        return replies

    def _carried(self, message: Message) -> Message:
        """Return the message as a member reads it."""
        alike = self.storage is not None and isinstance(message, Cards | Opening | Certificate)
        return message if alike else parse_message(message.to_bytes())

    def _upload(self, member: str, opened: Opened) -> tuple[Message, ...]:
        if self._gone(member, After.ANNOUNCEMENT):
            return ()
        sealing, vector = opened.begin_sealing(self.random), self.vectors_now[member]
        step = opened.attempt.spec.chunk_elements
        for index in range(opened.attempt.chunk_count):
            packed = sealing.mask_next_chunk(vector[index * step : (index + 1) * step])
            self.spool[member, index] = bytes(packed)
        upload, own = sealing.finish(self.keys[member])
        try:
            self.phases[member], announcements = opened.store_upload(upload, own)
        except PeerFault as fault:
            self.faults.append((member, fault))
            return ()
        return announcements

    def take_reply(self, phase: CoordinatorPhase, member: str, reply: Message) -> CoordinatorPhase:
        """Give the coordinator a member's message, as `tamper` changes it; keep its refusal in `faults`."""
        sent = self.tamper(member, reply)
        if sent is None:
            return phase
        try:
            before, phase = phase, phase.receive(parse_message(sent.to_bytes()), self.now_s)
            self.transcript = self.transcript.note_accepted(sent, before, phase)
            if isinstance(sent, Upload) and not self._gone(member, After.UPLOAD):
                for index in range(phase.attempt.chunk_count):
                    phase = self._store(phase, member, index)
        except PeerFault as fault:
            if (found := Accusation.from_refusal(sent, fault)) is not None:
                self.transcript = self.transcript.note_accusation(found)
            self.faults.append(("coordinator", fault))
        return phase

    def note_change(self, phase: CoordinatorPhase) -> CoordinatorPhase:
        """Note in the transcript what changes from the current phase to this one, and return it."""
        self.transcript = self.transcript.note_phase_change(self.phase, phase)
        return phase

    def _store(self, phase: CoordinatorPhase, member: str, index: int) -> CoordinatorPhase:
        assert isinstance(phase, Collecting)
        packed = self.spool[member, index]
        phase.check_chunk(member, index, hashlib.sha256(packed).digest(), packed)
        after = phase.chunk_stored(member, index, self.now_s)
        self.transcript = self.transcript.note_phase_change(phase, after)
        return after
