"""The coordinator as one object: its federations, cohorts and rounds, loaded from storage and kept there."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import func, select

from calibration import Layout
from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.coordinator import Erasing, Recovered
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import Family, LedgerException, Opening
from protocol.preflight import DecryptorsView, PreflightView
from protocol.published import CombinedRecord, CombineRequest
from protocol.rest import (
    MAX_WAIT_S,
    CohortRequest,
    RoundRequest,
    round_name,
)
from service import combining, counting, heard, rare, solving, spending
from service.catalogue import LOOK_S, Catalogue, tried
from service.cohorts import Cohort, check_possible
from service.documents import Outcome
from service.federations import Federations
from service.indicating import NOTHING
from service.keeper import PAUSE_S, Chore, Keeper
from service.past import Brief, spent
from service.preflight import check_room, preflight_view, terms_of
from service.problems import not_found, problem_of
from service.resting import layout_of
from service.rounds import Round
from service.storage.blobs import Blobs
from service.storage.database import Database
from service.storage.leases import LEASE_S, Leases
from service.storage.tables import cohorts
from service.summing import Pieces
from service.watch import Watch, calm_s

SWEEP_S = 3600.0
"""Between two looks for what dead processes have left in storage."""


@dataclass(frozen=True)
class Prepared:
    """An attempt that may be opened, as long as it is stored before any other.

    Attributes:
        now_s: Unix time that its terms go by.
        before: rounds that its federation had.
        material: what it rests on.
    """

    attempt: Attempt
    now_s: float
    before: int
    material: bytes | None


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
        mu_budget: most μ that a federation's noisy rounds may take together; None for no limit.
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
        mu_budget: float | None = None,
        skew_s: float = 60.0,
    ) -> None:
        self.database, self.blobs, self.key, self.now = database, blobs, key, now
        self.federations = Federations(database, key.public)
        self.keeper = Keeper(self._chores, now, pause_s, Leases(database, lease_s))
        self.catalogue = Catalogue(database, blobs, key, self.federations, self.keeper.wake)
        self.cohorts, self.rounds = self.catalogue.cohorts, self.catalogue.rounds
        self.stopping, self.mu_budget, self._swept_s = False, mu_budget, now()
        self._max_wait_s, self._resume_grace_s, self._skew_s = max_wait_s, resume_grace_s, skew_s
        self._opening = asyncio.Lock()
        self._combined = dict[str, CombinedRecord]()
        self.background: tuple[asyncio.Task[None], ...] = ()

    # Cohorts

    async def open_cohort(self, federation: str, request: CohortRequest) -> Cohort:
        """Open enrolment under the newest roster; PeerFault(cohort-too-small) where it could not form."""
        roster = await self.federations.roster(federation)
        await asyncio.to_thread(check_possible, roster, request)
        taken = select(func.count()).select_from(cohorts).where(cohorts.c.federation == federation)
        added = False
        while not added:
            async with self.database.transaction() as connection:
                counter = (await connection.execute(taken)).scalar_one()
                deadline_s = self.now() + request.enrol_s
                name = Cohort(self.database, self.keeper.wake, roster, counter, request, deadline_s).id
                row = {
                    "id": name,
                    "federation": federation,
                    "roster_version": roster.version_number,
                    "counter": counter,
                    "request": request.model_dump_json(),
                    "deadline_s": deadline_s,
                    "changes": 0,
                }
                added = await self.database.add(connection, cohorts, row)  # not where another was first
                await self.database.announce(connection, federation)
        self.keeper.wake()
        return await self.catalogue.cohort(name)

    async def cohort(self, cohort_id: str) -> Cohort:
        """A cohort by its id, as it stands; PeerFault(not-found)."""
        return await self.catalogue.cohort(cohort_id)

    # Rounds

    async def open_round(self, cohort_id: str, request: RoundRequest) -> Round:
        """Open the next attempt of a cohort: a voided round's next one, else a new round.

        Raises:
            PeerFault: wrong-phase where the cohort is not formed; conflict while another round of the federation runs, or
                one waits for reports or the admin; card-expired, where no member would take part; terms-refused by
                the preflight; exception-refused or bad-signature for an exception that members would refuse.
        """
        cohort = await self.cohort(cohort_id)
        async with self._opening:
            while True:
                made = await self._prepared(cohort, request)
                if await self.catalogue.add(
                    made.attempt, request.windows, made.now_s, made.before, made.material
                ):
                    return await self.catalogue.round(round_name(made.attempt.context))

    async def preflight(self, cohort_id: str, request: RoundRequest) -> PreflightView:
        """What `open_round` would open now; PeerFault as there, but where counts of rare classes are missing it says so instead."""
        cohort = await self.cohort(cohort_id)
        counts_first = rare.counts_first(request, cohort.roster, cohort.rounds)
        made = await self._prepared(cohort, request, counts_first=counts_first)
        decryptors = await self._heard(made.attempt, request, made.now_s)
        return preflight_view(made.attempt, decryptors, counts_first=counts_first)

    async def _heard(self, attempt: Attempt, request: RoundRequest, now_s: float) -> DecryptorsView:
        within_s = request.heard_within_s or heard.LOOK_BACK_S
        return await heard.decryptors(self.database, attempt, within_s, now_s, self._skew_s)

    async def _prepared(
        self, cohort: Cohort, request: RoundRequest, *, counts_first: bool = False
    ) -> Prepared:
        """The cohort's next attempt, as nobody has seen it yet; with nothing withheld where counts come first."""
        manifest = cohort.formed()
        federation = cohort.roster.federation.hex()
        before = await self._check_free(federation)
        sequence, number = cohort.next_place
        now_s = self.now()
        _refuse_expired(cohort, now_s)
        ledger = await self.federations.ledger(federation)
        clauses = (
            NOTHING if counts_first else rare.clauses_of(request, cohort.roster, manifest, cohort.rounds)
        )
        layout, material = await self._layout(request, federation)
        terms = terms_of(request, cohort.roster, manifest, now_s, layout, clauses)
        if terms.noise and self.mu_budget is not None:
            spending.check(await self.spent(federation), terms, self.mu_budget)
        opening = await asyncio.to_thread(
            Opening.make,
            self.key,
            cohort=manifest.cohort,
            sequence=sequence,
            attempt=number,
            links=ledger.links,
            terms=terms,
            exceptions=_exceptions(request, cohort, sequence),
        )
        attempt = Attempt(cohort.roster, manifest, opening)
        if request.heard_within_s is not None:
            heard.check(await self._heard(attempt, request, now_s))
        await asyncio.to_thread(check_room, attempt, self.blobs)
        return Prepared(attempt, now_s, before, material)

    async def _layout(self, request: RoundRequest, federation: str) -> tuple[Layout | None, bytes | None]:
        """What the request comes to, and its material; no layout for an indicator round."""
        if request.statistic == "indicator":
            return None, None
        before = None if request.rests_on is None else await self.round(request.rests_on)
        return await asyncio.to_thread(layout_of, request, before, federation, self.blobs)

    async def _check_free(self, federation: str) -> int:
        """Refuse a round beside another, as all processes know it; how many there were."""
        # Before a look: what comes after it is missed by the count.
        count = await self.catalogue.opened(federation)
        await self.catalogue.refresh(federation)
        _refuse_unsettled(self.catalogue.live(federation))
        return count

    async def spent(self, federation: str) -> dict[str, float]:
        """μ of a federation's noisy rounds, by id: of one from its opening on, and no more once it has ended VOID."""
        found = dict((await self.catalogue.pasts.of(federation)).noisy)
        for round_ in self.catalogue.live(federation):
            found |= spent(round_.view())
        return found

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
        for watch in [thing.watch for each in things for thing in each]:
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

    def _chores(self) -> Iterator[Chore]:
        """Deadlines to pass, ends to keep, traces to clear, and sums to solve."""
        for thing in self.catalogue.open():
            if thing.due_s is not None:
                yield Chore(thing.id, thing.due_s, partial(self._advance, thing))
        for round_ in self.catalogue.live():
            if (recovered := round_.recovered) is not None:
                missing = set(round_.summing.parts) - round_.summing.unmasked
                for part in missing:
                    work = partial(self._unmask, round_, part, recovered)
                    yield Chore(f"{round_.id}/{part}", 0.0, work, heavy=True)
                if not missing:
                    yield Chore(round_.id, 0.0, partial(self._solve, round_))
            else:
                parts, uploaded = round_.to_add()
                for part in parts:
                    work = partial(round_.summing.add, part, uploaded)
                    yield Chore(f"{round_.id}/{part}", 0.0, work, heavy=True)
        yield Chore("sweep", self._swept_s + SWEEP_S, self._sweep)

    async def _sweep(self) -> None:
        await self.catalogue.sweep()
        # A process that stood still may have put one back that was forgotten.
        await self._forget_disclosures()
        self._swept_s = self.now()

    async def _advance(self, thing: Cohort | Round) -> None:
        await thing.advance(self.now())

    async def _unmask(self, round_: Round, part: int, recovered: Recovered) -> None:
        await round_.refresh()
        if round_.final is not None:
            return
        try:
            await round_.summing.unmask(part, recovered)
        except PeerFault as fault:
            await round_.fail(problem_of(fault), self.now())

    async def _solve(self, round_: Round) -> None:
        await round_.refresh()
        recovered, noted = round_.recovered, round_.noted
        pieces = await round_.summing.pieces()
        if recovered is None or noted is None or pieces is None:
            return
        cohort = await self.cohort(round_.attempt.manifest.cohort.hex())
        try:
            outcome = await asyncio.to_thread(
                self._outcome, round_, recovered, noted.head, pieces, cohort.rounds
            )
            await round_.finish(outcome, self.now())
            await self._forget(cohort)
        except PeerFault as fault:
            await round_.fail(problem_of(fault), self.now())

    def _outcome(
        self, round_: Round, recovered: Recovered, transcript: bytes, pieces: Pieces, beside: Sequence[Brief]
    ) -> Outcome:
        """The sum, or the counts; `beside` are the rounds of its cohort."""
        if recovered.attempt.opening.terms.family == Family.INDICATOR:
            return counting.compute(round_, recovered, pieces, self.blobs)
        why = rare.reason(round_.attempt, beside)
        return solving.compute(round_.id, recovered, transcript, pieces, self.blobs, self.key, why)

    async def _forget_disclosures(self) -> None:
        for name in await self.catalogue.disclosed():
            await self._forget(await self.cohort(name))

    async def _forget(self, cohort: Cohort) -> None:
        """Delete what members have been shown of its indicator rounds that nobody needs any more."""
        for each in rare.spent(cohort.rounds, over=bool(cohort.expired(self.now()))):
            await asyncio.to_thread(self.blobs.delete, f"results/{each.id}/{counting.DISCLOSURE}")


