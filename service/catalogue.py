"""Cohorts and rounds in memory: a cache of the database, which other processes write to as well.

What is asked for by name is looked up where it is not here, and brought up to date where it is. Beside that each process hears of
changes as they are committed, for those who wait for one, and looks around now and then in case it did not.
"""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from sqlalchemy import Row, func, select

from protocol.attempt import Attempt
from protocol.coordinator import Windows
from protocol.identity import SigningKey
from protocol.messages import Ledger, Opening
from protocol.rest import CohortRequest, WindowsModel, round_name
from protocol.transcript import Transcript
from service import audit
from service.asked import MATERIALS, material_named
from service.cohorts import Cohort
from service.federations import Federations
from service.helping.opening import Helping, is_with_helpers, opening_from
from service.journal import KEEP_S
from service.modes import AnyAttempt, MembersMode
from service.problems import not_found
from service.rounds import Round
from service.schedules import begin
from service.storage.blobs import Blobs
from service.storage.database import Database
from service.storage.tables import cohorts, rounds
from service.telemetry.logs import LOGGER, where

log = structlog.get_logger(LOGGER)

FOLDERS = ("uploads", "sums", "results")
"""In which blobs lie by rounds."""
KEPT_S = 1.0
"""How long a look stands for those who ask for its like."""
LOOK_S = 5.0
"""Between two looks at what others may have stored, where no word of it came."""


