"""A cohort's enrolment: it takes cards until all have come, the operator closes it, or its deadline passes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Row, select, update

from service.coordination.rounds import LiveRound
from service.coordination.watch import Watch
from service.http.metering import in_thread
from service.http.problems import problem_of, wrong_phase
from service.storage.database import Database
from service.storage.tables import cards, cohorts
from veilsum.protocol.attempt import cohort_sizes, read_quorum
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.coordinator.enrolling import needs_all
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import NO_CONTEXT, Cards, KeyCard, Manifest, Roster, Survivor
from veilsum.protocol.rest import CohortView, Problem, QuorumView, RoundView, join_names
from veilsum.protocol.study import Content, Question
from veilsum.study.progress import NEW_PERIOD


def check_possible(roster: Roster, question: Question, repeated: Sequence[Survivor]) -> None:
    """Refuse a cohort that can't form even if every member enrols.

    `repeated` are the survivors of the attempt that the run repeats; empty for fresh records.

    Raises:
        PeerFault: weak-parameters if the roster is larger than the study allows; repeat-mismatch if a repeated survivor has left
            it; cohort-too-small.
    """
    listed = tuple(entry.member for entry in roster.members)
    members = tuple(each.member for each in repeated) or listed
    if gone := sorted({*members} - {*listed}):
        raise PeerFault(
            Cause.REPEAT_MISMATCH,
            f"a repeated run needs all its members, and roster {roster.number} leaves out {join_names(gone)}: {NEW_PERIOD}",
            gone,
        )
    if not repeated and len(listed) > question.members_max:
        raise PeerFault(
            Cause.WEAK_PARAMETERS,
            f"roster {roster.number} has {len(listed)} members, and the study's members_max is {question.members_max}: publish a "
            "version of the study with a higher members_max, or a roster with fewer members",
        )
    cohort_sizes(roster, question, members, repeats=bool(repeated))


@dataclass(frozen=True)
class Brief:
    """A cohort's summary of one of its rounds."""

    id: str
    state: str
    place: tuple[int, int]
    step: str

    @classmethod
    def of_view(cls, view: RoundView) -> "Brief":
        """Summarise a round's view."""
        return cls(view.round, view.state, (view.sequence, view.attempt), view.spec.step)


