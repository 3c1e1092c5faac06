"""Kill members at every durable write of their enrolment and pairing, and restore older copies of their folders: `python -m assurance.kill.restored`.

A killed member that starts again must never be refused as restored, sends each cohort one card, gives no serial twice, and pairs once under
each manifest, never after its keys have lapsed. Its keys are those of its pairs. A restored copy must be refused if, and only if, its key has signed a card since that the coordinator has; in a
cohort that it pairs in a second time it is refused by the coordinator.
"""

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pytest

from assurance.reports import arguments, report
from client_sdk.api import CoordinatorApi, Invitation, ShownInCohort
from client_sdk.effects import Flow, Pause
from client_sdk.enrolment import pair_in_cohort, send_card
from client_sdk.environment import Environment
from client_sdk.errors import Declined, NotEnrolled, PeerFault
from client_sdk.identity import Identity
from client_sdk.policy import Policy
from client_sdk.progress import Reporter
from client_sdk.records import Records
from client_sdk.session import Session
from client_sdk.store import Store
from tests.support.consortium import Stopped
from tests.support.machine import Machine
from tests.support.simulator import simulated_content, simulated_question, simulated_roster
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Enrolling, PairingWindow
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import PairKey
from veilsum.protocol.member import Enrolled, EnrolmentPhase, MemberPhase, Paired, Ready
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    Ciphertexts,
    Enrolment,
    KeyCard,
    Pairing,
    ShownCiphertext,
    Study,
    cohort_id,
)
from veilsum.protocol.pairing import lapse_s, split_pairing
from veilsum.protocol.rest import CohortView

T = TypeVar("T")
MEMBER, NOW_S = "member-0", 1_000_000.0
ADMIN, COORDINATOR = SigningKey(b"A" * 32), SigningKey(b"C" * 32)
KEYS = {f"member-{index}": SigningKey(bytes([index]) * 32) for index in range(1, 6)}
OTHERS = {member: key.public for member, key in KEYS.items()}
CONTENT = simulated_content(simulated_question(6), int(NOW_S) + 10**6)
STUDY = Study.make_signed(ADMIN, federation=ADMIN.public, content=CONTENT.to_bytes())
POLICY = Policy(ADMIN.public, {CONTENT.approval})
_RNG = np.random.default_rng(0)
RECORDS = Records(_RNG.standard_normal((100, 10)), np.arange(100) % 4, [f"p{row}" for row in range(100)])
COHORTS, STEPS = 12, 30


class WrongError(AssertionError):
    """What must not happen."""


class Table:
    """A cohort in which the other members send their cards and pair at once, and whose clocks stand still.

    Attributes:
        window: of the newest manifest; None before there is one.
        phases: the others'.
    """

    def __init__(self, roster: Any, number: int) -> None:
        self.window: PairingWindow | None = None
        self.phases: dict[str, MemberPhase] = {}
        self.shown: dict[str, dict[str, ShownCiphertext]] = {}
        self.enrolling = Enrolling(roster, STUDY, number, f"p{number}")
        for member, key in KEYS.items():
            values: dict[str, Any] = {"counter": number, "period": f"p{number}", "serial": number + 1}
            phase, _ = Enrolled.begin_enrolment(member, roster, STUDY, key, now_s=NOW_S, **values)
            assert isinstance(phase, Enrolled)
            self.phases[member] = phase
            self.enrolling = self.enrolling.receive(phase.enrolment, NOW_S)

    @property
    def state(self) -> Any:
        if self.window is None:
            return "enrolling"
        return "formed" if self.window.is_complete else "pairing"

    def close(self) -> None:
        """End enrolment."""
        self._begin(PairingWindow.begin(self.enrolling))

    def leave_out(self, member: str) -> None:
        """Make a manifest without one of the others, as if it had not paired, and the killed member had."""
        assert self.window is not None
        stayed = {other: b"" for other in self.window.manifest.members if other != member}
        self._begin(replace(self.window, signatures=stayed).leave_out_missing())

    def _begin(self, window: PairingWindow) -> None:
        self.window, self.shown = window, {member: {} for member in window.manifest.members}
        for member in window.manifest.members:
            if member != MEMBER:
                cards = window.enrolling.cards_for(window.manifest, member)
                self.phases[member], (pairing,) = self.phases[member].receive(cards, KEYS[member], NOW_S)
                assert isinstance(pairing, Pairing)
                self.take(pairing)

    def take(self, pairing: Pairing) -> None:
        """Admit a pairing. Raises PeerFault."""
        assert self.window is not None
        self.window = self.window.receive(pairing)
        for recipient, one in split_pairing(self.window.manifest, pairing):
            self.shown[recipient][pairing.member] = one

    def ciphertexts_for(self, member: str) -> Ciphertexts:
        assert self.window is not None
        shown = self.shown[member]
        return Ciphertexts(self.window.manifest.hash, tuple(shown[each] for each in sorted(shown)))

    def check_keys(self, ready: Ready) -> None:
        """Check that the others derive the killed member's keys. Raises WrongError."""
        for member in ready.manifest.members:
            if member != MEMBER:
                other, _ = self.phases[member].receive(self.ciphertexts_for(member), KEYS[member], NOW_S)
                assert isinstance(other, Ready)
                if any(
                    _key_with(mine, member) != _key_with(theirs, MEMBER)
                    for mine, theirs in ((ready.masks, other.masks), (ready.boxes, other.boxes))
                ):
                    raise WrongError(f"other keys than {member} has")


