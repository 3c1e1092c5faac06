"""A cohort until it is formed: it takes cards until all have come, the operator closes it, or its deadline passes; then its members pair."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from sqlalchemy import Column, Connection, Table, delete, select, update

from service.coordination.rounds import LiveRound
from service.coordination.watch import Watch
from service.http.metering import in_thread
from service.http.problems import problem_of, storage_damaged, wrong_phase
from service.storage.database import Database
from service.storage.tables import cards, ciphertexts, cohorts, pairings
from veilsum.protocol.attempt import cohort_sizes, read_quorum
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Enrolling, PairingWindow
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    Ciphertexts,
    Enrolment,
    KeyCard,
    Manifest,
    Pairing,
    Roster,
    ShownCiphertext,
    Survivor,
)
from veilsum.protocol.pairing import check_pairing, lapse_s, senders_to, split_pairing
from veilsum.protocol.rest import CohortState, CohortView, Problem, QuorumView, RoundView, join_names
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
            f"a repeated run needs all its members, and roster {roster.number} no longer lists {join_names(gone)}: {NEW_PERIOD}",
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


def cohort_state(manifests: int, *, formed: bool, failed: bool) -> CohortState:
    """Name the state of a cohort of so many manifests."""
    if failed:
        return "failed"
    if formed:
        return "formed"
    return "pairing" if manifests else "enrolling"


class Cohort:
    """One cohort. Its cards, manifests and pairings are stored before they are shown.

    `wake` is called at every change, and `on_news` with the federation when members are asked something new, or the cohort is formed or failed.

    Attributes:
        window: of the newest manifest; None while cards are taken.
        formed: whether all members of the manifest have paired.
        fault: why it could not be formed.
        live: the last one of its rounds, until it has ended.
    """

    window: PairingWindow | None = None
    formed: bool = False
    fault: Problem | None = None

    def __init__(
        self,
        database: Database,
        wake: Callable[[], None],
        on_news: Callable[[str], None],
        enrolling: Enrolling,
        deadline_s: float,
    ) -> None:
        self.enrolling, self.deadline_s = enrolling, deadline_s
        self.id, self.federation = enrolling.cohort.hex(), enrolling.roster.federation.hex()
        self.size = len(enrolling.roster.members)
        self.live: LiveRound | None = None
        self._past: tuple[Brief, ...] = ()
        self.watch = Watch(lambda: self.version, lambda: self._news)
        self._database, self._wake, self._on_news = database, wake, on_news
        self._seen, self._news, self._not_before_s = 0, 0, 0.0
        """How often the stored cohort had changed when it was last read; the version of its last news; no deadline is before."""
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
        self._news = self.version
        self.watch.notify_waiters()

    def forget_round(self, deleted: LiveRound) -> None:
        """Forget a live round that another process has deleted."""
        if self.live is deleted:
            self.live = None
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
        """Load other processes' changes, and wait for one of this process that is stored, and so in lists of runs, but not shown yet."""
        if self.is_settled:
            return
        async with self._lock:
            if self._database.shared:
                await self._catch_up()

    async def load_state(self, not_before_s: float) -> None:
        """Load the stored state. A deadline that passed while no process ran is postponed a little."""
        self._not_before_s = not_before_s
        self.deadline_s = max(self.deadline_s, not_before_s)
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Load what was stored since the last change that this process knows."""

        def read_stored(connection: Connection) -> tuple[Any, Sequence[Any], Sequence[Any]]:
            row = connection.execute(select(cohorts).where(cohorts.c.id == self.id)).one()

            def read_added(table: Table, *columns: Column[Any]) -> Sequence[Any]:
                # None that came after the row was read: it may be of a newer manifest.
                new = table.c.change > self._seen, table.c.change <= row.changes
                return connection.execute(select(*columns).where(table.c.cohort == self.id, *new)).all()

            if row.changes == self._seen:
                return row, (), ()
            came = read_added(cards, cards.c.body, cards.c.mlkem_key)
            return row, came, read_added(pairings, pairings.c.member, pairings.c.signature)

        row, came, paired = await self._database.read(read_stored)
        if row.changes == self._seen:
            return

        def load() -> tuple[Enrolling, PairingWindow | None]:
            enrolling, window = self.enrolling, self.window
            if came:
                enrolments = (Enrolment(KeyCard.from_bytes(each.body), each.mlkem_key) for each in came)
                enrolling = enrolling.with_enrolments(enrolments)
            if row.manifest and row.manifests != (window and window.number):
                manifest = Manifest.from_bytes(row.manifest)
                window = PairingWindow(enrolling.of_members(manifest.members), manifest, row.manifests)
            if window is not None:
                window = window.with_signatures({each.member: each.signature for each in paired})
            return enrolling, window

        self.enrolling, window = await in_thread(load)
        fault = Problem.model_validate_json(row.fault) if row.fault else None
        self._take(row.changes, window, fault, row.deadline_s, formed=row.formed)

    def _take(
        self,
        changes: int,
        window: PairingWindow | None,
        fault: Problem | None,
        deadline_s: float,
        *,
        formed: bool,
    ) -> bool:
        """Show what is stored. Returns whether it is news: a manifest, or the end of pairing or of the cohort."""
        before = self.window and self.window.number, self.formed, self.fault is None
        self.window, self.formed, self.fault, self._seen = window, formed, fault, changes
        self.deadline_s = max(deadline_s, self._not_before_s)
        news = (window and window.number, formed, fault is None) != before
        if news:
            self._news = self.version
        self.watch.notify_waiters()
        self._wake()
        return news

    @property
    def version(self) -> int:
        """Grows with every card, pairing and manifest, and with every round."""
        return self._seen + len(self._past) + (self.live is not None)

    @property
    def state(self) -> CohortState:
        """The state that members and operators see."""
        manifests = 0 if self.window is None else self.window.number
        return cohort_state(manifests, formed=self.formed, failed=self.fault is not None)

    @property
    def is_settled(self) -> bool:
        """Whether the cohort is formed, or failed."""
        return self.formed or self.fault is not None

    @property
    def at_rest(self) -> bool:
        """Whether the cohort is settled and no round is live."""
        return self.is_settled and (self.live is None or self.live.at_rest)

    @property
    def due_s(self) -> float | None:
        """When enrolment or the window of pairing ends, in Unix time; None once the cohort is settled."""
        return None if self.is_settled else self.deadline_s

    async def receive(self, enrolment: Enrolment, now_s: float) -> None:
        """Store a card; the last one ends enrolment."""
        async with self._lock:
            while True:
                after = self.enrolling.receive(enrolment, now_s)
                if after is self.enrolling:
                    return
                if self.state != "enrolling":
                    raise wrong_phase("enrolment in this cohort is closed: ask the operator for a new cohort")
                window, fault = await _begin_window(after) if after.is_complete else (None, None)
                if await self._store_change(now_s, window, fault, partial(self._add_card, enrolment)):
                    self.enrolling = after
                    return
                await self._catch_up()

    async def close_enrolment(self, now_s: float) -> None:
        """Make the manifest from the cards received, or fail the cohort if they are too few."""
        async with self._lock:
            while self.state == "enrolling":
                if not await self._store_change(now_s, *await _begin_window(self.enrolling)):
                    await self._catch_up()

    async def receive_pairing(self, pairing: Pairing, now_s: float) -> None:
        """Store a pairing; the last one forms the cohort. One of another manifest than the newest is ignored."""
        if (window := self.window) is None:
            raise wrong_phase("the cohort has no manifest yet")
        if pairing.manifest != window.manifest.hash:
            return
        # It may have megabytes: others' pairings don't wait for its checks.
        await in_thread(check_pairing, self.roster, window.manifest, pairing)
        async with self._lock:
            while self.window is not None and pairing.manifest == self.window.manifest.hash:
                after = self.window.admit_checked(pairing)
                if after is self.window:
                    return
                if self.is_settled:
                    raise wrong_phase("pairing in this cohort is over: join the next one")
                rows = await in_thread(self._make_ciphertext_rows, window.manifest, pairing)
                if await self._store_change(now_s, after, add=partial(self._add_pairing, pairing, rows)):
                    return
                await self._catch_up()

    async def leave_out_missing(self, now_s: float) -> None:
        """Make a manifest without the members that have not paired, or fail the cohort."""
        async with self._lock:
            while self.state == "pairing" and now_s >= self.deadline_s:
                assert self.window is not None
                window, fault = await _try_window(self.window.leave_out_missing)
                if not await self._store_change(now_s, window or self.window, fault):
                    await self._catch_up()

    async def pass_deadline(self, now_s: float) -> None:
        """End enrolment, or the window of pairing, if its deadline has passed."""
        if now_s < self.deadline_s:
            return
        if self.state == "enrolling":
            await self.close_enrolment(now_s)
        else:
            await self.leave_out_missing(now_s)

    async def _store_change(
        self,
        now_s: float,
        window: PairingWindow | None,
        fault: Problem | None = None,
        add: Callable[[Connection, int], None] | None = None,
    ) -> bool:
        """Store rows, the window to which they lead, and why the cohort failed. Returns False if another process has changed the cohort.

        `add` stores the rows, with the number of the change.
        """
        change, formed = self._seen + 1, window is not None and window.is_complete
        values: dict[str, Any] = {"changes": change, "formed": formed}
        if fault is not None:
            values["fault"] = fault.model_dump_json()
        begins = window is not None and window.number != (self.window and self.window.number)
        if window is not None and begins:
            values |= self._window_values(window, now_s)

        def store(connection: Connection) -> bool:
            own = update(cohorts).where(cohorts.c.id == self.id, cohorts.c.changes == self._seen)
            if not connection.execute(own.values(values)).rowcount:
                return False
            for table in (pairings, ciphertexts) if begins else ():
                connection.execute(delete(table).where(table.c.cohort == self.id))
            if add is not None:
                add(connection, change)
            self._database.announce_change(connection, self.id)
            if begins or formed or fault:
                self._database.announce_change(connection, self.federation)
            return True

        if not await self._database.write(store):
            return False
        deadline_s = values.get("deadline_s", self.deadline_s)
        if self._take(change, window, fault, deadline_s, formed=formed):
            self._on_news(self.federation)
        return True

    def _window_values(self, window: PairingWindow, now_s: float) -> dict[str, Any]:
        windows = self.content.question.windows
        return {
            "manifest": window.manifest.to_bytes(),
            "manifests": window.number,
            "deadline_s": now_s + windows.answer,
            # Its members' cards were made before now.
            "lapses_s": now_s + lapse_s(windows),
        }

    def _add_card(self, enrolment: Enrolment, connection: Connection, change: int) -> None:
        card = enrolment.card
        row = {
            "cohort": self.id,
            "member": card.member,
            "change": change,
            "key": self.roster.key_of(card.member).hex(),
            "serial": card.serial.to_bytes(8, "big"),
            "body": card.to_bytes(),
            "mlkem_key": enrolment.mlkem_key,
        }
        if not self._database.add_row(connection, cards, row):
            raise PeerFault(
                Cause.CARD_CONFLICT,
                f"{card.member} sent another card with the serial {card.serial}: two copies of its folder are in use, or an "
                "older one was restored",
                [card.member],
            )

    def _make_ciphertext_rows(self, manifest: Manifest, pairing: Pairing) -> list[dict[str, Any]]:
        return [
            {"cohort": self.id, "recipient": recipient, "sender": pairing.member, "body": shown.encode()}
            for recipient, shown in split_pairing(manifest, pairing)
        ]

    def _add_pairing(
        self, pairing: Pairing, rows: Sequence[dict[str, Any]], connection: Connection, change: int
    ) -> None:
        row = {"cohort": self.id, "member": pairing.member, "change": change, "signature": pairing.signature}
        self._database.add_row(connection, pairings, row)
        self._database.add_all(connection, ciphertexts, rows)

    async def newest_card(self, member: str) -> bytes | None:
        """Return the card with the highest serial that a member's key has signed, in any cohort of any federation."""
        own = cards.c.key == self.roster.key_of(member).hex()
        query = select(cards.c.body).where(own).order_by(cards.c.serial.desc()).limit(1)
        body: bytes | None = await self._database.read_value(query)
        return body

    def formed_manifest(self) -> Manifest:
        """Return the manifest. Raises PeerFault(wrong-phase) before the cohort is formed."""
        if self.window is None or not self.formed:
            raise wrong_phase(
                "the cohort is not formed" + (f": {self.fault.detail}" if self.fault else " yet")
            )
        return self.window.manifest

    def cards_for(self, member: str) -> Cards:
        """Return the newest manifest with the cards that a member needs.

        Raises:
            PeerFault: wrong-phase before there is a manifest, or if the cohort failed; unknown-member if it leaves this member out.
        """
        window = self.window
        if window is None or self.fault is not None:
            raise wrong_phase(
                "the cohort has no manifest" + (f": {self.fault.detail}" if self.fault else " yet")
            )
        _check_listed(window.manifest, member)
        return window.enrolling.cards_for(window.manifest, member)

    async def ciphertexts_for(self, member: str) -> bytes:
        """Return the encoded Ciphertexts for a member of a formed cohort.

        Raises:
            PeerFault: unknown-member; wrong-phase once they are deleted: no member has the keys for them any more; storage-damaged.
        """
        manifest = self.formed_manifest()
        _check_listed(manifest, member)
        own = ciphertexts.c.cohort == self.id, ciphertexts.c.recipient == member
        bodies = await self._database.read_values(select(ciphertexts.c.body).where(*own))
        if not bodies:
            raise wrong_phase("the ciphertexts of this cohort are deleted: join the next one")

        def encode() -> bytes:
            # Not in the order of SQL, which depends on the database's collation.
            shown = sorted(map(ShownCiphertext.from_bytes, bodies), key=lambda each: each.member)
            if tuple(each.member for each in shown) != senders_to(manifest, member):
                raise storage_damaged(f"{len(shown)} ciphertexts for {member} are stored")
            return Ciphertexts(manifest.hash, tuple(shown)).to_bytes()

        with self._database.quarantine.quarantine_errors(f"ciphertexts for {member} in cohort {self.id}"):
            return await in_thread(encode)

    @cached_property
    def cards(self) -> Cards:
        """The manifest with all cards, for transcripts. Raises PeerFault(wrong-phase) before the cohort is formed."""
        manifest = self.formed_manifest()
        return self.enrolling.all_cards(manifest)

    def current_view(self, step: str | None) -> CohortView:
        """Return the public view; `step` is the step of the next round."""
        enrolling, notes, window = self.enrolling, self.content.notes, self.window
        came = sorted(enrolling.cards)
        return CohortView(
            cohort=self.id,
            federation=self.federation,
            study=enrolling.study.hash.hex(),
            name=notes.name,
            study_version=notes.version,
            period=enrolling.period,
            counter=enrolling.counter,
            repeats=None if enrolling.repeats == NO_CONTEXT else enrolling.repeats.hex(),
            state=self.state,
            version=self.version,
            members=enrolling.invited_members,
            cards=tuple(came),
            left_out=()
            if window is None
            else tuple(member for member in came if member not in window.manifest.member_places),
            paired=() if window is None else tuple(sorted(window.signatures)),
            deadline_s=self.due_s,
            quorum=_quorum_view(window.manifest, self.content.question) if window else None,
            fault=self.fault,
            rounds=tuple(each.id for each in self.rounds),
            step=step,
        )


def _check_listed(manifest: Manifest, member: str) -> None:
    if member not in manifest.member_places:
        detail = f"the cohort continues without {member}, which did not enrol or pair in time"
        raise PeerFault(Cause.UNKNOWN_MEMBER, detail, [member])


async def _begin_window(enrolling: Enrolling) -> tuple[PairingWindow | None, Problem | None]:
    return await _try_window(partial(PairingWindow.begin, enrolling))


async def _try_window(make: Callable[[], PairingWindow]) -> tuple[PairingWindow | None, Problem | None]:
    """Make a window, or say why there is none."""
    try:
        return await in_thread(make), None
    except PeerFault as short:
        return None, problem_of(short)


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
