"""The coordinator as one object: its federations, cohorts and rounds, loaded from storage and kept there."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import structlog
from sqlalchemy import Row, func, insert, select

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.coordinator import Lost, Windows
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import Family, KeyCard, Ledger, LedgerException, Manifest, Opening
from protocol.published import CombinedRecord, CombineRequest
from protocol.rest import (
    MAX_WAIT_S,
    CohortRequest,
    HelperRoundRequest,
    Problem,
    RoundRequest,
    WindowsModel,
    round_name,
)
from protocol.transcript import Transcript
from service import combining, counting, rare, solving
from service.cohorts import Cohort, check_possible
from service.federations import Federations
from service.helping.opening import Helping, is_with_helpers, refuse_other_mode
from service.keeper import PAUSE_S, Chore, Keeper
from service.modes import MembersMode, PairedSummands, Summands
from service.preflight import terms_of
from service.problems import not_found, problem_of
from service.rounds import Round
from service.storage.blobs import FileBlobs
from service.storage.database import Database
from service.storage.tables import cards, cohorts, rounds
from service.watch import Watch

log = structlog.get_logger("veilsum.service")


class Coordinator:
    """Everything the routes need. Nothing here is not in storage too.

    Args:
        database: rows.
        blobs: chunks and results.
        key: signs openings and results.
        now: Unix time in seconds.
        max_wait_s: longest time that a long-poll is held.
        resume_grace_s: seconds after `load` in which no deadline passes.
        pause_s: before work that failed is tried again, at first.
    """

    def __init__(
        self,
        database: Database,
        blobs: FileBlobs,
        key: SigningKey,
        *,
        now: Callable[[], float] = time.time,
        max_wait_s: float = MAX_WAIT_S,
        resume_grace_s: float = 0.0,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.database, self.blobs, self.key, self.now = database, blobs, key, now
        self.federations = Federations(database, key.public)
        self.cohorts: dict[str, Cohort] = {}
        self.rounds: dict[str, Round] = {}
        self.keeper = Keeper(self._chores, now, pause_s)
        self.helping = Helping(database, blobs, self.keeper, self.federations)
        self.stopping = False
        self._max_wait_s, self._resume_grace_s = max_wait_s, resume_grace_s
        self._opening = asyncio.Lock()

    # Cohorts

    async def open_cohort(self, federation: str, request: CohortRequest) -> Cohort:
        """Open enrolment under the newest roster; PeerFault(cohort-too-small) where it could not form."""
        roster = await self.federations.roster(federation)
        await asyncio.to_thread(check_possible, roster, request)
        async with self._opening, self.database.transaction() as connection:
            taken = select(func.count()).select_from(cohorts).where(cohorts.c.federation == federation)
            counter = (await connection.execute(taken)).scalar_one()
            deadline_s = self.now() + request.enrol_s
            cohort = Cohort(self.database, self.keeper.wake, roster, counter, request, deadline_s)
            await connection.execute(
                insert(cohorts).values(
                    id=cohort.id,
                    federation=federation,
                    roster_version=roster.version_number,
                    counter=counter,
                    request=request.model_dump_json(),
                    deadline_s=deadline_s,
                )
            )
        self.cohorts[cohort.id] = cohort
        self.keeper.wake()
        return cohort

    def cohort(self, cohort_id: str) -> Cohort:
        """A cohort by its id; PeerFault(not-found)."""
        try:
            return self.cohorts[cohort_id]
        except KeyError:
            raise not_found("cohort") from None

    # Rounds

    async def open_round(self, cohort_id: str, request: RoundRequest) -> Round:
        """Open the next attempt of a cohort: a voided round's next one, else a new round.

        Raises:
            PeerFault: wrong-phase where the cohort is not formed; conflict while another round of the federation runs, or
                one that was lost waits for the admin; card-expired, where no member would take part; terms-refused by
                the preflight; exception-refused or bad-signature for an exception that members would refuse.
        """
        cohort = self.cohort(cohort_id)
        manifest = cohort.formed()
        async with self._opening:
            federation = cohort.roster.federation.hex()
            self._refuse_unsettled(federation)
            refuse_other_mode(self.rounds.values(), federation, "members")
            sequence, number = cohort.next_place
            now_s = self.now()
            _refuse_expired(cohort, now_s)
            ledger = await self.federations.ledger(federation)
            clauses = rare.clauses_of(request, cohort.roster, manifest, cohort.rounds)
            opening = Opening.make(
                self.key,
                cohort=manifest.cohort,
                sequence=sequence,
                attempt=number,
                links=ledger.links,
                terms=terms_of(request, cohort.roster, manifest, now_s, clauses),
                exceptions=_exceptions(request, cohort, sequence),
            )
            attempt = Attempt(cohort.roster, manifest, opening)
            noted = await asyncio.to_thread(Transcript.begin, attempt, cohort.cards)
            round_ = self._round(attempt, request.windows, now_s, ledger, noted)
            async with self.database.transaction() as connection:
                await connection.execute(
                    insert(rounds).values(
                        id=round_.id,
                        federation=federation,
                        cohort=cohort_id,
                        sequence=sequence,
                        attempt=number,
                        opening=opening.to_bytes(),
                        windows=request.windows.model_dump_json(),
                        opened_s=now_s,
                    )
                )
            self.rounds[round_.id] = round_
            cohort.opened(round_)
        self.keeper.wake()
        return round_

    async def open_helper_round(self, federation: str, request: HelperRoundRequest) -> Round:
        """Open the federation's next attempt with mask helpers.

        Raises:
            PeerFault: conflict while another round of the federation runs; ledger-refused where it has rounds in the members'
                mode; cohort-too-small, weak-parameters or terms-refused as `Helping.open`.
        """
        async with self._opening:
            self._refuse_unsettled(federation)
            refuse_other_mode(self.rounds.values(), federation, "helpers")
            round_ = await self.helping.open(federation, request, self.key, self.now())
            self.rounds[round_.id] = round_
        self.keeper.wake()
        return round_

    def round(self, round_id: str) -> Round:
        """A round by its id; PeerFault(not-found)."""
        try:
            return self.rounds[round_id]
        except KeyError:
            raise not_found("round") from None

    def closed(self, context: str) -> Round:
        """The round of a context; PeerFault(not-found)."""
        found = self.rounds.get(round_name(bytes.fromhex(context)))
        if found is None or found.attempt.context.hex() != context:
            raise not_found("context")
        return found

    def _round(
        self,
        attempt: Attempt,
        windows: WindowsModel,
        opened_s: float,
        ledger: Ledger,
        noted: Transcript | None,
    ) -> Round:
        history = ledger.history[: len(attempt.opening.links)]
        mode = MembersMode(attempt, Windows(**windows.model_dump()), history, noted, self.key)
        return Round(self.database, self.blobs, self.keeper.wake, mode, opened_s)

    def _refuse_unsettled(self, federation: str) -> None:
        """One round after the other: what a set may be signed for depends on everything that was opened before."""
        for round_ in self.rounds.values():
            if round_.final is not None or round_.attempt.roster.federation.hex() != federation:
                continue
            if round_.view().state == Lost.name:
                raise PeerFault(
                    Cause.CONFLICT,
                    f"round {round_.id} of this federation was lost and is not closed: wait for the decryptors' reports, "
                    f"then let the admin sign over them with `veilsum round lost {round_.id} --folder ADMIN`",
                )
            if round_.mode.name == "helpers" and round_.due_s is None and round_.recovered is None:
                raise PeerFault(
                    Cause.CONFLICT,
                    f"round {round_.id} of this federation is {round_.view().state} and waits for helpers to come back; or let "
                    f"the admin close it with `veilsum round lost {round_.id} --folder ADMIN`",
                )
            raise PeerFault(
                Cause.CONFLICT,
                f"round {round_.id} of this federation is still {round_.view().state}: wait for its end, or cancel it",
            )

    async def combine(self, federation: str, request: CombineRequest) -> CombinedRecord:
        """Add up the sums of finished rounds of a federation; PeerFault(not-found), or as `combining.combine`."""
        rounds_ = [self.round(name) for name in dict.fromkeys(request.rounds)]
        if any(round_.attempt.roster.federation.hex() != federation for round_ in rounds_):
            raise not_found("round in this federation")
        return await asyncio.to_thread(combining.combine, rounds_, request, self.blobs, self.key)

    def _things(self) -> tuple[Cohort | Round, ...]:
        return (*self.cohorts.values(), *self.rounds.values())

    # Waiting

    async def changed(self, watch: Watch, after: int, wait_s: float) -> int:
        """A version as soon as it is above `after`, or as it stands when the time is over or the process ends."""
        return await watch.beyond(after, 0.0 if self.stopping else min(wait_s, self._max_wait_s))

    def stop_waiting(self) -> None:
        """Answer every long-poll and end every stream: the process is to end."""
        self.stopping = True
        for thing in (*self._things(), *self.helping.desks):
            thing.watch.stop()

    # What goes on by itself

    async def load(self) -> None:
        """Bring everything back from storage, as it was when the last process stopped."""
        not_before_s = self.now() + self._resume_grace_s
        async with self.database.reading() as connection:
            stored_cohorts = (await connection.execute(select(cohorts))).all()
            stored_cards = (await connection.execute(select(cards))).all()
            stored_rounds = (await connection.execute(select(rounds).order_by(rounds.c.number))).all()
        by_cohort: dict[str, list[KeyCard]] = {}
        for row in stored_cards:
            by_cohort.setdefault(row.cohort, []).append(KeyCard.from_bytes(row.body))
        for row in stored_cohorts:
            roster = await self.federations.roster(row.federation, row.roster_version)
            request = CohortRequest.model_validate_json(row.request)
            cohort = Cohort(self.database, self.keeper.wake, roster, row.counter, request, row.deadline_s)
            cohort.restore(
                by_cohort.get(row.id, []),
                Manifest.from_bytes(row.manifest) if row.manifest else None,
                Problem.model_validate_json(row.fault) if row.fault else None,
                not_before_s,
            )
            self.cohorts[row.id] = cohort
        litter = set(await asyncio.to_thread(self.blobs.names, "uploads"))
        ledgers = {
            name: await self.federations.ledger(name) for name in {row.federation for row in stored_rounds}
        }
        for row in stored_rounds:
            littered = row.id in litter
            if is_with_helpers(row.opening):
                self.rounds[row.id] = await self.helping.load(row, not_before_s, littered=littered)
                continue
            round_ = await self._load_round(row, ledgers[row.federation], not_before_s, littered=littered)
            self.rounds[row.id] = round_
            self.cohorts[row.cohort].opened(round_)
        await asyncio.to_thread(self._forget_disclosures)

    async def _load_round(
        self, row: Row[tuple[object, ...]], ledger: Ledger, not_before_s: float, *, littered: bool
    ) -> Round:
        cohort = self.cohorts[row.cohort]
        attempt = Attempt(cohort.roster, cohort.formed(), Opening.from_bytes(row.opening))
        ended = row.final is not None
        noted = None if ended else Transcript.begin(attempt, cohort.cards)
        windows = WindowsModel.model_validate_json(row.windows)
        round_ = self._round(attempt, windows, row.opened_s, ledger, noted)
        if ended:
            return round_.restore(row, littered=littered)
        return await round_.resume(not_before_s)

    def _chores(self) -> Iterator[Chore]:
        """Deadlines to pass, ends to keep, traces to clear, and sums to solve."""
        for thing in self._things():
            if thing.due_s is not None:
                yield Chore(thing.id, thing.due_s, partial(self._advance, thing))
        for round_ in self.rounds.values():
            if round_.recovered is not None:
                yield Chore(round_.id, 0.0, partial(self._solve, round_))

    async def _advance(self, thing: Cohort | Round) -> None:
        await thing.advance(self.now())

    async def _solve(self, round_: Round) -> None:
        recovered = round_.recovered
        if recovered is None:
            return
        cohort = self.cohorts.get(round_.attempt.manifest.cohort.hex())
        beside = cohort.rounds if cohort is not None else ()
        try:
            outcome = await asyncio.to_thread(self._outcome, round_, recovered, beside)
            await round_.finish(outcome.record, outcome.documents, self.now(), outcome.holders)
            await asyncio.to_thread(self._forget_disclosures)
        except PeerFault as fault:
            await round_.fail(problem_of(fault), self.now())
        assert round_.final is not None
        log.info("round ended", round=round_.id, state=round_.final.state, of=len(round_.final.survivors))

    def _outcome(self, round_: Round, recovered: Summands, beside: Sequence[Round]) -> solving.Outcome:
        """The sum, or the counts; `beside` are the rounds of its cohort, none in the mode with helpers."""
        if recovered.attempt.opening.terms.family == Family.INDICATOR:
            assert isinstance(recovered, PairedSummands)
            return counting.compute(round_, recovered, self.blobs)
        why = rare.reason(round_.attempt, beside)
        return solving.compute(round_, recovered, self.blobs, self.key, why)

    def _forget_disclosures(self) -> None:
        for cohort in tuple(self.cohorts.values()):
            for round_ in rare.spent(cohort.rounds, over=bool(cohort.expired(self.now()))):
                self.blobs.delete(f"results/{round_.id}/{counting.DISCLOSURE}")


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
