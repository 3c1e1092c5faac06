"""What the pages show, gathered from the coordinator: nothing that the REST routes do not tell."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import select

from protocol.messages import Roster
from protocol.rest import CohortView, RoundView
from protocol.scheduling import ScheduleView
from service.coordinator import Coordinator
from service.pages.wording import STATES
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
    """One member of a federation, over all versions of its roster.

    Attributes:
        key: its newest public key, in hexadecimal.
        roles: what the roster names it beside a member.
        removed_in: the version of the roster that left it out; None while it is a member.
        cohorts: those that it enrolled in, newest first.
        last_round: the newest round that its upload was in.
    """

    member: str
    key: str
    roles: tuple[str, ...]
    removed_in: int | None
    cohorts: tuple[str, ...] = ()
    last_round: RoundView | None = None


@dataclass(frozen=True)
class Federation:
    """A federation as its page shows it."""

    id: str
    roster: Roster
    people: tuple[Person, ...]
    cohorts: tuple[CohortView, ...]
    rounds: tuple[RoundView, ...] = field(repr=False)
    scheduled: tuple[ScheduleView, ...] = ()

    @property
    def gone(self) -> frozenset[str]:
        """Members of older rosters that the newest leaves out."""
        return frozenset(person.member for person in self.people if person.removed_in is not None)


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
    """One federation, with everybody whom any version of its roster named; PeerFault(not-found)."""
    newest = await here.federations.roster(name)
    await here.catalogue.refresh(name)
    async with here.database.reading() as connection:
        bodies = await connection.execute(
            select(rosters.c.body).where(rosters.c.federation == name).order_by(rosters.c.version)
        )
        versions = [Roster.from_bytes(body) for body in bodies.scalars()]
    cohorts = [cohort.view() for cohort in here.cohorts.values() if cohort.roster.federation.hex() == name]
    rounds = [view for round_ in rounds_of(here) if (view := round_.view()).federation == name]
    return Federation(
        name,
        newest,
        tuple(_people(versions or [newest], cohorts[::-1], rounds)),
        tuple(reversed(cohorts)),
        tuple(rounds),
        tuple([entry for view in cohorts for entry in await here.schedules.of(view.cohort)]),
    )


def _people(versions: list[Roster], cohorts: list[CohortView], rounds: list[RoundView]) -> Iterable[Person]:
    newest = versions[-1]
    keys = {entry.member: entry.key for roster in versions for entry in roster.members}
    current = {entry.member for entry in newest.members}
    cards = [(view.cohort, frozenset(view.cards)) for view in cohorts]
    uploads = [(view, frozenset(view.uploaded)) for view in rounds]
    for member in sorted(keys, key=lambda member: (member not in current, member)):
        yield Person(
            member,
            keys[member].hex(),
            tuple(_roles(newest, member)),
            None if member in current else _left_out_in(versions, member),
            tuple(cohort for cohort, sent in cards if member in sent),
            next((view for view, uploaded in uploads if member in uploaded), None),
        )


def _roles(roster: Roster, member: str) -> Iterable[str]:
    for role, named in (
        ("decryptor", roster.decryptors),
        ("helper", roster.helpers),
        ("reader", roster.readers),
    ):
        if member in named:
            yield role


def _left_out_in(versions: list[Roster], member: str) -> int:
    last = max(
        place for place, roster in enumerate(versions) if member in {entry.member for entry in roster.members}
    )
    return versions[last + 1].version_number
