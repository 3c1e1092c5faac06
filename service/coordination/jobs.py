"""The coordinator's background jobs: end phases at their deadlines, add up and solve sums, and clean up after rounds."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from sqlalchemy import Connection, and_, delete, or_, select, update

from service.coordination import solving
from service.coordination.catalogue import Catalogue
from service.coordination.cohorts import Cohort
from service.coordination.documents import DISCLOSURE_DOCUMENT, Publication
from service.coordination.federations import Federations
from service.coordination.garbage import Garbage
from service.coordination.journal import read_counts
from service.coordination.rounds import LiveRound, Round
from service.coordination.scheduler import Job
from service.coordination.scrubbing import SCRUB_BYTES_PER_S, find_damaged_blobs
from service.coordination.summing import DamagedChunkError, DamagedRangeError, Pieces
from service.http.problems import problem_of, storage_damaged
from service.storage import audit
from service.storage.blobs import Blobs, in_blob_thread
from service.storage.database import Database
from service.storage.faults import DamagedRowError
from service.storage.tables import ciphertexts, cohorts, rounds
from veilsum.protocol.coordinator import Recovered
from veilsum.protocol.counting import CountOutcome
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.opening_rules import count_contexts, next_step
from veilsum.protocol.rest import join_names, round_name
from veilsum.protocol.shelf import Announced
from veilsum.protocol.study import DAY_S

SCRUB_DELAY_S, SCRUB_S, SCRUB_PAUSE_S = 600.0, 24 * 3600.0, 0.05
"""When a process first compares all stored blobs with their digests, the pause until it does so again, and the pause after each blob."""
SWEEP_S = 3600.0
"""Interval between two sweeps of what dead processes left in storage."""
RECIPIENTS_PER_DELETE = 16
"""Whose ciphertexts one transaction deletes: those of 1,000 members take 400 MB, and other changes wait behind it."""


def _read_sums(counts: Mapping[bytes, CountOutcome], context: bytes) -> tuple[int, ...]:
    return tuple(counts[context].sums) if context in counts else ()


def _forget_some(cohort: str, connection: Connection) -> bool:
    """Delete some recipients' ciphertexts, and return whether there were any."""
    own = ciphertexts.c.cohort == cohort
    query = select(ciphertexts.c.recipient).where(own).distinct().limit(RECIPIENTS_PER_DELETE)
    recipients = connection.scalars(query).all()
    if recipients:
        connection.execute(delete(ciphertexts).where(own, ciphertexts.c.recipient.in_(recipients)))
    else:
        connection.execute(update(cohorts).where(cohorts.c.id == cohort).values(lapses_s=None))
    return bool(recipients)