def _key_with(pairs: tuple[PairKey, ...], peer: str) -> bytes:
    return next(bytes(pair.key) for pair in pairs if pair.peer == peer)


@dataclass
class Desk:
    """A coordinator that takes cards and pairings and shows the newest card, in the place of `CoordinatorApi`. It may lose a message, or
    the answer to one.

    Attributes:
        made_s: when the card of each cohort was made.
    """

    rng: random.Random
    public: bytes
    cards: dict[bytes, KeyCard] = field(default_factory=dict)
    pairings: dict[bytes, Pairing] = field(default_factory=dict)
    tables: dict[int, Table] = field(default_factory=dict)
    made_s: dict[int, float] = field(default_factory=dict)
    loses: float = 0.0
    now_s: float = NOW_S

    def __post_init__(self) -> None:
        self.roster = simulated_roster(ADMIN, COORDINATOR.public, {MEMBER: self.public, **OTHERS})

    @property
    def newest(self) -> KeyCard | None:
        return max(self.cards.values(), key=lambda card: card.serial, default=None)

    def cohort_of(self, number: int) -> bytes:
        return cohort_id(self.roster.hash, number, STUDY.hash, f"p{number}", NO_CONTEXT)

    def number_of(self, cohort: bytes) -> int:
        return next(each for each in range(COHORTS + 1) if self.cohort_of(each) == cohort)

    def view(self, number: int) -> CohortView:
        table = self.tables.get(number)
        window = None if table is None else table.window
        state: Any = "enrolling" if table is None else table.state
        return CohortView(
            cohort=self.cohort_of(number).hex(), federation=ADMIN.public.hex(), study=STUDY.hash.hex(), name="simulated", study_version=1,
            period=f"p{number}", counter=number, repeats=None, state=state, version=0, members=(MEMBER, *OTHERS), cards=(),
            paired=() if window is None else tuple(window.signatures), deadline_s=None, quorum=None, fault=None, step=None,
        )  # fmt: skip

    def invite(self, number: int) -> Invitation:
        card = self.newest
        return Invitation(self.view(number), self.roster, STUDY, None if card is None else card.to_bytes())

    def lapsed(self, number: int) -> bool:
        """Whether the private keys of a cohort's card must be gone."""
        return self.now_s >= int(self.made_s[number]) + lapse_s(CONTENT.question.windows)

    def _lose(self) -> None:
        if self.rng.random() < self.loses:
            raise Stopped

    def send_card(self, enrolment: Enrolment, after: int | None) -> Flow[CohortView]:
        del after
        yield from ()
        card = enrolment.card
        self._lose()
        if self.cards.get(card.cohort, card) != card:
            raise WrongError("a second card for one cohort")
        if any(other.serial == card.serial and other != card for other in self.cards.values()):
            raise WrongError("one serial twice")
        number = self.number_of(card.cohort)
        if card.cohort not in self.cards and number < COHORTS:  # no restored copy's
            table = Table(self.roster, number)
            table.enrolling = table.enrolling.receive(enrolment, NOW_S)
            self.tables[number] = table
        self.cards[card.cohort] = card
        self._lose()
        return self.view(number)

    def fetch_cohort(self, cohort: str, version: int | None = None) -> Flow[CohortView]:
        del version
        yield from ()
        self._lose()
        return self.view(self.number_of(bytes.fromhex(cohort)))

    def fetch_cards(self, cohort: bytes, member: str) -> Flow[Cards]:
        yield from ()
        self._lose()
        window = self.tables[self.number_of(cohort)].window
        assert window is not None
        return window.enrolling.cards_for(window.manifest, member)

    def send_pairing(self, cohort: bytes, pairing: Pairing, *, wait: bool) -> Flow[ShownInCohort]:
        del wait
        yield from ()
        self._lose()
        number = self.number_of(cohort)
        if self.lapsed(number):
            raise WrongError("a pairing after the keys lapsed")
        if self.pairings.setdefault(pairing.manifest, pairing) != pairing:
            raise WrongError("a second pairing under one manifest")
        table = self.tables[number]
        assert table.window is not None
        if pairing.manifest == table.window.manifest.hash:
            table.take(pairing)
        self._lose()
        return self._shown(table, number, pairing.manifest)

    def fetch_ciphertexts(
        self, cohort: bytes, member: str, manifest: bytes, *, wait: bool
    ) -> Flow[ShownInCohort]:
        del member, wait
        yield from ()
        self._lose()
        number = self.number_of(cohort)
        return self._shown(self.tables[number], number, manifest)

    def _shown(self, table: Table, number: int, manifest: bytes) -> ShownInCohort:
        assert table.window is not None
        if table.window.manifest.hash != manifest:
            return table.window.enrolling.cards_for(table.window.manifest, MEMBER)
        return table.ciphertexts_for(MEMBER) if table.window.is_complete else self.view(number)

    def move_on(self, number: int) -> None:
        """Close a cohort's enrolment, make another manifest of it, or let time pass."""
        table = self.tables.get(number)
        if table is None or self.rng.random() < 0.2:
            self.now_s += self.rng.choice((0, 100, 1000, 6000))
        elif table.window is None:
            table.close()
        elif table.state == "pairing" and table.window.number < 3 and len(table.window.manifest.members) > 4:
            table.leave_out(self.rng.choice(table.window.manifest.members[1:]))


