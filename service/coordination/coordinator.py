"""The coordinator as one object. It decides which cohorts and steps are opened, and under which terms (wire: Openings).

A run carries out a study for one period, over fresh records or those of one certified attempt. Its parameters follow from the study and
the federation's chain; the operator does not choose them. What the chain rules out is refused here, before any member is asked.
"""

import asyncio
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection, func, select

from service.coordination.catalogue import Catalogue
from service.coordination.changes import ChangeFeed
from service.coordination.cohorts import Cohort, check_possible
from service.coordination.combining import Combinations
from service.coordination.federations import Federations, refuse_expired
from service.coordination.garbage import Garbage, delete_folders
from service.coordination.jobs import Jobs
from service.coordination.journal import begin_round, read_counts, read_survivors, select_round_count
from service.coordination.liveness import LastHeard, check_enough_heard, find_decryptors
from service.coordination.rounds import Round
from service.coordination.runs import Runs
from service.coordination.scheduler import FAILURE_PAUSE_S, LEASE_S, Leases, Scheduler
from service.coordination.shown_heads import check_heads, heads_blob, read_heads
from service.coordination.summaries import Summaries
from service.coordination.watch import LongPolls
from service.http.problems import terms_refused
from service.storage.blobs import Blobs, in_blob_thread
from service.storage.database import Database
from service.storage.tables import cohorts
from veilsum.protocol.attempt import Attempt, Finished
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.cost import cost_in_words, cost_of
from veilsum.protocol.counting import (
    CountOutcome,
    check_counts,
    check_withheld,
    find_counted_members,
    withheld_classes,
)
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import (
    COMMITMENT_BYTES,
    NO_CONTEXT,
    NO_REASON,
    SHARE_BYTES,
    Link,
    Lost,
    Opening,
    Study,
    Survivor,
    Terms,
)
from veilsum.protocol.messages.opening import MAX_LINKS
from veilsum.protocol.opening_rules import (
    certified_links,
    check_opening,
    check_repeats,
    count_contexts,
    link_of,
    next_step,
    same_records,
)
from veilsum.protocol.rest import (
    MAX_DISCLOSURE_BYTES,
    MAX_WAIT_S,
    CohortRequest,
    CohortView,
    PreflightView,
    RoundRequest,
    join_names,
    round_name,
)
from veilsum.protocol.study import (
    COUNT_STEP,
    END_MAX_S,
    JUDGE_STEP,
    ROWS_STEP,
    SUM_STEP,
    Question,
    read_content,
    study_fault,
)
from veilsum.study.judging import check_cohort
from veilsum.study.progress import NEW_PERIOD, NEW_RUN_ADVICE, RunEnd, find_count_fault, run_over
from veilsum.study.views import spec_view
from veilsum.system.intervals import compute_presence_s

HOUR_S = 3600