def _refuse_expired(cohort: Cohort, now_s: float) -> None:
    if expired := cohort.expired(now_s):
        raise PeerFault(
            Cause.CARD_EXPIRED, "key cards of this cohort have expired: open a new cohort", expired
        )


def _exceptions(request: RoundRequest, cohort: Cohort, sequence: int) -> tuple[LedgerException, ...]:
    """The admin's exceptions; PeerFault for what members would refuse."""
    exceptions = tuple(LedgerException.from_bytes(bytes.fromhex(text)) for text in request.exceptions)
    for exception in exceptions:
        exception.verify(cohort.roster.federation, "admin")
        named = (exception.federation, exception.cohort.hex(), exception.sequence)
        if named != (cohort.roster.federation, cohort.id, sequence):
            raise PeerFault(
                Cause.EXCEPTION_REFUSED,
                f"the exception is for sequence {exception.sequence} of cohort {exception.cohort.hex()}, the next round is "
                f"sequence {sequence} of cohort {cohort.id}",
                ["admin"],
            )
    return exceptions


def _refuse_unsettled(rounds: Iterable[Round]) -> None:
    """One round after the other: what a set may be signed for depends on everything that was opened before."""
    for round_ in rounds:
        if (view := round_.view()).state == Erasing.name:
            raise PeerFault(
                Cause.CONFLICT,
                f"round {round_.id} of this federation is past its latest end, and {len(view.reported)} of {view.reports_min} "
                "decryptors have reported that they revealed nothing: wait for the others' reports. If they cannot be had, the "
                f"admin closes it with `veilsum admin close {round_.id} --folder ADMIN`",
            )
        raise PeerFault(
            Cause.CONFLICT,
            f"round {round_.id} of this federation is still {round_.view().state}: wait for its end, or cancel it",
        )