class Drawn(Machine):
    """A machine that stops at drawn writes."""

    def __init__(self, home: Path, rng: random.Random, lives: int) -> None:
        super().__init__(home, rng.randint(1, lives), early=False)
        self._rng, self._lives = rng, lives

    def strike(self) -> None:
        self.early = self._rng.random() < 0.5  # of the next write
        self.left -= 1
        if self.left == 0:
            self.left, self.stops = self._rng.randint(1, self._lives), self.stops + 1
            raise Stopped


@contextmanager
def started(folder: Path, desk: Desk) -> Iterator[Session]:
    """Start the member's process."""
    identity = Identity.load(folder)
    lock, store = identity.lock(), Store(folder)
    environment = Environment(now_s=lambda: desk.now_s, monotonic_s=lambda: 0.0, jitter=lambda: 0.0)
    try:
        store.database.open()
        api = cast("CoordinatorApi", desk)  # of which it has the requests that are sent here
        yield Session(
            MEMBER,
            identity.key,
            store,
            lock,
            POLICY,
            api,
            Reporter(lambda _: None),
            environment,
            None,
            1,
            transcripts=False,
        )
    finally:
        store.database.close()
        lock.release()


def run_alone(flow: Flow[T]) -> T:
    """Run a flow that sends nothing but what the desk answers. Raises WrongError if it sends anything else."""
    try:
        while isinstance(next(flow), Pause):
            pass
    except StopIteration as end:
        result: T = end.value
        return result
    raise WrongError("another request")


def enrol(folder: Path, desk: Desk, number: int) -> None:
    """Start the member's process, send its card to one cohort, and end the process, also where it is killed."""
    with started(folder, desk) as session:
        session.erase_expired()
        run_alone(send_card(session, desk.cohort_of(number), desk.invite(number), RECORDS))


def pair(folder: Path, desk: Desk, number: int) -> str:
    """Start the member's process, and take it as far as the cohort is. Returns the name of its phase, or an empty text without a card."""
    with started(folder, desk) as session:
        session.erase_expired()
        held = session.store.load_phase(desk.cohort_of(number))
        if held is None or number not in desk.tables:
            return ""
        phase, shown = held.phase, cast("ShownInCohort", desk.view(number))
        for _ in range(8):
            if not isinstance(phase, EnrolmentPhase) or desk.tables[number].window is None:
                break
            try:
                phase, shown = run_alone(pair_in_cohort(session, phase, shown, wait=False))
            except NotEnrolled:
                if not desk.lapsed(number):
                    raise
                break
        return type(phase).__name__


def look(folder: Path, desk: Desk, before: dict[int, MemberPhase]) -> dict[int, MemberPhase]:
    """Check what the folder holds of each cohort beside what it held before. Raises WrongError."""
    store, now = Store(folder), dict[int, MemberPhase]()
    for number in range(COHORTS):
        held = store.load_phase(desk.cohort_of(number))
        if held is None:
            if number in before:
                raise WrongError("a phase is gone")
            continue
        known = before.get(number)
        now[number] = held.phase
        desk.made_s.setdefault(number, desk.now_s)
        if isinstance(known, Ready) and held.phase != known:
            raise WrongError("the keys of a formed cohort changed")
        if isinstance(held.phase, Ready) and not isinstance(known, Ready):
            if not isinstance(known, Enrolled | Paired):
                raise WrongError("keys after they lapsed")
            if held.phase.manifest.hash not in desk.pairings:
                raise WrongError("keys under a manifest that it did not pair under")
            desk.tables[number].check_keys(held.phase)
    return now