class Coordinator:
    """Everything that the routes need. All of its state is in storage too.

    Attributes:
        background: what goes on by itself until the process ends.
        changes: grows with everything that happens here.

    Args:
        database: rows.
        blobs: chunks and results.
        folder: on this process's own disk, for what live rounds need again and again.
        key: signs openings and results.
        now: Unix time in seconds.
        max_wait_s: longest time that a long-poll is held.
        pause_s: before work that failed is tried again, at first.
        lease_s: after which another process takes over the work of one that gives no sign of life.
        audit_days: for how many days entries of the audit log are kept; None for ever.
    """

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        folder: Path,
        key: SigningKey,
        *,
        now: Callable[[], float] = time.time,
        max_wait_s: float = MAX_WAIT_S,
        pause_s: float = FAILURE_PAUSE_S,
        lease_s: float = LEASE_S,
        audit_days: int | None = None,
    ) -> None:
        self.database, self.blobs, self.key, self.now = database, blobs, key, now
        self.federations = Federations(database, key.public)
        self.runs = Runs(database, self.federations)
        self.last_heard = LastHeard(database)
        garbage = Garbage(database, blobs, self._count_change)
        self.catalogue = Catalogue(
            database, blobs, folder, key, self.federations, self.runs, garbage.add_round, self._count_change
        )
        self.feed = ChangeFeed(database, self.catalogue)
        self.summaries = Summaries(database, self.catalogue, self.feed)
        self.combinations = Combinations(database, self.catalogue, blobs, key)
        self.jobs = Jobs(database, self.catalogue, self.federations, garbage, blobs, key, now, audit_days)
        self.scheduler: Scheduler = Scheduler(self.jobs.due_jobs, now, pause_s, Leases(database, lease_s))
        self.polls, self.changes = LongPolls(max_wait_s), 0
        self._opening = asyncio.Lock()
        self.background: tuple[asyncio.Task[None], ...] = ()

    def _count_change(self) -> None:
        self.changes += 1
        self.scheduler.wake_up()

    # Cohorts

    async def open_cohort(self, federation: str, request: CohortRequest) -> Cohort:
        """Open enrolment under the newest roster.

        Raises:
            PeerFault: not-found; study-refused, terms-refused, already-summed, repeat-mismatch, weak-parameters or cohort-too-small if no run is
                possible.
        """
        roster = await self.federations.read_roster(federation)
        study = await self.federations.read_study(federation, request.study)
        content = await self.federations.check_current(roster, study, self.now())
        content.check_period(request.period, repeats=request.repeats is not None)
        repeats = NO_CONTEXT if request.repeats is None else bytes.fromhex(request.repeats)
        repeated = await self._check_new(federation, study, request.period, repeats)
        await asyncio.to_thread(check_possible, roster, content.question, repeated)
        next_counter = select(func.coalesce(func.max(cohorts.c.counter) + 1, 0))
        following = next_counter.where(cohorts.c.federation == federation)

        def store(connection: Connection) -> str:
            # The next may be taken: by another process just now, or by a cohort whose row is damaged.
            for counter in itertools.count(connection.execute(following).scalar_one()):
                name = Enrolling(roster, study, counter, request.period, repeats, repeated).cohort.hex()
                row = {
                    "id": name,
                    "federation": federation,
                    "roster_number": roster.number,
                    "study": request.study,
                    "period": request.period,
                    "repeats": request.repeats,
                    "counter": counter,
                    "deadline_s": self.now() + content.question.windows.enrol,
                    "changes": 0,
                }
                if self.database.add_row(connection, cohorts, row):
                    break
            self.database.announce_change(connection, federation)
            return name

        name = await self.database.write(store)
        self._count_change()
        self.runs.notify_change(federation)
        return await self.catalogue.find_cohort(name)

    async def cohort_view(self, cohort: Cohort) -> CohortView:
        """Return a cohort's public view."""
        return cohort.current_view(
            await self._next_step(cohort, await self.federations.read_links(cohort.federation))
        )

    async def find_count_fault(self, federation: str, question: Question, period: str) -> PeerFault | None:
        """Return why a run's counts allow no sum; None if they do, or if there are none."""
        links = await self.federations.read_links(federation)
        counts = await self._read_counts(question, period, links)
        return find_count_fault(question, period, links, counts.get)

    async def _check_new(
        self, federation: str, study: Study, period: str, repeats: bytes
    ) -> tuple[Survivor, ...]:
        """Refuse a run that is over, or that repeats an attempt which it may not. Returns the repeated survivors, if any.

        Raises:
            PeerFault: already-summed, terms-refused, repeat-mismatch.
        """
        question = read_content(study.content).question
        links = await self.federations.read_links(federation)
        if repeats == NO_CONTEXT:
            counts = await self._read_counts(question, period, links)
            if next_step(question, period, links, counts.get) is None:
                raise run_over(question, period, links, counts.get, repeats)
            return ()
        if question.noise is not None:
            raise terms_refused(f"a noisy study is never repeated: {NEW_PERIOD}")
        link = link_of(links, repeats)
        if link is None or link.reason != NO_REASON or link.repeats != NO_CONTEXT or link.step != SUM_STEP:
            raise PeerFault(
                Cause.REPEAT_MISMATCH,
                f"{repeats.hex()} is not a certified sum over fresh records of this federation: pass the context of one, which "
                "its round shows",
            )
        if link.period != period:
            raise PeerFault(
                Cause.REPEAT_MISMATCH, f"the attempt was in period {link.period}: repeat it in that period"
            )
        earlier = await self.catalogue.find_round(round_name(repeats))
        if not same_records(question, earlier.attempt.question):
            raise PeerFault(
                Cause.REPEAT_MISMATCH,
                "the study asks for other records than the attempt that it repeats: it may have another extractor, and with it another dim, "
                "other statistics and ring_bits, but must otherwise be the same",
            )
        return await read_survivors(self.database, repeats)

    async def store_heads(self, cohort_id: str, heads: str, content: bytes) -> None:
        """Store the heads that a judgement of a cohort will show. Repeating it changes nothing.

        Raises:
            PeerFault: not-found; malformed-request for other bytes than `heads` names; terms-refused if members would refuse them.
        """
        cohort = await self.catalogue.find_cohort(cohort_id)
        await asyncio.to_thread(check_heads, content, heads, cohort.content.question)
        await in_blob_thread(self.blobs.put, heads_blob(cohort.id, heads), content)

    # Rounds

    async def open_round(self, cohort_id: str, request: RoundRequest) -> Round:
        """Open the next step of a cohort's run, or the next attempt at a step that ended VOID.

        Raises:
            PeerFault: wrong-phase unless the cohort is formed; conflict while another round of the federation runs, or
                waits for reports or the admin; already-summed once the run is over; roster-rollback, study-refused, terms-refused,
                count-mismatch, repeat-mismatch or weak-parameters if members would refuse.
        """
        cohort = await self.catalogue.find_cohort(cohort_id)
        async with self._opening:
            while True:
                attempt, now_s, before = await self._next_attempt(cohort, request)
                if await begin_round(self.database, attempt, now_s, before):
                    self.runs.notify_change(cohort.federation)
                    return await self.catalogue.add_round(attempt, cohort, now_s)

    async def close_unknown(self, federation: str, lost: Lost) -> None:
        """Take the admin's Lost of an attempt that this coordinator does not know, or of a live round that it can't read.

        Raises:
            PeerFault: as `Federations.put_lost`.
        """
        name, unreadable = round_name(lost.context), False
        try:
            await self.catalogue.find_round(name)
        except PeerFault:
            unreadable = True
        await self.federations.put_lost(federation, lost, unreadable=unreadable)
        await in_blob_thread(delete_folders, self.blobs, name)
        self._count_change()
        self.runs.notify_change(federation)

    async def preflight_round(self, cohort_id: str, request: RoundRequest) -> PreflightView:
        """Return what `open_round` would open now. Raises the same faults."""
        attempt, now_s, _ = await self._next_attempt(await self.catalogue.find_cohort(cohort_id), request)
        opening = attempt.opening
        within_s = request.heard_within_s or compute_presence_s(attempt.question.windows.answer)
        return PreflightView(
            federation=attempt.roster.federation.hex(),
            cohort=attempt.manifest.cohort.hex(),
            sequence=opening.sequence,
            attempt=opening.attempt,
            members=len(attempt.members),
            survivors_min=attempt.survivors_min,
            spec=spec_view(attempt),
            cost=cost_in_words(attempt),
            decryptors=await find_decryptors(self.last_heard, attempt, within_s, now_s),
        )

    async def _next_attempt(self, cohort: Cohort, request: RoundRequest) -> tuple[Attempt, float, int]:
        """Make the cohort's next attempt, which may be opened if it is stored before any other.

        Returns:
            The attempt; the Unix time that its terms go by; and how many rounds its federation has had.
        """
        manifest, now_s = cohort.formed_manifest(), self.now()
        federation = cohort.federation
        # Before a look: what comes after it is missed by the count.
        before = await self.database.read_value(select_round_count(federation))
        await self.catalogue.refresh_federation(federation)
        _refuse_unsettled(self.catalogue.live_rounds(federation))
        await self._check_current(cohort, now_s)
        opened = cohort.rounds
        links = await self.federations.read_links(federation)
        terms = await self._make_terms(cohort, request, links, now_s)
        opening = await asyncio.to_thread(
            Opening.make_signed,
            self.key,
            cohort=manifest.cohort,
            sequence=opened[-1].place[0] + 1 if opened else 0,
            attempt=0,
            links=links,
            terms=terms,
        )
        attempt = Attempt(cohort.roster, cohort.enrolling.study, manifest, opening)
        await self._check_attempt(attempt)
        if request.heard_within_s is not None:
            members, within_s = await self._eligible_members(attempt), request.heard_within_s
            await check_enough_heard(self.last_heard, attempt, members, within_s, now_s)
        return attempt, now_s, before

    async def _check_current(self, cohort: Cohort, now_s: float) -> None:
        """Refuse a cohort that members would refuse: its study was revoked or has expired, or its roster was superseded."""
        newest, content = await self.federations.read_roster(cohort.federation), cohort.content
        if cohort.enrolling.study.hash in newest.revoked:
            raise study_fault(
                f"roster {newest.number} revokes this version of study {content.notes.name}: open a cohort for another version"
            )
        refuse_expired(content, now_s)
        if newest.number != cohort.roster.number:
            raise PeerFault(
                Cause.ROSTER_ROLLBACK,
                f"the cohort was formed under roster {cohort.roster.number}, and roster {newest.number} has replaced it: open a new "
                f"cohort of {content.notes.name}, period {cohort.enrolling.period}; the run continues there",
            )

    async def _make_terms(
        self, cohort: Cohort, request: RoundRequest, links: Sequence[Link], now_s: float
    ) -> Terms:
        """Make the terms of the cohort's next round.

        Raises:
            PeerFault: already-summed once the run is over; terms-refused or count-mismatch if members would refuse. The detail
                says what to do.
        """
        question, enrolling = cohort.content.question, cohort.enrolling
        if len(links) >= MAX_LINKS:
            raise terms_refused(f"the chain holds {MAX_LINKS:,} attempts and is full: start a new federation")
        step = await self._next_step(cohort, links)
        if step is None:
            counts = await self._read_counts(question, enrolling.period, links)
            raise run_over(question, enrolling.period, links, counts.get, enrolling.repeats)
        latest_end_s = int(now_s) + _lifetime_s(question, request.lifetime_s)
        if enrolling.repeats != NO_CONTEXT:
            repeated = (await self.catalogue.find_round(round_name(enrolling.repeats))).attempt.terms
            counts = await read_counts(self.database, repeated.counts)
            _check_repeated(question, repeated, counts)
            return replace(repeated, latest_end_s=latest_end_s)
        material = await self._material_digest(cohort, request, step, links)
        terms = Terms(step, NO_CONTEXT, NO_CONTEXT, (), (), material, latest_end_s)
        if question.withhold is None or step not in {ROWS_STEP, SUM_STEP}:
            return terms
        return await self._rest_on_counts(cohort, links, terms)

    async def _rest_on_counts(self, cohort: Cohort, links: Sequence[Link], terms: Terms) -> Terms:
        """Name the run's counts in the terms of a step that rests on them."""
        question, period = cohort.content.question, cohort.enrolling.period
        [count] = certified_links(question, period, COUNT_STEP, links)
        found = await self._read_counts(question, period, links)
        withheld, named = withheld_classes(question, found[count.context].sums), [count.context]
        if withheld and terms.step == SUM_STEP:
            named += [link.context for link in certified_links(question, period, ROWS_STEP, links)]
        counts = [found[context] for context in named]
        evicted = {member for each in counts for member in each.evicted}
        _check_counted(cohort, counts)
        rows = named[1] if named[1:] else NO_CONTEXT
        return replace(
            terms, count=count.context, rows=rows, withheld=withheld, evicted=tuple(sorted(evicted))
        )

    async def _next_step(self, cohort: Cohort, links: Sequence[Link]) -> str | None:
        run, question = cohort.enrolling, cohort.content.question
        outcomes = (await self._read_counts(question, run.period, links)).get
        return next_step(question, run.period, links, outcomes, repeats=run.repeats, cohort=run.cohort)

    async def _read_counts(
        self, question: Question, period: str, links: Sequence[Link]
    ) -> dict[bytes, CountOutcome]:
        """Return what a run's counts found by their contexts."""
        own = [link for link in links if (link.question, link.period) == (question.digest, period)]
        return await read_counts(self.database, count_contexts(own))

    async def _eligible_members(self, attempt: Attempt) -> tuple[str, ...]:
        """Return the members that may be in the sum: the cohort's, or those that each count counted."""
        members = set(attempt.members).difference(attempt.terms.evicted)
        for context in () if attempt.repeats else attempt.terms.counts:
            members &= {each.member for each in await read_survivors(self.database, context)}
        return tuple(sorted(members))

    async def _check_attempt(self, attempt: Attempt) -> None:
        """Refuse an attempt that members would refuse, or that does not fit on the disk."""
        finished = None
        if attempt.repeats:
            earlier = await self.catalogue.find_round(round_name(attempt.manifest.repeats))
            own, survivors = earlier.attempt, await read_survivors(self.database, earlier.attempt.context)
            finished = Finished(own.context, own.study, own.terms, survivors)

        def check() -> None:
            check_opening(attempt)
            if attempt.repeats:
                check_repeats(attempt, finished)
            check_cohort(attempt.question, attempt.manifest)
            _check_disclosure(attempt)
            _check_room(attempt, self.blobs)

        await asyncio.to_thread(check)  # of 10,000 members it takes a while

    async def _material_digest(
        self, cohort: Cohort, request: RoundRequest, step: str, links: Sequence[Link]
    ) -> bytes:
        """Return the SHA-256 of a step's input. Raises PeerFault(terms-refused) without it."""
        question, period = cohort.content.question, cohort.enrolling.period
        if (step == JUDGE_STEP) != (request.heads is not None):
            raise terms_refused(
                f"step {step}: a judgement needs heads, and no other step takes them. Store them, and pass their SHA-256 as `heads`"
            )
        if request.heads is not None:
            await in_blob_thread(read_heads, self.blobs, cohort.id, request.heads)
            return bytes.fromhex(request.heads)
        if not question.takes_material(step):
            return NO_CONTEXT
        content = await self.catalogue.find_material(question, period, step, links)
        if content is None:
            raise terms_refused(
                f"step {question.step_before(step)} of period {period} was certified but has no result, which {step} needs: {NEW_PERIOD}"
            )
        return hashlib.sha256(content).digest()

    def stop_waiting(self) -> None:
        """Answer every long poll and end every stream, before the process ends."""
        self.changes += 1
        cohorts, rounds = self.catalogue.cohorts.snapshot(), self.catalogue.rounds.snapshot()
        watches = [each.watch for each in cohorts.values()] + [each.watch for each in rounds.values()]
        self.polls.stop([*watches, *self.runs.all_watches()])

    def list_damaged(self) -> tuple[str, ...]:
        """Name what this process has found damaged in storage."""
        return (*self.database.quarantine.names, *self.blobs.damaged)

    async def load_open(self, resume_grace_s: float) -> None:
        """Load everything that was open when the last process stopped. For so long no deadline of it passes."""
        await self.catalogue.load_open(self.now() + resume_grace_s)
        await self.jobs.sweep_storage()


