"""The coordinator as one object: its federations, cohorts and rounds, loaded from storage and kept there."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from sqlalchemy import func, select

from service import combining, liveness, solving
from service.catalogue import LOOK_S, Catalogue
from service.cohorts import Cohort, check_possible
from service.documents import DISCLOSURE, Publication
from service.federations import Federations
from service.problems import named, not_found, problem_of
from service.rounds import Round
from service.runs import Runs, next_step
from service.scheduler import PAUSE_S, Job, Scheduler
from service.steps import Steps
from service.storage.blobs import Blobs
from service.storage.database import Database
from service.storage.faults import quarantined, tried
from service.storage.leases import LEASE_S, Leases
from service.storage.tables import cohorts
from service.studies import Studies, refuse_expired
from service.summing import DamagedChunkError, DamagedRangeError, Pieces
from service.views import spec_view
from service.watch import Watch, calm_s
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Enrolling, Erasing, Recovered
from veilsum.protocol.cost import plan_of
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import NO_CONTEXT, Opening
from veilsum.protocol.preflight import DecryptorsView, PreflightView
from veilsum.protocol.record import CombinedRecord, CombineRequest
from veilsum.protocol.rest import MAX_WAIT_S, CohortRequest, CohortView, RoundRequest, round_name
from veilsum.protocol.shelf import Announced
from veilsum.protocol.study import INDICATOR_STEP, SUM_STEP, refused

SWEEP_S = 3600.0
"""Between two looks for what dead processes have left in storage."""


@dataclass(frozen=True)
class PreparedAttempt:
    """An attempt that may be opened, as long as it is stored before any other.

    Attributes:
        now_s: Unix time that its terms go by.
        before: rounds that its federation had.
    """

    attempt: Attempt
    now_s: float
    before: int


class Coordinator:
    """Everything the routes need. Nothing here is not in storage too.

    Attributes:
        background: what goes on by itself until the process ends.

    Args:
        database: rows.
        blobs: chunks and results.
        key: signs openings and results.
        now: Unix time in seconds.
        max_wait_s: longest time that a long-poll is held.
        resume_grace_s: seconds after `load` in which no deadline passes.
        pause_s: before work that failed is tried again, at first.
        lease_s: after which another process takes over the work of one that gives no sign of life.
        skew_s: how far a signer's clock may be off, as the gate has it.
    """

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        key: SigningKey,
        *,
        now: Callable[[], float] = time.time,
        max_wait_s: float = MAX_WAIT_S,
        resume_grace_s: float = 0.0,
        pause_s: float = PAUSE_S,
        lease_s: float = LEASE_S,
        skew_s: float = 60.0,
    ) -> None:
        self.database, self.blobs, self.key, self.now = database, blobs, key, now
        self.federations = Federations(database, key.public)
        self.studies = Studies(database, self.federations)
        self.runs = Runs(database, self.federations)
        self.scheduler = Scheduler(self._jobs, now, pause_s, Leases(database, lease_s))
        self.catalogue = Catalogue(
            database, blobs, key, self.federations, self.studies, self.runs, self.scheduler.wake
        )
        self.steps = Steps(self.federations, self.catalogue)
        self.cohorts, self.rounds = self.catalogue.cohorts, self.catalogue.rounds
        self.stopping, self._swept_s = False, now()
        self._max_wait_s, self._resume_grace_s, self._skew_s = max_wait_s, resume_grace_s, skew_s
        self._opening = asyncio.Lock()
        self._combined = dict[str, CombinedRecord]()
        self.background: tuple[asyncio.Task[None], ...] = ()

    # Cohorts

    async def open_cohort(self, federation: str, request: CohortRequest) -> Cohort:
        """Open enrolment under the newest roster.

        Raises:
            PeerFault: not-found; study-refused, already-summed, repeat-mismatch, weak-parameters or cohort-too-small where no run could
                come of it.
        """
        roster = await self.federations.roster(federation)
        study = await self.studies.study(federation, request.study)
        content = await self.studies.check_current(roster, study, self.now())
        repeats = NO_CONTEXT if request.repeats is None else bytes.fromhex(request.repeats)
        repeated = await self.steps.check_new(federation, study, request.period, repeats)
        await asyncio.to_thread(check_possible, roster, content.question, repeated)
        taken = select(func.count()).select_from(cohorts).where(cohorts.c.federation == federation)
        added = False
        while not added:
            async with self.database.transaction() as connection:
                counter = (await connection.execute(taken)).scalar_one()
                deadline_s = self.now() + content.question.windows.enrol
                name = Enrolling(roster, study, counter, request.period, repeats, repeated).cohort.hex()
                row = {
                    "id": name,
                    "federation": federation,
                    "roster_number": roster.number,
                    "study": request.study,
                    "period": request.period,
                    "repeats": request.repeats,
                    "counter": counter,
                    "deadline_s": deadline_s,
                    "changes": 0,
                }
                added = await self.database.add(connection, cohorts, row)  # not where another was first
                await self.database.announce(connection, federation)
        self.scheduler.wake()
        self.runs.changed(federation)
        return await self.catalogue.cohort(name)

    async def cohort(self, cohort_id: str) -> Cohort:
        """A cohort by its id, as it stands; PeerFault(not-found)."""
        return await self.catalogue.cohort(cohort_id)

    async def cohort_view(self, cohort: Cohort) -> CohortView:
        """What anybody may see of a cohort."""
        return cohort.view(await self.steps.next(cohort))

    # Rounds

    async def open_round(self, cohort_id: str, request: RoundRequest) -> Round:
        """Open the next step of a cohort's run: again, where its last attempt ended VOID.

        Raises:
            PeerFault: wrong-phase where the cohort is not formed; conflict while another round of the federation runs, or
                one waits for reports or the admin; already-summed once the run is over; roster-rollback, study-refused, terms-refused,
                indicator-mismatch, repeat-mismatch or weak-parameters where members would take no part.
        """
        cohort = await self.cohort(cohort_id)
        async with self._opening:
            while True:
                made = await self._prepared(cohort, request)
                if await self.catalogue.add(made.attempt, made.now_s, made.before):
                    self.runs.changed(cohort.roster.federation.hex())
                    return await self.catalogue.round(round_name(made.attempt.context))

    async def preflight(self, cohort_id: str, request: RoundRequest) -> PreflightView:
        """What `open_round` would open now; PeerFault as there."""
        made = await self._prepared(await self.cohort(cohort_id), request)
        attempt, opening = made.attempt, made.attempt.opening
        return PreflightView(
            federation=attempt.roster.federation.hex(),
            cohort=attempt.manifest.cohort.hex(),
            sequence=opening.sequence,
            attempt=opening.attempt,
            members=len(attempt.members),
            survivors_min=attempt.survivors_min,
            spec=spec_view(attempt),
            cost=plan_of(attempt).sentence,
            decryptors=await self._heard(attempt, request, made.now_s),
        )

    async def last_heard(self, federation: str, members: Collection[str]) -> dict[str, float]:
        """When each member was last heard from, in Unix time; none for a member that never was."""
        return await liveness.signed_s(self.database, federation, members, self._skew_s)

    async def _heard(self, attempt: Attempt, request: RoundRequest, now_s: float) -> DecryptorsView:
        within_s = request.heard_within_s or liveness.LOOK_BACK_S
        return await liveness.decryptors(self.database, attempt, within_s, now_s, self._skew_s)

    async def _prepared(self, cohort: Cohort, request: RoundRequest) -> PreparedAttempt:
        """The cohort's next attempt, as nobody has seen it yet."""
        manifest, now_s = cohort.formed(), self.now()
        federation = cohort.roster.federation.hex()
        before = await self._check_free(federation)
        await self._check_current(cohort, now_s)
        sequence, number = cohort.next_place
        terms = await self.steps.terms(cohort, request, now_s)
        opening = await asyncio.to_thread(
            Opening.make,
            self.key,
            cohort=manifest.cohort,
            sequence=sequence,
            attempt=number,
            links=await self.federations.links(federation),
            terms=terms,
        )
        attempt = Attempt(cohort.roster, cohort.enrolling.study, manifest, opening)
        await self.steps.check(attempt, self.blobs)
        if request.heard_within_s is not None:
            members = await self.steps.eligible(attempt)
            within_s = request.heard_within_s
            await liveness.check(self.database, attempt, members, within_s, now_s, self._skew_s)
        return PreparedAttempt(attempt, now_s, before)

    async def _check_current(self, cohort: Cohort, now_s: float) -> None:
        """Refuse a cohort in which members would open nothing any more: study revoked or expired, or roster superseded."""
        newest, content = await self.federations.newest(cohort.roster.federation.hex()), cohort.content
        if cohort.enrolling.study.hash in newest.revoked:
            raise refused(
                f"roster {newest.number} revokes this version of study {content.notes.name}: open a cohort for another version"
            )
        refuse_expired(content, now_s)
        if newest.number != cohort.roster.number:
            raise PeerFault(
                Cause.ROSTER_ROLLBACK,
                f"the cohort was formed under roster {cohort.roster.number}, and roster {newest.number} has replaced it: open a new "
                f"cohort of {content.notes.name}, period {cohort.enrolling.period}; the run goes on there where it stands",
            )

    async def _check_free(self, federation: str) -> int:
        """Refuse a round beside another, as all processes know it; how many there were."""
        # Before a look: what comes after it is missed by the count.
        count = await self.catalogue.opened(federation)
        await self.catalogue.refresh(federation)
        _refuse_unsettled(self.catalogue.live(federation))
        return count

    async def round(self, round_id: str) -> Round:
        """A round by its id, as it stands; PeerFault(not-found)."""
        return await self.catalogue.round(round_id)

    async def closed(self, context: str) -> Round:
        """The round of a context; PeerFault(not-found)."""
        found = await self.catalogue.round(round_name(bytes.fromhex(context)), "context")
        if found.attempt.context.hex() != context:
            raise not_found("context")
        return found

    async def combine(self, federation: str, request: CombineRequest) -> CombinedRecord:
        """Add up the sums of finished rounds of a federation; PeerFault(not-found), or as `combining.combine`."""
        rounds_ = [await self.round(name) for name in dict.fromkeys(request.rounds)]
        if any(round_.attempt.roster.federation.hex() != federation for round_ in rounds_):
            raise not_found("round in this federation")
        numbers = await self.catalogue.numbers([round_.id for round_ in rounds_])
        rounds_.sort(key=lambda round_: numbers[round_.id])
        return await asyncio.to_thread(combining.combine, rounds_, request, self.blobs, self.key)

    async def combinations(self, federation: str) -> list[CombinedRecord]:
        """What `combine` made of a federation's rounds, those with the newest first."""
        found = await asyncio.to_thread(combining.kept, federation, self.blobs, self._combined)
        numbers = await self.catalogue.numbers({part.round for record in found for part in record.parts})

        def newest(record: CombinedRecord) -> tuple[int, str]:
            return max(numbers[part.round] for part in record.parts), record.combination

        return sorted(found, key=newest, reverse=True)

    # Waiting

    async def changed(self, watch: Watch, after: int, wait_s: float, waiting: int = 0) -> int:
        """A version as soon as it is above `after`, or as it stands when the time is over or the process ends.

        Where many are `waiting` for what they are asked, changes that ask nothing are told later (service/watch.py).
        """
        wait_s = 0.0 if self.stopping else min(wait_s, self._max_wait_s)
        return await watch.beyond(after, wait_s, calm_s(waiting))

    def stop_waiting(self) -> None:
        """Answer every long-poll and end every stream: the process is to end."""
        self.stopping = True
        things = (self.cohorts.values(), self.rounds.values())
        for watch in [*(thing.watch for each in things for thing in each), *self.runs.watches()]:
            watch.stop()

    # What goes on by itself

    async def load(self) -> None:
        """Bring everything that is open back from storage, as it was when the last process stopped."""
        await self.catalogue.load(self.now() + self._resume_grace_s)
        self._swept_s = self.now()
        await self._forget_disclosures()

    async def follow(self) -> None:
        """Keep up with what other processes store, until cancelled: by what the database tells, and by looking."""
        await asyncio.gather(self.catalogue.listen(), self._look_around())

    async def _look_around(self) -> None:
        while self.database.shared:
            await asyncio.sleep(LOOK_S)
            await tried(self.catalogue.refresh_all())

    def _jobs(self) -> Iterator[Job]:
        """Deadlines to pass, ends to keep, traces to clear, and sums to solve."""
        for thing in self.catalogue.open():
            if thing.due_s is not None:
                yield Job(thing.id, thing.due_s, partial(self._advance, thing))
        for round_ in self.catalogue.live():
            if (recovered := round_.recovered) is not None:
                missing = set(round_.summing.parts) - round_.summing.unmasked
                for part in missing:
                    work = partial(self._unmask, round_, part, recovered)
                    yield Job(f"{round_.id}/{part}", 0.0, work, heavy=True)
                if not missing:
                    yield Job(round_.id, 0.0, partial(self._solve, round_))
            else:
                parts, uploaded = round_.to_add()
                for part in parts:
                    work = partial(self._add, round_, part, uploaded)
                    yield Job(f"{round_.id}/{part}", 0.0, work, heavy=True)
        yield Job("sweep", self._swept_s + SWEEP_S, self._sweep)

    async def _sweep(self) -> None:
        await self.catalogue.sweep()
        # A process that stood still may have put one back that was forgotten.
        await self._forget_disclosures()
        self._swept_s = self.now()

    async def _advance(self, thing: Cohort | Round) -> None:
        await thing.advance(self.now())

    async def _add(self, round_: Round, part: int, uploaded: Mapping[str, Announced]) -> None:
        try:
            await round_.summing.add(part, uploaded)
        except DamagedChunkError as chunk:
            version = round_.version
            await round_.damaged(chunk, self.now())
            if round_.version == version:  # of nobody who is summed: not again at once
                raise

    async def _unmask(self, round_: Round, part: int, recovered: Recovered) -> None:
        await round_.refresh()
        if round_.final is not None:
            return
        try:
            await round_.summing.unmask(part, recovered)
        except DamagedChunkError as chunk:
            await round_.damaged(chunk, self.now())
        except PeerFault as fault:
            await round_.fail(problem_of(fault), self.now())

    async def _solve(self, round_: Round) -> None:
        await round_.refresh()
        recovered, noted = round_.recovered, round_.noted
        pieces = await round_.summing.pieces()
        if recovered is None or noted is None or pieces is None:
            return
        try:
            outcome = await self._outcome(round_, recovered, noted.head, pieces)
            await round_.finish(outcome, self.now())
        except DamagedRangeError as damaged:
            await round_.summing.begin_again(damaged)
            return
        except DamagedChunkError as chunk:
            await round_.damaged(chunk, self.now())
        except PeerFault as fault:
            await round_.fail(problem_of(fault), self.now())
        if (named := round_.attempt.terms.indicator) != NO_CONTEXT:
            await self._forget(round_name(named))

    async def _outcome(
        self, round_: Round, recovered: Recovered, transcript: bytes, pieces: Pieces
    ) -> Publication:
        """The sum's result, or the counts."""
        attempt = recovered.attempt
        if attempt.spec.indicator:
            return await asyncio.to_thread(solving.count, round_.id, recovered, pieces, self.blobs)
        named, holders = attempt.terms.indicator, tuple[int, ...]()
        if named != NO_CONTEXT:
            holders = (await self.round(round_name(named))).view().holders
        material = await self.steps.material(attempt)
        if material is not None and hashlib.sha256(material).digest() != attempt.terms.material:
            raise PeerFault(
                Cause.STORAGE_DAMAGED,
                "the coordinator's storage does not hold the material of this step as the terms name it; no member is at fault",
                ["coordinator"],
            )
        solve = partial(
            solving.solve,
            round_.id,
            recovered,
            transcript,
            pieces,
            self.key,
            material=material,
            holders=holders,
        )
        return await asyncio.to_thread(solve)

    async def _forget_disclosures(self) -> None:
        """Delete what members have been shown of indicators that nobody needs any more: the run is over, or its study has expired."""
        for name in await self.catalogue.disclosed():
            with quarantined(name):
                await self._forget_disclosure(name)

    async def _forget_disclosure(self, name: str) -> None:
        attempt = (await self.round(name)).attempt
        links = await self.federations.links(attempt.roster.federation.hex())
        question, period = attempt.question, attempt.manifest.period
        over = next_step(question, period, NO_CONTEXT, b"", links) not in {INDICATOR_STEP, SUM_STEP}
        if over or self.now() >= attempt.content.notes.expires:
            await self._forget(name)

    async def _forget(self, indicator: str) -> None:
        await asyncio.to_thread(self.blobs.delete, f"results/{indicator}/{DISCLOSURE}")


def _refuse_unsettled(rounds: Iterable[Round]) -> None:
    """One round after the other: what a set may be signed for depends on everything that was opened before."""
    for round_ in rounds:
        if (view := round_.view()).state == Erasing.name:
            closes = f"the admin closes it: `veilsum admin close {round_.id} --folder ADMIN`"
            if view.survivors:
                closes = f"cancel it, and repeat its certified set: `veilsum operator round cancel {round_.id} --reason …`"
            raise PeerFault(
                Cause.CONFLICT,
                f"round {round_.id} of this federation is past its latest end, and {len(view.reported)} of {view.reports_min} "
                f"decryptors have reported that they revealed nothing: wait for {named(view.waiting_for)}. If too few can come, {closes}",
            )
        raise PeerFault(
            Cause.CONFLICT,
            f"round {round_.id} of this federation is still {round_.view().state}: wait for its end, or cancel it",
        )
