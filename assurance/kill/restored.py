"""Kill members at every durable write of their enrolment, and restore older copies of their folders: `python -m assurance.kill.restored`.

A killed member that starts again must never be refused as restored, sends each cohort one card, and gives no serial twice. A restored
copy must be refused if, and only if, its key has signed a card since that the coordinator has.
"""

import argparse
import random
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from assurance.reports import report
from client_sdk.api import CoordinatorApi, Invitation
from client_sdk.effects import Flow
from client_sdk.enrolment import send_card
from client_sdk.environment import Environment
from client_sdk.errors import Declined, PeerFault
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
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import NO_CONTEXT, KeyCard, Study, cohort_id
from veilsum.protocol.rest import CohortView

MEMBER, NOW_S = "member-0", 1_000_000.0
ADMIN, COORDINATOR = SigningKey(b"A" * 32), SigningKey(b"C" * 32)
OTHERS = {f"member-{index}": SigningKey(bytes([index]) * 32).public for index in range(1, 6)}
CONTENT = simulated_content(simulated_question(6), int(NOW_S) + 10**6)
STUDY = Study.make_signed(ADMIN, federation=ADMIN.public, content=CONTENT.to_bytes())
POLICY = Policy(ADMIN.public, {CONTENT.approval})
_RNG = np.random.default_rng(0)
RECORDS = Records(_RNG.standard_normal((100, 10)), np.arange(100) % 4, [f"p{row}" for row in range(100)])
COHORTS, STEPS = 12, 20


class WrongError(AssertionError):
    """What must not happen."""


@dataclass
class Desk:
    """A coordinator that takes cards and shows the newest, in the place of `CoordinatorApi`. It may lose a card, or the answer to one."""

    rng: random.Random
    public: bytes
    cards: dict[bytes, KeyCard] = field(default_factory=dict)
    loses: float = 0.0

    def __post_init__(self) -> None:
        self.roster = simulated_roster(ADMIN, COORDINATOR.public, {MEMBER: self.public, **OTHERS})

    @property
    def newest(self) -> KeyCard | None:
        return max(self.cards.values(), key=lambda card: card.serial, default=None)

    def cohort_of(self, number: int) -> bytes:
        return cohort_id(self.roster.hash, number, STUDY.hash, f"p{number}", NO_CONTEXT)

    def invite(self, number: int) -> Invitation:
        view = CohortView(
            cohort=self.cohort_of(number).hex(), federation=ADMIN.public.hex(), study=STUDY.hash.hex(), name="simulated", study_version=1,
            period=f"p{number}", counter=number, repeats=None, state="enrolling", version=0, members=(MEMBER, *OTHERS), cards=(),
            deadline_s=None, quorum=None, fault=None, step=None,
        )  # fmt: skip
        card = self.newest
        return Invitation(view, self.roster, STUDY, None if card is None else card.to_bytes())

    def send_card(self, card: KeyCard, after: int | None) -> Flow[CohortView]:
        yield from ()
        if self.rng.random() < self.loses:
            raise Stopped
        if self.cards.get(card.cohort, card) != card:
            raise WrongError("a second card for one cohort")
        if any(other.serial == card.serial and other != card for other in self.cards.values()):
            raise WrongError("one serial twice")
        self.cards[card.cohort] = card
        if self.rng.random() < self.loses:
            raise Stopped
        [number] = [each for each in range(COHORTS + 1) if self.cohort_of(each) == card.cohort]
        return self.invite(number).cohort


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


def enrol(folder: Path, desk: Desk, number: int) -> KeyCard:
    """Start the member's process, send its card to one cohort, and end the process, also where it is killed."""
    identity = Identity.load(folder)
    lock, store = identity.lock(), Store(folder)
    environment = Environment(now_s=lambda: NOW_S, monotonic_s=lambda: 0.0, jitter=lambda: 0.0)
    try:
        store.database.open()
        api = cast("CoordinatorApi", desk)  # of which it has the one request that is sent here
        report_nothing = Reporter(lambda _: None)
        session = Session(
            MEMBER,
            identity.key,
            store,
            lock,
            POLICY,
            api,
            report_nothing,
            environment,
            None,
            1,
            transcripts=False,
        )
        with suppress(StopIteration):
            next(send_card(session, desk.cohort_of(number), desk.invite(number), RECORDS))
            raise WrongError("a request beside the card")
        newest = store.newest_card()
        assert newest is not None
        return newest
    finally:
        store.database.close()
        lock.release()


def live(seed: int, folder: Path, patched: pytest.MonkeyPatch) -> Counter[str]:
    """Play one member's life; return what happened. Raises WrongError."""
    rng, seen = random.Random(seed), Counter[str]()
    home = folder / "member"
    identity = Identity.create(home, MEMBER, held_out=rng.choice([0.0, 0.1]))
    desk = Desk(rng, identity.public)
    machine = Drawn(home, rng, rng.choice([5, 12, 30]))
    copied_at, copied = rng.randrange(STEPS), folder / "copied"
    last: KeyCard | None = None
    number = 0
    with machine.on(patched):
        for step in range(STEPS):
            if step == copied_at:
                shutil.copytree(home, copied)
                last = Store(home).newest_card()
            desk.loses = rng.choice([0.0, 0.3])
            try:
                # A newer cohort, the same, or an old one: its card may not have arrived.
                number = rng.choice([min(number + 1, COHORTS - 1), number, rng.randrange(number + 1)])
                enrol(home, desk, number)
                seen["enrolled"] += 1
            except Declined:  # for a period that a newer one has replaced
                seen["declined"] += 1
            except Stopped:
                seen["killed"] += 1
            except PeerFault as fault:
                raise WrongError(f"seed {seed}: {fault}") from fault
    seen["at a write"] = machine.stops
    seen[bring_back(copied, desk, last, seed)] += 1
    return seen


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    found: dict[str, Any] = {"faults": []}
    try:
        found |= run_campaign(chosen.kills)
    except WrongError as wrong:
        found["faults"].append(str(wrong))
    report(found, chosen.output, sound=not found["faults"])


if __name__ == "__main__":
    main()