def _refuse_unsettled(rounds: Iterable[Round]) -> None:
    """Refuse a round while another one is unsettled: what may be signed for a set depends on all rounds before it."""
    for round_ in rounds:
        view = round_.current_view()
        end, how = RunEnd.of_round(view), f"is still {view.state}: wait for its end, or cancel it"
        if end is not None:
            how = end.explain_to_operator(view)
        raise PeerFault(Cause.CONFLICT, f"round {round_.id} of this federation {how}")


def _lifetime_s(question: Question, asked_s: float | None) -> int:
    least_s = question.windows.attempt_s
    if asked_s is None:
        return max(least_s, min(END_MAX_S - HOUR_S, max(HOUR_S, 2 * least_s)))
    if asked_s < least_s:
        raise terms_refused(
            f"lifetime_s is {asked_s:g}: the study's windows take {least_s} s (upload + 3 · answer); make it at least that long, or leave it out"
        )
    return math.ceil(asked_s)


def _check_repeated(question: Question, repeated: Terms, counts: Mapping[bytes, CountOutcome]) -> None:
    """Refuse to sum records again by a question that leaves out other classes, or wants more rows behind them (OPEN-24)."""
    if repeated.count not in counts:
        return
    holders, rows = counts[repeated.count].sums, counts.get(repeated.rows)
    check_counts(question, holders, None if rows is None else rows.sums)
    check_withheld(question, holders, repeated.withheld, repeats=True)


