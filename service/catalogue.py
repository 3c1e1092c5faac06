"""Cohorts and rounds in memory: a cache of the database, which other processes write to as well.

What is asked for by name is looked up where it is not here, and brought up to date where it is. Beside that each process hears of
changes as they are committed, for those who wait for one, and looks around now and then in case it did not.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Row, func, select

from service.cache import ObjectCache
from service.cohorts import Cohort
from service.documents import DISCLOSURE
from service.federations import Federations
from service.problems import not_found
from service.round_history import Brief, RoundHistories
from service.rounds import Round
from service.runs import Runs
from service.storage.blobs import Blobs
from service.storage.database import Database
from service.storage.faults import quarantined, tried
from service.storage.tables import cohorts, rounds
from service.studies import Studies
from service.telemetry.logs import LOGGER, where
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Collecting, Enrolling
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import NO_CONTEXT, Certificate, Manifest, Opening, Survivor, SurvivorSet, parse
from veilsum.protocol.opening_rules import earlier_context
from veilsum.protocol.rest import RoundView, round_name
from veilsum.protocol.transcript import Transcript

log = structlog.get_logger(LOGGER)

FOLDERS = ("uploads", "sums", "results")
"""In which blobs lie by rounds."""
KEPT_S = 1.0
"""How long a look stands for those who ask for its like."""
LOOK_S = 5.0
"""Between two looks at what others may have stored, where no word of it came."""


class Catalogue:
    """Cohorts and rounds: those that are open, and what somebody has asked for.

    Attributes:
        cohorts: those held here, by id.
        rounds: the same.
        pasts: of rounds that have ended.

    Args:
        database: the truth.
        blobs: rounds' chunks.
        key: the coordinator's.
        federations: their rosters and chains.
        studies: of all federations.
        runs: told when a cohort or round of a federation begins or ends.
        wake: called when there may be something to do.
    """

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        key: SigningKey,
        federations: Federations,
        studies: Studies,
        runs: Runs,
        wake: Callable[[], None],
    ) -> None:
        self._database, self._blobs, self._key = database, blobs, key
        self._federations, self._studies, self._runs, self._wake = federations, studies, runs, wake
        self.cohorts, self.rounds = ObjectCache[Cohort](), ObjectCache[Round]()
        self.histories = RoundHistories(database)
        self._loading, self._reading = asyncio.Lock(), asyncio.Lock()
        self._looking, self._looked_s = asyncio.Lock(), -KEPT_S
        self._ended: dict[str, int] = {}

    # Asked for by name

    async def cohort(self, name: str) -> Cohort:
        """As it stands; PeerFault(not-found)."""
        found = self.cohorts.get(name)
        if found is None:
            async with self._loading:
                found = await self._cohort_named(name)
        await self._refresh_cohort(found)
        return found

    async def round(self, name: str, what: str = "round") -> Round:
        """As it stands; PeerFault(not-found)."""
        found = self.rounds.get(name)
        while found is None:
            row = await self._row(select(rounds).where(rounds.c.id == name))
            if row is None:
                raise not_found(what)
            if row.final is None:
                await self._take_up(row.federation)
                found = self.rounds.get(name)  # unless it has ended meanwhile
            else:
                # One at a time: whoever asks for what is over keeps nobody from what runs.
                async with self._reading:
                    found = self.rounds.get(name) or await self._as_it_ended(row)
        await found.refresh()
        return found

    async def refresh(self, federation: str) -> None:
        """All of a federation's, as it stands."""
        await self._take_up(federation)
        for cohort in list(self.cohorts.values()):
            if _federation(cohort) == federation:
                await self._refresh_cohort(cohort)
        for round_ in self.live(federation):
            await round_.refresh()
        await self._runs.look(federation)

    def open(self) -> list[Cohort | Round]:
        """For which there is something to do, or will be."""
        return [*self.cohorts.open(), *self.rounds.open()]

    def live(self, federation: str | None = None) -> list[Round]:
        """Rounds that have not ended, as far as is known here; of one federation one at the most."""
        return [
            round_
            for round_ in self.rounds.open()
            if round_.final is None and federation in {None, _federation(round_)}
        ]

    async def opened(self, federation: str) -> int:
        """How many rounds a federation has opened."""
        count = select(func.count()).select_from(rounds).where(rounds.c.federation == federation)
        async with self._database.reading() as connection:
            return int((await connection.execute(count)).scalar_one())

    async def numbers(self, names: Collection[str]) -> dict[str, int]:
        """Rounds' places in storage, the later the higher."""
        query = select(rounds.c.id, rounds.c.number).where(rounds.c.id.in_(names))
        async with self._database.reading() as connection:
            return {row.id: row.number for row in await connection.execute(query)}

    async def refresh_all(self) -> None:
        """All that is open, or held here, as it stands."""
        if not self._database.shared:
            return
        for federation in sorted({*await self._stirring(), *await self._behind()}):
            with quarantined(federation):
                await self.refresh(federation)

    async def look(self) -> None:
        """The same, as far as storage answers soon, and once in a while however often it is asked: for those whom no limit holds."""
        async with self._looking:
            if time.monotonic() >= self._looked_s + KEPT_S:
                await tried(asyncio.wait_for(self._look(), LOOK_S))
                self._looked_s = time.monotonic()

    async def _look(self) -> None:
        await self.refresh_all()
        self._ended = await self.histories.states()

    def states(self) -> Counter[str]:
        """How many rounds there are in each state, as of the last `look`."""
        return Counter(self._ended) + Counter(round_.view().state for round_ in self.live())

    async def _refresh_cohort(self, cohort: Cohort) -> None:
        if self._database.shared:
            count = select(func.count()).select_from(rounds).where(rounds.c.cohort == cohort.id)
            async with self._database.reading() as connection:
                known = (await connection.execute(count)).scalar_one()
            if cohort.live is not None:
                await cohort.live.refresh()
            if known != len(cohort.rounds):
                async with self._loading:
                    await self._rounds_of(cohort)
        await cohort.refresh()

    async def _row(self, query: Any) -> Row[Any] | None:
        async with self._database.reading() as connection:
            return (await connection.execute(query)).one_or_none()

    # New ones

    async def add(self, attempt: Attempt, now_s: float, before: int) -> bool:
        """Store a round after the `before` that its federation had, all of which have ended; False where there are more."""
        federation = attempt.roster.federation.hex()
        row = {
            "id": round_name(attempt.context),
            "federation": federation,
            "cohort": attempt.manifest.cohort.hex(),
            "sequence": attempt.opening.sequence,
            "attempt": attempt.opening.attempt,
            "opening": attempt.opening.to_bytes(),
            "opened_s": now_s,
        }
        async with self._database.transaction() as connection:
            if not await self._database.add(connection, rounds, row):
                return False
            # From here on no other can be opened; one may have been, and have ended, until now.
            count = select(func.count()).select_from(rounds).where(rounds.c.federation == federation)
            if (await connection.execute(count)).scalar_one() != before + 1:
                await connection.rollback()
                return False
            await self._database.announce(connection, federation)
        return True

    def cohort_of(self, enrolling: Enrolling, deadline_s: float) -> Cohort:
        """A cohort without cards."""
        told = partial(self._runs.changed, enrolling.roster.federation.hex())
        return Cohort(self._database, self._wake, told, enrolling, deadline_s)

    async def certified(self, context: bytes) -> tuple[Survivor, ...]:
        """The certified set of an attempt that has ended; PeerFault(not-found)."""
        row = await self._row(select(rounds.c.closing).where(rounds.c.id == round_name(context)))
        closing = None if row is None or row.closing is None else parse(row.closing)
        if not isinstance(closing, Certificate) or closing.context != context:
            raise not_found("certified attempt")
        return closing.survivors

    # From storage

    async def load(self, not_before_s: float) -> None:
        """All that is open, as it was when the last process stopped."""
        for federation in sorted(await self._stirring()):
            with quarantined(federation):
                await self._take_up(federation, not_before_s)
        await self.sweep()

    async def sweep(self) -> None:
        """Have deleted what lies in storage of rounds that have ended: whoever put it died, or came late.

        Nobody is about to refer to it, whatever other processes do: an ended round takes neither events nor ranges. With it goes
        what interrupted writes have left.
        """
        await asyncio.to_thread(self._blobs.clear_up)
        lying = {each: set(await asyncio.to_thread(self._blobs.names, each)) for each in FOLDERS}
        await self.refresh_all()
        ended = select(rounds.c.id, rounds.c.state).where(rounds.c.state.is_not(None))
        async with self._database.reading() as connection:
            states = {row.id: row.state for row in await connection.execute(ended)}
        for name in set[str]().union(*lying.values()) & states.keys():
            kept = {"results"} if states[name] == "done" else set()
            if any(name in lying[folder] for folder in FOLDERS if folder not in kept):
                with quarantined(name):
                    round_ = await self.round(name)
                    round_.littered = True
                    self.rounds.put(round_)
        self._wake()

    async def disclosed(self) -> list[str]:
        """Indicators whose disclosure lies in storage."""
        query = select(rounds.c.id).where(rounds.c.state == "done", rounds.c.record.is_(None))
        async with self._database.reading() as connection:
            counted = (await connection.execute(query)).scalars().all()

        def lying() -> list[str]:
            return [name for name in counted if DISCLOSURE in self._blobs.names(f"results/{name}")]

        return await asyncio.to_thread(lying)

    async def _take_up(self, federation: str, not_before_s: float = 0.0) -> None:
        """What of a federation is open and not here yet."""
        async with self._loading:
            forming = select(cohorts.c.id).where(cohorts.c.federation == federation, *_FORMING)
            async with self._database.reading() as connection:
                names = (await connection.execute(forming)).scalars().all()
            for name in names:
                await self._cohort_named(name, not_before_s)
            live = select(rounds).where(rounds.c.federation == federation, rounds.c.final.is_(None))
            row = await self._row(live)
            if row is None or row.id in self.rounds:
                return
            if row.cohort in self.cohorts:
                await self._rounds_of(self.cohorts[row.cohort], not_before_s)
            else:
                await self._cohort_named(row.cohort, not_before_s)

    async def _cohort_named(self, name: str, not_before_s: float = 0.0) -> Cohort:
        if (known := self.cohorts.get(name)) is not None:
            return known
        row = await self._row(select(cohorts).where(cohorts.c.id == name))
        if row is None:
            raise not_found("cohort")
        roster = await self._federations.roster(row.federation, row.roster_number)
        study = await self._studies.study(row.federation, row.study)
        repeats = NO_CONTEXT if row.repeats is None else bytes.fromhex(row.repeats)
        repeated = () if row.repeats is None else await self.certified(repeats)
        enrolling = Enrolling(roster, study, row.counter, row.period, repeats, repeated)
        cohort = self.cohort_of(enrolling, row.deadline_s)
        await cohort.load(not_before_s)
        await self._rounds_of(cohort, not_before_s)
        self.cohorts.put(cohort)
        self._wake()
        return cohort

    async def _rounds_of(self, cohort: Cohort, not_before_s: float = 0.0) -> None:
        """What a cohort has not heard of its rounds, oldest first; all that it has heard of stand as they are."""
        query = select(rounds.c.id, rounds.c.final).where(rounds.c.cohort == cohort.id)
        async with self._database.reading() as connection:
            new = await connection.execute(query.order_by(rounds.c.number).offset(len(cohort.rounds)))
            rows = new.all()
        for row in rows:
            if row.final is None:
                live = await self._row(select(rounds).where(rounds.c.id == row.id))
                assert live is not None
                round_ = await self._round(live, cohort, not_before_s)
                self.rounds.put(round_)
                cohort.opened(round_)
                self.cohorts.put(cohort)  # again, for as long as the round is live
            else:
                view = await asyncio.to_thread(RoundView.model_validate_json, row.final)
                cohort.opened(Brief.of(view))
        self._wake()

    async def _round(self, row: Row[Any], cohort: Cohort, not_before_s: float) -> Round:
        """One that was live when its row was read."""
        await cohort.refresh()
        opening = await asyncio.to_thread(Opening.from_bytes, row.opening)
        attempt = Attempt(cohort.roster, cohort.enrolling.study, cohort.formed(), opening)
        noted = await asyncio.to_thread(Transcript.begin, attempt, cohort.cards)
        rests_on = earlier_context(attempt)
        earlier = () if rests_on == NO_CONTEXT else (SurvivorSet(await self.certified(rests_on)),)
        phase = Collecting.begin(attempt, row.opened_s, earlier)
        return await self._made(attempt, row.opened_s, phase, noted).resume(not_before_s)

    async def _as_it_ended(self, row: Row[Any]) -> Round:
        query = select(cohorts.c.roster_number, cohorts.c.study, cohorts.c.manifest)
        formed = await self._row(query.where(cohorts.c.id == row.cohort))
        assert formed is not None
        roster = await self._federations.roster(row.federation, formed.roster_number)
        study = await self._studies.study(row.federation, formed.study)
        manifest = await asyncio.to_thread(Manifest.from_bytes, formed.manifest)
        opening = await asyncio.to_thread(Opening.from_bytes, row.opening)
        attempt = Attempt(roster, study, manifest, opening)
        round_ = self._made(attempt, row.opened_s).restore(row, littered=False)
        self.rounds.put(round_)
        return round_

    def _made(
        self,
        attempt: Attempt,
        opened_s: float,
        phase: Collecting | None = None,
        noted: Transcript | None = None,
    ) -> Round:
        told = partial(self._runs.changed, attempt.roster.federation.hex())
        return Round(
            self._database, self._blobs, self._wake, told, self._key, attempt, opened_s, phase, noted
        )

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
        """Federations of which something is open, in storage or as far as is known here."""
        forming = select(cohorts.c.federation).where(*_FORMING)
        live = select(rounds.c.federation).where(rounds.c.final.is_(None))
        async with self._database.reading() as connection:
            found = set((await connection.execute(forming.union(live))).scalars())
        return found | set(map(_federation, self.open()))

    async def _behind(self) -> set[str]:
        """Federations of whose cohorts that are held here storage has more rounds."""
        here = dict(self.cohorts)
        counted = (
            select(rounds.c.cohort, func.count().label("many"))
            .where(rounds.c.cohort.in_(here))
            .group_by(rounds.c.cohort)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(counted)).all()
        return {_federation(here[row.cohort]) for row in rows if row.many != len(here[row.cohort].rounds)}


_FORMING = cohorts.c.manifest.is_(None), cohorts.c.fault.is_(None)


def _federation(thing: Cohort | Round) -> str:
    roster = thing.roster if isinstance(thing, Cohort) else thing.attempt.roster
    return str(roster.federation.hex())
