"""What the pages show, gathered from the coordinator: nothing that the REST routes do not tell."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from protocol.rest import RoundView
from protocol.scheduling import ScheduleView
from service.cohorts import Cohort
from service.coordinator import Coordinator
from service.listed import Listed
from service.pages.wording import STATES
from service.rosters import Former
from service.rounds import Round
from service.storage.tables import rosters


@dataclass(frozen=True)
class Filter:
    """Which rounds a list is to show; empty for all."""

    federation: str = ""
    state: str = ""

    def admits(self, view: RoundView) -> bool:
        """Whether a round is among them."""
        if self.federation and view.federation != self.federation:
            return False
        return self.state in {"", view.state} or (self.state == "live" and not view.ended)


@dataclass(frozen=True)
class Person:
    """One of those whom any version of a federation's roster has named.

    Attributes:
        key: the newest public key, in hexadecimal.
        roles: what the roster names it beside a member.
        removed_in: the version of the roster that left it out; None while it is a member.
        cohorts: in how many it enrolled.
        last_round: the newest round that its upload was in, and when that was opened in Unix time.
    """

    member: str
    key: str
    roles: tuple[str, ...]
    removed_in: int | None
    cohorts: int
    last_round: tuple[RoundView, float] | None


@dataclass(frozen=True)
class Federation:
    """A federation as its page shows it."""

    id: str
    roster: Listed
    former: Former
    cohorts: tuple[Cohort, ...] = field(repr=False)
    rounds: tuple[RoundView, ...] = field(repr=False)
    opened_s: tuple[float, ...] = field(repr=False)
    """Of each round, in Unix time."""

    @property
    def named(self) -> int:
        """How many its page names."""
        return len(self.roster.members) + len(self.former.gone)

    def names(self, first: int, most: int) -> list[str]:
        """Some of them, members first."""
        members = len(self.roster.members)
        former = self.former.names[max(0, first - members) : max(0, first + most - members)]
        return [*self.roster.members[first : first + most], *former]

    def people(self, members: Sequence[str]) -> list[Person]:
        """What is known of some of them."""
        last = dict[str, tuple[RoundView, float]]()
        for seen in zip(self.rounds, self.opened_s, strict=True):
            if len(last) < len(members):
                last = dict.fromkeys(set(members).intersection(seen[0].uploaded), seen) | last
        gone = self.former.gone
        return [
            Person(
                member,
                (gone[member].key if member in gone else self.roster.key_of(member)).hex(),
                tuple(_roles(self.roster, member)),
                gone[member].removed_in if member in gone else None,
                sum(member in cohort.enrolling.cards for cohort in self.cohorts),
                last.get(member),
            )
            for member in members
        ]


def rounds_of(here: Coordinator) -> list[Round]:
    """All rounds that are known here, the newest first."""
    return sorted(here.rounds.values(), key=lambda round_: (round_.opened_s, round_.id), reverse=True)


async def listed(here: Coordinator, chosen: Filter) -> list[RoundView]:
    """The rounds of a list: those that run first, then by age, the newest first."""
    await here.catalogue.refresh_all()
    views = [view for round_ in rounds_of(here) if chosen.admits(view := round_.view())]
    return sorted(views, key=lambda view: view.ended)


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
    await here.catalogue.refresh(name)
    cohorts = [cohort for cohort in here.cohorts.values() if cohort.roster.federation.hex() == name]
    rounds = [round_ for round_ in rounds_of(here) if round_.attempt.roster.federation.hex() == name]
    views, opened_s = tuple(each.view() for each in rounds), tuple(each.opened_s for each in rounds)
    return Federation(name, newest, former, tuple(reversed(cohorts)), views, opened_s)


async def scheduled(here: Coordinator, found: Federation) -> list[ScheduleView]:
    """What a federation's cohorts wait for."""
    return [entry for cohort in reversed(found.cohorts) for entry in await here.schedules.of(cohort.id)]


def _roles(roster: Listed, member: str) -> Iterable[str]:
    for role, named in (
        ("decryptor", roster.decryptors),
        ("helper", roster.helpers),
        ("reader", roster.readers),
    ):
        if member in named:
            yield role
