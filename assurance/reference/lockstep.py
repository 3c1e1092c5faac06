"""`protocol`'s simulator next to the second implementation: both draw the same bytes, and every message is made twice and compared."""

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assurance.reference import coordinator, reference, wire
from assurance.reference.lies import Lie, lying
from assurance.reference.replay import replay as replayed
from assurance.reference.study import canonical
from assurance.reference.wire import Refused, decode
from tests.support.simulator import Federation, Outcome, SeededRandom, of
from veilsum.protocol import round_spec
from veilsum.protocol.coordinator import (
    Certified,
    Checking,
    Collecting,
    CoordinatorPhase,
    Ended,
    Erasing,
    Freezing,
    PairingWindow,
    Recovered,
    Revealing,
    Voided,
    Voiding,
)
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import Encapsulated, encapsulate
from veilsum.protocol.member import Closed, Opened, Ready
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    Certificate,
    Chain,
    Ciphertexts,
    Deliveries,
    Disclosure,
    Enrolment,
    Erased,
    Erasure,
    ErasureRequest,
    Evictions,
    Freeze,
    Lost,
    Message,
    Opening,
    Pairing,
    Receipt,
    Reveal,
    Study,
    Upload,
    VoidRequest,
    Vote,
)
from veilsum.protocol.replay import replay_transcript
from veilsum.protocol.transcript import Transcript

TAKES: dict[type[Message], tuple[type[CoordinatorPhase], ...]] = {
    Upload: (Collecting,),
    Receipt: (Checking, Freezing, Revealing),
    Vote: (Freezing, Voiding, Revealing, Erasing, Ended),
    Reveal: (Revealing,),
    Erased: (Erasing,),
}
"""The phases in which the coordinator reads a message; in others the message is late."""


class Tape(SeededRandom):
    """Record the bytes drawn since the last `take`."""

    def __init__(self, source: Callable[[int], bytes]) -> None:
        self.source, self.drawn = source, bytearray()

    def __call__(self, count: int) -> bytes:
        data = self.source(count)
        self.drawn += data
        return data

    def take(self) -> bytes:
        """Return all bytes since the last call."""
        data = bytes(self.drawn)
        self.drawn.clear()
        return data


def player(data: bytes) -> Callable[[int], bytes]:
    """Return a source that draws the same bytes again."""
    stream = iter(data)
    return lambda count: bytes(next(stream) for _ in range(count))


def coefficients(data: bytes, t: int, secrets: int) -> Iterator[int]:
    """Yield what `share_secrets` drew, by secret and limb. It draws by powers, and draws again for each word equal to p."""
    words = [word & wire.P for (word,) in struct.iter_unpack("<I", data)]
    drawn, again = words[: 9 * (t - 1) * secrets], iter(words[9 * (t - 1) * secrets :])
    while rejected := [place for place, word in enumerate(drawn) if word == wire.P]:
        for place in rejected:
            drawn[place] = next(again)
    for column in range(9 * secrets):
        yield from drawn[column :: 9 * secrets]


def refusal(act: Callable[[], object]) -> str | None:
    """Return why the reference refuses an act; None if it doesn't."""
    try:
        act()
    except Refused as refused:
        return str(refused.args[0])
    return None


def private(key: SigningKey) -> Ed25519PrivateKey:
    """Return the same identity for the reference."""
    return Ed25519PrivateKey.from_private_bytes(key.seed)


def judged(transcript: Transcript) -> set[frozenset[str]]:
    """Return whom a transcript shows as false or in dispute, by both implementations; {∅} if neither can replay it.

    Disputes shown by a coordinator that is false itself are not compared.
    """
    found = said = {frozenset[str]()}
    with suppress(PeerFault):
        found = {frozenset(finding.parties) for finding in replay_transcript(transcript).findings}
    with suppress(Refused):
        said = replayed(transcript.entries, transcript.signature)
    false = frozenset({"coordinator"}) in found | said
    one, other = ({each for each in parties if not false or len(each) == 1} for parties in (found, said))
    assert one == other, (found, said)
    return found


