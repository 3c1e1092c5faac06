"""What the pages show, gathered from the coordinator: nothing that the REST routes do not tell."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, func, select

from protocol.rest import RoundView
from protocol.study import Content
from service.cohorts import Cohort
from service.coordinator import Coordinator
from service.listed import Listed as Roster
from service.pages.wording import STATES
from service.rosters import Former
from service.storage.tables import cohorts, rosters, rounds


@dataclass(frozen=True)
class Filter:
    """Which rounds a list is to show; empty for all."""

    federation: str = ""
    state: str = ""

    def admits(self, view: RoundView) -> bool:
        """Whether a round that runs is among them."""
        return self.federation in {"", view.federation} and self.state in {"", "live", view.state}

    @property
    def ended(self) -> tuple[ColumnElement[bool], ...]:
        """Which rows of ended rounds are."""
        chosen: list[ColumnElement[bool]] = [rounds.c.state.is_not(None)]
        if self.federation:
            chosen.append(rounds.c.federation == self.federation)
        if self.state:
            chosen.append(rounds.c.state == self.state)
        return tuple(chosen)


@dataclass(frozen=True)
class Listed:
    """A page of a list of rounds: those that run first, then by age, the newest first.

    Attributes:
        total: how many are on all pages.
        running: of them.
        any: whether there are any rounds at all.
    """

    views: list[RoundView]
    total: int
    running: int
    any: bool


@dataclass(frozen=True)
class Person:
    """One of those whom any roster of a federation has named.

    Attributes:
        key: the newest public key, in hexadecimal.
        roles: what the roster names it beside a member.
        removed_in: the number of the roster that left it out; None while it is a member.
        cohorts: in how many it enrolled.
        last_round: the id of the newest round that its upload was in, and when that was opened in Unix time.
    """

    member: str
    key: str
    roles: tuple[str, ...]
    removed_in: int | None
    cohorts: int
    last_round: tuple[str, float] | None


@dataclass(frozen=True)
class Federation:
    """A federation as its page shows it.

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
    def named(self) -> int:
        """How many its page names."""
        return len(self.roster.members) + len(self.former.gone)

    def names(self, first: int, most: int) -> list[str]:
        """Some of them, members first."""
        members = len(self.roster.members)
        former = self.former.names[max(0, first - members) : max(0, first + most - members)]
        return [*self.roster.members[first : first + most], *former]

    def people(
        self, members: Sequence[str], cohorts: Iterable[Cohort], uploaded: Mapping[str, tuple[str, float]]
    ) -> list[Person]:
        """What is known of some of them, by all cohorts, and the newest upload of each."""
        gone = self.former.gone
        return [
            Person(
                member,
                (gone[member].key if member in gone else self.roster.key_of(member)).hex(),
                tuple(_roles(self.roster, member)),
                gone[member].removed_in if member in gone else None,
                sum(member in cohort.enrolling.cards for cohort in cohorts),
                uploaded.get(member),
            )
            for member in members
        ]


async def listed(here: Coordinator, chosen: Filter, first: int, most: int) -> Listed:
    """So many rounds of a list from one on."""
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
    return Listed(views, total, len(running), some)


def class_names(content: Content) -> tuple[str, ...]:
    """What a study calls its classes, for people."""
    return content.notes.display or content.question.classes


def states() -> list[tuple[str, str]]:
    """What a list can be filtered by."""
    return [("live", "running"), *((name, words.title) for name, words in STATES.items())]


async def federation_ids(here: Coordinator) -> list[str]:
    """Every federation of this coordinator."""
    async with here.database.reading() as connection:
        found = await connection.execute(
            select(rosters.c.federation).distinct().order_by(rosters.c.federation)
        )
        return list(found.scalars())


async def federation(here: Coordinator, name: str) -> Federation:
    """One federation as it stands; PeerFault(not-found)."""
    former = await here.federations.rosters.former(name)
    newest = await here.federations.newest(name)
    cohort_ids = select(cohorts.c.id).where(cohorts.c.federation == name).order_by(cohorts.c.counter)
    count = select(func.count()).select_from(rounds).where(rounds.c.federation == name)
    async with here.database.reading() as connection:
        known = tuple((await connection.execute(cohort_ids)).scalars())
        return Federation(name, newest, former, known, (await connection.execute(count)).scalar_one())


async def uploaded(here: Coordinator, name: str) -> Mapping[str, tuple[str, float]]:
    """By member, the newest round that its upload was in, and when that was opened in Unix time."""
    past = await here.catalogue.pasts.of(name)
    live = {
        member: (round_.id, round_.opened_s)
        for round_ in here.catalogue.live(name)
        for member in round_.view().uploaded
    }
    return {**past.uploaded, **live}


def _roles(roster: Roster, member: str) -> Iterable[str]:
    for role, named in (
        ("decryptor", roster.decryptors),
        ("reader", roster.readers),
    ):
        if member in named:
            yield role
