"""A cohort in time: cards come in until all are there, the operator closes it, or its deadline passes."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from sqlalchemy import insert, update

from protocol.coordinator import Enrolling
from protocol.errors import PeerFault
from protocol.messages import KeyCard, Manifest, Roster
from protocol.parameters import Quorum
from protocol.rest import CohortRequest, CohortView, Problem, QuorumView
from service.problems import problem_of, wrong_phase
from service.storage.database import Database
from service.storage.tables import cards, cohorts
from service.watch import Watch


@dataclass
class Cohort:
    """One cohort; its cards and its manifest are in the database before anybody hears of them."""

    database: Database
    wake: Callable[[], None]
    enrolling: Enrolling
    deadline_s: float
    manifest: Manifest | None = None
    fault: Problem | None = None
    rounds: list[str] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.id = self.enrolling.cohort.hex()
        self.watch = Watch(lambda: self.version)

    @classmethod
    def begin(
        cls,
        database: Database,
        wake: Callable[[], None],
        roster: Roster,
        counter: int,
        request: CohortRequest,
        deadline_s: float,
    ) -> "Cohort":
        """A cohort without cards."""
        enrolling = Enrolling(roster, counter, request.records_cap, request.colluders, request.honest_min)
        return cls(database, wake, enrolling, deadline_s)

    def restore(self, stored: Iterable[KeyCard], manifest: Manifest | None, fault: Problem | None) -> None:
        """Take up what storage holds; the cards were checked when they came."""
        taken = {card.member: card for card in stored}
        self.enrolling = replace(self.enrolling, cards=taken)
        self.manifest, self.fault = manifest, fault

    def opened(self, round_id: str) -> None:
        """A round of this cohort stands in the database."""
        self.rounds.append(round_id)
        self.watch.notify()

    @property
    def roster(self) -> Roster:
        """Who may enrol."""
        return self.enrolling.roster

    @property
    def version(self) -> int:
        """Grows with every card, with the end of enrolment, and with every round."""
        return len(self.enrolling.cards) + (not self.open) + len(self.rounds)

    @property
    def open(self) -> bool:
        """Whether cards are still taken."""
        return self.manifest is None and self.fault is None

    async def receive(self, card: KeyCard, now_s: float) -> None:
        """Take a card durably; the last one forms the cohort."""
        async with self.lock:
            after = self.enrolling.receive(card, now_s)
            if after is self.enrolling:
                return
            self._must_be_open()
            async with self.database.transaction() as connection:
                await connection.execute(
                    insert(cards).values(cohort=self.id, member=card.member, body=card.to_bytes())
                )
            self.enrolling = after
            if after.complete:
                await self._close()
            self._changed()

    async def close(self) -> None:
        """Form the cohort from the cards that came, or fail it for want of them."""
        async with self.lock:
            if self.open:
                await self._close()
                self._changed()

    async def _close(self) -> None:
        manifest, fault = None, None
        try:
            manifest = self.enrolling.manifest()
        except PeerFault as short:
            fault = problem_of(short)
        async with self.database.transaction() as connection:
            await connection.execute(
                update(cohorts)
                .where(cohorts.c.id == self.id)
                .values(
                    manifest=manifest.to_bytes() if manifest else None,
                    fault=fault.model_dump_json() if fault else None,
                )
            )
        self.manifest, self.fault = manifest, fault

    def _changed(self) -> None:
        self.watch.notify()
        self.wake()

    def _must_be_open(self) -> None:
        if not self.open:
            raise wrong_phase("enrolment in this cohort is closed: ask the operator for a new cohort")

    def formed(self) -> Manifest:
        """The manifest; PeerFault(wrong-phase) while there is none."""
        if self.manifest is None:
            raise wrong_phase(
                "the cohort is not formed" + (f": {self.fault.detail}" if self.fault else " yet")
            )
        return self.manifest

    def view(self) -> CohortView:
        """What anybody may see."""
        return CohortView(
            cohort=self.id,
            federation=self.roster.federation.hex(),
            state="formed" if self.manifest else "failed" if self.fault else "enrolling",
            version=self.version,
            members=tuple(entry.member for entry in self.roster.members),
            cards=tuple(sorted(self.enrolling.cards)),
            deadline_s=self.deadline_s if self.open else None,
            quorum=_quorum_view(self.manifest) if self.manifest else None,
            fault=self.fault,
            rounds=tuple(self.rounds),
        )


def _quorum_view(manifest: Manifest) -> QuorumView:
    quorum = Quorum.of(manifest)
    return QuorumView(
        members=quorum.members,
        colluders=quorum.colluders,
        survivors_min=quorum.survivors_min,
        threshold=quorum.threshold,
        members_may_miss=quorum.members_may_miss,
        decryptors_may_miss=quorum.decryptors_may_miss,
        caution=quorum.caution(),
    )
