"""The cohorts and rounds in use: one object for each, loaded from the database, which other processes write to as well.

A lookup by name loads the object or brings it up to date.
"""

import asyncio
import os
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Row, func, select

from service.coordination import journal
from service.coordination.cache import ObjectCache
from service.coordination.cohorts import Brief, Cohort
from service.coordination.documents import MATERIAL_DOCUMENT, TRANSCRIPTS_FOLDER
from service.coordination.federations import Federations
from service.coordination.journal import DeletedRoundError, read_survivors
from service.coordination.rounds import EndedRound, Host, LiveRound, Round
from service.coordination.runs import Runs
from service.coordination.shown_heads import read_heads
from service.coordination.standing import RoundEnd, Standing, read_view
from service.coordination.summing import Memory
from service.http.metering import in_thread
from service.http.problems import not_found
from service.storage.blobs import Blobs, in_blob_thread
from service.storage.database import Database
from service.storage.faults import check_named
from service.storage.tables import cohorts, events, rounds
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Collecting, Enrolling
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import NO_CONTEXT, Link, Manifest, Opening, SurvivorSet
from veilsum.protocol.opening_rules import certified_links, earlier_contexts
from veilsum.protocol.rest import round_name
from veilsum.protocol.shelf import Shelf
from veilsum.protocol.study import Question
from veilsum.protocol.transcript import Transcript

RUNNING_SUMS_BYTES = 256 << 20
"""Memory limit of all running sums in one process. Chunks beyond it are added from storage later."""


