"""What the pages show, gathered from the coordinator: what the REST routes tell the same people, and no more."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, func, select

from service.access.metering import in_thread
from service.cohorts import Cohort
from service.coordinator import Coordinator
from service.federations import Former, names_of
from service.journal import read_view
from service.storage.tables import cohorts, rounds
from veilsum.protocol.messages import Roster
from veilsum.protocol.rest import CohortView, RoundView
from veilsum.protocol.study import Content

_ENROLLING = 20
"""Cohorts that take cards, of those shown beside the rounds."""


@dataclass(frozen=True)
class Filter:
    """Which rounds a list shows; empty for all."""

    federation: str = ""
    state: str = ""

    def admits(self, view: RoundView) -> bool:
        """Whether it shows a round that runs."""
        return self.federation in {"", view.federation} and self.state in {"", "live", view.state}

    @property
    def ended(self) -> tuple[ColumnElement[bool], ...]:
        """Conditions on the rows of ended rounds."""
        chosen: list[ColumnElement[bool]] = [rounds.c.state.is_not(None)]
        if self.federation:
            chosen.append(rounds.c.federation == self.federation)
        if self.state:
            chosen.append(rounds.c.state == self.state)
        return tuple(chosen)


@dataclass(frozen=True)
class RoundsPage:
    """A page of a list of rounds: first those that run, then the others, each the newest first.

    Attributes:
        views: each with when the round was opened, Unix time.
        total: how many rounds are on all pages.
        running: how many of those run; not those that are past their latest end.
        any: whether there are any rounds at all.
    """

    views: list[tuple[RoundView, float]]
    total: int
    running: int
    any: bool


async def rounds_page(here: Coordinator, chosen: Filter, first: int, most: int) -> RoundsPage:
    """Read `most` rounds of a list, from the place `first` on."""
    await here.catalogue.refresh_all()
    live = sorted(here.catalogue.live(), key=lambda round_: (round_.opened_s, round_.id), reverse=True)
    running = [
        (view, round_.opened_s) for round_ in live if chosen.admits(view := round_.view()) and not view.ended
    ]
    views = running[first : first + most]
    newest = (
        select(rounds.c.id, rounds.c.final, rounds.c.opened_s)
        .where(*chosen.ended)
        .order_by(rounds.c.opened_s.desc(), rounds.c.id.desc())
    )
    following = newest.offset(max(0, first - len(running))).limit(most - len(views))
    async with here.database.reading() as connection:
        ended = select(func.count()).select_from(rounds).where(*chosen.ended)
        total = len(running) + (await connection.execute(ended)).scalar_one()
        some = (await connection.execute(select(rounds.c.number).limit(1))).first() is not None
        found = (await connection.execute(following)).all() if len(views) < most else []

    def read() -> None:
        for row in found:
            with here.database.quarantine.skipping(f"round {row.id}"):
                views.append((read_view(row.id, row.final), row.opened_s))

    await in_thread(read)
    return RoundsPage(views, total, sum(view.state != "erasing" for view, _ in running), some)


async def enrolling(here: Coordinator, federation: str) -> list[CohortView]:
    """Read the cohorts that take cards, the newest first: of one federation, or of all if it is empty."""
    waiting = cohorts.c.manifest.is_(None), cohorts.c.fault.is_(None)
    chosen = (*waiting, cohorts.c.federation == federation) if federation else waiting
    newest = select(cohorts.c.id).where(*chosen).order_by(cohorts.c.counter.desc()).limit(_ENROLLING)
    views = list[CohortView]()
    for each in await here.database.values(newest):
        with here.database.quarantine.skipping(f"cohort {each}"):
            views.append(await here.cohort_view(await here.catalogue.cohort(each)))
    return [view for view in views if view.state == "enrolling"]


def class_names(content: Content) -> tuple[str, ...]:
    """Return the names of a study's classes."""
    return content.notes.display or content.question.classes


@dataclass(frozen=True)
class Person:
    """A present or former member of a federation.

    Attributes:
        key: the newest public key, in hexadecimal.
        roles: decryptor, reader.
        removed_in: number of the roster that left it out; None for a member.
        cohorts: in how many it enrolled.
        last_round: the newest round that has its upload, and when that was opened in Unix time.
    """

    member: str
    key: str
    roles: tuple[str, ...]
    removed_in: int | None
    cohorts: int
    last_round: tuple[str, float] | None


@dataclass(frozen=True)
class FederationPage:
    """A federation.

    Attributes:
        cohorts: their ids, oldest first.
        rounds: how many.
    """

    id: str
    roster: Roster
    former: Former
    cohorts: tuple[str, ...] = field(repr=False)
    rounds: int

    @property
    def names(self) -> tuple[str, ...]:
        """Its members, and then its former members."""
        return (*names_of(self.roster), *sorted(self.former.gone))

    def people(
        self, members: Iterable[str], cohorts: Iterable[Cohort], uploaded: Mapping[str, tuple[str, float]]
    ) -> list[Person]:
        """Describe some of them, by all cohorts and each one's newest upload."""
        gone, roles = self.former.gone, {"decryptor": self.roster.decryptors, "reader": self.roster.readers}
        return [
            Person(
                member,
                (gone[member].key if member in gone else self.roster.key_of(member)).hex(),
                tuple(role for role, named in roles.items() if member in named),
                gone[member].removed_in if member in gone else None,
                sum(member in cohort.enrolling.cards for cohort in cohorts),
                uploaded.get(member),
            )
            for member in members
        ]


async def federation_names(here: Coordinator) -> dict[str, str]:
    """Return every federation's name, by its id; without one whose roster is damaged."""
    names = dict[str, str]()
    for each in await here.federations.ids():
        with here.database.quarantine.skipping(f"federation {each}"):
            names[each] = (await here.federations.roster(each)).name
    return names


async def federation_page(here: Coordinator, federation: str) -> FederationPage:
    """Read one federation; PeerFault(not-found)."""
    newest, former = (
        await here.federations.roster(federation),
        await here.federations.former(federation),
    )
    cohort_ids = select(cohorts.c.id).where(cohorts.c.federation == federation).order_by(cohorts.c.counter)
    count = select(func.count()).select_from(rounds).where(rounds.c.federation == federation)
    ids = tuple(await here.database.values(cohort_ids))
    return FederationPage(federation, newest, former, ids, await here.database.value(count))


async def uploaded(here: Coordinator, federation: str) -> Mapping[str, tuple[str, float]]:
    """Return, by member, the newest round that has its upload, and when that was opened in Unix time."""
    history = await here.catalogue.histories.of(federation)
    live = {
        member: (round_.id, round_.opened_s)
        for round_ in here.catalogue.live(federation)
        for member in round_.view().uploaded
    }
    return {**history.uploaded, **live}
