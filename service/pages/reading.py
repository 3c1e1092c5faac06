"""What the pages show, gathered from the coordinator: what the REST routes tell the same people, and no more."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, func, select

from service.cohorts import Cohort
from service.coordinator import Coordinator
from service.rosters import Former, names_of
from service.storage.tables import cohorts, rosters, rounds
from veilsum.protocol.messages import Roster
from veilsum.protocol.rest import RoundView
from veilsum.protocol.study import Content


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
        total: how many rounds are on all pages.
        running: how many of those run.
        any: whether there are any rounds at all.
    """

    views: list[RoundView]
    total: int
    running: int
    any: bool


async def rounds_page(here: Coordinator, chosen: Filter, first: int, most: int) -> RoundsPage:
    """Read `most` rounds of a list, from the place `first` on."""
    await here.catalogue.refresh_all()
    live = sorted(here.catalogue.live(), key=lambda round_: (round_.opened_s, round_.id), reverse=True)
    running = [view for round_ in live if chosen.admits(view := round_.view()) and not view.ended]
    views = running[first : first + most]
    newest = (
        select(rounds.c.final).where(*chosen.ended).order_by(rounds.c.opened_s.desc(), rounds.c.id.desc())
    )
    following = newest.offset(max(0, first - len(running))).limit(most - len(views))
    async with here.database.reading() as connection:
        ended = select(func.count()).select_from(rounds).where(*chosen.ended)
        total = len(running) + (await connection.execute(ended)).scalar_one()
        some = (await connection.execute(select(rounds.c.number).limit(1))).first() is not None
        found = (await connection.execute(following)).scalars().all() if len(views) < most else []
    views += await asyncio.to_thread(lambda: list(map(RoundView.model_validate_json, found)))
    return RoundsPage(views, total, len(running), some)


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
    """Return every federation's name, by its id."""
    async with here.database.reading() as connection:
        found = (await connection.execute(select(rosters.c.federation).distinct())).scalars().all()
    return {each: (await here.federations.newest(each)).name for each in sorted(found)}


async def federation_page(here: Coordinator, federation: str) -> FederationPage:
    """Read one federation; PeerFault(not-found)."""
    newest, former = (
        await here.federations.newest(federation),
        await here.federations.rosters.former(federation),
    )
    cohort_ids = select(cohorts.c.id).where(cohorts.c.federation == federation).order_by(cohorts.c.counter)
    count = select(func.count()).select_from(rounds).where(rounds.c.federation == federation)
    async with here.database.reading() as connection:
        ids = tuple((await connection.execute(cohort_ids)).scalars())
        return FederationPage(federation, newest, former, ids, (await connection.execute(count)).scalar_one())


async def uploaded(here: Coordinator, federation: str) -> Mapping[str, tuple[str, float]]:
    """Return, by member, the newest round that has its upload, and when that was opened in Unix time."""
    history = await here.catalogue.histories.of(federation)
    live = {
        member: (round_.id, round_.opened_s)
        for round_ in here.catalogue.live(federation)
        for member in round_.view().uploaded
    }
    return {**history.uploaded, **live}