@dataclass
class Lockstep(Federation):
    """Run rounds as `Federation` does, and compare every message with the reference's.

    Attributes:
        lies: by member, a fault in its next upload.
        late: members whose boxes are lost until there is a proposal.
        unpaired: for each manifest of the next cohort, the members that don't pair, with the message that is lost: Cards or Pairing.
        chunk: elements of every chunk except the last.
        compared: number of equal messages by kind.
        ends: number of attempts by final phase.
    """

    lies: dict[str, Lie] = field(default_factory=dict)
    late: frozenset[str] = frozenset()
    unpaired: Sequence[Mapping[str, type[Message]]] = ()
    chunk: int = 64
    compared: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        round_spec.CHUNK_ELEMENTS = self.chunk  # the tests restore it
        self.known = defaultdict[str, reference.Known](reference.Known)
        self.twins: dict[str, reference.Member] = {}
        self.version = 0
        self.elders: dict[tuple[object, ...], reference.Member] = {}
        self.encapsulated: dict[str, Encapsulated] = {}
        super().__post_init__()

    def study_of(self, **changes: Any) -> Study:
        """As `Federation.study_of`, with a rising version."""
        content = json.loads(super().study_of(**changes).content)
        content["notes"]["version"] = self.version = self.version + 1
        content["rehearsal"] = {"pack": "c5" * 32, "tolerance": 0.01} if self.version % 2 else None
        return Study.make_signed(self.admin, federation=self.admin.public, content=canonical(content))

    def enrol(self, period: str, repeats: bytes = NO_CONTEXT) -> None:
        """As `Federation.enrol`; twins remember earlier cohorts."""
        self.tape = Tape(self.random)
        self.random = self.tape
        for member, twin in self.twins.items():
            self.elders[member, twin.context] = twin
        run = (self.roster.to_bytes(), self.study.to_bytes(), self.counter + 1, period, repeats)
        common: dict[str, Any] = {"chunk": self.chunk}
        invited = [survivor.member for survivor in self.sets.get(repeats, ())] or [*self.ids]
        for member in invited:
            twin = reference.Member(
                member,
                private(self.keys[member]),
                *run,
                known=self.known[member],
                federation=self.roster.federation,
                now=int(self.now_s),
                **common,
            )
            twin.now = int(self.now_s)
            self.twins[member] = twin
            twin.encapsulate = self._encapsulate_again
        self.twin = coordinator.Coordinator(private(self.coordinator), *run, known=self.known[""], **common)
        self.twin.now = int(self.now_s)
        self.requests: set[bytes] = set()
        self.tamper, self.encapsulate = self._on_its_way, self._encapsulate
        failed: PeerFault | None = None
        try:
            super().enrol(period, repeats)
        except PeerFault as fault:
            failed = fault
        if failed:  # there is no manifest, or no further one
            assert refusal(self._make_manifest) == failed.cause.value
            self.compared["cohorts that fail"] += 1
            raise failed
        self.compared[f"cohorts of {self.twin.manifests} manifests"] += 1

    def _encapsulate(self, mlkem_key: bytes, owner: str) -> Encapsulated:
        self.encapsulated[owner] = made = encapsulate(mlkem_key, owner)
        return made

    def _encapsulate_again(self, mlkem_key: bytes, owner: str) -> tuple[bytes, bytes]:
        """Return what was encapsulated to this owner last."""
        assert mlkem_key
        secret, ciphertext = self.encapsulated.pop(owner)
        return bytes(secret), ciphertext

    def _make_manifest(self) -> None:
        """Have the reference coordinator make the cohort's next manifest."""
        if self.twin.manifests:
            self.twin.leave_out()
        else:
            self.twin.gather()

    def _pair_all(self, window: PairingWindow) -> PairingWindow:
        self._make_manifest()
        self.alike(window.manifest, wire.encode(self.twin.m))
        return super()._pair_all(window)

    def _is_lost(self, member: str, message: Message) -> bool:
        place = self.twin.manifests - 1
        return place < len(self.unpaired) and self.unpaired[place].get(member) is type(message)

    def _on_its_way(self, sender: str, message: Message) -> Message | None:
        match message:
            case Deliveries() if isinstance(self.phase, Checking):
                return None if sender.removeprefix("coordinator>") in self.late else message
            case Enrolment(card, _):
                drawn = player(self.tape.take())
                self.alike(message, self.twins[sender].enrol(card.expires_s, drawn, card.serial))
                self.twin.receive(message.to_bytes())
            case Cards() | Pairing() if self._is_lost(sender.removeprefix("coordinator>"), message):
                return None
            case Pairing():
                self.twin.receive(message.to_bytes())
        return message

    def alike(self, message: Message, other: bytes | None) -> None:
        """Check that both implementations made the same message."""
        assert message.to_bytes() == other, f"{type(message).__name__} differs"
        self.compared[type(message).__name__] += 1

    def begin(self, *arguments: Any) -> None:
        """As `Federation.begin`."""
        super().begin(*arguments)
        self.twin.now = int(self.now_s)
        assert self.twin.next == self.place
        self._request(self.phase.attempt.opening)
        assert self.phase.attempt.context == self.twin.context

    def _request(self, message: Message) -> None:
        """Have the reference coordinator make the same request, once."""
        data = message.to_bytes()
        if data in self.requests or message == self.ending:
            return
        self.twin.now = int(self.now_s)
        self.requests.add(data)
        match message:
            case Opening():
                said = decode(data, "Opening")
                self.proposed = False
                self.alike(message, self.twin.open(said.terms))
            case Freeze() | VoidRequest() if not self.proposed:
                self.proposed = True
                self.alike(message, self.twin.freeze())
            case VoidRequest():
                self.alike(message, self.twin.ask_void(message.reason))
            case Certificate():
                self.alike(message, self.twin.certify(message.reason))
            case Erasure():
                self.alike(message, self.twin.erase())
            case Lost():
                self.twin.receive(data)
            case Evictions():
                evictions = of(bytes, self.twin.result())
                self.alike(message, evictions)
            case Disclosure():
                self.alike(message, self.twin.disclose())

    def tell_member(self, member: str, message: Message) -> tuple[Message, ...]:
        if isinstance(message, Cards):
            self.alike(message, self.twin.show(member))
        elif isinstance(message, Ciphertexts):
            self.alike(message, self.twin.show_ciphertexts(member))
        elif isinstance(message, Deliveries):
            if isinstance(self.phase, Freezing):
                self._request(self.phase.proposal)  # before a receipt that comes after it
            self.compared["late"] += isinstance(self.phase, Freezing | Revealing)
            self.alike(message, self.twin.deliver(member))
        else:
            self._request(message)
        return self.show(member, message)

    def _erase_unopened(self, member: str, opening: Opening, request: ErasureRequest) -> tuple[Message, ...]:
        """Have a member and its twin erase an attempt that they never opened."""
        self._request(request)
        faults, twin = len(self.faults), self.twins[member]
        replies = super()._erase_unopened(member, opening, request)
        cause = self.faults[faults][1].cause.value if len(self.faults) > faults else None
        twin.now = int(self.now_s)
        said, answer = None, None
        try:
            answer = twin.erase_unopened(opening.to_bytes(), request.to_bytes())
        except Refused as refused:
            said = refused.args[0]
        assert said == cause, (said, cause)
        assert [reply.to_bytes() for reply in replies] == ([answer] if answer else [])
        self.compared.update(type(reply).__name__ for reply in replies)
        self._same_keys(member)
        return replies

    def show(self, member: str, message: Message) -> tuple[Message, ...]:
        """Have a member and its twin answer a message, from any sender."""
        twin, faults, phase = self._twin_of(member, message), len(self.faults), self.phases[member]
        if isinstance(message, Opening) and isinstance(phase, Attempting):
            self.phases[member] = phase.erase_expired(self.now_s)  # as every driver does once the latest end has passed
        replies = super().tell_member(member, message)
        cause = self.faults[faults][1].cause.value if len(self.faults) > faults else None
        twin.now = int(self.now_s)
        if (
            isinstance(message, Opening)
            and message.sequence_and_attempt == twin.place
            and self._has_opened(member, self.phase.attempt)
        ):
            return replies  # asked again
        said, answer = None, None
        try:
            answer = twin.receive(message.to_bytes())
        except Refused as refused:
            said = refused.args[0]
        if said or cause:
            # A member outside any attempt refuses an attempt's message: one implementation by its phase, the other by the context.
            assert said == cause or (said, cause) == ("wrong-context", "wrong-phase"), (said, cause, message)
            self.compared["refused"] += 1
            return replies
        assert [reply.to_bytes() for reply in replies] == ([answer] if answer else [])
        self.compared.update(type(reply).__name__ for reply in replies)
        self._same_keys(member)
        return replies

    def _twin_of(self, member: str, message: Message) -> reference.Member:
        """Return the member's twin in this cohort, or in the cohort whose attempt a message closes."""
        context = getattr(message, "context", b"") if isinstance(message, Certificate | Erasure | Lost) else b""
        return self.elders.get((member, context) if context else (), self.twins[member])

    def _same_keys(self, member: str) -> None:
        phase, twin = self.phases[member], self.twins[member]
        ready = phase if isinstance(phase, Ready) else phase.ready if isinstance(phase, Attempting | Closed) else None
        if ready and ready.sequence == twin.step:
            assert {pair.peer: bytes(pair.key) for pair in ready.masks} == twin.mask_keys
            assert {pair.peer: bytes(pair.key) for pair in ready.boxes} == twin.box_keys
        if isinstance(phase, Attempting):
            assert phase.attempt.context == twin.context

    def _upload(self, member: str, opened: Opened) -> tuple[Message, ...]:
        self.tape.take()
        twin = self.twins[member]
        with lying(self.lies.pop(member, None), opened.attempt, twin):
            replies = super()._upload(member, opened)
            if not (drawn := self.tape.take()):
                return replies
            uniform = coefficients(drawn[32:-32], twin.m.t, 1 + twin.m.degree).__next__
            vector = [int(value) for value in self.vectors_now[member]]
            draw = player(drawn[:32] + drawn[-32:])
            made: tuple[bytes, list[bytes]] | None = None
            with suppress(Refused):
                made = twin.upload(vector, draw, uniform)
        assert bool(made) == bool(replies)
        if made:
            self.alike(replies[0], made[0])
            chunks = range(opened.attempt.chunk_count)
            assert made[1] == [self.spool[member, index] for index in chunks]
            self.compared["chunk"] += len(chunks)
        return replies

    def take_reply(self, phase: CoordinatorPhase, member: str, reply: Message) -> CoordinatorPhase:
        cause, faults = None, len(self.faults)
        read = isinstance(phase, TAKES.get(type(reply), ()))
        if isinstance(reply, Reveal) and isinstance(phase, Revealing):
            read = reply.evicted == phase.evicted and len(self.twin.proofs) == len(phase.proofs)
        if read:
            try:
                self.twin.receive(reply.to_bytes())
            except Refused as refused:
                cause = refused.args[0]
        after = super().take_reply(phase, member, reply)
        if read:
            assert cause == (self.faults[faults][1].cause.value if len(self.faults) > faults else None)
        return after

    def _store(self, phase: CoordinatorPhase, member: str, index: int) -> CoordinatorPhase:
        self.twin.store(member, self.spool[member, index])
        return super()._store(phase, member, index)

    def _outcome(self, phase: CoordinatorPhase) -> Outcome:
        assert isinstance(phase, Ended)
        if isinstance(phase, Certified):
            self.twin.close("none")
        elif not isinstance(phase, Voided):
            self._request(phase.closing)
        outcome = super()._outcome(phase)
        assert Chain(self.roster.federation, self.links).to_bytes() == self.twin.chain()
        self.ends[type(phase).__name__] += 1
        assert self.transcript.signature == self.twin.seal(self.transcript.entries)
        self.compared["transcript"] += 1
        self.compared["finding"] += len(judged(self.transcript))
        if isinstance(phase, Recovered):
            bits = phase.attempt.spec.ring_bits
            assert outcome.total is not None
            assert self.twin.result() == [int(value) % 2**bits for value in outcome.total]
            self.compared["sum"] += 1
        return outcome
