"""A federation's runs, which members poll."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Container, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, Table, bindparam, func, or_, select

from service.coordination.cohorts import cohort_state
from service.coordination.federations import Federations
from service.coordination.journal import read_counts
from service.coordination.watch import Watch
from service.http.metering import in_thread
from service.storage.database import Database
from service.storage.faults import log_errors
from service.storage.tables import cohorts, links, lost_contexts, rounds, studies
from veilsum.protocol.messages import NO_CONTEXT, Link, Study
from veilsum.protocol.opening_rules import CountOutcomes, count_contexts, next_step
from veilsum.protocol.rest import RunsView, RunView, round_name
from veilsum.protocol.study import Content, read_content


def _count_rows(table: Table, *which: ColumnElement[bool]) -> ColumnElement[int]:
    own = select(func.count()).select_from(table).where(table.c.federation == bindparam("federation"), *which)
    return own.scalar_subquery()


_SETTLED_COHORTS = or_(cohorts.c.formed, cohorts.c.fault.is_not(None))
_MANIFESTS = select(func.coalesce(func.sum(cohorts.c.manifests), 0)).where(
    cohorts.c.federation == bindparam("federation")
)
_CHANGES_SQL = select(
    _count_rows(cohorts)
    + _MANIFESTS.scalar_subquery()
    + _count_rows(cohorts, _SETTLED_COHORTS)
    + _count_rows(rounds)
    + _count_rows(links)
    # The admin's Lost may delete a round, and the revision only grows.
    + 2 * _count_rows(lost_contexts)
)


class Runs:
    """The runs of every federation."""

    def __init__(self, database: Database, federations: Federations) -> None:
        self._database, self._federations = database, federations
        self._revisions, self._watches = dict[str, int](), dict[str, Watch]()
        self._made = dict[str, tuple[int, Sequence[tuple[float, RunView]]]]()
        self._looks = set[asyncio.Task[None]]()

    def watch_of(self, federation: str) -> Watch:
        """Return the watch of an existing federation's runs."""
        if federation not in self._watches:
            self._watches[federation] = Watch(lambda: self._revisions.get(federation, 0))
        return self._watches[federation]

    def all_watches(self) -> list[Watch]:
        """Every watch that was ever used."""
        return list(self._watches.values())

    def notify_change(self, federation: str) -> None:
        """Note that a cohort or round of the federation began or ended, and notify waiters soon."""
        if federation in self._watches:
            task = asyncio.get_running_loop().create_task(log_errors(self.update_revision(federation)))
            self._looks.add(task)
            task.add_done_callback(self._looks.discard)

    async def update_revision(self, federation: str) -> None:
        """Update the revision from storage. It grows with each cohort and attempt that begins or ends."""
        if federation not in self._watches:
            return
        revision = await self._database.read_value(_CHANGES_SQL.params(federation=federation))
        self._revisions[federation] = max(self._revisions.get(federation, 0), revision)
        self._watches[federation].notify_waiters()

    async def runs_view(self, federation: str, now_s: float) -> RunsView:
        """The runs of studies that have not expired, and those with an attempt that has not ended, oldest first, of a federation that was looked at.

        Between two changes they are read once, unless a study is damaged: it may be published again.
        """
        revision, made = self._revisions[federation], self._made.get(federation)
        if made is None or made[0] != revision:
            runs, whole = await self._read_runs(federation)
            made = self._made[federation] = revision if whole else -1, runs
        return RunsView(revision=revision, runs=tuple(run for expires, run in made[1] if now_s < expires))

    async def _read_runs(self, federation: str) -> tuple[Sequence[tuple[float, RunView]], bool]:
        """Read all runs, each with the time until which it is shown. Also returns whether every study could be read."""
        chain = await self._federations.read_links(federation)
        newest = select(rounds.c.id).where(rounds.c.cohort == cohorts.c.id)
        newest = newest.order_by(rounds.c.number.desc()).limit(1)
        columns = (
            cohorts.c.id,
            cohorts.c.study,
            cohorts.c.period,
            cohorts.c.repeats,
            cohorts.c.counter,
            cohorts.c.manifests,
            cohorts.c.formed,
            cohorts.c.fault.is_not(None).label("failed"),
            newest.scalar_subquery().label("round"),
        )
        own = select(*columns).where(cohorts.c.federation == federation)
        published = select(studies.c.hash, studies.c.body).where(studies.c.federation == federation)
        rows = await self._database.read_rows(own.order_by(cohorts.c.counter))
        bodies = {row.hash: row.body for row in await self._database.read_rows(published)}
        outcomes = (await read_counts(self._database, count_contexts(chain))).get

        def read() -> tuple[list[tuple[float, RunView]], bool]:
            contents = dict[str, Content]()
            for name, body in bodies.items():
                with self._database.quarantine.skip_errors(f"study {name} of federation {federation}"):
                    contents[name] = read_content(Study.from_bytes(body).content)
            ended = {None, *(round_name(link.context) for link in chain)}
            periods = defaultdict[str, list[Link]](list)  # an attempt is repeated within its period
            for link in chain:
                periods[link.period].append(link)
            shown = [
                (
                    _shown_until(row, contents[row.study], ended),
                    _run_view(row, contents[row.study], periods[row.period], outcomes),
                )
                for row in rows
                if row.study in contents
            ]
            return shown, contents.keys() == bodies.keys()

        with self._database.quarantine.quarantine_errors(f"runs of federation {federation}"):
            return await in_thread(read)


def _shown_until(row: Row[Any], content: Content, ended: Container[str | None]) -> float:
    # An attempt may wait for its members beyond the study: they report what they have erased.
    return content.notes.expires if row.round in ended else math.inf


def _run_view(row: Row[Any], content: Content, links: Sequence[Link], outcomes: CountOutcomes) -> RunView:
    repeats = NO_CONTEXT if row.repeats is None else bytes.fromhex(row.repeats)
    cohort = bytes.fromhex(row.id)
    step = next_step(content.question, row.period, links, outcomes, repeats=repeats, cohort=cohort)
    return RunView(
        cohort=row.id,
        study=row.study,
        name=content.notes.name,
        version=content.notes.version,
        period=row.period,
        counter=row.counter,
        repeats=row.repeats,
        state=cohort_state(row.manifests, formed=row.formed, failed=row.failed),
        over=bool(row.failed) or step is None,
        round=row.round,
    )