class Cohort:
    """One cohort. Its cards and manifest are stored before they are shown.

    `wake` is called at every change, and `on_ended` with the federation when enrolment ends.

    Attributes:
        manifest: once the cohort is formed.
        fault: why it could not be formed.
        live: the last one of its rounds, until it has ended.
    """

    manifest: Manifest | None = None
    fault: Problem | None = None

    def __init__(
        self,
        database: Database,
        wake: Callable[[], None],
        on_ended: Callable[[str], None],
        enrolling: Enrolling,
        deadline_s: float,
    ) -> None:
        self.enrolling, self.deadline_s = enrolling, deadline_s
        self.id, self.federation = enrolling.cohort.hex(), enrolling.roster.federation.hex()
        self.size = len(enrolling.roster.members)
        self.live: LiveRound | None = None
        self._past: tuple[Brief, ...] = ()
        self.watch = Watch(lambda: self.version, lambda: 0 if self.is_open else self.version)
        self._database, self._wake, self._on_ended = database, wake, on_ended
        self._seen = 0
        """How often the stored cohort had changed when it was last read."""
        self._lock = asyncio.Lock()

    @property
    def roster(self) -> Roster:
        """The roster under which it was opened."""
        return self.enrolling.roster

    @property
    def content(self) -> Content:
        """The study's."""
        return self.enrolling.content

    def note_round(self, opened: LiveRound | Brief) -> None:
        """Note this cohort's next round, live or as the `Brief` of one that has ended. All earlier rounds have ended."""
        past = self.rounds
        self.live = opened if isinstance(opened, LiveRound) else None
        self._past = (*past, opened) if isinstance(opened, Brief) else past
        self.watch.notify_waiters()

    @property
    def rounds(self) -> tuple[Brief, ...]:
        """Its rounds, oldest first."""
        if self.live is None:
            return self._past
        last = Brief.of_view(self.live.current_view())
        if self.live.end is not None:
            self._past, self.live = (*self._past, last), None
            return self._past
        return (*self._past, last)

    async def refresh(self) -> None:
        """Load other processes' changes."""
        if self.is_open and self._database.shared:
            async with self._lock:
                await self._catch_up()

    async def load_state(self, not_before_s: float) -> None:
        """Load the stored state. A deadline that passed while no process ran is postponed a little."""
        self.deadline_s = max(self.deadline_s, not_before_s)
        await self._catch_up()

    async def _catch_up(self) -> None:
        def read_stored(connection: Connection) -> tuple[Row[Any], Sequence[bytes]]:
            row = connection.execute(select(cohorts).where(cohorts.c.id == self.id)).one()
            if row.changes == self._seen:
                return row, ()
            return row, connection.scalars(select(cards.c.body).where(cards.c.cohort == self.id)).all()

        row, bodies = await self._database.read(read_stored)
        if row.changes == self._seen:
            return
        came = [KeyCard.from_bytes(body) for body in bodies]
        self.enrolling = self.enrolling.with_cards(came)
        self.manifest = Manifest.from_bytes(row.manifest) if row.manifest else None
        self.fault = Problem.model_validate_json(row.fault) if row.fault else None
        self._seen = row.changes
        self._notify_change()

    def _notify_change(self) -> None:
        self.watch.notify_waiters()
        self._wake()

    @property
    def version(self) -> int:
        """Grows with every card, with the end of enrolment, and with every round."""
        return len(self.enrolling.cards) + (not self.is_open) + len(self._past) + (self.live is not None)

    @property
    def is_open(self) -> bool:
        """Whether cards are still taken."""
        return self.manifest is None and self.fault is None

    @property
    def at_rest(self) -> bool:
        """Whether enrolment has ended and no round is live."""
        return not self.is_open and (self.live is None or self.live.at_rest)

    @property
    def due_s(self) -> float | None:
        """When enrolment ends, in Unix time; None once it has."""
        return self.deadline_s if self.is_open else None

    async def receive(self, card: KeyCard, now_s: float) -> None:
        """Store a card; the last one forms the cohort."""
        async with self._lock:
            while True:
                after = self.enrolling.receive(card, now_s)
                if after is self.enrolling:
                    return
                if not self.is_open:
                    raise wrong_phase("enrolment in this cohort is closed: ask the operator for a new cohort")
                if await self._store_change(after, card):
                    return
                await self._catch_up()

    async def close_enrolment(self) -> None:
        """Form the cohort from the cards received, or fail it if they are too few."""
        async with self._lock:
            while self.is_open and not await self._store_change(self.enrolling):
                await self._catch_up()

    async def pass_deadline(self, now_s: float) -> None:
        """Close enrolment if its deadline has passed."""
        if now_s >= self.deadline_s:
            await self.close_enrolment()

    async def _store_change(self, after: Enrolling, card: KeyCard | None = None) -> bool:
        """Store a card, the end of enrolment, or both. Returns False if another process has changed the cohort."""
        manifest, fault = None, None
        if card is None or after.is_complete:
            try:
                manifest = await in_thread(after.make_manifest)
            except PeerFault as short:
                fault = problem_of(short)

        def store(connection: Connection) -> bool:
            changed = connection.execute(
                update(cohorts)
                .where(cohorts.c.id == self.id, cohorts.c.changes == self._seen)
                .values(
                    changes=self._seen + 1,
                    manifest=manifest.to_bytes() if manifest else None,
                    fault=fault.model_dump_json() if fault else None,
                )
            )
            if not changed.rowcount:
                return False
            if card is not None and not self._database.add_row(connection, cards, self._make_row(card)):
                raise PeerFault(
                    Cause.CARD_CONFLICT,
                    f"{card.member} sent another card with the serial {card.serial}: two copies of its folder are in use, or an "
                    "older one was restored",
                    [card.member],
                )
            self._database.announce_change(connection, self.id)
            if manifest or fault:
                self._database.announce_change(connection, self.federation)
            return True

        if not await self._database.write(store):
            return False
        self.enrolling, self.manifest, self.fault = after, manifest, fault
        self._seen += 1
        self._notify_change()
        if not self.is_open:
            self._on_ended(self.federation)
        return True

    def _make_row(self, card: KeyCard) -> dict[str, Any]:
        return {
            "cohort": self.id,
            "member": card.member,
            "key": self.roster.key_of(card.member).hex(),
            "serial": card.serial.to_bytes(8, "big"),
            "body": card.to_bytes(),
        }

    async def newest_card(self, member: str) -> bytes | None:
        """Return the card with the highest serial that a member's key has signed, in any cohort of any federation."""
        own = cards.c.key == self.roster.key_of(member).hex()
        query = select(cards.c.body).where(own).order_by(cards.c.serial.desc()).limit(1)
        body: bytes | None = await self._database.read_value(query)
        return body

    def formed_manifest(self) -> Manifest:
        """Return the manifest. Raises PeerFault(wrong-phase) before the cohort is formed."""
        if self.manifest is None:
            raise wrong_phase(
                "the cohort is not formed" + (f": {self.fault.detail}" if self.fault else " yet")
            )
        return self.manifest

    def cards_for(self, member: str) -> Cards:
        """Return the manifest with the cards that a member needs.

        Raises:
            PeerFault: wrong-phase before the cohort is formed; unknown-member if it formed without this member.
        """
        manifest = self.formed_manifest()
        if member not in manifest.member_places:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"the cohort was formed without {member}", [member])
        return self.cards if needs_all(manifest, member) else self.enrolling.cards_for(manifest, member)

    @cached_property
    def cards(self) -> Cards:
        """The manifest with all cards. Raises PeerFault(wrong-phase) before the cohort is formed."""
        manifest = self.formed_manifest()
        return self.enrolling.cards_for(manifest, manifest.decryptors[0])  # a decryptor needs all

    def current_view(self, step: str | None) -> CohortView:
        """Return the public view; `step` is the step of the next round."""
        enrolling, notes = self.enrolling, self.content.notes
        return CohortView(
            cohort=self.id,
            federation=self.federation,
            study=enrolling.study.hash.hex(),
            name=notes.name,
            study_version=notes.version,
            period=enrolling.period,
            counter=enrolling.counter,
            repeats=None if enrolling.repeats == NO_CONTEXT else enrolling.repeats.hex(),
            state="formed" if self.manifest else "failed" if self.fault else "enrolling",
            version=self.version,
            members=enrolling.invited_members,
            cards=tuple(sorted(enrolling.cards)),
            deadline_s=self.deadline_s if self.is_open else None,
            quorum=_quorum_view(self.manifest, self.content.question) if self.manifest else None,
            fault=self.fault,
            rounds=tuple(each.id for each in self.rounds),
            step=step,
        )


def _quorum_view(manifest: Manifest, question: Question) -> QuorumView:
    """Return the cohort's quorum in numbers."""
    quorum = read_quorum(manifest, question)
    return QuorumView(
        members=quorum.members,
        colluders=quorum.colluders,
        decryptors=quorum.decryptors,
        decryptor_colluders=quorum.decryptor_colluders,
        survivors_min=quorum.survivors_min,
        threshold=quorum.threshold,
        members_may_miss=quorum.members_may_miss,
        decryptors_may_miss=quorum.decryptors_may_miss,
        neighbours=manifest.degree,
        window_dropped_max=manifest.window_dropped_max,
        caution=quorum.caution(),
    )