class Catalogue:
    """Every cohort and round that somebody has asked for, or that is not over.

    Args:
        database: the truth.
        blobs: rounds' chunks.
        key: the coordinator's.
        federations: their rosters and chains.
        helping: rounds with helpers.
        wake: called when there may be something to do.
    """

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        key: SigningKey,
        federations: Federations,
        helping: Helping,
        wake: Callable[[], None],
    ) -> None:
        self._database, self._blobs, self._key = database, blobs, key
        self._federations, self._helping, self._wake = federations, helping, wake
        self.cohorts: dict[str, Cohort] = {}
        self.rounds: dict[str, Round] = {}
        self._loading, self._looking, self._looked_s = asyncio.Lock(), asyncio.Lock(), -KEPT_S

    # Asked for by name

    async def cohort(self, name: str) -> Cohort:
        """As it stands; PeerFault(not-found)."""
        if name not in self.cohorts:
            await self._find(select(cohorts.c.federation).where(cohorts.c.id == name))
        found = self.cohorts.get(name)
        if found is None:
            raise not_found("cohort")
        await self._refresh_cohort(found)
        return found

    async def round(self, name: str, what: str = "round") -> Round:
        """As it stands; PeerFault(not-found)."""
        if name not in self.rounds:
            await self._find(select(rounds.c.federation).where(rounds.c.id == name))
        found = self.rounds.get(name)
        if found is None:
            raise not_found(what)
        await found.refresh()
        return found

    async def refresh(self, federation: str) -> None:
        """All of a federation's, as it stands."""
        await self._take_up(federation)
        for thing in self._things():
            if _federation(thing) == federation:
                await thing.refresh()
        await self._helping.refresh(federation)

    async def refresh_all(self) -> None:
        """All there is, as it stands."""
        if not self._database.shared:
            return
        for federation in sorted({*await self._stirring(), *await self._unknown()}):
            await self.refresh(federation)

    async def look(self) -> None:
        """The same, as far as storage answers soon, and once in a while however often it is asked: for those whom no limit holds."""
        async with self._looking:
            if time.monotonic() >= self._looked_s + KEPT_S:
                await tried(asyncio.wait_for(self.refresh_all(), LOOK_S))
                self._looked_s = time.monotonic()

    async def _refresh_cohort(self, cohort: Cohort) -> None:
        if self._database.shared:
            count = select(func.count()).select_from(rounds).where(rounds.c.cohort == cohort.id)
            async with self._database.reading() as connection:
                known = (await connection.execute(count)).scalar_one()
            if known != len(cohort.rounds):
                await self._take_up(_federation(cohort))
            for round_ in cohort.rounds:
                await round_.refresh()
        await cohort.refresh()

    def _things(self) -> tuple[Cohort | Round, ...]:
        return (*self.cohorts.values(), *self.rounds.values())

    async def _find(self, federation: Any) -> None:
        async with self._database.reading() as connection:
            found = (await connection.execute(federation)).scalar_one_or_none()
        if found is not None:
            await self._take_up(found)

    # New ones

    async def add(
        self,
        attempt: AnyAttempt,
        place: tuple[int, int],
        windows: WindowsModel,
        now_s: float,
        before: int,
        material: bytes | None = None,
        schedule: str | None = None,
    ) -> bool:
        """Store a round, with its material, after the `before` that its federation had, all of which have ended; False where there are more.

        An entry of a schedule is begun with it, or there is none of the two (NotDueError).
        """
        federation = attempt.roster.federation.hex()
        row = {
            "id": round_name(attempt.context),
            "federation": federation,
            "cohort": attempt.manifest.cohort.hex(),
            "sequence": place[0],
            "attempt": place[1],
            "opening": attempt.opening.to_bytes(),
            "windows": windows.model_dump_json(),
            "opened_s": now_s,
        }
        async with self._database.transaction(KEEP_S if material is not None else 0.0) as connection:
            if schedule is not None:
                await audit.begin(self._database, connection)
            if material is not None:
                await self._database.alone(connection, MATERIALS)
                digest = hashlib.sha256(material).hexdigest()
                await asyncio.to_thread(self._blobs.put, f"{MATERIALS}/{digest}", material)
            if not await self._database.add(connection, rounds, row):
                return False
            # From here on no other can be opened; one may have been, and have ended, until now.
            count = select(func.count()).select_from(rounds).where(rounds.c.federation == federation)
            if (await connection.execute(count)).scalar_one() != before + 1:
                await connection.rollback()
                return False
            if schedule is not None:
                await begin(self._database, connection, schedule, now_s, round_id=round_name(attempt.context))
            await self._database.announce(connection, federation)
        return True

    # From storage

    async def load(self, not_before_s: float) -> None:
        """All there is, as it was when the last process stopped."""
        async with self._database.reading() as connection:
            known = (
                await connection.execute(select(cohorts.c.federation).union(select(rounds.c.federation)))
            ).scalars()
            federations = sorted(known)
        for federation in federations:
            await self._take_up(federation, not_before_s)
        await self.sweep()

    async def sweep(self) -> None:
        """Have deleted what lies in storage of rounds that have ended: whoever put it died, or came late.

        Nobody is about to refer to it, whatever other processes do: an ended round takes neither events nor ranges. With it go the
        materials of rounds that were refused, and what interrupted writes have left.
        """
        await asyncio.to_thread(self._blobs.clear_up)
        await self._sweep_materials()
        lying = {each: set(await asyncio.to_thread(self._blobs.names, each)) for each in FOLDERS}
        await self.refresh_all()
        for round_ in self.rounds.values():
            if round_.final is not None:
                kept = {"results"} if round_.final.state == "done" else set()
                left = any(round_.id in lying[folder] for folder in FOLDERS if folder not in kept)
                round_.littered = round_.littered or left
        self._wake()

    async def _sweep_materials(self) -> None:
        """Delete those that no round names: a round and its material are stored under the same lock."""
        async with self._database.transaction(KEEP_S) as connection:
            await self._database.alone(connection, MATERIALS)
            lying = set(await asyncio.to_thread(self._blobs.names, MATERIALS))
            if lying:
                openings = (await connection.execute(select(rounds.c.opening))).scalars()
                lying -= {material_named(opening_from(opening).terms) for opening in openings}
            for digest in lying:
                await asyncio.to_thread(self._blobs.delete, f"{MATERIALS}/{digest}")

    async def _take_up(self, federation: str, not_before_s: float = 0.0) -> None:
        """What of a federation is not here yet, oldest first."""
        async with self._loading:
            async with self._database.reading() as connection:
                query = select(cohorts).where(cohorts.c.federation == federation).order_by(cohorts.c.counter)
                new_cohorts = [row for row in await connection.execute(query) if row.id not in self.cohorts]
                names = select(rounds.c.id).where(rounds.c.federation == federation)
                new = set((await connection.execute(names)).scalars()) - set(self.rounds)
                by_number = select(rounds).where(rounds.c.id.in_(new)).order_by(rounds.c.number)
                new_rounds = (await connection.execute(by_number)).all() if new else []
            for row in new_cohorts:
                self.cohorts[row.id] = await self._cohort(row, not_before_s)
            ledger = await self._federations.ledger(federation) if new_rounds else None
            for row in new_rounds:
                if is_with_helpers(row.opening):
                    self.rounds[row.id] = await self._helping.load(row, not_before_s)
                else:
                    assert ledger is not None
                    self.rounds[row.id] = await self._round(row, ledger, not_before_s)
                    self.cohorts[row.cohort].opened(self.rounds[row.id])
        if new_cohorts or new_rounds:
            self._wake()

    async def _cohort(self, row: Row[Any], not_before_s: float) -> Cohort:
        roster = await self._federations.roster(row.federation, row.roster_version)
        request = CohortRequest.model_validate_json(row.request)
        cohort = Cohort(self._database, self._wake, roster, row.counter, request, row.deadline_s)
        return await cohort.load(not_before_s)

    async def _round(self, row: Row[Any], ledger: Ledger, not_before_s: float) -> Round:
        cohort = self.cohorts[row.cohort]
        await cohort.refresh()
        opening = await asyncio.to_thread(Opening.from_bytes, row.opening)
        attempt = Attempt(cohort.roster, cohort.formed(), opening)
        ended = row.final is not None
        noted = None if ended else await asyncio.to_thread(Transcript.begin, attempt, cohort.cards)
        windows = Windows(**WindowsModel.model_validate_json(row.windows).model_dump())
        history = ledger.history[: len(attempt.opening.links)]
        mode = MembersMode(attempt, windows, history, noted, self._key)
        round_ = Round(self._database, self._blobs, self._wake, mode, row.opened_s)
        return round_.restore(row, littered=False) if ended else await round_.resume(not_before_s)

    # From other processes

    async def listen(self) -> None:
        """Refresh what others say has changed, for as long as this is not cancelled."""
        changed: asyncio.Queue[str] = asyncio.Queue()
        handling = asyncio.create_task(self._handle(changed))
        try:
            while True:
                try:
                    await self._database.listen(changed.put_nowait)
                except Exception as error:  # noqa: BLE001 - as in `tried`
                    log.warning("no word of others' changes", again_in_s=LOOK_S, **where(error))
                    await asyncio.sleep(LOOK_S)
        finally:
            handling.cancel()

    async def _handle(self, changed: asyncio.Queue[str]) -> None:
        while True:
            topics = [await changed.get()]
            while not changed.empty():
                topics.append(changed.get_nowait())
            for topic in dict.fromkeys(topics):  # in the order in which it happened
                thing: Cohort | Round | None = self.cohorts.get(topic) or self.rounds.get(topic)
                await tried(thing.refresh() if thing is not None else self.refresh(topic))

    async def _stirring(self) -> set[str]:
        """Federations of which something is not over, in storage or as far as is known here."""
        forming = select(cohorts.c.federation).where(cohorts.c.manifest.is_(None), cohorts.c.fault.is_(None))
        live = select(rounds.c.federation).where(rounds.c.final.is_(None))
        async with self._database.reading() as connection:
            found = set((await connection.execute(forming.union(live))).scalars())
        return found | {_federation(thing) for thing in self._things() if not thing.over}

    async def _unknown(self) -> set[str]:
        """Federations of which storage has more than is here: neither cohorts nor rounds are ever deleted."""
        here = Counter(map(_federation, self._things()))
        stored: Counter[str] = Counter()
        async with self._database.reading() as connection:
            for table in (cohorts, rounds):
                counted = select(table.c.federation, func.count().label("many")).group_by(table.c.federation)
                for row in await connection.execute(counted):
                    stored[row.federation] += row.many
        return {name for name, count in stored.items() if count != here[name]}


def _federation(thing: Cohort | Round) -> str:
    roster = thing.roster if isinstance(thing, Cohort) else thing.attempt.roster
    return str(roster.federation.hex())


async def tried(work: Awaitable[None]) -> None:
    """Storage may fail now, and a defect that one change finds is not for the others to suffer; there is a next look."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - who stops listening is deaf for good
        log.warning("others' changes are not read", **where(error))
