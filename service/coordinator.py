"""The coordinator as one object: its federations, cohorts and rounds, loaded from storage and kept there."""

import asyncio
import secrets
import time
from collections.abc import Callable

import structlog
from sqlalchemy import Row, func, insert, select

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.codec import Reader
from protocol.coordinator import Lost, Windows
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import Certificate, KeyCard, Link, Manifest, Opening, Roster
from protocol.messages.opening import MAX_ATTEMPTS
from protocol.rest import (
    CohortRequest,
    FederationView,
    Problem,
    ResultRecord,
    RoundRequest,
    RoundView,
    WindowsModel,
)
from service import solving
from service.cohorts import Cohort
from service.preflight import terms_of
from service.problems import not_found, problem_of
from service.rounds import Round
from service.storage.blobs import FileBlobs
from service.storage.database import Database
from service.storage.tables import cards, cohorts, links, rosters, rounds

log = structlog.get_logger("veilsum.service")


class Coordinator:
    """Everything the routes need. Nothing here is not in storage too.

    Args:
        database: rows.
        blobs: chunks and results.
        key: signs openings and results.
        now: Unix time in seconds.
    """

    def __init__(
        self, database: Database, blobs: FileBlobs, key: SigningKey, now: Callable[[], float] = time.time
    ) -> None:
        self.database, self.blobs, self.key, self.now = database, blobs, key, now
        self.cohorts: dict[str, Cohort] = {}
        self.rounds: dict[str, Round] = {}
        self._opening = asyncio.Lock()
        self._wakeup = asyncio.Event()
        self._solving: dict[str, asyncio.Task[None]] = {}

    # Federations

    async def put_roster(self, federation: str, roster: Roster, *, operator: bool) -> bool:
        """Store a roster; whether it is new. A federation's first one takes an operator.

        Raises:
            PeerFault: wrong-federation, bad-signature; malformed where it names another coordinator's key;
                roster-rollback or conflict against those already stored; unauthorised.
        """
        roster.verify_admin(bytes.fromhex(federation))
        if roster.coordinator != self.key.public:
            raise PeerFault(
                Cause.MALFORMED,
                f"the roster names another coordinator's key; this one's is {self.key.public.hex()}",
            )
        async with self._opening, self.database.transaction() as connection:
            newest = await connection.execute(
                select(rosters.c.body)
                .where(rosters.c.federation == federation)
                .order_by(rosters.c.version.desc())
                .limit(1)
            )
            body = newest.scalar_one_or_none()
            if body is None and not operator:
                raise PeerFault(Cause.UNAUTHORISED, "a new federation takes the operator's token")
            if body == roster.to_bytes():
                return False
            if body is not None:
                _refuse_rollback(Roster.from_bytes(body), roster)
            await connection.execute(
                insert(rosters).values(
                    federation=federation, version=roster.version_number, body=roster.to_bytes()
                )
            )
        return True

    async def roster(self, federation: str, version: int | None = None) -> Roster:
        """The newest roster, or one version of it."""
        query = select(rosters.c.body).where(rosters.c.federation == federation)
        if version is not None:
            query = query.where(rosters.c.version == version)
        async with self.database.transaction() as connection:
            body = (
                await connection.execute(query.order_by(rosters.c.version.desc()).limit(1))
            ).scalar_one_or_none()
        if body is None:
            raise not_found("federation")
        return Roster.from_bytes(body)

    async def federation_view(self, federation: str) -> FederationView:
        """What anybody may see."""
        roster = await self.roster(federation)
        async with self.database.transaction() as connection:
            cohort_ids = await connection.execute(
                select(cohorts.c.id).where(cohorts.c.federation == federation).order_by(cohorts.c.counter)
            )
            round_ids = await connection.execute(
                select(rounds.c.id).where(rounds.c.federation == federation).order_by(rounds.c.number)
            )
        return FederationView(
            federation=federation,
            roster_version=roster.version_number,
            members=tuple(entry.member for entry in roster.members),
            cohorts=tuple(cohort_ids.scalars()),
            rounds=tuple(round_ids.scalars()),
        )

    # Cohorts

    async def open_cohort(self, federation: str, request: CohortRequest) -> Cohort:
        """Open enrolment under the newest roster."""
        roster = await self.roster(federation)
        async with self._opening, self.database.transaction() as connection:
            taken = select(func.count()).select_from(cohorts).where(cohorts.c.federation == federation)
            counter = (await connection.execute(taken)).scalar_one()
            deadline_s = self.now() + request.enrol_s
            cohort = Cohort.begin(self.database, self.wake, roster, counter, request, deadline_s)
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
        self.wake()
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
            PeerFault: wrong-phase where the cohort is not formed; conflict while another round of it runs, or after one
                was lost; terms-refused by the preflight.
        """
        cohort = self.cohort(cohort_id)
        manifest = cohort.formed()
        async with self._opening:
            sequence, number = self._next_place(cohort_id)
            now_s = self.now()
            federation = cohort.roster.federation.hex()
            opening = Opening.make(
                self.key,
                cohort=manifest.cohort,
                sequence=sequence,
                attempt=number,
                links=await self._links(federation),
                terms=terms_of(request, cohort.roster, manifest, now_s),
            )
            round_ = Round.begin(
                self.database,
                self.blobs,
                self.wake,
                secrets.token_hex(8),
                Attempt(cohort.roster, manifest, opening),
                Windows(**request.windows.model_dump()),
                now_s,
            )
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
            cohort.opened(round_.id)
        self.wake()
        return round_

    def round(self, round_id: str) -> Round:
        """A round by its id; PeerFault(not-found)."""
        try:
            return self.rounds[round_id]
        except KeyError:
            raise not_found("round") from None

    def _next_place(self, cohort_id: str) -> tuple[int, int]:
        earlier = [r for r in self.rounds.values() if r.attempt.manifest.cohort.hex() == cohort_id]
        if not earlier:
            return 0, 0
        last = max(earlier, key=lambda r: r.attempt.opening.place)
        if last.final is None:
            raise PeerFault(Cause.CONFLICT, f"round {last.id} of this cohort is still {last.view().state}")
        if last.final.state == Lost.name:
            raise PeerFault(
                Cause.CONFLICT, f"round {last.id} was lost and ended this cohort: open a new cohort"
            )
        sequence, number = last.attempt.opening.place
        if last.final.state == "voided" and number + 1 < MAX_ATTEMPTS:
            return sequence, number + 1
        return sequence + 1, 0

    async def _links(self, federation: str) -> tuple[Link, ...]:
        async with self.database.transaction() as connection:
            bodies = await connection.execute(
                select(links.c.body).where(links.c.federation == federation).order_by(links.c.position)
            )
        return tuple(Link.decode_fields(Reader(body)) for body in bodies.scalars())

    # What goes on by itself

    def wake(self) -> None:
        """Something changed: look at the deadlines again."""
        self._wakeup.set()

    async def load(self) -> None:
        """Bring everything back from storage, as it was when the last process stopped."""
        async with self.database.transaction() as connection:
            stored_cohorts = (await connection.execute(select(cohorts))).all()
            stored_cards = (await connection.execute(select(cards))).all()
            stored_rounds = (await connection.execute(select(rounds).order_by(rounds.c.number))).all()
        by_cohort: dict[str, list[KeyCard]] = {}
        for row in stored_cards:
            by_cohort.setdefault(row.cohort, []).append(KeyCard.from_bytes(row.body))
        for row in stored_cohorts:
            roster = await self.roster(row.federation, row.roster_version)
            request = CohortRequest.model_validate_json(row.request)
            cohort = Cohort.begin(self.database, self.wake, roster, row.counter, request, row.deadline_s)
            cohort.restore(
                by_cohort.get(row.id, []),
                Manifest.from_bytes(row.manifest) if row.manifest else None,
                Problem.model_validate_json(row.fault) if row.fault else None,
            )
            self.cohorts[row.id] = cohort
        for row in stored_rounds:
            self.rounds[row.id] = await self._load_round(row)
            self.cohorts[row.cohort].opened(row.id)

    async def _load_round(self, row: Row[tuple[object, ...]]) -> Round:
        cohort = self.cohorts[row.cohort]
        opening = Opening.from_bytes(row.opening)
        attempt = Attempt(cohort.roster, cohort.formed(), opening)
        if row.final is not None:
            final = RoundView.model_validate_json(row.final)
            return Round(
                self.database,
                self.blobs,
                self.wake,
                row.id,
                attempt,
                row.opened_s,
                version=final.version,
                final=final,
                certificate=Certificate.from_bytes(row.certificate) if row.certificate else None,
                record=ResultRecord.model_validate_json(row.record) if row.record else None,
            )
        windows = Windows(**WindowsModel.model_validate_json(row.windows).model_dump())
        round_ = Round.begin(self.database, self.blobs, self.wake, row.id, attempt, windows, row.opened_s)
        await round_.replay()
        await round_.settle(self.now())
        return round_

    async def run(self) -> None:
        """Pass deadlines and solve recovered rounds, until cancelled."""
        try:
            while True:
                self._wakeup.clear()
                deadlines = await self._pass_deadlines()
                for round_ in self.rounds.values():
                    if round_.recovered is not None and round_.id not in self._solving:
                        self._solving[round_.id] = asyncio.create_task(self._solve(round_))
                wait_s = max(0.0, min(deadlines) - self.now()) if deadlines else None
                try:
                    async with asyncio.timeout(wait_s):
                        await self._wakeup.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._solving.values():
                task.cancel()

    async def _pass_deadlines(self) -> list[float]:
        """Let everything whose time is up move on; the deadlines that are left."""
        for cohort in self.cohorts.values():
            if cohort.open and self.now() >= cohort.deadline_s:
                await cohort.close()
        for round_ in tuple(self.rounds.values()):
            await round_.expire(self.now())
        return [c.deadline_s for c in self.cohorts.values() if c.open] + [
            r.deadline_s for r in self.rounds.values() if r.deadline_s is not None
        ]

    async def _solve(self, round_: Round) -> None:
        recovered = round_.recovered
        assert recovered is not None
        try:
            outcome = await asyncio.to_thread(solving.compute, round_, recovered, self.blobs, self.key)
            await asyncio.to_thread(self.blobs.put, solving.weights_name(round_.id), outcome.weights)
            await asyncio.to_thread(self.blobs.put, solving.sums_name(round_.id), outcome.sums)
            await round_.finish(outcome.record, None, self.now())
            log.info("round done", round=round_.id, survivors=len(outcome.record.survivors))
        except PeerFault as fault:
            await round_.finish(None, problem_of(fault), self.now())
            log.warning("round failed", round=round_.id, cause=fault.cause.value)


def _refuse_rollback(known: Roster, offered: Roster) -> None:
    if offered.version_number < known.version_number:
        raise PeerFault(
            Cause.ROSTER_ROLLBACK, f"version {known.version_number} stands, {offered.version_number} was sent"
        )
    if offered.version_number == known.version_number:
        raise PeerFault(
            Cause.CONFLICT, f"another roster stands under version {known.version_number}: raise the version"
        )