def _check_counted(cohort: Cohort, counts: Sequence[CountOutcome]) -> None:
    """Refuse a step if too few of the members that the run's counts counted have enrolled (member: Enough rows)."""
    manifest, question = cohort.formed_manifest(), cohort.content.question
    assert question.withhold is not None
    first, counted = find_counted_members(counts)
    here = counted.intersection(manifest.members)
    missing = sorted(first - here)
    if len(missing) > question.withhold.margin or len(here) < manifest.survivors_min:
        raise PeerFault(
            Cause.COUNT_MISMATCH,
            f"{len(first)} members were counted, and {join_names(missing)} did not enrol in this cohort or missed a count; at most "
            f"{question.withhold.margin} may be missing, and {manifest.survivors_min} are needed: wait for them and open another "
            f"cohort of this period. If they can't come: {NEW_RUN_ADVICE}",
            missing,
        )


def _check_disclosure(attempt: Attempt) -> None:
    """Refuse a count with a disclosure longer than a member reads (terms-refused)."""
    spec, members = attempt.spec, len(attempt.members)
    # A header, a path and the lengths take at most 2 KiB.
    each = 2048 + (COMMITMENT_BYTES + SHARE_BYTES) * (1 + attempt.manifest.degree) + 8 * spec.elements
    if spec.is_disclosed and members * each > MAX_DISCLOSURE_BYTES:
        raise terms_refused(
            f"members recount the count from up to {members * each:,} bytes, and read at most {MAX_DISCLOSURE_BYTES:,}: form a "
            "smaller cohort"
        )


def _check_room(attempt: Attempt, blobs: Blobs) -> None:
    """Refuse a round if its uploads and sums do not fit the disk (terms-refused). Rounds of other federations are not counted."""
    free_bytes = blobs.free_bytes()
    members, packed_bytes = len(attempt.members), attempt.ring.packed_bytes(attempt.spec.elements)
    # Announcements lie there twice: as they came, and as they are delivered.
    uploads_bytes = 2 * cost_of(attempt).stored_bytes - members * packed_bytes
    sums_bytes = 16 * attempt.spec.elements  # while it is added up, and as it is kept
    if free_bytes is not None and free_bytes < uploads_bytes + sums_bytes:
        raise terms_refused(
            f"{members} uploads take {uploads_bytes:,} bytes and their sum {sums_bytes:,}, and the coordinator's disk "
            f"has {free_bytes:,} left: make room there, or keep uploads elsewhere (VEILSUM_BLOBS_URL)"
        )