class Jobs:
    """The jobs of one coordinator.

    Args:
        database: names its counts.
        catalogue: of its cohorts and rounds.
        federations: their chains.
        garbage: of its rounds.
        blobs: where results are.
        key: signs results.
        now: Unix time in seconds.
        audit_days: for how many days entries of the audit log are kept; None for ever.
    """

    def __init__(
        self,
        database: Database,
        catalogue: Catalogue,
        federations: Federations,
        garbage: Garbage,
        blobs: Blobs,
        key: SigningKey,
        now: Callable[[], float],
        audit_days: int | None = None,
    ) -> None:
        self._audit_days = audit_days
        self._catalogue, self._federations, self.garbage = catalogue, federations, garbage
        self._database, self._blobs, self._key, self._now = database, blobs, key, now
        self._swept_s = now()
        self._scrub_due_s = self._swept_s + SCRUB_DELAY_S

    def due_jobs(self) -> Iterator[Job]:
        """List the jobs: deadlines, ends to store, traces to remove, and sums to solve."""
        for thing in self._catalogue.open_objects():
            if thing.due_s is not None:
                yield Job(thing.id, thing.due_s, partial(self._advance_deadline, thing))
        for left in self.garbage.due_rounds():
            yield Job(left.id, 0.0, partial(self._clear_round, left))
        for round_ in self._catalogue.live_rounds():
            if (recovered := round_.recovered) is not None:
                missing = set(round_.summing.parts) - round_.summing.unmasked
                for part in missing:
                    work = partial(self._unmask_range, round_, part, recovered)
                    yield Job(f"{round_.id}/{part}", 0.0, work, heavy=True)
                if not missing:
                    yield Job(round_.id, 0.0, partial(self._solve_round, round_))
            else:
                parts, uploaded = round_.ranges_to_add()
                for part in parts:
                    work = partial(self._add_range, round_, part, uploaded)
                    yield Job(f"{round_.id}/{part}", 0.0, work, heavy=True)
        yield Job("sweep", self._swept_s + SWEEP_S, self.sweep_storage)
        yield Job("scrub", self._scrub_due_s, self._scrub_blobs)

    async def _scrub_blobs(self) -> None:
        """Compare everything that is stored with its digest, slowly."""

        async def pause(size: int) -> None:
            await asyncio.sleep(SCRUB_PAUSE_S + size / SCRUB_BYTES_PER_S)

        async for _ in find_damaged_blobs(self._database, self._blobs, self._key.public, pause):
            pass  # it is named and counted
        self._scrub_due_s = self._now() + SCRUB_S

    async def sweep_storage(self) -> None:
        """Look for what dead processes have left."""
        await self.garbage.sweep_storage(self._catalogue.find_round)
        # A process that stood still may have put one back that was forgotten.
        await self.forget_disclosures()
        await self._forget_ciphertexts()
        if self._audit_days is not None:
            before_s = self._now() - self._audit_days * DAY_S
            await audit.prune_entries(self._database, self._key, before_s, self._now())
        self._swept_s = self._now()

    async def _advance_deadline(self, thing: Cohort | LiveRound) -> None:
        await thing.pass_deadline(self._now())

    async def _clear_round(self, left: Round) -> None:
        await self.garbage.clear_round(left, self._now())

    async def _add_range(self, round_: LiveRound, part: int, uploaded: Mapping[str, Announced]) -> None:
        try:
            await round_.summing.add_stored(part, uploaded)
        except DamagedChunkError as chunk:
            before = round_.position
            await round_.replace_chunk(chunk, self._now())
            if round_.position is before:  # it concerns no member that is summed: don't try again at once
                raise

    async def _unmask_range(self, round_: LiveRound, part: int, recovered: Recovered) -> None:
        await round_.refresh()
        if round_.end is not None:
            return
        try:
            await round_.summing.unmask_range(part, recovered)
        except DamagedChunkError as chunk:
            await round_.replace_chunk(chunk, self._now())
        except PeerFault as fault:
            await round_.store_failure(problem_of(fault), self._now())

    async def _solve_round(self, round_: LiveRound) -> None:
        await round_.refresh()
        standing, recovered = round_.standing, round_.recovered
        pieces = await round_.summing.sum_pieces()
        if standing is None or recovered is None or pieces is None:
            return
        try:
            outcome = await self._compute_publication(round_, recovered, standing.transcript.head, pieces)
            await round_.store_result(outcome, self._now())
        except DamagedRangeError as damaged:
            await round_.summing.begin_again(damaged)
            return
        except DamagedChunkError as chunk:
            await round_.replace_chunk(chunk, self._now())
        except PeerFault as fault:
            await round_.store_failure(problem_of(fault), self._now())
        if round_.attempt.spec.sums:
            for named in round_.attempt.terms.counts:
                await self._delete_disclosure(round_name(named))

    async def _compute_publication(
        self, round_: Round, recovered: Recovered, transcript: bytes, pieces: Pieces
    ) -> Publication:
        """Compute the sum's result, or publish a count's sums."""
        attempt = recovered.attempt
        if attempt.spec.is_disclosed:
            return await in_blob_thread(solving.publish_counts, round_.id, recovered, pieces, self._blobs)
        counts = await read_counts(self._database, attempt.terms.counts)
        if missing := set(attempt.terms.counts) - counts.keys():
            names = join_names(sorted(map(round_name, missing)))
            raise storage_damaged(
                f"the coordinator's storage has lost or changed the outcome of {names}, which this step rests on; no member is at fault"
            )
        material = await self._catalogue.material_of(attempt)
        if material is not None and hashlib.sha256(material).digest() != attempt.terms.material:
            raise storage_damaged(
                "the coordinator's storage does not have the material that this step's terms name; no member is at fault"
            )
        solve = partial(
            solving.solve_sum,
            recovered,
            transcript,
            pieces,
            self._key,
            material=material,
            holders=_read_sums(counts, attempt.terms.count),
            reached=_read_sums(counts, attempt.terms.rows),
        )
        return await in_blob_thread(solve)

    async def forget_disclosures(self) -> None:
        """Delete the disclosures of counts after their run is over or their study has expired."""
        for name in await self._list_disclosed():
            with suppress(DamagedRowError):
                await self._forget_disclosure(name)

    async def _forget_ciphertexts(self) -> None:
        """Delete the ciphertexts that are of no use: of failed cohorts, and of those in which all members' keys have lapsed."""
        useless = or_(cohorts.c.fault.is_not(None), and_(cohorts.c.formed, cohorts.c.lapses_s <= self._now()))
        query = select(cohorts.c.id).where(cohorts.c.lapses_s.is_not(None), useless)
        for cohort in await self._database.read_values(query):
            while await self._database.write(partial(_forget_some, cohort)):
                pass

    async def _list_disclosed(self) -> list[str]:
        """Return the counts with a stored disclosure."""
        query = select(rounds.c.id).where(rounds.c.state == "done", rounds.c.record.is_(None))
        counted = set(await self._database.read_values(query))

        def find_lying() -> list[str]:
            # A bucket forgets the folders of the others: there may be years of them.
            kept = counted.intersection(self._blobs.list_names("results"))
            return [name for name in kept if DISCLOSURE_DOCUMENT in self._blobs.list_names(f"results/{name}")]

        return await in_blob_thread(find_lying)

    async def _forget_disclosure(self, name: str) -> None:
        attempt = (await self._catalogue.find_round(name)).attempt
        links = await self._federations.read_links(attempt.roster.federation.hex())
        counts = await read_counts(self._database, count_contexts(links))
        over = next_step(attempt.question, attempt.manifest.period, links, counts.get) is None
        if over or self._now() >= attempt.content.notes.expires:
            await self._delete_disclosure(name)

    async def _delete_disclosure(self, count: str) -> None:
        await in_blob_thread(self._blobs.delete, f"results/{count}/{DISCLOSURE_DOCUMENT}")