def live(seed: int, folder: Path, patched: pytest.MonkeyPatch) -> Counter[str]:
    """Play one member's life; return what happened. Raises WrongError."""
    rng, seen = random.Random(seed), Counter[str]()
    home = folder / "member"
    identity = Identity.create(home, MEMBER, held_out=rng.choice([0.0, 0.1]))
    desk = Desk(rng, identity.public)
    machine = Drawn(home, rng, rng.choice([5, 12, 30]))
    copied_at, copied = rng.randrange(STEPS), folder / "copied"
    last, held = None, dict[int, MemberPhase]()
    number = 0
    with machine.on(patched):
        for step in range(STEPS):
            if step == copied_at:
                shutil.copytree(home, copied)
                last = Store(home).newest_card()
            desk.loses = rng.choice([0.0, 0.3])
            try:
                if number not in desk.tables or rng.random() < 0.3:
                    # A newer cohort, the same, or an old one: its card may not have arrived.
                    number = rng.choice([min(number + 1, COHORTS - 1), number, rng.randrange(number + 1)])
                    enrol(home, desk, number)
                    seen["enrolled"] += 1
                else:
                    desk.move_on(number)
                    seen[pair(home, desk, number)] += 1
            except (
                Declined,
                NotEnrolled,
            ):  # for a period that a newer one has replaced, or a cohort that is closed
                seen["declined"] += 1
            except Stopped:
                seen["killed"] += 1
            except PeerFault as fault:
                raise WrongError(f"seed {seed}: {fault}") from fault
            held = look(home, desk, held)
    seen["at a write"] = machine.stops
    seen["pairings"] = len(desk.pairings)
    seen["keys"] = sum(isinstance(phase, Ready) for phase in held.values())
    seen[pair_again(copied, desk, seed)] += 1
    seen[bring_back(copied, desk, last, seed)] += 1
    return seen


def pair_again(copied: Path, desk: Desk, seed: int) -> str:
    """Pair with the copied folder where the member has paired since. It sends nothing, the same bytes, or what the coordinator refuses. Raises WrongError."""
    desk.loses = 0.0
    found = "nothing to pair in"
    known = desk.pairings
    for number in range(COHORTS):
        table = desk.tables.get(number)
        if table is None or table.window is None or desk.lapsed(number):
            continue
        desk.pairings = {}
        earlier = known.get(table.window.manifest.hash)
        try:
            pair(copied, desk, number)
        except PeerFault as fault:
            if fault.cause is not Cause.PAIRING_CONFLICT:
                raise WrongError(f"seed {seed}: {fault}") from fault
            found = "second pairing refused"
        sent = desk.pairings.get(table.window.manifest.hash)
        if earlier is not None and sent not in {None, earlier} and found != "second pairing refused":
            raise WrongError(f"seed {seed}: a copy's second pairing was admitted")
    desk.pairings = known
    return found


def bring_back(copied: Path, desk: Desk, last: KeyCard | None, seed: int) -> str:
    """Enrol with the copied folder, whose newest card is `last`. It is refused if the coordinator has a newer one. Raises WrongError."""
    newest, desk.loses = desk.newest, 0.0
    known = 0 if last is None else last.serial
    since = newest is not None and (newest.serial > known or (newest.serial == known and newest != last))
    before = desk.cards.copy()
    try:
        enrol(copied, desk, COHORTS)
    except PeerFault as fault:
        if not (since and fault.cause is Cause.STATE_RESTORED):
            raise WrongError(f"seed {seed}: {fault}") from fault
        if desk.cards != before or Store(copied).newest_card() != last:
            raise WrongError(f"seed {seed}: a refused copy has signed a card") from fault
        return "refused"
    if since:
        raise WrongError(f"seed {seed}: a restored copy has enrolled")
    return "not older"


def run_campaign(kills: int, seed: int = 0) -> Counter[str]:
    """Play lives until so many kills. Raises WrongError."""
    seen = Counter[str]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", lambda _descriptor: None)
        patched.setattr("client_sdk.database.StateDatabase.synchronous", "OFF")
        while seen["killed"] < kills:
            with tempfile.TemporaryDirectory() as folder:
                seen += live(seed, Path(folder), patched)
            seed += 1
            seen["lives"] += 1
    return seen


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=10_000)
    chosen = parser.parse_args()
    found: dict[str, Any] = {"faults": []}
    try:
        found |= run_campaign(chosen.kills)
    except WrongError as wrong:
        found["faults"].append(str(wrong))
    report(found, chosen.output, sound=not found["faults"])


if __name__ == "__main__":
    main()