class FileShelf(Shelf):
    """A live round's announcements in an unlinked temporary file of a folder: a decryptor gets a small part of each.

    The file is a cache: a restart rebuilds it from the round's events, and it disappears with the process.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        with tempfile.TemporaryFile(dir=folder) as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)

    def _write(self, at: int, data: bytes) -> None:
        written = 0
        while written < len(data):
            written += os.pwrite(self._file, memoryview(data)[written:], at + written)

    def _read(self, at: int, size: int) -> bytes:
        return os.pread(self._file, size, at)


class Catalogue:
    """Cohorts and rounds: the open ones, and a cache of others.

    Attributes:
        cohorts: those held here, by id.
        rounds: the same.
        memory: for the running sums of rounds.

    Args:
        database: the truth.
        blobs: rounds' chunks.
        folder: on the disk for what only live rounds need.
        key: the coordinator's.
        federations: their rosters, studies and chains.
        runs: told when a cohort or round of a federation begins or ends.
        on_garbage: called with a round that may leave something in storage that must be deleted.
        wake: called when there may be something to do.
    """

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        folder: Path,
        key: SigningKey,
        federations: Federations,
        runs: Runs,
        on_garbage: Callable[[Round], None],
        wake: Callable[[], None],
    ) -> None:
        self._database, self._blobs, self._folder = database, blobs, folder
        self._federations, self._runs, self._wake = federations, runs, wake
        self.cohorts, self.rounds = ObjectCache[Cohort](), ObjectCache[Round]()
        self.memory = Memory(RUNNING_SUMS_BYTES)
        self._loading, self._reading = asyncio.Lock(), asyncio.Lock()
        self._host = Host(
            database, blobs, self.memory, key, wake, self._replace_ended, self._forget_deleted, on_garbage
        )

    # Asked for by name

    async def find_cohort(self, name: str) -> Cohort:
        """Return a cohort, brought up to date. Raises PeerFault(not-found)."""
        found = self.cohorts.get(name)
        if found is None:
            async with self._loading:
                found = await self._load_cohort(name)
        await self._refresh_cohort(found)
        return found

    async def find_round(self, name: str, what: str = "round") -> Round:
        """Return a round, brought up to date. Raises PeerFault(not-found)."""
        found = self.rounds.get(name)
        while found is None:
            row = await self._database.read_row(select(rounds).where(rounds.c.id == name))
            if row is None:
                raise not_found(what)
            if row.final is None:
                await self._load_open(row.federation)
                found = self.rounds.get(name)  # unless it has ended meanwhile
            else:
                # One at a time, so that requests for ended rounds don't delay the running ones.
                async with self._reading:
                    with self._database.quarantine.quarantine_errors(f"round {name}"):
                        found = self.rounds.get(name) or await self._load_ended(row)
        await found.refresh()
        return self.rounds.get(name) or found  # another, if it has ended now

    async def round_of(self, context: str) -> Round:
        """Return the round of a context. Raises PeerFault(not-found)."""
        found = await self.find_round(round_name(bytes.fromhex(context)), "context")
        if found.attempt.context.hex() != context:
            raise not_found("context")
        return found

    async def find_material(
        self, question: Question, period: str, step: str, links: Sequence[Link]
    ) -> bytes | None:
        """Return a step's input from the step before it; None if it needs none, or if that step has no result."""
        before = question.step_before(step) if question.takes_material(step) else None
        certified = [] if before is None else certified_links(question, period, before, links)
        if not certified:
            return None
        documents = (await self.find_round(round_name(certified[0].context))).documents
        if documents.record is None:
            return None
        return await in_blob_thread(documents.fetch_document, MATERIAL_DOCUMENT)

    async def material_of(self, attempt: Attempt) -> bytes | None:
        """Return the file that members fetch with the opening."""
        spec = attempt.spec
        if spec.judges:
            cohort, heads = attempt.manifest.cohort.hex(), attempt.terms.material.hex()
            return await in_blob_thread(read_heads, self._blobs, cohort, heads)
        return await self.find_material(spec.question, spec.period, spec.step, attempt.opening.links)

    # Open ones

    def open_objects(self) -> list[Cohort | LiveRound]:
        """Those with work to do, now or later."""
        return [*self.cohorts.open_objects(), *self.live_rounds()]

    def live_rounds(self, federation: str | None = None) -> list[LiveRound]:
        """Rounds that have not ended, as far as this process knows: at most one for each federation."""
        return [
            round_
            for round_ in self.rounds.open_objects()
            if isinstance(round_, LiveRound) and federation in {None, round_.federation}
        ]

    async def active_federations(self) -> set[str]:
        """Return the federations with something open, in storage or in memory."""
        forming = select(cohorts.c.federation).where(*FORMING_COHORTS)
        live = select(rounds.c.federation).where(rounds.c.final.is_(None))
        found = await self._database.read_values(forming.union(live))
        return set(found) | {thing.federation for thing in self.open_objects()}

    async def refresh_federation(self, federation: str) -> None:
        """Bring a federation's cohorts and rounds up to date."""
        await self._load_open(federation)
        for cohort in self.cohorts.of_federation(federation):
            await self._refresh_cohort(cohort)
        for round_ in self.live_rounds(federation):
            with suppress(DeletedRoundError):
                await round_.refresh()
        await self._runs.update_revision(federation)

    async def _refresh_cohort(self, cohort: Cohort) -> None:
        if self._database.shared:
            count = select(func.count()).select_from(rounds).where(rounds.c.cohort == cohort.id)
            known = await self._database.read_value(count)
            if cohort.live is not None:
                with suppress(DeletedRoundError):
                    await cohort.live.refresh()
            if known != len(cohort.rounds):
                async with self._loading:
                    await self._load_rounds(cohort)
        await cohort.refresh()

    async def add_round(self, attempt: Attempt, cohort: Cohort, opened_s: float) -> Round:
        """Add the round that was just stored to its up-to-date cohort."""
        async with self._loading:
            found = self.rounds.get(round_name(attempt.context))  # by what the database has told
            if found is None:
                found = await self._make_live(attempt, cohort, opened_s)
                self._add_live(found, cohort)
        self._wake()
        return found

    def _add_live(self, round_: LiveRound, cohort: Cohort) -> None:
        if round_.end is None:  # it may have ended while it was loaded
            self.rounds.put_object(round_)
        cohort.note_round(round_)
        self.cohorts.put_object(cohort)  # again, for as long as the round is live

    def _replace_ended(self, ended: EndedRound) -> None:
        """Put an ended round in the place of its live one."""
        self.rounds.put_object(ended)
        self._runs.notify_change(ended.federation)

    def _forget_deleted(self, round_: LiveRound) -> None:
        """Drop a live round that another process has deleted."""
        self.rounds.remove_object(round_.id)
        if (cohort := self.cohorts.get(round_.attempt.manifest.cohort.hex())) is not None:
            cohort.forget_round(round_)
        self._runs.notify_change(round_.federation)
        self._wake()

    # From storage

    async def load_open(self, not_before_s: float) -> None:
        """Load everything that was open when the last process stopped.

        Raises:
            Misuse: blobs that the database refers to are missing.
        """
        await self._check_blobs()
        for federation in sorted(await self.active_federations()):
            with self._database.quarantine.skip_errors(f"federation {federation}"):
                await self._load_open(federation, not_before_s)

    async def _check_blobs(self) -> None:
        for folder in (TRANSCRIPTS_FOLDER, journal.EVENTS_FOLDER):
            if await in_blob_thread(self._blobs.list_names, folder):
                return
        ended = select(rounds.c.id).where(rounds.c.state.is_not(None))
        announced = select(events.c.round).where(events.c.kind == journal.BLOB_EVENT_KIND)
        if await self._database.read_value(ended.union(announced).limit(1)) is None:
            return
        raise Misuse(
            "the database knows uploads or results, and their files are gone: restore the data folder's `blobs`, or correct "
            "VEILSUM_DATA_DIR or VEILSUM_BLOBS_URL. To continue without them, create the folder `blobs/transcripts/lost`"
        )

    async def _load_open(self, federation: str, not_before_s: float = 0.0) -> None:
        """Load a federation's open cohorts and rounds that are not cached yet."""
        async with self._loading:
            forming = select(cohorts.c.id).where(cohorts.c.federation == federation, *FORMING_COHORTS)
            for name in await self._database.read_values(forming):
                with self._database.quarantine.skip_errors(f"cohort {name} of federation {federation}"):
                    await self._load_cohort(name, not_before_s)
            live = select(rounds.c.id, rounds.c.cohort).where(rounds.c.federation == federation)
            row = await self._database.read_row(live.where(rounds.c.final.is_(None)))
            if row is None or row.id in self.rounds:
                return
            with self._database.quarantine.quarantine_errors(f"round {row.id}"):
                if (cohort := self.cohorts.get(row.cohort)) is not None:
                    await self._load_rounds(cohort, not_before_s)
                else:
                    await self._load_cohort(row.cohort, not_before_s)

    async def _load_cohort(self, name: str, not_before_s: float = 0.0) -> Cohort:
        if (known := self.cohorts.get(name)) is not None:
            return known
        row = await self._database.read_row(select(cohorts).where(cohorts.c.id == name))
        if row is None:
            raise not_found("cohort")
        with self._database.quarantine.quarantine_errors(f"cohort {name} of federation {row.federation}"):
            roster = await self._federations.read_roster(row.federation, row.roster_number)
            study = await self._federations.read_study(row.federation, row.study)
            repeats = NO_CONTEXT if row.repeats is None else bytes.fromhex(row.repeats)
            repeated = () if row.repeats is None else await read_survivors(self._database, repeats)
            enrolling = Enrolling(roster, study, row.counter, row.period, repeats, repeated)
            cohort = Cohort(self._database, self._wake, self._runs.notify_change, enrolling, row.deadline_s)
            check_named(name, cohort.id)
            await cohort.load_state(not_before_s)
        await self._load_rounds(cohort, not_before_s)
        self.cohorts.put_object(cohort)
        self._wake()
        return cohort

    async def _load_rounds(self, cohort: Cohort, not_before_s: float = 0.0) -> None:
        """Add the rounds that a cohort does not know yet, oldest first, leaving known ones as they are."""
        if cohort.live is not None:  # it has ended, or was deleted, if there are others after it
            with suppress(DeletedRoundError):
                await cohort.live.refresh()
        query = select(rounds.c.id, rounds.c.final).where(rounds.c.cohort == cohort.id)
        new = query.order_by(rounds.c.number).offset(len(cohort.rounds))
        for row in await self._database.read_rows(new):
            if row.final is None:
                live = await self._database.read_row(select(rounds).where(rounds.c.id == row.id))
                assert live is not None
                with self._database.quarantine.quarantine_errors(f"round {row.id}"):
                    round_ = await self._load_live(live, cohort, not_before_s)
                self._add_live(round_, cohort)
            else:
                with self._database.quarantine.quarantine_errors(f"round {row.id}"):
                    view = await in_thread(read_view, row.id, row.final)
                cohort.note_round(Brief.of_view(view))
        self._wake()

    async def _load_live(self, row: Row[Any], cohort: Cohort, not_before_s: float) -> LiveRound:
        """Load a round that was live when its row was read; deadlines that passed meanwhile are postponed a little for members."""
        await cohort.refresh()
        opening = await in_thread(Opening.from_bytes, row.opening)
        attempt = Attempt(cohort.roster, cohort.enrolling.study, cohort.formed_manifest(), opening)
        _check_stored(row, attempt)
        round_ = await self._make_live(attempt, cohort, row.opened_s, not_before_s)
        await round_.apply_stored()
        return round_

    async def _make_live(
        self, attempt: Attempt, cohort: Cohort, opened_s: float, not_before_s: float = 0.0
    ) -> LiveRound:
        transcript = await in_thread(Transcript.begin, attempt, cohort.cards)
        contexts = earlier_contexts(attempt)
        earlier = tuple([SurvivorSet(await read_survivors(self._database, each)) for each in contexts])
        phase = Collecting.begin(attempt, opened_s, earlier, FileShelf(self._folder))
        timeline = ((phase.name, opened_s),)
        standing = Standing(phase, transcript, timeline, not_before_s=not_before_s)
        return LiveRound(self._host, attempt, opened_s, standing)

    async def _load_ended(self, row: Row[Any]) -> EndedRound:
        query = select(cohorts.c.roster_number, cohorts.c.study, cohorts.c.manifest)
        formed = await self._database.read_row(query.where(cohorts.c.id == row.cohort))
        assert formed is not None
        roster = await self._federations.read_roster(row.federation, formed.roster_number)
        study = await self._federations.read_study(row.federation, formed.study)
        manifest = await in_thread(Manifest.from_bytes, formed.manifest)
        opening = await in_thread(Opening.from_bytes, row.opening)
        attempt = Attempt(roster, study, manifest, opening)
        _check_stored(row, attempt)
        end = await in_thread(RoundEnd.from_row, row)
        round_ = EndedRound(self._blobs, attempt, row.opened_s, end)
        self.rounds.put_object(round_)
        if not row.cleared:
            self._host.on_garbage(round_)
        return round_


FORMING_COHORTS = cohorts.c.formed.is_(False), cohorts.c.fault.is_(None)


def _check_stored(row: Row[Any], attempt: Attempt) -> None:
    """Refuse a round's row that is not of its name and cohort, or whose opening has changed."""
    check_named(row.id, round_name(attempt.context))
    check_named(row.cohort, attempt.opening.cohort.hex())
    attempt.opening.verify(attempt.roster.coordinator, "coordinator")
